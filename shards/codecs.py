"""Bytes of the fields of a row, to and from arrays and JSON values.

Every function is deterministic and strict: damaged bytes raise `DataError`, never a partly grey image. JPEG is decoded
by simplejpeg (1.1 to 1.6 times Pillow's rate, and the same pixels as Pillow for upright RGB and grey images, which is
all that the column ``images`` holds); PNG and WebP by Pillow.
"""

import io
import json
import logging
import struct
import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import simplejpeg
from jaxtyping import UInt8
from PIL import Image

from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

IMAGE_EXTENSIONS = ("jpg", "png", "webp")

# What Pillow and simplejpeg raise on bytes that are not what they claim to be. It is this long because Pillow's parsers
# let the errors of indexing, unpacking and arithmetic through; only calls into these libraries are guarded by it.
DECODER_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)

# Without any handler, Python prints what Pillow logs about odd files to the console, over the progress display.
logging.getLogger("PIL").addHandler(logging.NullHandler())


def image_field(fields: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Extension and bytes of a row's one image: ``jpg``, ``png`` or ``webp``. Raises `DataError` for none or two."""
    found = [extension for extension in IMAGE_EXTENSIONS if extension in fields]
    if len(found) != 1:
        raise DataError(
            f"a row needs exactly one image field ({', '.join(IMAGE_EXTENSIONS)}); "
            f"it has {', '.join(sorted(fields)) or 'no fields'}"
        )
    return found[0], fields[found[0]]


@spanned("decode")
def decode_image(fields: Mapping[str, bytes]) -> UInt8[np.ndarray, "h w 3"]:
    """The image of a row as RGB, 0 to 255. Raises `DataError` when it is cut or damaged."""
    extension, data = image_field(fields)
    return decode_jpeg(data) if extension == "jpg" else decode_with_pillow(data)


def decode_jpeg(data: bytes, colorspace: str = "RGB") -> UInt8[np.ndarray, "h w c"]:
    """RGB or grey JPEG to RGB, strict: what libjpeg only warns of (a cut, lost data) raises `DataError`.

    colorspace: ``CMYK`` gives the four inks of a CMYK JPEG as they are stored, which only a check has a use for.
    """
    try:
        return simplejpeg.decode_jpeg(data, colorspace=colorspace, fastdct=False, fastupsample=False, strict=True)
    except DECODER_ERRORS as error:
        raise DataError(f"JPEG of {len(data)} bytes does not decode: {one_line(error)}") from error


def decode_with_pillow(data: bytes) -> UInt8[np.ndarray, "h w 3"]:
    """Any still image that Pillow turns into RGB, here PNG and WebP. Orientation and profile are ignored."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                return np.array(image.convert("RGB"))
    except DECODER_ERRORS as error:
        raise DataError(f"image of {len(data)} bytes does not decode: {one_line(error)}") from error


def image_size(data: bytes) -> tuple[int, int]:
    """(height, width) in pixels of an encoded image, from its header alone. Raises `DataError`."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return height, width
    try:
        if data.startswith(b"\xff\xd8"):
            height, width, _, _ = simplejpeg.decode_jpeg_header(data, strict=False)
            return height, width
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                return image.height, image.width
    except DECODER_ERRORS as error:
        raise DataError(f"no image size in {len(data)} bytes: {one_line(error)}") from error


@spanned("encode")
def encode_jpeg(pixels: UInt8[np.ndarray, "h w 3"], quality: int = 95) -> bytes:
    """RGB, 0 to 255, to JPEG with full chroma resolution (4:4:4)."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality, subsampling=0)
    return stream.getvalue()


@spanned("encode")
def encode_webp(pixels: UInt8[np.ndarray, "h w 3"], quality: int = 95) -> bytes:
    """RGB, 0 to 255, to lossy WebP (4:2:0 chroma, as the format has it)."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "WEBP", quality=quality, method=4)
    return stream.getvalue()


@spanned("encode")
def encode_png(pixels: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """RGB, 0 to 255, to PNG, lossless."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def encode_json(value: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, ASCII, one newline at the end. NaN and infinities raise `ValueError`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def decode_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises `DataError`."""
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {one_line(error)}") from error


def encode_npy(array: np.ndarray) -> bytes:
    """An array of numbers as a .npy file: little-endian, C order. Arrays of objects raise `ValueError`."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
    stream = io.BytesIO()
    np.lib.format.write_array(stream, little, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def decode_npy(data: bytes) -> np.ndarray:
    """The array of a .npy file, writable. Raises `DataError` on pickles, cuts and trailing bytes, before allocating."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f".npy version {version} instead of (1, 0)")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.hasobject:
            raise ValueError("it holds pickled objects")
        body = memoryview(data)[stream.tell() :]
        needed = dtype.itemsize * int(np.prod(shape, dtype=object))
        if len(body) != needed:
            raise ValueError(f"shape {shape} of {dtype} needs {needed} bytes, found {len(body)}")
        flat = np.frombuffer(body, dtype=dtype)
    except (ValueError, TypeError, SyntaxError, EOFError, OverflowError) as error:
        raise DataError(f"not a .npy array of numbers: {one_line(error)}") from error
    return flat.reshape(shape, order="F" if fortran_order else "C").copy(order="C")


def one_line(error: BaseException) -> str:
    """What a decoder said, in one line of printable ASCII that is the same on every machine and in every process."""
    text = " ".join(str(error).split()) or type(error).__name__
    if " object at 0x" in text:  # Pillow names the BytesIO it was given, with its address
        text = "cannot identify the image's format"
    return text.encode("ascii", "backslashreplace").decode()[:160]
