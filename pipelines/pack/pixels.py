"""Pixels of any mode to opaque 8-bit RGB, by one written policy (`docs/pack.md`).

- 16 bits a channel (or 12): the high 8 bits, as libpng and Pillow reduce RGB; never clipped.
- Alpha, a transparent colour or palette entry: composited on white.
- CMYK and YCCK: inverted as Adobe writes them (Pillow does), then (255 - ink)(255 - black) / 255.
- Colour profiles are not applied: no training pipeline applies them, and the numbers stay the source's.
- Float, 32-bit and LAB pixels have no range or no agreed conversion here and are refused.
"""

import numpy as np
from jaxtyping import UInt8
from PIL import Image

BACKGROUND = (255, 255, 255)
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B")
PLAIN = {"1": "bilevel", "CMYK": "cmyk", "YCbCr": "ycbcr", "P": "palette"}
ALPHA = {"PA": "palette", "LA": "alpha", "La": "alpha", "RGBA": "alpha", "RGBa": "alpha"}


class UnsupportedMode(Exception):
    """The pixels' mode has no conversion in the policy."""


def to_rgb(image: Image.Image, format: str, bits: int) -> tuple[Image.Image, list[str]]:
    """A loaded image as opaque RGB, and the names of the steps it took; none for 8-bit RGB and grey.

    format: Pillow's name of the file format. bits: declared bits of a channel. Raises `UnsupportedMode`.
    """
    done = []
    alpha: np.ndarray | None = None
    wide_grey = image.mode in SIXTEEN_BITS or (image.mode == "I" and format == "PPM")
    if wide_grey:
        values = np.asarray(image).astype(np.int64)
        if "transparency" in image.info:
            alpha = np.where(values == image.info["transparency"], 0, 255).astype(np.uint8)
        shift = bits - 8 if bits in (10, 12, 14) else 8  # TIFF has 12-bit grey, which Pillow does not scale
        image = Image.fromarray((values >> shift).clip(0, 255).astype(np.uint8))
    elif bits == 16 and isinstance(image.info.get("transparency"), tuple):
        image.info["transparency"] = tuple(value >> 8 for value in image.info["transparency"])
    if wide_grey or bits == 16:
        done.append("16_bit")
    elif bits < 8 and image.mode == "L":
        done.append("low_bit_depth")

    if alpha is not None:
        image.putalpha(Image.fromarray(alpha))
    if image.mode in ALPHA or "transparency" in image.info:
        done += ["palette"] if image.mode in ("P", "PA") else []
        return flatten(image.convert("RGBA")), [*done, "alpha"]
    if image.mode in PLAIN:
        return image.convert("RGB"), [*done, PLAIN[image.mode]]
    if image.mode in ("RGB", "L", "RGBX"):
        return image.convert("RGB"), done
    raise UnsupportedMode(f"pixels of mode {image.mode}; convert them to 8-bit RGB")


def flatten(image: Image.Image) -> Image.Image:
    """RGBA composited on the background."""
    behind = Image.new("RGBA", image.size, (*BACKGROUND, 255))
    return Image.alpha_composite(behind, image).convert("RGB")


def resized(pixels: UInt8[np.ndarray, "h w 3"], short_side_px: int) -> UInt8[np.ndarray, "g u 3"]:
    """An image whose shorter side is `short_side_px`, of the same shape within half a pixel; bicubic, antialiased."""
    height, width, _ = pixels.shape
    scale = short_side_px / min(height, width)
    size = max(short_side_px, round(width * scale)), max(short_side_px, round(height * scale))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation (tag 0x0112) -> what makes the image upright; 1 is upright."""
