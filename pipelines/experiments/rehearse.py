"""An experiment in miniature: the same chain of stages with the same options, on small networks and for a few steps.

What decides whether a chain works is kept: which stages run and in which order, selections, weights, losses, policies,
probes, columns. What only decides how long it takes is made smaller. What needs weights that nobody may have yet is
replaced: a diffusion generator by `retrieval`, an encoder from elsewhere by a tiny untrained one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from viewkit.pipelines.encoders.names import encoder_card
from viewkit.pipelines.experiments.experiment import Experiment, Options
from viewkit.pipelines.frameworks.table import card_of
from viewkit.pipelines.models.architectures import kind_of
from viewkit.pipelines.pack.config import MOSAIC_OPTIONS, PARQUET_OPTIONS
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.weights.cards import GENERATORS

SIDE_PX = 32
CROPS_PX = 56
"""Side of large crops: at 56 px the small ones have 24, and both are whole patches of 8."""
STEPS = 3
BATCH = 8
TRAIN_IMAGES, TEST_IMAGES = 48, 24
TINY = {"vit": "vit_pico_patch8", "resnet": "resnet10_narrow"}
TINY_ENCODERS = {"timm:": "timm:test_vit/random", "open_clip:": "timm:test_convnext/random"}
"""Encoders from elsewhere, by the beginning of their names -> what stands in for them."""
LARGEST = {
    "hidden": 32, "dim": 16, "bottleneck": 16, "prototypes": 24, "queue_length": 16, "bn_splits": 2, "comparisons": 12,
    "prototype_freeze_steps": 1, "teacher_warmup_epochs": 0.1, "last_freeze_epochs": 0.1, "queue_start_epochs": 0.0,
}  # fmt: skip
"""Options of frameworks and selections that only cost time and memory, and the largest value in a rehearsal."""
DIFFUSION = ("steps", "guidance", "guidance_start", "guidance_stop", "guidance_rescale", "solver", "render_px")
"""Options of `generate` that only a diffusion generator has."""


@dataclass(frozen=True)
class Rehearsal:
    """experiment: the miniature. replaced: what stands in for something else, in words, each once."""

    experiment: Experiment
    replaced: tuple[str, ...]


def rehearsal_of(experiment: Experiment) -> Rehearsal:
    """The miniature of an experiment; a pure function."""
    replaced: dict[str, None] = {}

    def tell(text: str) -> None:
        replaced[text] = None

    def small(stage: str, options: Options) -> dict[str, Any]:
        given = {name: value for name, value in options.items() if name not in LEFT_OUT}
        return SMALLER.get(stage, _unchanged)(given, tell)

    stages = {stage: tuple(small(stage, table) for table in tables) for stage, tables in experiment.stages.items()}
    if "pretrain" in experiment.stages and not experiment.runs:
        experiment = replace(experiment, runs={"default": {}})  # as the chain has it
    runs = {name: _pretrain(experiment.run_options(name), tell) for name in experiment.runs}
    if runs:
        stages["pretrain"] = ({},)
    return Rehearsal(replace(experiment, stages=stages, runs=runs, needs={}, published=()), tuple(replaced))


LEFT_OUT = (
    "weights",
    "encoder_weights",
    "autoencoder",
    "trunk",
    "trunk_weights",
    "from_dataset",
    "compile",
    "micro_batch",
    "tensorboard",
)
"""Options that a miniature has no use for."""

Tell = Callable[[str], None]


def _unchanged(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    return dict(options)


def _at_most(options: Mapping[str, Any], **largest: Any) -> dict[str, Any]:
    return {**options, **{name: min(options.get(name, most), most) for name, most in largest.items()}}


def _encoder(name: str, tell: Tell) -> str:
    """The encoder, or what stands in for one whose weights come from elsewhere."""
    if encoder_card(name).weights in ("artifact", "none"):
        return name
    prefix = next((prefix for prefix in TINY_ENCODERS if name.startswith(prefix)), "timm:")
    tell(f"{TINY_ENCODERS[prefix]} for the encoder {name}")
    return TINY_ENCODERS[prefix]


def _pack(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The rehearsal's images lie in a folder a class; there are as many mosaics as images."""
    left_out = ("mosaics", "same_class", *PARQUET_OPTIONS)
    kept = {name: value for name, value in options.items() if name not in left_out}
    if any(name in MOSAIC_OPTIONS for name in kept):
        kept["part_px"] = SIDE_PX  # images of any size
    return {**kept, "rows_per_shard": 16, "labels": "folders"}


