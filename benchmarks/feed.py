"""How fast a training is fed: rows in random order, checked and decoded by threads; what is left besides decoding."""

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness import Row, compare, main, sized

from viewkit.pipelines.pack.demo import photograph
from viewkit.pipelines.pairs.samples import load_image
from viewkit.shards.codecs import encode_jpeg
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.loader import Loader
from viewkit.shards.row import Row as ShardRow
from viewkit.shards.writer import ShardWriter

SIDE_PX = 375
PHOTOGRAPHS = ("astronaut", "coffee", "motorcycle", "rocket")
BATCH = 32


def make(path: Path, images: int) -> Dataset:
    """`images` of JPEGs, cut from photographs at random places."""
    rng = np.random.default_rng(0)
    folder, identity = path / "images", Identity("pack", 1, {}, {"listing": "none"}, {"shards": 1, "rows": images})
    folder.mkdir(parents=True)
    write_identity(folder / "column.json", identity)
    with ShardWriter(folder, 0, identity.digest) as writer:
        for number in range(images):
            pixels = photograph(PHOTOGRAPHS[number % len(PHOTOGRAPHS)])
            top, left = (int(rng.integers(extent - SIDE_PX + 1)) for extent in pixels.shape[:2])
            square = np.ascontiguousarray(pixels[top : top + SIDE_PX, left : left + SIDE_PX])
            writer.write(ShardRow(f"{number:06d}", {"jpg": encode_jpeg(square, 85)}))
        writer.finish()
    return Dataset(path)


def run(rounds: int) -> tuple[Sequence[Row], Sequence[str]]:
    images = sized(1024, 32)
    with tempfile.TemporaryDirectory() as folder:
        dataset = make(Path(folder), images)
        column = dataset.column("images")
        ready = [column.fields(number) for number in range(images)]

        def epoch(threads: int) -> Callable[[], None]:
            def go() -> None:
                loader = Loader(
                    dataset, batch_size=BATCH, seed=0, transform=lambda row: load_image(row.fields), threads=threads
                )
                assert sum(len(batch) for batch in loader.epoch(0)) == images

            return go

        def decode(threads: int) -> Callable[[], None]:
            def part(number: int) -> None:
                for fields in ready[number::threads]:
                    load_image(fields)

            def go() -> None:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(part, range(threads)))

            return go

        what = f"{SIDE_PX} px JPEG"
        rows = [compare(f"{what}, one thread / decoding ready bytes", epoch(1), decode(1), rounds, units=images)]
        if len(os.sched_getaffinity(0)) < 2:
            return rows, ["two threads: there is one core"]
        rows += [
            compare(f"{what}, two threads / decoding ready bytes", epoch(2), decode(2), rounds, units=images),
            compare(f"{what}, two threads / one", epoch(2), epoch(1), rounds, units=images),
            compare(f"{what}, decoding ready bytes, two threads / one", decode(2), decode(1), rounds, units=images),
        ]
    return rows, []


if __name__ == "__main__":
    main("feed", run)
