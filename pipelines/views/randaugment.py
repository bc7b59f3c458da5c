"""RandAugment's fourteen operations and their strengths (Cubuk et al. 2020). `operations` applies them.

Strengths are in the operation's own unit, so a recipe does not depend on the magnitude scale they came from.
"""

import numpy as np
from jaxtyping import Bool, Float64, Int

OPERATIONS: tuple[str, ...] = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "saturation",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)


def strengths(
    operation: Int[np.ndarray, " m"], magnitude: Float64[np.ndarray, " m"], negative: Bool[np.ndarray, " m"]
) -> Float64[np.ndarray, " m"]:
    """Strength of every drawn operation at a magnitude of 0 ... 30 (Cubuk et al. 2020, with torchvision's scales).

    shear: 0 ... 0.3; translate: 0 ... 150/331 of the side; rotate: 0 ... 30 degrees; factors: 1 -+ (0 ... 0.9);
    posterize: 8 ... 4 bits kept; solarize: threshold 1 ... 0.
    """
    part = magnitude / 30
    sign = np.where(negative, -1.0, 1.0)
    table = np.stack(
        [0 * part]
        + [sign * 0.3 * part] * 2
        + [sign * 150 / 331 * part] * 2
        + [sign * 30 * part]
        + [1 + sign * 0.9 * part] * 4
        + [8 - np.floor(4 * part + 0.5), 1 - part, 0 * part, 0 * part]
    )  # 14 m
    return np.asarray(table[operation, np.arange(len(operation))])
