"""The short way for plain JPEGs takes and refuses exactly what the long way does, on whole and on damaged files."""

import io

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from viewkit.pipelines.pack import ingest as long_way
from viewkit.pipelines.pack.ingest import Unusable, ingest
from viewkit.pipelines.pack.plain_jpeg import plain_jpeg

SIDES = ((1, 1), (2, 9), (7, 7), (8, 8), (17, 33), (40, 56))


def noisy(height: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(height)
    coarse = np.kron(rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)), np.ones((4, 4, 1)))[:height, :width]
    return np.clip(coarse + rng.integers(-20, 20, coarse.shape), 0, 255).astype(np.uint8)


def encoded(height: int, width: int, mode: str = "RGB", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(noisy(height, width)).convert(mode).save(stream, "JPEG", quality=80, **options)
    return stream.getvalue()


PLAIN = [
    encoded(*side, mode, **options)
    for side in SIDES
    for mode in ("RGB", "L")
    for options in ({"subsampling": 0}, {"subsampling": 2}, {"restart_marker_blocks": 2}, {"optimize": True})
] + [
    simplejpeg.encode_jpeg(np.ascontiguousarray(noisy(*side)), quality=80, colorsubsampling=subsampling)
    for side in SIDES
    for subsampling in ("422", "440", "411")
]


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(16, 24, exif=exif)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A cut, flipped bytes anywhere, flipped bits among the coefficients, or bytes lost in the middle."""
    found = bytearray(data)
    kind = rng.integers(4)
    if kind == 0:
        return bytes(found[: int(len(found) * rng.random())])
    if kind == 3:
        at = int(rng.integers(2, len(found)))
        return bytes(found[:at] + found[at + int(rng.integers(1, 9)) :])
    first = 0 if kind == 1 else data.find(b"\xff\xda")
    for at in rng.integers(first, len(found), rng.integers(1, 4)):
        found[at] ^= int(rng.integers(1, 256)) if kind == 1 else 1 << int(rng.integers(8))
    return bytes(found)


def outcome(data: bytes) -> object:
    try:
        return ingest(data, max_pixels=1 << 20, min_side_px=2)
    except Unusable as refusal:
        return refusal.reason, str(refusal)


def both_ways(data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    short = outcome(data)
    with monkeypatch.context() as patch:
        patch.setattr(long_way, "plain_jpeg", lambda *_: None)
        return short, outcome(data)


def test_whole_files_are_plain_and_taken_alike(monkeypatch):
    for data in PLAIN:
        assert plain_jpeg(data, 1 << 20) is not None
        short, long = both_ways(data, monkeypatch)
        assert short == long


@pytest.mark.parametrize("rounds", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_damage_is_judged_as_by_two_decoders(rounds, monkeypatch):
    rng, taken = np.random.default_rng(rounds), 0
    for data in PLAIN * rounds:
        bad = damaged(data, rng)
        short, long = both_ways(bad, monkeypatch)
        assert short == long, bad.hex()
        taken += plain_jpeg(bad, 1 << 20) is not None
    assert 0.05 < taken / (rounds * len(PLAIN)) < 0.6  # damage that no decoder can see exists, and most is seen


@pytest.mark.parametrize(
    "data",
    [
        encoded(16, 24, progressive=True),
        encoded(16, 24, "CMYK"),
        turned(6),
        encoded(16, 24).replace(b"\xff\xdb", b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0\0\xff\xdb", 1),
        encoded(16, 24)[:2] + b"\xff" + encoded(16, 24)[2:],
        encoded(2000, 2000, "L"),
    ],
    ids=["progressive", "four inks", "turned", "Adobe's marker", "fill bytes", "too many pixels"],
)
def test_what_is_odd_goes_the_long_way(data, monkeypatch):
    assert plain_jpeg(data, 1 << 20) is None
    short, long = both_ways(data, monkeypatch)
    assert short == long


@pytest.mark.parametrize("marker", range(0xD0, 0xD8))
def test_a_marker_without_a_length_hides_no_progressive_frame(marker):
    """Read as a length, what comes behind it leads to a frame that no decoder sees: here one in a comment."""
    comment = b"\xff\xc0" * 32_500
    whole = encoded(16, 24, progressive=True)
    hidden = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    data = whole[:2] + bytes((0xFF, marker)) + hidden * 2 + whole[2:]
    assert plain_jpeg(data, 1 << 20) is None


def test_an_upright_orientation_and_a_profile_are_plain():
    assert plain_jpeg(turned(1), 1 << 20) is not None
    profiled = plain_jpeg(encoded(16, 24, icc_profile=b"\0" * 200), 1 << 20)
    assert profiled is not None and profiled.profile and profiled.size == (16, 24)


def test_no_pixels_are_computed(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded for nothing")

    data = encoded(40, 56)
    monkeypatch.setattr(long_way, "decode_image", refuse)
    monkeypatch.setattr(Image.Image, "load", refuse)
    assert ingest(data, max_pixels=1 << 20, min_side_px=1).size == (40, 56)
