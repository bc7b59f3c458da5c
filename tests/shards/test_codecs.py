"""Bytes to arrays and back: equal to Pillow bit for bit, canonical, strict on damage."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from viewkit.shards import codecs
from viewkit.shards.errors import DataError


def photograph(height: int = 61, width: int = 83) -> np.ndarray:
    """Smooth colours, an edge and some noise: every path of a JPEG decoder has something to do."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x * y) % 256], axis=2)
    pixels[height // 2 :, width // 3 :] //= 2
    noise = np.random.default_rng(0).integers(0, 9, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


JPEG_OPTIONS = (
    {"subsampling": 0},
    {"subsampling": 1},
    {"subsampling": 2},
    {"subsampling": "4:1:1"},
    {"progressive": True},
    {"restart_marker_rows": 1},
    {"keep_rgb": True},
    {"quality": 3},
)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", JPEG_OPTIONS, ids=str)
def test_jpeg_decodes_to_pillows_pixels_bit_for_bit(mode: str, options: dict[str, object]) -> None:
    if mode == "L":
        options = {name: value for name, value in options.items() if name not in ("subsampling", "keep_rgb")}
    data = encoded(Image.fromarray(photograph()).convert(mode), "JPEG", **options)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(codecs.decode_image({"jpg": data}), expected)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(("format", "extension"), [("PNG", "png"), ("WEBP", "webp")])
def test_png_and_webp_decode_to_three_channels(mode: str, format: str, extension: str) -> None:
    image = Image.fromarray(photograph()).convert(mode)
    options = {"lossless": True} if format == "WEBP" else {}
    decoded = codecs.decode_image({extension: encoded(image, format, **options), "cls": b"1"})
    np.testing.assert_array_equal(decoded, np.asarray(image.convert("RGB")))


def test_png_is_lossless_and_jpeg_keeps_full_chroma() -> None:
    pixels = photograph()
    np.testing.assert_array_equal(codecs.decode_image({"png": codecs.encode_png(pixels)}), pixels)
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[:, ::2, 0] = 255  # red columns a pixel wide: 4:2:0 would blur their colour away
    decoded = codecs.decode_image({"jpg": codecs.encode_jpeg(stripes)})
    assert np.abs(decoded.astype(int) - stripes).max() < 40


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("format", "extension"), [("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp")])
def test_a_cut_image_is_an_error_not_a_grey_half(format: str, extension: str, share: float) -> None:
    data = encoded(Image.fromarray(photograph()), format)
    with pytest.raises(DataError, match="does not decode"):
        codecs.decode_image({extension: data[: int(len(data) * share)]})


def test_a_jpeg_whose_data_ends_early_is_an_error_even_with_an_end_mark() -> None:
    data = encoded(Image.fromarray(photograph()), "JPEG")
    with pytest.raises(DataError, match="premature end"):
        codecs.decode_image({"jpg": data[: len(data) // 2] + b"\xff\xd9"})


def test_a_row_has_exactly_one_image() -> None:
    assert codecs.image_field({"cls": b"1", "webp": b"x", "mask.png": b"y"}) == ("webp", b"x")
    with pytest.raises(DataError, match="it has cls, json"):
        codecs.image_field({"json": b"{}", "cls": b"1"})
    with pytest.raises(DataError, match="exactly one"):
        codecs.image_field({"jpg": b"x", "png": b"y"})


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF"])
def test_image_size_is_height_then_width(format: str) -> None:
    assert codecs.image_size(encoded(Image.new("RGB", (83, 61)), format)) == (61, 83)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"text"])
def test_image_size_of_no_image_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="no image size"):
        codecs.image_size(data)


def test_json_is_canonical_ascii() -> None:
    assert codecs.encode_json({"b": [1, 2.5], "a": "ü\u2028"}) == b'{"a":"\\u00fc\\u2028","b":[1,2.5]}\n'
    with pytest.raises(ValueError, match="JSON"):
        codecs.encode_json(float("nan"))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_broken_json_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="not JSON"):
        codecs.decode_json(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON_VALUES)
@settings(max_examples=50, deadline=None)
def test_json_comes_back(value: object) -> None:
    assert codecs.decode_json(codecs.encode_json(value)) == value


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<u8", "|u1", "<f2", "|b1"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_npy_comes_back_and_numpy_reads_it(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    data = codecs.encode_npy(array)
    back = codecs.decode_npy(data)
    assert back.shape == shape and back.flags.writeable
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(np.load(io.BytesIO(data)), array)


def test_npy_bytes_depend_on_the_values_alone() -> None:
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    same = [array.astype(">f4"), np.asfortranarray(array), np.repeat(array, 2, axis=0)[::2]]
    assert {codecs.encode_npy(one) for one in same} == {codecs.encode_npy(array)}


def test_fortran_order_is_read_right() -> None:
    stream = io.BytesIO()
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    np.save(stream, np.asfortranarray(array))
    np.testing.assert_array_equal(codecs.decode_npy(stream.getvalue()), array)


def test_npy_refuses_pickles_cuts_additions_and_forged_shapes() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    whole = codecs.encode_npy(np.arange(100))
    forged = whole.replace(b"(100,), ", b"(10**9,)")
    huge = whole.replace(b"(100,), ", b"(99999999999999999999,), ")
    for data in (stream.getvalue(), whole[:-1], whole[:50], whole + b"x", b"", b"PK\x03\x04", forged, huge):
        with pytest.raises(DataError, match=r"not a \.npy array"):
            codecs.decode_npy(data)
