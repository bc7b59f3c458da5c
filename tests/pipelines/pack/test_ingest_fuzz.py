"""Whatever the bytes are: a row that decodes, or a refusal with a known reason. Nothing raised, warned or printed."""

import io
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from viewkit.pipelines.engine.rejects import REASONS
from viewkit.pipelines.pack.ingest import Unusable, ingest
from viewkit.shards.codecs import decode_image


def seeds() -> list[bytes]:
    pixels = np.kron(np.random.default_rng(0).integers(0, 256, (6, 8, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    image, exif = Image.fromarray(pixels), Image.Exif()
    exif[0x0112] = 6
    kinds = [
        (image, "PNG", {}),
        (image.convert("RGBA"), "PNG", {"exif": exif}),
        (image.quantize(8), "PNG", {"transparency": 1}),
        (Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257), "PNG", {}),
        (image, "JPEG", {"exif": exif}),
        (image, "JPEG", {"progressive": True}),
        (image.convert("CMYK"), "JPEG", {}),
        (image, "WEBP", {}),
        (image.convert("RGBA"), "WEBP", {"lossless": True}),
        (image, "GIF", {"save_all": True, "append_images": [image.rotate(90)]}),
        (image, "TIFF", {"compression": "tiff_lzw"}),
        (image.convert("1"), "TIFF", {"compression": "group4"}),
        (image, "BMP", {}),
        (image, "PPM", {}),
    ]
    data = []
    for picture, format, options in kinds:
        stream = io.BytesIO()
        picture.save(stream, format, **options)
        data.append(stream.getvalue())
    return data


SEEDS = seeds()


def check(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            taken = ingest(data, max_pixels=1 << 20, min_side_px=1)
        except Unusable as refusal:
            assert refusal.reason in REASONS
            assert str(refusal).isascii() and "\n" not in str(refusal) and " at 0x" not in str(refusal)
        else:
            pixels = decode_image({taken.extension: taken.data})
            assert pixels.shape == (*taken.size, 3) and pixels.dtype == np.uint8


def test_the_seeds_are_whole() -> None:
    for data in SEEDS:
        check(data)


@given(st.binary(max_size=300), st.sampled_from([b"", *(seed[:16] for seed in SEEDS)]))
@settings(max_examples=200, deadline=None)
def test_random_bytes_never_crash(data: bytes, head: bytes) -> None:
    check(head + data)


@given(st.sampled_from(SEEDS), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_cuts_never_crash(seed: bytes, share: float) -> None:
    check(seed[: int(len(seed) * share)])


@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=8))
@settings(max_examples=400, deadline=None)
def test_flipped_bits_never_crash(seed: bytes, flips: list[tuple[float, int]]) -> None:
    data = bytearray(seed)
    for place, mask in flips:
        data[min(int(place * len(data)), len(data) - 1)] ^= mask
    check(bytes(data))


def test_nothing_is_printed_on_damage(capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    for seed in SEEDS:
        for _ in range(30):
            data = bytearray(seed)
            for at in rng.integers(0, len(data), 4):
                data[at] ^= int(rng.integers(1, 256))
            check(bytes(data))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
