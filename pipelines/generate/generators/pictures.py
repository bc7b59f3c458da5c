"""From a batch of pictures on the device to what is stored: checked for failures, resized, encoded."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from viewkit.pipelines.generate.generators.interface import Failed, Generated
from viewkit.shards.codecs import encode_jpeg, encode_png, encode_webp
from viewkit.shards.spans import spanned

MIN_STD = 2.0
"""Grey levels; a picture with a smaller standard deviation is a failed one."""
THREADS = 4
"""Encoding a 512 px JPEG takes some 10 ms of one core, and holds no lock of the interpreter."""

ENCODE: Mapping[str, Callable[[UInt8[np.ndarray, "h w 3"], int], bytes]] = {
    "jpg": encode_jpeg,
    "webp": encode_webp,
    "png": lambda image, quality: encode_png(image),
}
"""Formats of stored views: picture and quality to bytes; PNG is lossless and has none."""


def to_uint8(images: Float[Tensor, "n 3 s s"], side_px: int) -> UInt8[np.ndarray, "n side side 3"]:
    """Pictures of nominally 0 ... 1, resized where they are (antialiased bicubic, in fp32). NaN becomes black."""
    images = images.float().nan_to_num().clamp(0, 1)
    if images.shape[-1] != side_px:
        size = (side_px, side_px)
        images = F.interpolate(images, size=size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
    pixels: np.ndarray = (images * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    return pixels


def outcomes(
    pixels: UInt8[np.ndarray, "n side side 3"],
    finite: Bool[Tensor, " n"],
    quality: int,
    facts: Mapping[str, Any],
    format: str = "jpg",
) -> list[Generated | Failed]:
    """Pictures that threads encode from now on, and what failed. finite: rows that stayed finite all along. facts: of
    every picture."""

    def outcome(image: UInt8[np.ndarray, "side side 3"], ok: bool) -> Generated | Failed:
        if not ok:
            return Failed("non_finite", "latents or pixels are not finite")
        if (spread := float(image.std())) < MIN_STD:
            return Failed("near_constant", f"standard deviation {spread:.2f} grey levels")
        return Generated(_encoders().submit(_encode, image, format, quality), facts)

    return [outcome(image, ok) for image, ok in zip(pixels, finite.tolist(), strict=True)]


@spanned("encode")
def _encode(image: UInt8[np.ndarray, "side side 3"], format: str, quality: int) -> Mapping[str, bytes]:
    return {format: ENCODE[format](image, quality)}


@cache
def _encoders() -> ThreadPoolExecutor:
    """Threads of this process that encode pictures."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="encode")
