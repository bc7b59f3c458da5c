"""Parameters of every corruption at severities 1 ... 5, in the three sets that were published with it.

CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C are made with different numbers (Hendrycks & Dietterich 2019, and the
programs that made the published files). Images of 32 px corrupted with ImageNet's numbers are unrecognisable.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

LevelSet = Literal["cifar", "tiny", "imagenet"]
SIDES_PX: Mapping[LevelSet, int] = MappingProxyType({"cifar": 32, "tiny": 64, "imagenet": 224})
"""Side of the images that a set is meant for; what is corrupted has it."""
SEVERITIES = 5


def _zooms(step: float, *ends: float) -> tuple[Any, ...]:
    return tuple(np.arange(1, end, step) for end in ends)


LEVELS: Mapping[str, Mapping[LevelSet, tuple[Any, ...]]] = MappingProxyType(
    {
        # standard deviation
        "gaussian_noise": {
            "cifar": (0.04, 0.06, 0.08, 0.09, 0.10),
            "tiny": (0.04, 0.08, 0.12, 0.15, 0.18),
            "imagenet": (0.08, 0.12, 0.18, 0.26, 0.38),
        },
        # photons at full brightness
        "shot_noise": {
            "cifar": (500, 250, 100, 75, 50),
            "tiny": (250, 100, 50, 30, 15),
            "imagenet": (60, 25, 12, 5, 3),
        },
        # share of values replaced by 0 or 1
        "impulse_noise": {
            "cifar": (0.01, 0.02, 0.03, 0.05, 0.07),
            "tiny": (0.01, 0.02, 0.05, 0.08, 0.14),
            "imagenet": (0.03, 0.06, 0.09, 0.17, 0.27),
        },
        # standard deviation, relative to the value
        "speckle_noise": {
            "cifar": (0.06, 0.1, 0.12, 0.16, 0.2),
            "tiny": (0.15, 0.2, 0.25, 0.3, 0.35),
            "imagenet": (0.15, 0.2, 0.35, 0.45, 0.6),
        },
        # sigma, px
        "gaussian_blur": {
            "cifar": (0.4, 0.6, 0.7, 0.8, 1),
            "tiny": (0.5, 0.75, 1, 1.25, 1.5),
            "imagenet": (1, 2, 3, 4, 6),
        },
        # sigma, largest displacement in px, rounds
        "glass_blur": {
            "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
            "tiny": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
            "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        },
        # radius of the disk in px, sigma that softens its edge
        "defocus_blur": {
            "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
            "tiny": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
            "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        },
        # radius and sigma, px
        "motion_blur": {
            "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
            "tiny": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
            "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        },
        # factors that are averaged; ends as in numpy.arange, whose rounding decides how many there are
        "zoom_blur": {
            "cifar": _zooms(0.01, 1.06, 1.11, 1.16, 1.21, 1.26),
            "tiny": _zooms(0.01, 1.06, 1.11, 1.16, 1.21, 1.26),
            "imagenet": (*_zooms(0.01, 1.11, 1.16), *_zooms(0.02, 1.21, 1.26), *_zooms(0.03, 1.31)),
        },
        # strength, decay of the clouds' detail
        "fog": {
            "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
            "tiny": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
            "imagenet": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        },
        # weight of the image, weight of the frost
        "frost": {
            "cifar": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
            "tiny": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
            "imagenet": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        },
        # mean, deviation, zoom and threshold of the flakes; radius and sigma of their blur; weight of the image
        "snow": {
            "cifar": (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ),
            "tiny": (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
            ),
            "imagenet": (
                (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
                (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
            ),
        },
        # mean, deviation, sigma and threshold of the drops; strength (water) or softness (mud); 0 water, 1 mud
        "spatter": {
            "cifar": (
                (0.62, 0.1, 0.7, 0.7, 0.5, 0),
                (0.65, 0.1, 0.8, 0.7, 0.5, 0),
                (0.65, 0.3, 1, 0.69, 0.5, 0),
                (0.65, 0.1, 0.7, 0.69, 0.6, 1),
                (0.65, 0.1, 0.5, 0.68, 0.6, 1),
            ),
            "tiny": (
                (0.62, 0.1, 0.7, 0.7, 0.6, 0),
                (0.65, 0.1, 0.8, 0.7, 0.6, 0),
                (0.65, 0.3, 1, 0.69, 0.6, 0),
                (0.65, 0.1, 0.7, 0.68, 0.6, 1),
                (0.65, 0.1, 0.5, 0.67, 0.6, 1),
            ),
            "imagenet": (
                (0.65, 0.3, 4, 0.69, 0.6, 0),
                (0.65, 0.3, 3, 0.68, 0.6, 0),
                (0.65, 0.3, 2, 0.68, 0.5, 0),
                (0.65, 0.3, 1, 0.65, 1.5, 1),
                (0.67, 0.4, 1, 0.65, 1.5, 1),
            ),
        },
        # added to the value of HSV
        "brightness": {
            "cifar": (0.05, 0.1, 0.15, 0.2, 0.3),
            "tiny": (0.1, 0.2, 0.3, 0.4, 0.5),
            "imagenet": (0.1, 0.2, 0.3, 0.4, 0.5),
        },
        # factor around the channel's mean
        "contrast": {
            "cifar": (0.75, 0.5, 0.4, 0.3, 0.15),
            "tiny": (0.4, 0.3, 0.2, 0.1, 0.05),
            "imagenet": (0.4, 0.3, 0.2, 0.1, 0.05),
        },
        # factor and summand of the saturation of HSV
        "saturate": {
            "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
            "tiny": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
            "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        },
        # quality
        "jpeg_compression": {
            "cifar": (80, 65, 58, 50, 40),
            "tiny": (65, 58, 50, 40, 25),
            "imagenet": (25, 18, 15, 10, 7),
        },
        # share of the side
        "pixelate": {
            "cifar": (0.95, 0.9, 0.85, 0.75, 0.65),
            "tiny": (0.9, 0.8, 0.7, 0.6, 0.5),
            "imagenet": (0.6, 0.5, 0.4, 0.3, 0.25),
        },
        # length and sigma of the local displacements, largest displacement of three corners; px
        "elastic_transform": {
            "cifar": tuple(
                (32 * a, 32 * b, 32 * c)
                for a, b, c in (
                    (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03),
                )
            ),
            "tiny": tuple(
                (64 * a, 64 * b, 64 * c)
                for a, b, c in (
                    (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02),
                )
            ),
            "imagenet": tuple(  # 244 as published, where 224 was meant
                (244 * a, 244 * b, 244 * c)
                for a, b, c in (
                    (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02),
                )
            ),
        },
    }
)  # fmt: skip
"""Corruption -> set -> its parameters at the five severities."""
