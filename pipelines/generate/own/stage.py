"""`viewkit generator`: train a generator of views on the dataset's images, and measure what it is worth."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch.optim import Optimizer

from viewkit.pipelines.distributed import barrier, is_main, share_of_batch
from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.generate.generators.own import Own
from viewkit.pipelines.generate.generators.sampling import Guidance, Sampling
from viewkit.pipelines.generate.levels import MEASURED
from viewkit.pipelines.generate.measures.calibration import five_levels
from viewkit.pipelines.generate.measures.table import doubts, table_lines
from viewkit.pipelines.generate.noising import NoiseSpace, squared_cosine
from viewkit.pipelines.generate.own import autoencoding
from viewkit.pipelines.generate.own.autoencoder import (
    autoencoder_digests,
    latent_shape,
    load_autoencoder,
    reconstruction_db,
)
from viewkit.pipelines.generate.own.choose import (
    MIN_IMAGES,
    check_batch,
    check_images,
    choose_preset,
    fitting_batch,
    num_trained,
)
from viewkit.pipelines.generate.own.config import CONDITION, PRESETS, GeneratorConfig, GeneratorSettings, resolve
from viewkit.pipelines.generate.own.denoiser import Denoiser
from viewkit.pipelines.generate.own.evaluation import Evaluation, shown
from viewkit.pipelines.generate.own.facts import FACTS, GeneratorFacts
from viewkit.pipelines.generate.own.latents import weights_of, with_latents, write_latents
from viewkit.pipelines.generate.own.network import check_shape, create_unet, save_folder
from viewkit.pipelines.generate.own.prepared import SCRATCH, Prepared, open_prepared, prepare_images, to_floats
from viewkit.pipelines.generate.own.shuffled import on_device
from viewkit.pipelines.generate.own.source import NoisedImages, Noiser, sample_draws
from viewkit.pipelines.training.cost import count_step
from viewkit.pipelines.training.loop import CHECKPOINT, time_steps, train
from viewkit.pipelines.training.monitoring import LOG_EVERY, Monitoring
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.presets import settled_precision, settled_preset
from viewkit.pipelines.training.schedules import Schedule, decided
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import make_folder, write_atomic

WARMUP_SHARE = 0.05
WEIGHT_DECAY = 0.01
PROBES = 8
"""So often, on the way, the loss of held-out images is measured and a sheet of views is made."""
ON_THE_WAY = (0, 400, 800, 999)
"""Levels of these sheets."""
SHEETS, SHEET = "samples", "samples.png"
SHOWN_IMAGES, SHOWN_ON_THE_WAY = 8, 4
RECONSTRUCTED = 16
"""Held-out images that the autoencoder is measured on, at most."""


class GeneratorStage(FitStage[GeneratorConfig]):
    """Writes the parts of diffusers that `generate --generator own` samples from, what was measured, and sheets.

    autoencoder: folder of a trained one, whose latents are taken; None to train one where the preset works in latents.
    """

    name: ClassVar[str] = "generator"
    writes: ClassVar[str] = "generator"
    resumes: ClassVar[bool] = True
    trains: ClassVar[bool] = True
    distributed: ClassVar[bool] = True
    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl", autoencoding.FILES.metrics, "tensorboard", SHEETS)
    scratch: ClassVar[tuple[str, ...]] = (str(Path(CHECKPOINT).parent), SCRATCH)
    remade: ClassVar[tuple[str, ...]] = (SCRATCH,)
    shown_as: ClassVar[str] = "generator"
    holds: ClassVar[Mapping[str, str]] = {
        "unet/config.json": "of the UNet2DConditionModel of diffusers",
        "unet/diffusion_pytorch_model.safetensors": "moving average of its weights",
        "image_normalizer/config.json": "width of the embedding",
        "image_normalizer/diffusion_pytorch_model.safetensors": "mean and std [1 d] of the embeddings trained on",
        "vae/config.json": "of the AutoencoderKL of diffusers, above 64 px",
        "vae/diffusion_pytorch_model.safetensors": "its weights",
        "scheduler/scheduler_config.json": "the solver, and the noise on pixels or latents",
        "image_noising_scheduler/scheduler_config.json": "the noise on embeddings, levels 0 ... 999",
        FACTS: "side in px; the estimator's fingerprint; table of quality by level; calibration and the five levels",
        SHEET: "held-out images, and a view of each at every level of the table",
        "metrics.jsonl": "a line every few steps: loss, held-out loss, learning rate, images/s",
        "autoencoder.jsonl": "the same of the autoencoder's training",
    }

    def __init__(self, autoencoder: Path | None = None) -> None:
        self.autoencoder = autoencoder

    def reads(self, config: GeneratorConfig) -> tuple[str, ...]:
        return ("images", CONDITION, *encoder_reads(config.judge))

    def for_images(self, config: GeneratorConfig, dataset: Dataset, device: str) -> GeneratorConfig:
        """A preset "auto" decided: the one of the generator that is there or was begun, else what fits; and unless one
        is given a batch that few images fill."""
        config = replace(config, precision=settled_precision(config.precision, dataset, self.writes, device))
        if config.preset == "auto":
            settled = settled_preset(dataset, self.writes, PRESETS)
            config = replace(config, preset=settled or choose_preset(dataset.column("images"), device)[0])
        if not dataset.is_column("images"):
            return config
        assert config.preset != "auto"
        return replace(config, batch_size=fitting_batch(dataset.column("images"), config, config.preset))

    def advice(self, config: GeneratorConfig, dataset: Dataset, device: str) -> list[str]:
        if config.preset != "auto" or dataset.is_artifact(self.writes) or not dataset.is_column("images"):
            return []
        return [choose_preset(dataset.column("images"), device)[1]]

    def settings(self, config: GeneratorConfig) -> dict[str, Any]:
        return settings_of(config).values()

    def check(self, config: GeneratorConfig) -> None:
        if self.autoencoder is None or config.preset == "auto":
            return
        if not PRESETS[config.preset].autoencoder:
            raise ConfigError(f"--autoencoder is given, and preset {config.preset} works in pixels; take one of 128 px")
        if config.autoencoder_steps is not None:
            raise ConfigError("--autoencoder names a trained one, and --autoencoder-steps trains one; leave one out")

    def inputs(self, config: GeneratorConfig, dataset: Dataset) -> Mapping[str, str]:
        self.check(config)
        return {
            **super().inputs(config, dataset),
            **encoder_inputs(config.judge, None, None),
            **autoencoder_digests(self.autoencoder),
        }

    def fit(self, config: GeneratorConfig, run: Run) -> Mapping[str, Any]:
        settings = settings_of(config)
        self._check(settings, run.dataset)
        encoder = open_encoder(CONDITION, run.dataset, device=run.device)
        if is_main():
            prepare_images(run, encoder, settings.side_px)
        barrier()  # the others read what the main process writes
        prepared = open_prepared(run, settings.held_out, MIN_IMAGES)
        autoencoder = None
        if settings.autoencoder:
            autoencoder = self._trained_autoencoder(settings, prepared, run)
            if is_main():
                write_latents(run, autoencoder, prepared, scaled=self.autoencoder is None)
            barrier()
            prepared = with_latents(run, autoencoder, prepared)
        denoiser, optimiser, source, schedule = prepare(settings, prepared, run)
        own = own_of(denoiser, autoencoder, prepared, encoder, settings, run.device)
        evaluation = Evaluation(own, prepared, run)
        monitoring = Monitoring(
            probe=Probe(settings, prepared, evaluation, run.device),
            probe_steps=max(LOG_EVERY, schedule.steps // PROBES),
            tensorboard=settings.tensorboard,
        )
        last = train(
            denoiser,
            optimiser,
            source,
            schedule,
            run,
            {
                "stage": self.name,
                **settings.values(),
                **({} if autoencoder is None else {"latents": weights_of(autoencoder)}),
            },
            monitoring=monitoring,
        )
        numbers: dict[str, Any] = {}
        if is_main():
            numbers = measure(settings, denoiser, autoencoder, evaluation, encoder, last)
        cost = count_step(denoiser, optimiser, source, schedule, run.device)
        if settings.autoencoder and self.autoencoder is None:
            cost |= autoencoding.counted_training(settings, prepared, run)
        return {**numbers, **cost} if is_main() else {}

    def _check(self, settings: GeneratorSettings, dataset: Dataset) -> None:
        """Before hours of work: images, batch, and the autoencoder that is given."""
        images = dataset.column("images")
        check_images(images)
        share_of_batch(settings.batch_size)  # says whether the batch can be dealt out
        check_batch(settings.batch_size, num_trained(images.num_rows, settings.held_out))
        if self.autoencoder is not None:
            check_shape(settings, latent_shape(load_autoencoder(self.autoencoder), settings.side_px))

    def _trained_autoencoder(self, settings: GeneratorSettings, prepared: Prepared, run: Run) -> Any:
        """In fp32, on the device."""
        if self.autoencoder is None:
            return autoencoding.train_autoencoder(settings, prepared, run)
        return load_autoencoder(self.autoencoder).to(device=run.device, memory_format=torch.channels_last)

    def plan(self, config: GeneratorConfig, run: Run) -> Mapping[str, Any]:
        settings = settings_of(config)
        self._check(settings, run.dataset)
        rows, width = settings.batch_size, open_encoder(CONDITION, run.dataset, device=run.device).width
        pixels = np.zeros((rows, settings.side_px, settings.side_px, 3), np.uint8)
        statistics = torch.zeros(width), torch.ones(width)
        places = np.arange(rows)
        blank = Prepared(pixels, np.zeros((rows, width), np.float32), places, places[:0], *statistics)
        first_s = 0.0
        if settings.autoencoder:
            shape, first_s = self._plan_autoencoder(settings, blank, run)
            blank = replace(blank, latents=np.zeros((rows, 2, *shape), np.float16))
        denoiser, optimiser, source, schedule = prepare(settings, blank, run)
        step_s = time_steps(denoiser, optimiser, source, schedule, run.device)
        return {
            "rows": run.dataset.column("images").num_rows,
            "steps": settings.steps,
            "step_s": round(step_s, 4),
            "estimated_s": round(step_s * settings.steps + first_s, 1),
        }

    def _plan_autoencoder(
        self, settings: GeneratorSettings, blank: Prepared, run: Run
    ) -> tuple[tuple[int, int, int], float]:
        """Shape of the latents, and seconds of the autoencoder's training."""
        if self.autoencoder is not None:
            return latent_shape(load_autoencoder(self.autoencoder), settings.side_px), 0.0
        learning, optimiser, source, schedule = autoencoding.prepare_autoencoding(settings, blank, run)
        step_s = time_steps(learning, optimiser, source, schedule, run.device)
        return latent_shape(learning.autoencoder, settings.side_px), step_s * schedule.steps


