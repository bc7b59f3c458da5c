"""A handful of a source's images, as two folders with a folder a class: what an experiment is rehearsed on."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.ingest import Unusable, ingest
from viewkit.pipelines.pack.raw import IMAGES
from viewkit.pipelines.pack.source import open_source
from viewkit.shards.errors import DataError
from viewkit.shards.files import make_folder, write_atomic
from viewkit.shards.row import Row

CLASSES = 4
READ = 1024
"""Images that are read at most, in search of enough of each class."""


def copy_handful(
    source: str,
    labels: str,
    train: Path,
    test: Path,
    *,
    images: tuple[int, int],
    columns: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Write ``CLASS/NUMBER.png`` and the like below `train` and `test`; no image is in both.

    labels: as `pack` takes it. images: how many of each. columns: `pack`'s options of
    parquet files. Returns sentences about what the source does not have. Raises
    `DataError` for a source that cannot be read or holds fewer usable images, one for each folder.
    """
    given = columns or {}
    config = PackConfig(
        labels="folders" if labels == "folders" else "none",
        rows_per_shard=64,
        image_column=given.get("image_column"),
        label_column=given.get("label_column"),
    )
    found: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    each = -(-sum(images) // CLASSES)
    for number, (label, extension, data) in enumerate(_usable(source, config)):
        if len(found[label]) < each or label == "":
            found[label].append((extension, data))
        full = sum(len(members) >= each for members in found.values())
        if number + 1 >= READ or full >= CLASSES or (label == "" and len(found[label]) >= sum(images)):
            break
    notes = []
    labelled = sorted((label for label in found if label and len(found[label]) >= 4), key=lambda x: -len(found[x]))
    if len(labelled) < 2:
        notes.append("the first images have no two labelled classes of four images: the rehearsal makes up two classes")
        members = [member for label in found for member in found[label]]
        groups = [members[0::2], members[1::2]]
    else:
        groups = [found[label] for label in labelled[:CLASSES]]
    share = images[1] / sum(images)
    for name, group in enumerate(groups):
        cut = max(1, round(len(group) * share))
        for folder, chosen in ((test, group[:cut]), (train, group[cut:])):
            make_folder(folder / f"class{name}")
            for place, (extension, data) in enumerate(chosen):
                write_atomic(folder / f"class{name}" / f"{place:03d}.{extension}", data)
    if not all(len(group) >= 4 for group in groups):
        raise DataError(
            f"the source '{source}' has {sum(map(len, groups))} usable images; a rehearsal needs at least 8"
        )
    return tuple(notes)


def _usable(source: str, config: PackConfig) -> Iterator[tuple[str, str, bytes]]:
    """(class as text, "" without one; extension; bytes as `pack` would store them), in the order of the source."""
    opened = open_source(source, config)
    for shard in range(opened.num_shards):
        for row in opened.rows(shard):
            names = [name for name in row.fields if name in IMAGES] if isinstance(row, Row) else []
            if not isinstance(row, Row) or len(names) != 1:
                continue
            try:
                taken = ingest(row.fields[names[0]], max_pixels=config.max_pixels, min_side_px=config.min_side_px)
            except Unusable:
                continue  # `pack` counts it among its rejects
            yield row.fields.get("cls", b"").decode("ascii", "replace").strip(), taken.extension, taken.data
