"""An experiment for images of one's own: every choice with its reason, as a commented TOML file.

What is chosen: the size of the networks and views (by the images and the machine), how long they train, labels, and
which runs are compared. Everything else stays at its default and out of the file.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

from viewkit.pipelines.estimator.config import PRESETS, PresetName
from viewkit.pipelines.experiments.look import Images

CPU_STEPS = 500
"""Steps of a training on a CPU at most."""
CPU_ROUNDS, GPU_ROUNDS = 4, 8
WIDTH = 100


@dataclass(frozen=True)
class Machine:
    """device: the first one that torch finds, e.g. ``cuda:0``. memory_gb: the GPU's, or 0."""

    device: str
    memory_gb: float = 0.0

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True)
class Choice:
    option: str
    value: str | int | float | bool
    why: str


@dataclass(frozen=True)
class Table:
    """A table of the file. off: written as a comment, for the user to switch on."""

    name: str
    why: str
    choices: tuple[Choice, ...] = ()
    off: bool = False


@dataclass(frozen=True)
class Size:
    """How large everything is. preset: of the estimator; arch and side_px: of the runs."""

    preset: PresetName
    arch: str
    side_px: int
    why: str


@dataclass(frozen=True)
class Length:
    """How long a training is. steps: None where all `epochs` fit."""

    batch_size: int
    epochs: int
    steps: int | None
    why: str
    passes: float = field(default=0.0)


def size_for(images: Images, machine: Machine) -> Size:
    """The largest size that the images fill and the machine can train."""
    median, count = images.sides[1], images.usable
    seen = f"the median of the shorter sides is {median} px"
    if not machine.is_gpu:
        return Size("pico-32", "vit_pico_patch8", 32, "there is no GPU: the smallest networks, on views of 32 px")
    if median >= 224 and count >= 100_000 and machine.memory_gb >= 40:
        why = (
            f"{seen}, there are {count:,} images, and {machine.device} has {machine.memory_gb:.0f} GB: the paper's size"
        )
        return Size("vit-s16-224", "resnet50", 224, why)
    if median >= 96 and count >= 20_000:
        return Size("small-96", "resnet18_cifar", 96, f"{seen} and there are {count:,} images")
    if median >= 64:
        return Size("tiny-64", "resnet18_cifar", 64, f"{seen}, for {count:,} images a small network")
    return Size("pico-32", "resnet18_cifar", 32, f"{seen}: larger views would only be blown up")


