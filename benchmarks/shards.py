"""Writing and reading shards: ours against `tarfile` and `webdataset`, on 2 kB PNGs and 70 kB JPEGs."""

import io
import os
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import webdataset
from harness import Fact, Row, compare, main

from viewkit.shards.column import Column
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row as ShardRow
from viewkit.shards.writer import ShardWriter

SIZES = {"2 kB": (2_300, 2048), "70 kB": (70_000, 1024)}
"""Name -> bytes an image, rows a shard. Two members a row."""


def rows_of(size: int, count: int) -> list[ShardRow]:
    """Random bytes: neither side looks inside an image here."""
    generator = np.random.default_rng(0)
    return [
        ShardRow(f"photo_{place:06d}_{place:08x}", {"jpg": generator.bytes(size + place % 64), "cls": b"7"})
        for place in range(count)
    ]


def write_ours(folder: Path, rows: list[ShardRow], identity: str) -> None:
    with ShardWriter(folder, 0, identity) as writer:
        for row in rows:
            writer.write(row)
        writer.finish()


def write_tarfile(path: Path, rows: list[ShardRow], durable: bool) -> None:
    with open(path, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for row in rows:
                for name in sorted(row.fields):
                    info = tarfile.TarInfo(f"{row.key}.{name}")
                    info.size = len(row.fields[name])
                    archive.addfile(info, io.BytesIO(row.fields[name]))
        file.flush()
        if durable:
            os.fsync(file.fileno())


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    found: list[Row | Fact] = []
    with tempfile.TemporaryDirectory() as temporary:
        for label, (size, count) in SIZES.items():
            folder = Path(temporary) / label.replace(" ", "") / "images"
            folder.mkdir(parents=True)
            rows = rows_of(size, count)
            identity = Identity("benchmark", 1, {}, {}, {"shards": 1, "rows": count})
            write_identity(folder / "column.json", identity)
            peer = Path(temporary) / "peer.tar"
            found.append(
                compare(
                    f"write {label}, SHA-256, receipt and fsync / tarfile and fsync",
                    lambda folder=folder, rows=rows, identity=identity: write_ours(folder, rows, identity.digest),
                    lambda peer=peer, rows=rows: write_tarfile(peer, rows, durable=True),
                    rounds=rounds,
                    units=count,
                )
            )
            ours_bytes, peer_bytes = (folder / "000000.tar").stat().st_size, peer.stat().st_size
            found.append(Fact(f"write {label}: bytes / tarfile's", ours_bytes / peer_bytes))
            column = Column(folder)
            tar = str(folder / "000000.tar")

            check_equal(list(shuffled_dicts(column)), list(webdataset.WebDataset([tar], shardshuffle=False)))
            found.append(
                compare(
                    f"read {label}, shuffled, checked / webdataset in order",
                    lambda column=column: exhaust(shuffled_dicts(column)),
                    lambda tar=tar: exhaust(webdataset.WebDataset([tar], shardshuffle=False)),
                    rounds=rounds,
                    units=count,
                )
            )
    return found, []


def shuffled_dicts(column: Column) -> Iterator[dict[str, object]]:
    """Every row as the dict `webdataset` would give, in a random order."""
    keys = column.keys()
    for index in np.random.default_rng(1).permutation(column.num_rows).tolist():
        yield {"__key__": keys[index], **column.fields(index)}


def exhaust(samples: Iterable[object]) -> None:
    """Read everything and keep nothing: fresh memory would cost both sides more than reading does."""
    deque(samples, maxlen=0)


def check_equal(ours: list[dict[str, object]], theirs: list[dict[str, object]]) -> None:
    """Both readers must give the same dicts, `webdataset`'s own bookkeeping left out."""
    plain = [
        {name: value for name, value in each.items() if name not in ("__url__", "__local_path__")} for each in theirs
    ]
    by_key = sorted(ours, key=lambda each: str(each["__key__"]))
    assert by_key == sorted(plain, key=lambda each: str(each["__key__"]))


if __name__ == "__main__":
    main("shards", run)
