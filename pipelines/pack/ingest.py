"""The decoding policy: what becomes of the bytes of one file. The table is in `docs/pack.md`.

Bytes that every decoder reads alike are kept untouched; others are converted once; what cannot be used is refused
with a reason. Whatever is taken has been decoded to the last byte by the decoder that reads it later, and by Pillow,
too, where the two may differ (all but plain JPEGs).
"""

import io
import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageFile

from viewkit.pipelines.pack.pixels import UPRIGHT, UnsupportedMode, resized, to_rgb
from viewkit.pipelines.pack.plain_jpeg import plain_jpeg
from viewkit.shards.codecs import DECODER_ERRORS, decode_image, decode_jpeg, encode_jpeg, encode_png, one_line
from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
KEPT = {"JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp"}
LOSSY = ("JPEG", "MPO", "AVIF")
"""Formats whose conversions become JPEG (quality 95, 4:4:4); conversions of the others become PNG."""

SIGNATURES = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG", "PNG"),
    (0, b"GIF8", "GIF"),
    (8, b"WEBP", "WEBP"),
    (0, b"BM", "BMP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (4, b"ftypavi", "AVIF"),
)
OTHER_SIGNATURES = (
    (4, b"ftyphei", "HEIC"),
    (4, b"ftypmif", "HEIF"),
    (4, b"jP  ", "JPEG 2000"),
    (0, b"\xffO\xffQ", "JPEG 2000"),
    (4, b"JXL ", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"8BPS", "Photoshop"),
    (0, b"%PDF", "PDF"),
    (0, b"<svg", "SVG"),
)

FAX = ("tiff_ccitt", "group3", "group4")
"""Compressions of TIFF in which libtiff fills what is damaged with white and says nothing to Pillow."""

HARMLESS = re.compile(r"extraneous bytes before marker|Invalid SOS parameters|Unknown Adobe color transform|JFIF")
"""Warnings of libjpeg that lose no pixel (padding between segments, odd header values); every other one does."""


class Unusable(Exception):
    """Bytes that cannot become a row. reason: of `engine.rejects.REASONS`; the text is the detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ingested:
    """An image as it goes into the column: upright, RGB or grey, 8 bits.

    extension: ``jpg``, ``png`` or ``webp``. format, mode: of the source, in Pillow's names. size: (height, width) of
    `data` in pixels. done: the conversions; none when `data` is the source's. profile: a colour profile was present.
    resized_from: (height, width) upright, before it was resized; None where it was not.
    """

    extension: str
    data: bytes
    format: str
    mode: str
    size: tuple[int, int]
    done: tuple[str, ...]
    profile: bool
    resized_from: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class FirstFrame:
    """A file's first frame, upright and RGB, and what that took."""

    pixels: UInt8[np.ndarray, "h w 3"]
    format: str
    mode: str
    done: list[str]
    profile: bool


@spanned("ingest")
def ingest(data: bytes, *, max_pixels: int, min_side_px: int, short_side_px: int | None = None) -> Ingested:
    """Apply the policy to one file's bytes. Raises `Unusable`, and nothing else whatever the bytes are.

    short_side_px: images with a longer shorter side are resized to it and become JPEG.
    """
    if not data:
        raise Unusable("empty", "the file has no bytes")
    plain = plain_jpeg(data, max_pixels) if short_side_px is None else None
    if plain is not None:
        _check_size((plain.size[1], plain.size[0]), max_pixels, min_side_px)
        return Ingested("jpg", data, "JPEG", plain.mode, plain.size, (), plain.profile)
    frame = _first_frame(data, max_pixels, min_side_px)
    pixels, done = frame.pixels, frame.done
    extension = KEPT.get(frame.format)
    if extension is None:
        done.append("format")
    elif extension == "jpg" or not done:
        done += _decode_problems(extension, data, frame)
    before = None
    if short_side_px is not None and min(pixels.shape[:2]) > short_side_px:
        before, pixels = (pixels.shape[0], pixels.shape[1]), resized(pixels, short_side_px)
        done.append("resized")
    height, width, _ = pixels.shape
    if done:
        extension = "jpg" if before is not None or frame.format in LOSSY else "png"
        data = encode_jpeg(pixels) if extension == "jpg" else encode_png(pixels)
    assert extension is not None
    return Ingested(extension, data, frame.format, frame.mode, (height, width), tuple(done), frame.profile, before)


