"""Errors of fitted probes on corrupted test images: made here, or the published arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import UNIT_STD, ZERO_MEAN, FeatureExtractor
from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.evaluate.corruptions.arrays import CorruptedArrays
from viewkit.pipelines.evaluate.corruptions.levels import SIDES_PX, LevelSet
from viewkit.pipelines.evaluate.corruptions.protocol import PROTOCOLS, ProtocolName, summarise
from viewkit.pipelines.evaluate.corruptions.table import corrupt
from viewkit.pipelines.evaluate.features import BATCH, extract_features, render_squares
from viewkit.pipelines.evaluate.labelled import Labelled
from viewkit.pipelines.pairs.samples import Sample
from viewkit.shards.errors import ConfigError, DataError

Scorer = Callable[[Float[Tensor, "n d"]], Float[np.ndarray, "n c"]]
"""Features -> class scores, by a probe that is fitted already."""
THREADS = 4
IMAGENET_CLASSES = 1000


def level_set(given: LevelSet | None, side_px: int) -> LevelSet:
    """The parameters that are meant for images of this side, unless named. `ConfigError` where there are none."""
    if given is not None:
        return given
    for name, side in SIDES_PX.items():
        if side == side_px:
            return name
    raise ConfigError(
        f"evaluate: corruptions are published for images of {', '.join(map(str, SIDES_PX.values()))} px and the run "
        f"takes {side_px} px; say whose parameters with --corruption-set {', '.join(SIDES_PX)}"
    )


@dataclass(frozen=True)
class CorruptedTest:
    """The corrupted versions of a test set. classes: the class numbers, in the order of the probes' scores.

    arrays: the published images, in place of `test`'s corrupted here, which depend on (seed, key, corruption,
    severity) alone. levels: whose parameters, of images corrupted here.
    """

    test: Labelled
    classes: Sequence[int]
    levels: LevelSet | None
    seed: int
    arrays: CorruptedArrays | None = None

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """Class of every image, 0 ... c - 1. `DataError` where the arrays have classes of their own."""
        labels = self.test.labels if self.arrays is None else self.arrays.labels()
        if len(other := np.setdiff1d(labels, self.classes)):
            raise DataError(
                f"evaluate: the corrupted images are of class {other[0]}, which no training image has; pack the "
                "training images with the numbers of the published ones (folders in alphabetical order)"
            )
        return np.searchsorted(np.asarray(self.classes), labels)

    @property
    def of_imagenet(self) -> bool:
        """Whether these are ImageNet-C's images, to whose errors AlexNet's are known. The published arrays that can be
        read are of 32 px."""
        return self.levels == "imagenet" and len(self.classes) == IMAGENET_CLASSES

    def samples(self, kind: str, severity: int) -> Iterator[Sample]:
        if self.arrays is not None:
            for number, image in enumerate(self.arrays.images(kind, severity)):
                yield Sample(str(number), torch.from_numpy(image))
            return
        assert self.levels is not None
        with ThreadPoolExecutor(THREADS, thread_name_prefix="corrupt") as pool:
            for batch in batches(self.test.samples(), BATCH):
                squares = render_squares([each.image for each in batch], SIDES_PX[self.levels], ZERO_MEAN, UNIT_STD)
                pixels = (squares * 255 + 0.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
                waiting = [
                    pool.submit(corrupt, image, kind, severity, levels=self.levels, seed=self.seed, key=sample.key)
                    for image, sample in zip(pixels, batch, strict=True)
                ]
                for sample, one in zip(batch, waiting, strict=True):
                    yield Sample(sample.key, torch.from_numpy(np.ascontiguousarray(one.result())))


def errors_on(
    images: CorruptedTest,
    kind: str,
    severities: Sequence[int],
    encoders: Mapping[str, FeatureExtractor],
    scorers: Mapping[str, Mapping[str, Scorer]],
    device: str,
) -> list[dict[str, Any]]:
    """Top-1 error of every encoder's every fitted probe on one corruption: encoder, probe, kind, severity, error."""
    found, labels = [], images.labels
    for severity in severities:
        features = extract_features(images.samples(kind, severity), encoders, pixels_px=None, device=device)
        for name, own in scorers.items():
            for probe, scorer in own.items():
                wrong = scorer(features[name]).argmax(axis=1) != labels
                found.append(
                    {"encoder": name, "probe": probe, "kind": kind, "severity": severity, "error": float(wrong.mean())}
                )
    return found


def corruption_results(
    found: Sequence[Mapping[str, Any]], protocol: ProtocolName, *, against_alexnet: bool
) -> dict[str, Any]:
    """Encoder -> probe -> its errors and what they add up to (`summarise`)."""
    errors: dict[str, dict[str, dict[tuple[str, int], float]]] = {}
    for each in found:
        own = errors.setdefault(each["encoder"], {}).setdefault(each["probe"], {})
        own[each["kind"], each["severity"]] = each["error"]
    return {
        name: {probe: summarise(one, protocol, against_alexnet=against_alexnet) for probe, one in own.items()}
        for name, own in errors.items()
    }


def describe_corruptions(protocol: ProtocolName, levels: LevelSet | None, arrays: Path | None) -> str:
    """A sentence for the report."""
    assert (levels is None) != (arrays is None)
    made = (
        f"made from the test images at {SIDES_PX[levels]} px with the parameters of the {levels} set; frost is drawn, "
        "not photographed"
        if levels is not None
        else "the published arrays as they are"
    )
    return f"{PROTOCOLS[protocol].help}; {made}; probes fitted on clean training images"
