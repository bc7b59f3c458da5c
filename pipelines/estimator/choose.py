"""Which preset fits: by the number and the side of the images, and by what the machine can train in bearable time."""

from dataclasses import dataclass

from viewkit.pipelines.engine.execution import cores
from viewkit.pipelines.estimator.config import PRESETS, EstimatorConfig, PresetName
from viewkit.pipelines.sides import median_side
from viewkit.shards.dataset import Dataset

SIDE_SLACK = 1.25
"""So much larger than the images may the views of a preset be."""


@dataclass(frozen=True)
class Needs:
    """What a preset asks for. images: at least so many, to be worth its network. cpu, gpu: images it trains a second,
    on one core (measured on a shared one) or on one GPU (cautious)."""

    images: int
    cpu: float
    gpu: float


NEEDS: dict[PresetName, Needs] = {
    "pico-32": Needs(0, 200.0, 10_000.0),
    "tiny-64": Needs(5_000, 15.0, 5_000.0),
    "small-96": Needs(50_000, 1.2, 900.0),
    "vit-s16-224": Needs(500_000, 0.8, 500.0),
}
BEARABLE_S = {"cpu": 4 * 3600.0, "cuda": 7 * 24 * 3600.0}
"""Longest training that is chosen for somebody."""


@dataclass(frozen=True)
class Situation:
    """side_px: median of the images' shorter sides. kind: of the device, cpu or cuda. cores: that may be used."""

    images: int
    side_px: int
    kind: str
    cores: int

    def seconds(self, preset: PresetName, epochs: int) -> float:
        """Roughly, of a training of so many epochs."""
        needs = NEEDS[preset]
        return self.images * epochs / (needs.cpu * self.cores if self.kind == "cpu" else needs.gpu)


def situation_of(dataset: Dataset, device: str) -> Situation:
    """Of the images of a dataset on a device of this machine."""
    images, kind = dataset.column("images"), device.partition(":")[0]
    return Situation(images.num_rows, int(median_side(images) or 0), kind if kind in BEARABLE_S else "cuda", cores())


def choose_preset(config: EstimatorConfig, now: Situation) -> tuple[PresetName, str]:
    """The largest preset that fits, and why, in a line. The smallest fits always."""
    fits = [name for name in PRESETS if not _objection(name, config, now)]
    chosen = fits[-1] if fits else next(iter(PRESETS))
    machine = f"{now.cores} CPU core{'s' if now.cores > 1 else ''}" if now.kind == "cpu" else "a GPU"
    why = f"{now.images} images of {now.side_px} px on {machine}"
    larger = list(PRESETS)[list(PRESETS).index(chosen) + 1 :]
    if larger:
        why += f"; {larger[0]} {_objection(larger[0], config, now)}"
    seconds = now.seconds(chosen, _epochs(chosen, config))
    roughly = "" if config.steps is not None or config.trunk is not None else f"; roughly {_time(seconds)}"
    return chosen, f"preset {chosen} for {why}{roughly} (--preset decides otherwise, --dry-run measures)"


def _objection(name: PresetName, config: EstimatorConfig, now: Situation) -> str:
    """What speaks against a preset; empty for none."""
    least, side = NEEDS[name].images, config.side_px or PRESETS[name].side_px
    if now.images < least:
        return f"is for {least} images or more"
    if side > SIDE_SLACK * now.side_px and name != next(iter(PRESETS)):
        return f"has views of {side} px, larger than the images"
    seconds = now.seconds(name, _epochs(name, config))
    if seconds > BEARABLE_S[now.kind] and config.steps is None and config.trunk is None:
        return f"would take roughly {_time(seconds)}"
    return ""


def _epochs(name: PresetName, config: EstimatorConfig) -> int:
    return config.epochs or PRESETS[name].epochs


def _time(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"
