"""Datasets as torchvision's classes find them below ``root``, rebuilt with a handful of small images."""

import json
import pickle
from pathlib import Path

import numpy as np
from sources import encoded


def put(path: Path, data: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data) if isinstance(data, bytes) else path.write_text(data)


def cifar(root: Path, ten: bool = True, count: int = 3) -> None:
    """Every batch with `count` images, in the protocol of Python 2."""
    folder = root / ("cifar-10-batches-py" if ten else "cifar-100-python")
    label = "labels" if ten else "fine_labels"
    for number, name in enumerate(
        [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"] if ten else ["train", "test"]
    ):
        random = np.random.default_rng(number)
        content = {
            "data": random.integers(0, 256, (count, 3072), dtype=np.uint8),
            label: [int(each) for each in random.integers(0, 4, count)],
            "filenames": [f"thing_s_{i:06d}.png" for i in range(count)],
        }
        put(folder / name, pickle.dumps(content, protocol=2))
    names = {"label_names" if ten else "fine_label_names": ["plane", "car", "bird", "cat"]}
    put(folder / ("batches.meta" if ten else "meta"), pickle.dumps(names, protocol=2))


def stl(root: Path, count: int = 3) -> None:
    folder = root / "stl10_binary"
    for number, part in enumerate(("train", "test", "unlabeled")):
        random = np.random.default_rng(number)
        put(folder / f"{part}_X.bin", random.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8).tobytes())
        if part != "unlabeled":
            put(folder / f"{part}_y.bin", random.integers(1, 4, count, dtype=np.uint8).tobytes())
    put(folder / "class_names.txt", "plane\nbird\ncar\n")


def flowers(root: Path) -> None:
    from scipy.io import savemat

    folder = root / "flowers-102"
    folder.mkdir(parents=True)
    savemat(
        folder / "setid.mat", {"trnid": np.array([[2, 4]]), "valid": np.array([[1, 6]]), "tstid": np.array([[3, 5]])}
    )
    savemat(folder / "imagelabels.mat", {"labels": np.array([[7, 1, 1, 102, 3, 9]])})
    for i in range(1, 7):
        put(folder / "jpg" / f"image_{i:05d}.jpg", encoded(i, "JPEG"))


def food(root: Path) -> None:
    folder = root / "food-101"
    for number, split in enumerate(("train", "test")):
        listed = {name: [f"{name}/{10 * number + i}" for i in range(2)] for name in ("waffles", "apple_pie")}
        put(folder / "meta" / f"{split}.json", json.dumps(listed))
        for i, path in enumerate(each for paths in listed.values() for each in paths):
            put(folder / "images" / f"{path}.jpg", encoded(10 * number + i, "JPEG"))


def textures(root: Path) -> None:
    folder = root / "dtd" / "dtd"
    for number, split in enumerate(("train", "val", "test")):
        paths = [f"{name}/{name}_{number}.jpg" for name in ("banded", "zigzagged")]
        put(folder / "labels" / f"{split}1.txt", "\n".join(paths) + "\n")
        for i, path in enumerate(paths):
            put(folder / "images" / path, encoded(10 * number + i, "JPEG"))


def pets(root: Path) -> None:
    folder = root / "oxford-iiit-pet"
    for number, split in enumerate(("trainval", "test")):
        names = [(f"Abyssinian_{number}", 1), (f"great_pyrenees_{number}", 2)]
        put(folder / "annotations" / f"{split}.txt", "".join(f"{name} {label} 1 1\n" for name, label in names))
        for i, (name, _) in enumerate(names):
            put(folder / "images" / f"{name}.jpg", encoded(10 * number + i, "JPEG"))


def aircraft(root: Path) -> None:
    folder = root / "fgvc-aircraft-2013b" / "data"
    put(folder / "variants.txt", "707-320\nF/A-18\n")
    for number, split in enumerate(("train", "val", "trainval", "test")):
        put(folder / f"images_variant_{split}.txt", f"00{number}1 F/A-18\n00{number}2 707-320\n")
        for i in (1, 2):
            put(folder / "images" / f"00{number}{i}.jpg", encoded(10 * number + i, "JPEG"))
