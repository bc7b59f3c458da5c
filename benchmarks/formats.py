"""How generated views may be stored: size, loss and time of JPEG, WebP and PNG, on squares of bundled photographs."""

import time
from collections.abc import Iterator, Sequence

import numpy as np
from harness import Fact, main, sized
from numpy.typing import NDArray

from viewkit.pipelines.generate.generators.pictures import ENCODE
from viewkit.pipelines.pack.demo import photograph
from viewkit.shards.codecs import decode_image

PHOTOGRAPHS = ("astronaut", "coffee", "chelsea", "rocket")
SIDES_PX = (64, 256)
FORMATS = (("jpg", 95), ("jpg", 75), ("webp", 95), ("webp", 80), ("png", 100))


def squares(side_px: int, count: int) -> Iterator[NDArray[np.uint8]]:
    """Squares of the photographs in turn, each at a place of its own."""
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = photograph(PHOTOGRAPHS[number % len(PHOTOGRAPHS)])
        top, left = (int(rng.integers(extent - side_px + 1)) for extent in pixels.shape[:2])
        yield np.ascontiguousarray(pixels[top : top + side_px, left : left + side_px])


def psnr(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Peak signal over mean squared error, in dB."""
    error = float(np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2))
    return 10 * float(np.log10(255**2 / error)) if error else float("inf")


def run(rounds: int) -> tuple[Sequence[Fact], Sequence[str]]:
    """Sizes and losses do not vary; times are of this process's processor."""
    found = []
    for side_px in SIDES_PX:
        images = list(squares(side_px, sized(64, 4)))
        for name, quality in FORMATS:
            begin = time.thread_time()
            encoded = [ENCODE[name](image, quality) for image in images]
            spent = time.thread_time() - begin
            what = f"{name} {quality}" if name != "png" else name
            found.append(
                Fact(f"{side_px} px, {what}: kB a view", float(np.mean([len(each) for each in encoded])) / 1e3)
            )
            if name != "png":
                loss = [psnr(image, decode_image({name: each})) for image, each in zip(images, encoded, strict=True)]
                found.append(Fact(f"{side_px} px, {what}: PSNR, dB", float(np.mean(loss))))
            found.append(Fact(f"{side_px} px, {what}: ms to encode a view", 1e3 * spent / len(images)))
    return found, []


if __name__ == "__main__":
    main("formats", run)
