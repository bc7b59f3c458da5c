"""What a source holds, from its listing and the headers of a sample of its images; nothing is decoded."""

import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import Any

from PIL import Image

from viewkit.pipelines.pack.added import GrowingSources
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import shuffled
from viewkit.pipelines.pack.listing import Found
from viewkit.pipelines.pack.raw import IMAGES
from viewkit.pipelines.pack.source import SCHEMES, PackSources, list_path, open_source
from viewkit.shards.row import Reject, Row

SAMPLE = 512
"""Images whose headers are read, those with the smallest path hashes: a fair mix of the source."""
SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "unlabeled", "unlabelled"})
CLASS_IMAGES = 4
"""Folders with fewer images each, in the middle of them, are no classes."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """What was found. count: files or samples that look like images. looked_at: how many of them were opened.

    unusable: of those, the ones that Pillow does not know or whose shorter side is below `pack`'s limit. sides: the
    shorter sides of the others in px: of the smallest tenth, the median, of the largest tenth. classes: folders of the
    first level, or different KEY.cls in the sample; 0 without labels. labels: as `pack` takes it. splits: folders of
    the first level, or tars, that are called like parts of a dataset. beside: images beside the folders there.
    """

    count: int
    looked_at: int
    unusable: int
    sides: tuple[int, int, int]
    labels: str = "none"
    classes: int = 0
    splits: tuple[str, ...] = ()
    beside: int = 0

    @property
    def usable(self) -> int:
        """Images that `pack` will probably keep."""
        return round(self.count * (1 - self.unusable / self.looked_at)) if self.looked_at else 0


def look_at(source: str) -> Images:
    """Look at a source as `pack` will. `DataError` for one that is missing, empty or cannot be read."""
    if source.partition(":")[0] not in SCHEMES:
        root, listing = list_path(source, None)
        if listing.images:
            return _look_at_folder(root, listing.images)
        if listing.zips:
            return _look_at_zips(open_source(source, PackConfig()))
        return _look_at_rows(open_source(source, PackConfig()), _splits_of(listing.tars))
    return _look_at_rows(open_source(source, PackConfig()), ())


def _look_at_folder(root: Path, images: list[Found]) -> Images:
    paths = [found.path for found in images]
    headers = [_short_side(os.path.join(root, paths[i])) for i in islice(shuffled(paths), SAMPLE)]
    folders = Counter(path.split("/")[0] for path in paths if "/" in path)
    return _in_folders(len(paths), headers, folders)


def _in_folders(count: int, headers: list[int], folders: Counter[str]) -> Images:
    """folders: images in each folder of the first level, which may be a class each, or parts such as train and val."""
    beside = count - folders.total()
    splits = tuple(sorted(folders)) if all(name.lower() in SPLITS for name in folders) else ()
    sizes = sorted(folders.values())
    are_classes = len(sizes) > 1 and not splits and not beside and sizes[len(sizes) // 2] >= CLASS_IMAGES
    return _images(
        count, headers, "folders" if are_classes else "none", len(sizes) if are_classes else 0, splits, beside
    )


def _look_at_zips(opened: PackSources) -> Images:
    assert isinstance(opened, GrowingSources)  # it tells the class of a place without reading the image
    names = [opened.class_name(place) for place in range(opened.num_rows)]
    headers = [_header(row) for row in islice(_rows(opened), SAMPLE)]
    return _in_folders(opened.num_rows, headers, Counter(name for name in names if name is not None))


def _header(row: Row | Reject) -> int:
    """The short side of a raw row's image; 0 where it has none."""
    fields = row.fields if isinstance(row, Row) else {}
    names = [name for name in fields if name in IMAGES]
    return _short_side(io.BytesIO(fields[names[0]])) if len(names) == 1 else 0


def _splits_of(tars: list[Found]) -> tuple[str, ...]:
    """``train`` and ``val`` of train-000.tar, train-001.tar and val.tar; none where all tars are of one part."""
    words = {re.split(r"[-_.]", os.path.basename(found.path).lower())[0] for found in tars}
    return tuple(sorted(words)) if len(words) > 1 and words <= SPLITS else ()


def _look_at_rows(opened: PackSources, splits: tuple[str, ...]) -> Images:
    headers: list[int] = []
    labels = set()
    for row in islice(_rows(opened), SAMPLE):
        headers.append(_header(row))
        if isinstance(row, Row) and "cls" in row.fields:
            labels.add(row.fields["cls"])
    return _images(opened.num_rows, headers, "none", len(labels), splits, 0)


def _rows(opened: PackSources) -> Iterator[Any]:
    for shard in range(opened.num_shards):
        yield from opened.rows(shard)


def _images(count: int, headers: list[int], labels: str, classes: int, splits: tuple[str, ...], beside: int) -> Images:
    good = [side for side in headers if side >= PackConfig.min_side_px]
    cuts = quantiles(good, n=10, method="inclusive") if len(good) > 1 else [*good * 9, *[0] * 9]
    return Images(
        count=count,
        looked_at=len(headers),
        unusable=len(headers) - len(good),
        sides=(int(cuts[0]), int(cuts[4]), int(cuts[8])),
        labels=labels,
        classes=classes,
        splits=splits,
        beside=beside,
    )


def _short_side(file: str | io.BytesIO) -> int:
    """Of an image, by its header; 0 where it is none that Pillow knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `pack` rejects these by name
        try:
            with Image.open(file) as image:
                return min(image.size)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return 0
