"""From an image of any size to an encoder's input, the same on every machine whatever else is installed."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

LONGEST = 16
"""Longer images are cut to this many times their short side first, so that a 1 x 5000 image needs no gigabyte."""


@dataclass(frozen=True)
class Preprocess:
    """Short side to `resize_px`, centre crop of `side_px`, then (x / 255 - mean) / std."""

    resize_px: int
    side_px: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: Image.Resampling = Image.Resampling.BICUBIC

    def crop(self, image: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "side side 3"]:
        """The part of the image that the encoder sees, uint8."""
        image = _centre(image, LONGEST * min(image.shape[:2]))
        height, width = image.shape[:2]
        short = min(height, width)
        size = (self.resize_px * width // short, self.resize_px * height // short)
        if size != (width, height):
            image = np.asarray(Image.fromarray(image).resize(size, self.resample))
        return _centre(image, self.side_px)

    def __call__(self, image: UInt8[np.ndarray, "h w 3"]) -> Float[Tensor, "3 side side"]:
        x = torch.from_numpy(self.crop(image).transpose(2, 0, 1).astype(np.float32) / 255)
        return (x - torch.tensor(self.mean)[:, None, None]) / torch.tensor(self.std)[:, None, None]


def _centre(image: UInt8[np.ndarray, "h w 3"], side_px: int) -> UInt8[np.ndarray, "_ _ 3"]:
    """The middle of the image, at most `side_px` high and wide."""
    top, left = (max(0, size - side_px) // 2 for size in image.shape[:2])
    return image[top : top + side_px, left : left + side_px]