def settings_of(config: GeneratorConfig) -> GeneratorSettings:
    """Of a config whose preset is decided."""
    assert config.preset != "auto"
    return resolve(config, config.preset)


def prepare(
    settings: GeneratorSettings, prepared: Prepared, run: Run
) -> tuple[Denoiser, Optimizer, NoisedImages, Schedule]:
    """Everything the loop needs. `ConfigError` where so many images cannot be used that a batch is not filled."""
    check_batch(settings.batch_size, len(prepared.train))
    denoiser = Denoiser(create_unet(settings, prepared.width, prepared.shape), compiled=settings.compile)
    denoiser.to(device=run.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    schedule = Schedule(
        steps=settings.steps,
        warmup_steps=int(WARMUP_SHARE * settings.steps),
        peak_lr=settings.lr,
        seed=settings.seed,
        precision=decided(settings.precision),
    )
    optimiser = create_optimiser("adamw", denoiser.groups(WEIGHT_DECAY))
    return denoiser, optimiser, NoisedImages(prepared, run, settings.batch_size), schedule


def own_of(
    denoiser: Denoiser,
    autoencoder: Any | None,
    prepared: Prepared,
    encoder: Encoder,
    settings: GeneratorSettings,
    device: str,
) -> Own:
    """The moving average as a generator, sampled as `generate` would."""
    sampling = Sampling(Guidance(settings.guidance), settings.sampling_steps, output_px=settings.side_px)
    return Own.of_networks(denoiser.average, autoencoder, prepared.mean, prepared.std, encoder, sampling, device)


class Probe:
    """On the way: the loss of the held-out images, always with the same noise, and a sheet of their views."""

    def __init__(self, settings: GeneratorSettings, prepared: Prepared, evaluation: Evaluation, device: str) -> None:
        self.evaluation = evaluation
        held = prepared.held
        draws = sample_draws(evaluation.run.generator("held out"), len(held), prepared.width, prepared.shape)
        embedding = torch.from_numpy(prepared.embeddings[held])
        noiser = Noiser(NoiseSpace(prepared.mean, prepared.std, squared_cosine()))
        self.batch = on_device(noiser.batch(prepared.learnt(held, draws.flipped), embedding, draws), device)

    def __call__(self, denoiser: Denoiser) -> Mapping[str, float]:
        folder = self.evaluation.run.folder / SHEETS
        make_folder(folder)
        denoiser.average.eval()
        sheet = encode_png(self.evaluation.sheet(SHOWN_ON_THE_WAY, ON_THE_WAY))
        write_atomic(folder / f"{denoiser.step:06}.png", sheet)
        return {"held_out_loss": float(denoiser.average_loss(self.batch.views, self.batch.targets))}


def measure(
    settings: GeneratorSettings,
    denoiser: Denoiser,
    autoencoder: Any | None,
    evaluation: Evaluation,
    encoder: Encoder,
    last: Mapping[str, float | int],
) -> dict[str, Any]:
    """Measure the generator, write all files, say what speaks against it; returns the numbers worth showing."""
    run, prepared = evaluation.run, evaluation.prepared
    denoiser.average.eval()
    precision = resolve_precision("auto", run.device, settings.judge)
    judge = open_encoder(settings.judge, run.dataset, device=run.device, precision=precision)
    rows = [row.numbers() for row in evaluation.rows(judge, settings.views)]
    calibration = evaluation.calibration()
    numbers = {
        "steps": settings.steps,
        "loss": round(float(last["loss"]), 5),
        "images": len(prepared.train),
        "held_out": len(prepared.held),
        "weights": sum(each.numel() for each in denoiser.unet.parameters()),
        "judge": settings.judge,
        "guidance": settings.guidance,
        "sampling_steps": settings.sampling_steps,
    }
    if autoencoder is not None:
        held = prepared.held[:RECONSTRUCTED]
        images = to_floats(prepared.pixels[held]).to(run.device, memory_format=torch.channels_last)
        numbers["latents"] = list(prepared.shape)
        numbers["reconstruction_db"] = round(reconstruction_db(autoencoder, images), 2)
    for doubt in doubts(rows):
        run.progress.message(f"generator: {doubt}")
    save_folder(run.folder, denoiser.average, prepared.mean, prepared.std, autoencoder)
    write_atomic(run.folder / SHEET, encode_png(evaluation.sheet(SHOWN_IMAGES, MEASURED)))
    levels = five_levels(calibration)
    GeneratorFacts(settings.side_px, encoder.fingerprint(), levels, shown(calibration), rows, numbers).write(run.folder)
    return {**numbers, "levels": levels, "table": rows}


def summary_lines(dataset: Dataset) -> list[str]:
    """The table and the calibrated levels, for the end of `viewkit generator`."""
    facts = GeneratorFacts.read(dataset.artifact("generator"))
    numbers = facts.numbers
    return [
        *table_lines(facts.table),
        f"{numbers['held_out']} held-out images, judged by {numbers['judge']}, guidance {numbers['guidance']:g}, "
        f"{numbers['sampling_steps']} steps",
        *([f"autoencoder: {numbers['reconstruction_db']} dB on held-out images"] if "latents" in numbers else []),
        "recognised: " + ", ".join(f"{share:.0%} at {level}" for level, share in _few(facts.calibration)),
        f"calibrated levels: {', '.join(map(str, facts.levels))} ('viewkit generate --strategy calibrated')",
    ]


def _few(calibration: Mapping[str, float]) -> list[tuple[int, float]]:
    """Every fourth level, in order."""
    return sorted((int(level), share) for level, share in calibration.items())[::4]
