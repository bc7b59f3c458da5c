"""Which corruptions are measured, and what their errors add up to."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from viewkit.pipelines.evaluate.corruptions.levels import LEVELS, SEVERITIES

ProtocolName = Literal["standard", "dsf"]
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
STANDARD = tuple(name for name in LEVELS if name not in EXTRA)

ALEXNET: Mapping[str, float] = MappingProxyType(
    {
        "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640, "defocus_blur": 0.819880,
        "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360, "snow": 0.866816, "frost": 0.826572,
        "fog": 0.819324, "brightness": 0.564592, "contrast": 0.853204, "elastic_transform": 0.646056,
        "pixelate": 0.717840, "jpeg_compression": 0.606500,
    }
)  # fmt: skip
"""AlexNet's top-1 errors on ImageNet-C, means over severities, with which mCE is defined (Hendrycks & Dietterich
2019)."""


@dataclass(frozen=True)
class Protocol:
    """kinds at severities; every combination is measured. help: for people."""

    kinds: tuple[str, ...]
    severities: tuple[int, ...]
    help: str


PROTOCOLS: Mapping[ProtocolName, Protocol] = MappingProxyType(
    {
        "standard": Protocol(STANDARD, tuple(range(1, SEVERITIES + 1)), "15 corruptions at 5 severities"),
        "dsf": Protocol(
            tuple(name for name in LEVELS if name != "fog"), (1,), "18 corruptions, all but fog, at severity 1 (DSF)"
        ),
    }
)


def summarise(
    errors: Mapping[tuple[str, int], float], protocol: ProtocolName, *, against_alexnet: bool
) -> dict[str, Any]:
    """Errors by corruption, and two means that must not be taken for each other.

    errors: (corruption, severity) -> top-1 error in [0, 1]. ``mce_unnormalised``: the plain mean over corruptions and
    severities, as on CIFAR-10-C and in DSF. ``mce_alexnet``: of every corruption the errors summed over severities,
    divided by AlexNet's, then the mean (Hendrycks & Dietterich 2019, eq. 1), which only the standard protocol has;
    None elsewhere. against_alexnet: the images are ImageNet's, corrupted with its parameters.
    """
    shown = PROTOCOLS[protocol]
    by_kind = {kind: [errors[kind, severity] for severity in shown.severities] for kind in shown.kinds}
    relative = None
    if protocol == "standard" and against_alexnet:
        relative = float(np.mean([np.mean(by_kind[kind]) / ALEXNET[kind] for kind in shown.kinds]))
    return {
        "errors": by_kind,
        "mce_unnormalised": float(np.mean([np.mean(values) for values in by_kind.values()])),
        "mce_alexnet": relative,
    }