def length_for(images: Images, machine: Machine, *, batch_size: int, epochs: int) -> Length:
    """batch_size, epochs: what there would be with enough images and time."""
    batch = batch_size
    while batch > 2 and batch * 4 > images.usable:
        batch //= 2
    per_epoch = max(1, images.usable // batch)
    whole = per_epoch * epochs
    if machine.is_gpu or whole <= CPU_STEPS:
        return Length(batch, epochs, None, f"{whole:,} steps of {batch} images", float(epochs))
    why = f"{epochs} passes would be {whole:,} steps; on a CPU {CPU_STEPS} of them. More is better"
    return Length(batch, epochs, CPU_STEPS, why, CPU_STEPS / per_epoch)


def tables_for(images: Images, machine: Machine, *, tested: bool) -> list[Table]:
    """The chain. tested: there are labelled test images, so accuracies are measured at the end."""
    size = size_for(images, machine)
    preset = PRESETS[size.preset]
    length = length_for(images, machine, batch_size=preset.batch_size, epochs=preset.epochs)
    return [
        Table("pack", "Every usable image becomes a row.", tuple(_pack(images))),
        Table(
            "estimator",
            "A small network that judges pairs, trained on these images alone.",
            (Choice("preset", size.preset, f"{size.why}."), *_training(length, preset.batch_size, preset.epochs)),
        ),
        Table(
            "generate",
            "Left out: no run below needs generated views. Without weights of a diffusion model a view is the nearest "
            "other image (retrieval); `viewkit generate --help` says which generators a GPU and weights give. "
            "sign: which end of the component is foreground; skewness takes the rarer one without asking.",
            (Choice("sign", "skewness", ""),),
            off=True,
        ),
        Table(
            "histograms", "What similarities say about pairs; the negatives fit the estimator's batch by themselves."
        ),
        Table("score", "Candidate pairs with their indicators.", (_rounds(machine),)),
        Table("pretrain", "What all runs below share.", tuple(_pretrain(images, machine, size, length))),
        Table("runs.random", "The reference: two random crops, sampled anew every epoch."),
        Table("runs.vs2fi", "Pairs without the likely false and the trivial ones.", (_filter(),)),
        Table(
            "runs.stored",
            "Left out, for it costs one more training: any of the stored pairs. What the filters add is the "
            "difference of vs2fi from this run.",
            (Choice("select", "stored", ""),),
            off=True,
        ),
        _evaluate(images, tested),
        Table("report", "One page about all of it."),
    ]


def _pack(images: Images) -> Iterator[Choice]:
    if images.splits:
        why = f"the source holds {', '.join(images.splits)}: parts of a dataset, no classes. Give one of them as SOURCE"
        yield Choice(
            "labels", "none", f"{why} to train on it alone{'' if images.classes else ' and have its classes'}."
        )
    elif images.labels == "folders":
        yield Choice("labels", "folders", f"the images lie in {images.classes} folders, one a class.")
    elif images.classes:
        yield Choice("labels", "none", f"the source brings its own labels: {images.classes} in the sample.")
    elif images.beside and images.beside < images.count:
        why = f"{images.beside:,} images lie beside the folders; as classes the folders would leave them out."
        yield Choice("labels", "none", why)
    else:
        yield Choice("labels", "none", "no folders that could be classes. Nothing but accuracies needs labels.")
    rows = min(1024, max(64, -(-images.usable // 8)))
    if rows < 1024:
        yield Choice("rows_per_shard", rows, "workers share the work shard by shard: some eight of them, not one.")


def _training(length: Length, batch_size: int, epochs: int) -> Iterator[Choice]:
    if length.steps is not None:
        yield Choice("steps", length.steps, f"{length.why}.")
    else:
        yield Choice("epochs", epochs, f"{length.why}.")
    if length.batch_size != batch_size:
        why = f"{batch_size} would be more than a quarter of the images."
        yield Choice("batch_size", length.batch_size, why)


def _rounds(machine: Machine) -> Choice:
    rounds = GPU_ROUNDS if machine.is_gpu else CPU_ROUNDS
    return Choice("rounds", rounds, "sets of candidate pairs of every image; the runs take another one each epoch.")


def _pretrain(images: Images, machine: Machine, size: Size, length: Length) -> Iterator[Choice]:
    yield Choice("framework", "moco_v3", "the estimator's own; `viewkit pretrain --help` lists the others.")
    yield Choice("arch", size.arch, f"{size.why}.")
    yield Choice("side_px", size.side_px, "of the views; as the estimator's.")
    preset = PRESETS[size.preset]
    for option, value in (("hidden", preset.hidden), ("dim", preset.dim)):
        yield Choice(option, value, "width of the heads; as the estimator's, which fits the network.")
    if size.arch == preset.arch:
        yield Choice("lr", preset.lr, "at 256 images a batch; as the estimator's, which has the same network.")
    yield Choice("policy", "strengthened", "the one that the candidate pairs are sampled by.")
    yield Choice("batch_size", length.batch_size, f"of {images.usable:,} images.")
    if length.steps is not None:
        yield Choice("steps", length.steps, f"{length.why}.")
    else:
        yield Choice("epochs", length.epochs, f"{length.why}.")
    if machine.is_gpu:
        yield Choice("precision", "bf16", "GPUs since 2020 have it, at about twice the speed; else fp32.")
    if images.classes:
        every = max(1, round(length.passes / 5))
        yield Choice("knn_epochs", every, "there are labels: five times a training, the accuracy of neighbours.")


def _filter() -> Choice:
    return Choice("select", "vs2fi", "leaves out the 8 % of all pairs with the lowest consistency (filter_share).")


def _evaluate(images: Images, tested: bool) -> Table:
    if tested:
        return Table(
            "evaluate", "Accuracies on the images of --test.", (Choice("k", "20", "neighbours of the kNN probe."),)
        )
    lack = "it needs labelled test images" if images.classes else "it needs labels, and labelled test images"
    why = f"Left out: {lack}. Switch it on and add --test FOLDER to `viewkit run`."
    return Table("evaluate", why, (Choice("k", "20", ""),), off=True)


def render_toml(title: str, data: str, notes: tuple[str, ...], head: tuple[str, ...], tables: list[Table]) -> str:
    """The file. head: lines of the comment at its top."""
    lines = [f"# {line}".rstrip() for line in head]
    lines += ["", f"title = {_value(title)}", f"data = {_value(data)}"]
    lines += ["notes = [", *(f"    {_value(note)}," for note in notes), "]"] if notes else []
    for table in tables:
        lines += ["", *_comment(table.why)]
        mark = "# " if table.off else ""
        lines.append(f"{mark}[{table.name}]")
        for choice in table.choices:
            lines += _comment(choice.why)
            lines.append(f"{mark}{choice.option} = {_value(choice.value)}")
    return "\n".join([*lines, ""])


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)]


def _value(value: str | int | float | bool) -> str:
    """As TOML writes it; texts hold printable characters only, so JSON's form is TOML's."""
    return json.dumps(value, ensure_ascii=False)
