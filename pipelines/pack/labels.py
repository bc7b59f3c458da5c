"""Labels from outside, a folder for every class or a CSV file: which image each is of, and its class number."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from viewkit.pipelines.pack.keys import display, plain, row_key
from viewkit.pipelines.pack.listing import list_folder
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file

IMAGE_HEADERS = frozenset(
    first + last
    for first in ("", "file", "file_", "image", "image_", "img", "img_")
    for last in ("key", "name", "id", "path", "file", "image")
) | {"image", "img"}
LABEL_HEADERS = frozenset(("label", "class", "cls", "target", "category"))
"""Words in the first and in the second cell of a CSV file, each of which says that the first line is one of headers."""
MAX_DIGITS = 9


@dataclass(frozen=True)
class Entry:
    """One label. where: for messages. names: what the image may be called, the likeliest first."""

    where: str
    names: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class Matched:
    """labels: key -> class. unmatched: entries that no image fits."""

    labels: Mapping[str, str]
    unmatched: Sequence[Entry]


def read_entries(source: Path) -> list[Entry]:
    """What a folder of class folders, or a CSV file of lines ``image,class``, says. `DataError` where it says nothing
    or cannot be read."""
    if source.is_dir():
        found = _of_folder(source)
        empty = "it has no image in a folder; every class is a folder of images"
    elif source.is_file():
        found = _of_csv(source)
        empty = "it has no line IMAGE,CLASS"
    else:
        raise DataError(
            f"label: --from is {source}, which does not exist; give a folder of class folders, or a CSV file"
        )
    if not found:
        raise DataError(f"label: {source}: {empty}")
    return found


def _of_folder(root: Path) -> list[Entry]:
    """Of ``class/rest``, the images may have been packed as ``class/rest``, or as ``rest`` before they were sorted."""
    paths = [found.path for found in list_folder(root).images if "/" in found.path]
    return [Entry(path, (path, path.partition("/")[2]), path.partition("/")[0]) for path in paths]


def _of_csv(path: Path) -> list[Entry]:
    try:
        text = read_file(path).decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"label: {path}: is no CSV file in UTF-8 ({error})") from error
    found = []
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (number == 1 and _is_header(cells)):
            continue
        if len(cells) != 2 or not all(cells):
            raise DataError(f"label: {path}: line {number} has {len(cells)} cells or an empty one; needed IMAGE,CLASS")
        found.append(Entry(f"line {number}, {cells[0]}", (cells[0].removeprefix("./"),), cells[1]))
    return found


def _is_header(cells: Sequence[str]) -> bool:
    first, *second = [cell.lower() for cell in cells[:2]]
    return first in IMAGE_HEADERS or any(word in LABEL_HEADERS for word in second)


def match(
    entries: Sequence[Entry], keys: Mapping[str, int], how: str, paths: Callable[[], Mapping[str, str]]
) -> Matched:
    """The class of every image that an entry names.

    keys: of the images. how: as `LabelConfig.match`. paths: key -> path in the packed source; read only where keys do
    not do, for it takes a pass over the images. `DataError` where two entries give an image two classes.
    """
    found: dict[str, tuple[str, Entry]] = {}
    left = list(entries)
    if how != "name":
        left = _take(left, lambda entry: _by_key(entry, keys), found)
    sources = paths() if left else {}
    if how != "name":  # keys of tars' samples and of parquet files' rows are made of another path than is shown
        by_path = {path: key for key, path in sources.items()}
        left = _take(left, lambda entry: _by_path(entry, by_path), found)
    if left and how != "path":
        by_name = _unique_names(sources)
        twice = Counter(_name(entry) for entry in left)
        left, rest = [], left
        for entry in rest:
            key = by_name.get(_name(entry)) if twice[_name(entry)] == 1 else None
            if key is None or (how == "auto" and key in found):
                left.append(entry)
            else:
                _add(found, key, entry)
    return Matched({key: label for key, (label, _) in found.items()}, left)


def _take(
    entries: Sequence[Entry], find: Callable[[Entry], str | None], found: dict[str, tuple[str, Entry]]
) -> list[Entry]:
    """Put the class of every image that `find` gives the key of into `found`; the other entries."""
    left = []
    for entry in entries:
        key = find(entry)
        if key is None:
            left.append(entry)
        else:
            _add(found, key, entry)
    return left


def _by_key(entry: Entry, keys: Mapping[str, int]) -> str | None:
    """A key is mostly made of the path alone, so nothing need be read."""
    return next((each for name in entry.names for each in (name, row_key(name)) if each in keys), None)


def _by_path(entry: Entry, by_path: Mapping[str, str]) -> str | None:
    return next((by_path[path] for path in map(plain, entry.names) if path in by_path), None)


def _add(found: dict[str, tuple[str, Entry]], key: str, entry: Entry) -> None:
    label, other = found.setdefault(key, (entry.label, entry))
    if label != entry.label:
        raise DataError(
            f"label: image {key} has two classes, '{display(label)}' ({display(other.where)}) and "
            f"'{display(entry.label)}' ({display(entry.where)}); leave one out"
        )


def _name(entry: Entry) -> str:
    return PurePosixPath(entry.names[-1]).name


def _unique_names(paths: Mapping[str, str]) -> dict[str, str]:
    """File name -> key, of the names that one image alone has."""
    names = {key: PurePosixPath(path).name for key, path in paths.items()}
    count = Counter(names.values())
    return {name: key for key, name in names.items() if count[name] == 1}


def numbers_of(classes: Sequence[str], own: Mapping[int, str | None] | None = None) -> dict[str, int]:
    """Class -> number: the number it is, where all are numbers, else its place among the sorted names, as `pack
    --labels folders` has them.

    own: number -> name (None: it has none) of the classes that images have already. Names among these keep their
    numbers, and new ones get the next. `DataError` where two classes are one number, such as 1 and 01, and for names
    where an own class has none.
    """
    names, own = sorted(set(classes)), own or {}
    if all(map(_is_number, names)) and not any(name and _is_number(name) and int(name) != i for i, name in own.items()):
        return _as_written(names)
    if unnamed := [number for number, name in own.items() if name is None]:
        raise DataError(
            f"label: '{display(names[0])}' is the name of a class, and class {min(unnamed)} of images that have labels "
            "already has no name to tell which it is; write classes as numbers"
        )
    found = {name: number for number, name in own.items() if name is not None}
    for name in names:
        found.setdefault(name, max(found.values(), default=-1) + 1)
    return {name: found[name] for name in names}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= MAX_DIGITS


def _as_written(names: Sequence[str]) -> dict[str, int]:
    written: dict[int, str] = {}
    for name in names:
        other = written.setdefault(int(name), name)
        if other != name:
            raise DataError(
                f"label: classes '{other}' and '{name}' are both number {int(name)}; write the number of a class "
                "in one way only"
            )
    return {name: number for number, name in written.items()}