def _first_frame(data: bytes, max_pixels: int, min_side_px: int) -> FirstFrame:
    """Open, look at the declared size, decode, turn upright, convert."""
    assert not ImageFile.LOAD_TRUNCATED_IMAGES, "somebody told Pillow to accept cut images"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check_size(image.size, max_pixels, min_side_px)
                bits = _declared_bits(image, data)
                if image.format == "PNG":
                    _check_png(data)
                if image.format != "TIFF":
                    return _upright_rgb(image, bits)
                if image.info.get("compression") in FAX:
                    raise Unusable("unsupported_format", "TIFF with fax compression, made for text, not photographs")
                with _silent_libtiff():
                    return _upright_rgb(image, bits)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        declared = re.search(r"\d+ pixels", str(error))
        found = declared[0] if declared else "too many pixels"
        raise Unusable("too_many_pixels", f"it declares {found}; max_pixels allows {max_pixels}") from error
    except UnsupportedMode as error:
        raise Unusable("unsupported_mode", str(error)) from error
    except Image.UnidentifiedImageError as error:
        raise _unidentified(data) from error
    except DECODER_ERRORS as error:
        cut = isinstance(error, EOFError) or re.search("truncated|premature end", str(error), re.IGNORECASE)
        raise Unusable("truncated" if cut else "undecodable", one_line(error)) from error


def _upright_rgb(image: ImageFile.ImageFile, bits: int) -> FirstFrame:
    format, mode, done = image.format or "", image.mode, []
    orientation = _orientation(image) if format == "TIFF" else 1  # Pillow turns TIFFs upright while it loads them
    image.load()
    frame, profile = image.copy(), "icc_profile" in image.info
    if orientation == 1:
        orientation = _orientation(image)
        if orientation != 1:
            frame = frame.transpose(UPRIGHT[orientation])
            frame.info = dict(image.info)
    if format != "MPO" and _is_animated(image):  # MPO: the first picture is what every JPEG decoder sees
        done.append("first_frame")
    if orientation != 1:
        done.append("exif_orientation")
    rgb, conversions = to_rgb(frame, format, bits)
    return FirstFrame(np.asarray(rgb), format, mode, done + conversions, profile)


@contextmanager
def _silent_libtiff() -> Iterator[None]:
    """libtiff prints its errors to the process's standard error; Pillow raises them, so they are lost on nobody."""
    try:
        saved = os.dup(2)
    except OSError:  # there is no standard error to protect
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _check_size(size: tuple[int, int], max_pixels: int, min_side_px: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise Unusable("too_many_pixels", f"it declares {height} x {width} pixels; max_pixels allows {max_pixels}")
    if min(width, height) < min_side_px:
        raise Unusable("too_small", f"{height} x {width} pixels; min_side_px needs {min_side_px}")


def _check_png(data: bytes) -> None:
    """Checksums of the chunks that matter, and the end mark: Pillow looks at neither for the pixels, libpng at both."""
    at = 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(data):
            break
        if kind[:1].isupper() and zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise Unusable("undecodable", f"the checksum of PNG chunk {one_line(ValueError(repr(kind)))} is wrong")
        if kind == b"IEND":
            return
        at = end
    raise Unusable("truncated", "the PNG ends before its IEND chunk")


def _declared_bits(image: ImageFile.ImageFile, data: bytes) -> int:
    """Bits of a channel: Pillow's mode hides 16-bit RGB and grey of fewer than 8."""
    if image.format == "PNG":
        return data[24]
    if image.format == "TIFF":
        declared = image.tag_v2.get(258, 8)  # type: ignore[attr-defined]  # BitsPerSample
        return max(declared) if isinstance(declared, tuple) else int(declared)
    return 8


def _orientation(image: Image.Image) -> int:
    """EXIF orientation 2 to 8; 1 when there is none, or none that can be read."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation)
    except DECODER_ERRORS:
        return 1
    return value if isinstance(value, int) and value in UPRIGHT else 1


def _is_animated(image: Image.Image) -> bool:
    """Whether a second frame follows. Damage after the first frame costs nothing: only the first is used."""
    try:
        return bool(getattr(image, "is_animated", False))
    except DECODER_ERRORS:
        return False


def _decode_problems(extension: str, data: bytes, frame: FirstFrame) -> list[str]:
    """Why the source's bytes cannot be kept, beyond `frame.done`.

    The trainer's decoder, which is stricter than Pillow, warns, or sees other pixels. Raises `Unusable` when it says
    that pixels are lost.
    """
    try:
        if frame.mode == "CMYK" and extension == "jpg":
            decode_jpeg(data, colorspace="CMYK")
            return []
        seen = decode_image({extension: data})
    except DataError as error:
        if extension == "jpg" and HARMLESS.search(str(error)):
            return ["jpeg_warning"]
        cut = "premature end" in str(error).lower()
        raise Unusable("truncated" if cut else "undecodable", one_line(error)) from error
    same = bool(frame.done) or np.array_equal(seen, frame.pixels)
    return [] if same else ["decoders_differ"]


def _unidentified(data: bytes) -> Unusable:
    for at, signature, name in SIGNATURES:
        if data[at:].startswith(signature):
            return Unusable("undecodable", f"it begins like {name}, but its header is damaged or cut")
    for at, signature, name in OTHER_SIGNATURES:
        if data[at : at + len(signature)] == signature:
            return Unusable("unsupported_format", f"{name}; convert it to JPEG, PNG or WebP")
    start = data[:16].decode("ascii", "replace").replace("\ufffd", "?")
    return Unusable("not_an_image", f"{len(data)} bytes that no image format begins with: {start!r}")
