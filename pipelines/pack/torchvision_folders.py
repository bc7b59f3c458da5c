"""Source ``torchvision:NAME:SPLIT:ROOT``: datasets as torchvision's classes lay them out below their ``root``.

Nothing is downloaded, and torchvision is not needed: what these folders hold beside images is a list, and sometimes
arrays of pixels (`torchvision_arrays`). Class numbers and names are torchvision's. What torchvision reads as an
ImageFolder (ImageNet, Imagenette, EuroSAT, Country211) is packed as a folder, with ``--labels folders``.
"""

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.folder import read_file
from viewkit.pipelines.pack.keys import display, row_key, shuffled
from viewkit.pipelines.pack.listing import Found, Texts, listing_digest
from viewkit.pipelines.pack.numbered import RowByRow
from viewkit.pipelines.pack.raw import LABEL, PATH, extension_of
from viewkit.shards.codecs import one_line
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject, Row


@dataclass(frozen=True)
class Layout:
    """splits: their names. holds: folder below ROOT that the dataset lies in. read: of that folder and the split makes
    a `Listed`, or, as ``module:function``, any `PackSources`."""

    splits: tuple[str, ...]
    holds: str
    read: "Callable[[Path, str], Listed] | str"


@dataclass(frozen=True)
class Listed:
    """paths: of the images below the dataset's folder. labels: their class numbers. names: of the classes."""

    paths: Sequence[str]
    labels: Sequence[int]
    names: Sequence[str]


def open_torchvision(rest: str, config: PackConfig) -> Any:
    """rest: ``NAME:SPLIT:ROOT``. `ConfigError` for names that do not exist, `DataError` for a folder that is not as it
    should be."""
    name, _, more = rest.partition(":")
    split, colon, root = more.partition(":")
    layout = LAYOUTS.get(name)
    if layout is None:
        raise ConfigError(f"pack: torchvision:{display(name)} is not known; there are {', '.join(sorted(LAYOUTS))}")
    if split not in layout.splits or not colon or not root.strip():
        raise ConfigError(
            f"pack: the source 'torchvision:{display(rest)}' is not torchvision:{name}:SPLIT:ROOT with a SPLIT of "
            f"{', '.join(layout.splits)} and the folder that torchvision is given as root"
        )
    if config.labels == "folders":
        raise ConfigError(f"pack: labels 'folders' needs a folder of images; torchvision:{name} brings its labels")
    folder = Path(root).expanduser() / layout.holds
    if not folder.is_dir():
        raise DataError(
            f"pack: there is no folder '{display(str(folder))}', in which torchvision keeps {name}; ROOT is the folder "
            "that holds it"
        )
    if isinstance(layout.read, str):
        module, _, function = layout.read.partition(":")
        return getattr(import_module(module), function)(name, folder, split, config)
    try:
        found = layout.read(folder, split)
    except OSError as error:
        raise DataError(f"pack: '{display(str(error.filename))}' of {name} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise DataError(
            f"pack: the lists of {name} in '{display(str(folder))}' are not as torchvision reads them ({error!r}); "
            "unpack the dataset again"
        ) from error
    if not found.paths:
        raise DataError(f"pack: the split '{split}' of {name} in '{display(str(folder))}' lists no image")
    return ListedSources(f"torchvision:{name}:{split}", folder, found, config)


