"""Packing a folder of JPEGs against reading and hashing them, copying them into a tar, and img2dataset."""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from harness import Fact, Row, Took, compare, main, sized
from views import MIDDLE, photographs

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.codecs import decode_jpeg, encode_jpeg
from viewkit.shards.dataset import Dataset

IMAGES = 1024


def folder_of_jpegs(folder: Path, images: int) -> list[Path]:
    """Photographs of 500 x 375 px, some 100 kB each."""
    folder.mkdir()
    encoded = [encode_jpeg(pixels, quality=90) for pixels in photographs(min(images, 32), MIDDLE)]
    paths = [folder / f"{number:05d}.jpg" for number in range(images)]
    for number, path in enumerate(paths):
        path.write_bytes(encoded[number % len(encoded)])
    return paths


def anew(folder: Path, work: Callable[[Path], object]) -> Callable[[], object]:
    """`work` on a folder that does not exist yet, deleted afterwards."""
    numbers = count()

    def call() -> object:
        place = folder / f"run{next(numbers)}"
        found = work(place)
        shutil.rmtree(place, ignore_errors=True)
        return found

    return call


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = sized(IMAGES, 16)
        paths = folder_of_jpegs(folder / "photographs", images)

        def pack(place: Path) -> None:
            execution = Execution(device="cpu", workers=1)
            run_stage(PackStage(str(folder / "photographs")), PackConfig(), Dataset(place), execution)

        def read_and_hash() -> None:
            hashed = hashlib.sha256()
            for path in paths:
                hashed.update(path.read_bytes())

        def read_hash_and_decode() -> None:
            hashed = hashlib.sha256()
            for path in paths:
                data = path.read_bytes()
                hashed.update(data)
                decode_jpeg(data)

        def copy_and_tar(place: Path) -> None:
            place.mkdir()
            copies = [Path(shutil.copy(path, place / path.name)) for path in paths]
            with open(place / "all.tar", "wb") as file:
                with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                    for copy in copies:
                        archive.add(copy, copy.name)
                file.flush()
                os.fsync(file.fileno())

        ours = anew(folder, pack)
        what = "pack / reading and hashing the bytes (time)"
        rows: list[Row | Fact] = [compare(what, ours, read_and_hash, rounds, units=images, at_most=True)]
        what = "pack / reading, hashing and decoding once (time)"
        rows.append(compare(what, ours, read_hash_and_decode, rounds, units=images, at_most=True))
        tarred = anew(folder, copy_and_tar)
        rows.append(compare("pack / copying the files and tarfile", ours, tarred, rounds, units=images))
        if find_spec("img2dataset"):
            theirs = anew(folder, lambda place: img2dataset(paths, place))
            rows.append(compare("pack / img2dataset, no resize", ours, theirs, rounds, units=images))
        else:
            left_out.append("img2dataset: not installed (pip install img2dataset)")
    return rows, left_out


def img2dataset(paths: Sequence[Path], place: Path) -> Took:
    """Its resize-free path: files by URL into WebDataset tars, one process and as many threads as it takes itself. The
    seconds are those of its own statistics: reading, decoding and writing, without the start of its process."""
    from img2dataset import download

    place.mkdir()
    listed = place / "urls.txt"
    listed.write_text("".join(f"{path.as_uri()}\n" for path in paths))
    download(
        url_list=str(listed),
        output_folder=str(place / "out"),
        output_format="webdataset",
        resize_mode="no",
        skip_reencode=True,
        processes_count=1,
        enable_wandb=False,
    )
    found = [json.loads(path.read_text()) for path in sorted((place / "out").glob("*_stats.json"))]
    if sum(each["successes"] for each in found) != len(paths):
        sys.exit(f"img2dataset took {sum(each['successes'] for each in found)} of {len(paths)} images")
    return Took(sum(each["end_time"] - each["start_time"] for each in found))


if __name__ == "__main__":
    main("pack", run)
