"""The decoding policy, file kind by file kind, on images whose upright corners are known colours."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from viewkit.pipelines.pack.ingest import Ingested, Unusable, ingest
from viewkit.shards.codecs import decode_image

HEIGHT, WIDTH = 64, 96
RED, GREEN, BLUE, YELLOW = (215, 35, 40), (50, 200, 65), (45, 60, 200), (240, 215, 60)


def corners() -> np.ndarray:
    """Red, green, blue, yellow quarters, clockwise from the top left but for the last two."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:32, :48], pixels[:32, 48:], pixels[32:, :48], pixels[32:, 48:] = RED, GREEN, BLUE, YELLOW
    return pixels


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def take(data: bytes, *, max_pixels: int = 1 << 20, min_side_px: int = 1) -> Ingested:
    return ingest(data, max_pixels=max_pixels, min_side_px=min_side_px)


def refusal(data: bytes, **limits: int) -> Unusable:
    with pytest.raises(Unusable) as caught:
        take(data, **limits)
    return caught.value


def pixels_of(taken: Ingested) -> np.ndarray:
    return decode_image({taken.extension: taken.data})


def assert_corners(taken: Ingested, tolerance: int = 0) -> None:
    pixels = pixels_of(taken).astype(int)
    assert pixels.shape == (HEIGHT, WIDTH, 3) and taken.size == (HEIGHT, WIDTH)
    for (y, x), colour in {(8, 8): RED, (8, -8): GREEN, (-8, 8): BLUE, (-8, -8): YELLOW}.items():
        assert np.abs(pixels[y, x] - colour).max() <= tolerance, (y, x, pixels[y, x])


IMAGE = Image.fromarray(corners())