def _estimator(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name not in ("num_heads", "epochs", "knn_epochs")}
    return {
        **kept, "preset": "pico-32", "arch": TINY[kind_of(str(options.get("arch") or "vit"))], "side_px": SIDE_PX,
        "steps": STEPS, "warmup_epochs": 0.0, "batch_size": BATCH, "hidden": 32, "dim": 16,
    }  # fmt: skip


def _foreground(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    small = _at_most({name: value for name, value in options.items() if name != "side_px"}, sample=TRAIN_IMAGES)
    if options.get("of") == "views":
        small["sign"] = "+"
    if "encoder" in options:
        small["encoder"] = _encoder(options["encoder"], tell)
    return small


def _fidelity(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    small = _at_most(options, sample=TRAIN_IMAGES)
    return small | ({"encoder": _encoder(options["encoder"], tell)} if "encoder" in options else {})


def _generator(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    judge = {"judge": _encoder(options["judge"], tell)} if "judge" in options else {}
    kept = {name: value for name, value in options.items() if name != "autoencoder_steps"}
    return {
        **kept, **judge, "preset": "pico-32", "width": 16, "steps": STEPS, "batch_size": BATCH, "held_out": 8,
        "views": 2, "sampling_steps": 1, "precision": "fp32",
    }  # fmt: skip


def _generate(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    small = {**_foreground(options, tell), "sign": "+"}
    if "subset" in small:
        small["subset"] = TRAIN_IMAGES // 2
    generator = options.get("generator", "retrieval")
    if GENERATORS[generator].needs_weights:
        tell(f"retrieval for the generator {generator}")
        left_out = (*DIFFUSION, "batch_size")
        small = {name: value for name, value in small.items() if name not in left_out}
        small |= {"generator": "retrieval", "encoder": small.get("encoder", TINY_ENCODERS["timm:"])}
    elif generator == "own":
        small = {name: value for name, value in small.items() if name != "speed"} | {"steps": 2}
    return small


def _histograms(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    return {**_at_most(options, images=TRAIN_IMAGES), "negatives": BATCH - 1}


def _rounds(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    return _at_most(options, rounds=2)


def _quality(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    return {**_foreground(options, tell), "sign": "+"}


def _audit(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    small = _at_most(options, images=16, rounds=2)
    return small | ({"encoder": _encoder(options["encoder"], tell)} if "encoder" in options else {})


def _pretrain(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in options.items()
        if name not in ("num_heads", "knn_epochs", *(each for each in LEFT_OUT if each != "weights"))
    }
    kind = kind_of(str(options.get("arch", PretrainConfig.arch)))
    side_px = int(options.get("side_px", SIDE_PX))
    crops = card_of(str(options.get("framework", PretrainConfig.framework))).traits.multi_crop
    small = {
        **kept, "arch": TINY[kind], "side_px": CROPS_PX if crops else SIDE_PX, "steps": STEPS, "warmup_epochs": 0.0,
        "batch_size": BATCH, "precision": "fp32",
    }  # fmt: skip
    if options.get("select_side_px"):
        small["select_side_px"] = max(8, round(SIDE_PX * options["select_side_px"] / side_px / 8) * 8)
    own = card_of(str(options.get("framework", PretrainConfig.framework))).options_on(kind)
    values = {option.name: value for option, value in own.items()} | kept
    names = [name for name in LARGEST if name in values and values[name] is not None]
    return small | {name: type(values[name])(min(values[name], LARGEST[name])) for name in names}


def _evaluate(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    rates = str(options.get("rates", "0.1,1")).split(",")[:2]
    small = _at_most(
        options, max_iterations=5, epochs=1, tune_epochs=1, batch_size=BATCH, tune_batch_size=BATCH, seeds=1
    )
    small.pop("train", None)  # the rehearsal's own images have classes
    if "encoder" in options:
        small["encoder"] = _encoder(options["encoder"], tell)
    return {**small, "rates": ",".join(rates)}


def _compare(options: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Two seeds; of several lengths two."""
    lengths = options.get("lengths")
    several = lengths is not None and len(lengths if isinstance(lengths, list) else str(lengths).split(",")) > 1
    return {**options, "seeds": 2, "lengths": f"{STEPS},{2 * STEPS}" if several else str(STEPS)}


SMALLER: Mapping[str, Callable[[Mapping[str, Any], Tell], dict[str, Any]]] = {
    "pack": _pack,
    "estimator": _estimator,
    "generator": _generator,
    "foreground": _foreground,
    "generate": _generate,
    "fidelity": _fidelity,
    "histograms": _histograms,
    "draw": _rounds,
    "score": _rounds,
    "quality": _quality,
    "audit": _audit,
    "evaluate": _evaluate,
    "compare": _compare,
}
"""Command -> its options in miniature. A stage that is not here runs with the options of the file."""