class ListedSources(RowByRow):
    """The images of a list below a folder, with the classes it gives; files are read when their turn comes."""

    def __init__(self, kind: str, root: Path, listed: Listed, config: PackConfig) -> None:
        self._root = os.fspath(root)
        self._rows_per_shard, self._max_bytes = config.rows_per_shard, config.max_file_mb * 10**6
        order = shuffled(list(listed.paths))
        self._paths = Texts(listed.paths[i] for i in order)
        self._labels = np.array([listed.labels[i] for i in order], dtype=np.int64)
        self._names = tuple(listed.names)
        found = [Found(path, _size(root / path)) for path in self._paths]
        self.digest = digest([listing_digest(kind, found), self._labels.tolist()])

    @property
    def num_rows(self) -> int:
        return len(self._paths)

    def key(self, i: int) -> str:
        return row_key(self._paths[i])

    def labels(self) -> Int64[np.ndarray, " n"]:
        return self._labels

    def row(self, i: int) -> Row | Reject:
        path, label = self._paths[i], int(self._labels[i])
        data = read_file(self._root, path, self._max_bytes)
        if isinstance(data, Reject):
            return data
        about = {PATH: path.encode("utf-8", "surrogateescape"), "cls": b"%d" % label}
        if label < len(self._names):
            about[LABEL] = self._names[label].encode("utf-8", "surrogateescape")
        return Row(row_key(path), {extension_of(path): data, **about})


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _safe(path: str) -> str:
    """A path that a list names; `ValueError` where it leads out of the dataset."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"the path {path!r} leads out of the dataset")
    return path


def flowers102(folder: Path, split: str) -> Listed:
    chosen = _matrix(folder / "setid.mat", {"train": "trnid", "val": "valid", "test": "tstid"}[split])
    labels = _matrix(folder / "imagelabels.mat", "labels")
    if min(chosen, default=1) < 1:
        raise ValueError("its images are numbered from 1")
    return Listed([f"jpg/image_{number:05d}.jpg" for number in chosen], [labels[n - 1] - 1 for n in chosen], ())


def _matrix(path: Path, name: str) -> list[int]:
    """The whole numbers of a variable in a MATLAB file; `ValueError` where it holds none."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        found = loadmat(path, variable_names=[name])[name]
    except (MatReadError, NotImplementedError, zlib.error, KeyError, MemoryError) as error:
        raise ValueError(f"{path.name} does not hold '{name}': {one_line(error)}") from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu":
        raise ValueError(f"'{name}' of {path.name} is not of whole numbers")
    return [int(number) for number in found.ravel()]


def food101(folder: Path, split: str) -> Listed:
    listed = json.loads((folder / "meta" / f"{split}.json").read_text(encoding="utf-8"))
    names = sorted(listed)
    pairs = [(f"images/{_safe(each)}.jpg", label) for label, name in enumerate(names) for each in listed[name]]
    return Listed([path for path, _ in pairs], [label for _, label in pairs], names)


def dtd(folder: Path, split: str) -> Listed:
    """splits: of torchvision's partition 1."""
    paths = [_safe(line) for line in _lines(folder / "labels" / f"{split}1.txt")]
    names = sorted({path.split("/")[0] for path in paths})
    return Listed([f"images/{path}" for path in paths], [names.index(path.split("/")[0]) for path in paths], names)


def pets(folder: Path, split: str) -> Listed:
    parts = [line.split() for line in _lines(folder / "annotations" / f"{split}.txt") if not line.startswith("#")]
    labels = [int(label) - 1 for _, label, _, _ in parts]
    breeds = {label: part[0].rpartition("_")[0] for label, part in zip(labels, parts, strict=True)}
    names = [" ".join(word.title() for word in breeds[label].split("_")) for label in range(len(breeds))]
    return Listed([f"images/{_safe(part[0])}.jpg" for part in parts], labels, names)


def aircraft(folder: Path, split: str) -> Listed:
    """Classes are variants, torchvision's default."""
    names = _lines(folder / "data" / "variants.txt")
    parts = [line.split(" ", 1) for line in _lines(folder / "data" / f"images_variant_{split}.txt")]
    return Listed(
        [f"data/images/{_safe(each)}.jpg" for each, _ in parts], [names.index(name) for _, name in parts], names
    )


ARRAYS = "viewkit.pipelines.pack.torchvision_arrays"
LAYOUTS: Mapping[str, Layout] = {
    "cifar10": Layout(("train", "test"), "cifar-10-batches-py", f"{ARRAYS}:open_cifar"),
    "cifar100": Layout(("train", "test"), "cifar-100-python", f"{ARRAYS}:open_cifar"),
    "stl10": Layout(("train", "test", "unlabeled", "train+unlabeled"), "stl10_binary", f"{ARRAYS}:open_stl"),
    "flowers102": Layout(("train", "val", "test"), "flowers-102", flowers102),
    "food101": Layout(("train", "test"), "food-101", food101),
    "dtd": Layout(("train", "val", "test"), "dtd/dtd", dtd),
    "oxfordiiitpet": Layout(("trainval", "test"), "oxford-iiit-pet", pets),
    "fgvcaircraft": Layout(("train", "val", "trainval", "test"), "fgvc-aircraft-2013b", aircraft),
}
"""NAME -> how it lies on disk. Names are those of torchvision's classes in lower case."""


def layout_in(root: Path) -> str | None:
    """The NAME of a dataset whose folder lies in `root`, or is it; None where there is none."""
    for name, layout in LAYOUTS.items():
        if (root / layout.holds).is_dir() or os.fspath(root.absolute()).endswith(f"/{layout.holds}"):
            return name
    return None