@pytest.mark.parametrize(
    ("data", "extension"),
    [
        (encoded(IMAGE, "JPEG"), "jpg"),
        (encoded(IMAGE, "JPEG", progressive=True, subsampling=2), "jpg"),
        (encoded(IMAGE.convert("L"), "JPEG"), "jpg"),
        (encoded(IMAGE, "PNG"), "png"),
        (encoded(IMAGE.convert("L"), "PNG"), "png"),
        (encoded(IMAGE, "WEBP"), "webp"),
        (encoded(IMAGE, "WEBP", lossless=True), "webp"),
        (encoded(IMAGE, "JPEG", icc_profile=b"some profile"), "jpg"),
        (encoded(IMAGE, "JPEG") + b"bytes after the end", "jpg"),
    ],
)
def test_bytes_on_which_all_decoders_agree_are_kept(data: bytes, extension: str) -> None:
    taken = take(data)
    assert taken.data == data and taken.extension == extension and taken.done == ()
    np.testing.assert_array_equal(pixels_of(taken), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


STORED_FOR = {  # EXIF orientation -> how the upright image is turned to be stored so
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("orientation", STORED_FOR)
@pytest.mark.parametrize(("format", "extension"), [("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "png"), ("TIFF", "png")])
def test_every_orientation_comes_out_upright(format: str, extension: str, orientation: int) -> None:
    turn = STORED_FOR[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if format == "WEBP" else {}
    taken = take(encoded(IMAGE if turn is None else IMAGE.transpose(turn), format, exif=exif, **options))
    assert_corners(taken, tolerance=3 if format == "JPEG" else 0)
    assert ("exif_orientation" in taken.done) == (orientation != 1)
    assert taken.done == () or taken.extension == extension


@pytest.mark.parametrize("value", [0, 9, 77])
def test_an_orientation_out_of_range_is_ignored(value: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    assert take(encoded(IMAGE, "JPEG", exif=exif)).done == ()


def test_broken_exif_is_ignored() -> None:
    data = encoded(IMAGE, "JPEG", exif=b"Exif\0\0" + b"II*\0\xff\xff\xff\x7fnonsense")
    assert take(data).data == data


def test_cmyk_comes_out_in_the_right_colours() -> None:
    taken = take(encoded(IMAGE.convert("CMYK"), "JPEG", quality=95))
    assert taken.done == ("cmyk",) and taken.extension == "jpg" and taken.mode == "CMYK"
    assert_corners(taken, tolerance=6)


def png(pixels: np.ndarray, colour_type: int, bits: int, chunks: dict[bytes, bytes] | None = None) -> bytes:
    """A PNG written by hand: Pillow writes no 16-bit colour."""
    height, width = pixels.shape[:2]
    rows = pixels.astype(">u2" if bits == 16 else "u1").reshape(height, -1)
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    parts = {b"IHDR": head, **(chunks or {}), b"IDAT": zlib.compress(body), b"IEND": b""}
    out = b"\x89PNG\r\n\x1a\n"
    for kind, data in parts.items():
        out += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return out


def test_sixteen_bit_colour_is_scaled_not_clipped() -> None:
    taken = take(png(corners().astype(np.uint16) * 256 + 200, 2, 16))
    assert taken.done == ("16_bit",) and taken.extension == "png"
    assert_corners(taken)


def test_sixteen_bit_colour_with_alpha_is_scaled_and_composited() -> None:
    alpha = np.full((HEIGHT, WIDTH, 1), 65535)
    alpha[:, :48] = 0
    taken = take(png(np.concatenate([corners().astype(int) * 257, alpha], axis=2), 6, 16))
    assert taken.done == ("16_bit", "alpha")
    assert (pixels_of(taken)[:, :48] == 255).all()
    np.testing.assert_array_equal(pixels_of(taken)[:, 48:], corners()[:, 48:])


RAMP = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_scaled_not_clipped(format: str) -> None:
    taken = take(encoded(Image.fromarray(RAMP), format))
    assert "16_bit" in taken.done
    np.testing.assert_array_equal(pixels_of(taken)[:, :, 1], np.arange(256).reshape(16, 16))


def test_sixteen_bit_grey_with_a_transparent_value_is_white_there() -> None:
    taken = take(png(RAMP, 0, 16, {b"tRNS": struct.pack(">H", 257 * 3)}))
    expected = np.arange(256)
    expected[3] = 255
    np.testing.assert_array_equal(pixels_of(taken)[:, :, 0], expected.reshape(16, 16))


def test_palette_with_a_transparent_entry_is_white_there() -> None:
    image = IMAGE.quantize(4)
    entry = image.getpixel((2, 2))
    taken = take(encoded(image, "PNG", transparency=entry))
    assert taken.done == ("palette", "alpha") and taken.mode == "P"
    assert pixels_of(taken)[2, 2].tolist() == [255, 255, 255]
    assert np.abs(pixels_of(taken)[2, -2].astype(int) - GREEN).max() <= 2


def test_alpha_is_composited_on_white() -> None:
    image = IMAGE.copy()
    image.putalpha(Image.new("L", image.size, 51))  # a fifth
    for format in ("PNG", "WEBP", "TIFF"):
        options = {"lossless": True} if format == "WEBP" else {}
        taken = take(encoded(image, format, **options))
        assert "alpha" in taken.done and taken.extension == "png"
        expected = 255 + (corners().astype(float) - 255) / 5
        assert np.abs(pixels_of(taken) - expected).max() <= 1


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_many_is_taken(format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    other = Image.new("RGB", IMAGE.size, (9, 9, 9))
    taken = take(encoded(IMAGE, format, save_all=True, append_images=[other, other], **options))
    assert "first_frame" in taken.done and taken.extension == "png"
    assert_corners(taken, tolerance=2)


@pytest.mark.parametrize("format", ["BMP", "TIFF", "PPM", "GIF", "AVIF"])
def test_formats_the_column_has_no_name_for_are_converted(format: str) -> None:
    taken = take(encoded(IMAGE, format))
    assert taken.done[-1] == "format" and taken.extension == ("jpg" if format == "AVIF" else "png")
    assert_corners(taken, tolerance=8 if format == "AVIF" else 2)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P"])
def test_other_modes_equal_pillows_conversion(mode: str) -> None:
    image = IMAGE.convert(mode)
    taken = take(encoded(image, "PNG"))
    np.testing.assert_array_equal(pixels_of(taken), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["F", "I", "LAB"])
def test_pixels_without_a_range_are_refused(mode: str) -> None:
    image = Image.new(mode, (32, 32))
    assert refusal(encoded(image, "TIFF")).reason == "unsupported_mode"


def test_a_bomb_is_refused_on_its_declared_size(recwarn: pytest.WarningsRecorder) -> None:
    for side, limit in ((30_000, 1 << 20), (10_000, 89_478_485), (2_000, 1 << 20)):
        head = png(np.zeros((1, 1)), 0, 8).replace(struct.pack(">II", 1, 1), struct.pack(">II", side, side))
        crc = struct.pack(">I", zlib.crc32(head[12:29]))
        refused = refusal(head[:29] + crc + head[33:], max_pixels=limit)
        assert refused.reason == "too_many_pixels" and "pixels" in str(refused)
    assert not recwarn.list


def test_the_ceiling_and_the_minimum_are_inclusive() -> None:
    data = encoded(IMAGE, "PNG")
    assert take(data, max_pixels=HEIGHT * WIDTH, min_side_px=HEIGHT).done == ()
    assert refusal(data, max_pixels=HEIGHT * WIDTH - 1).reason == "too_many_pixels"
    assert refusal(data, min_side_px=HEIGHT + 1).reason == "too_small"


@pytest.mark.parametrize("size", [(1, 1), (5000, 1)])
def test_odd_sizes_decode_when_they_are_allowed(size: tuple[int, int]) -> None:
    data = encoded(Image.new("RGB", size, RED), "PNG")
    assert take(data).size == size[::-1]
    assert refusal(data, min_side_px=2).reason == "too_small"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"This is not an image\n" * 40, "not_an_image"),
        (bytes(1000), "not_an_image"),
        (b"\0\0\0\x18ftypheic" + bytes(100), "unsupported_format"),
        (b"8BPS" + bytes(100), "unsupported_format"),
        (encoded(IMAGE, "JPEG")[:30], "truncated"),
        (encoded(IMAGE, "PNG")[:20], "truncated"),
        (encoded(IMAGE.convert("1"), "TIFF", compression="group4"), "unsupported_format"),
    ],
)
def test_what_is_no_image_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    assert refusal(data).reason == reason


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_cut_files_are_refused(format: str) -> None:
    data = encoded(noise(), format)
    for length in (len(data) // 3, len(data) // 2, len(data) - 9):
        assert refusal(data[:length]).reason in ("truncated", "undecodable")


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_jpeg_that_ends_early_is_truncated_even_with_an_end_mark(mode: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(noise().convert(mode), "JPEG", exif=exif)
    assert refusal(data[: len(data) // 2] + b"\xff\xd9").reason == "truncated"


def test_a_jpeg_with_harmless_padding_is_written_anew() -> None:
    data = encoded(IMAGE, "JPEG", quality=95)
    taken = take(data[:-2] + bytes(20) + data[-2:])
    assert taken.done == ("jpeg_warning",)
    assert_corners(taken, tolerance=4)


def test_every_flipped_bit_of_a_png_body_is_found() -> None:
    data = encoded(IMAGE, "PNG")
    body = data.index(b"IDAT") + 4
    for at in range(body, len(data) - 16, 7):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        assert refusal(bytes(flipped)).reason in ("undecodable", "truncated")


def test_what_the_source_was_is_told() -> None:
    taken = take(encoded(IMAGE.convert("L"), "JPEG", icc_profile=b"p"))
    assert (taken.format, taken.mode, taken.size, taken.profile) == ("JPEG", "L", (HEIGHT, WIDTH), True)
