"""torchvision's folders: the pixels and classes that torchvision's own classes give, and no code run from a pickle."""

import os
import pickle
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torchvision_layouts as layouts
from small_datasets import CPU
from sources import everything
from torchvision import datasets

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.raw import LABEL
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.pack.torchvision_folders import LAYOUTS
from viewkit.shards.codecs import decode_image
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Reject, Row
from viewkit.shards.verify import verify

CONFIG = PackConfig(rows_per_shard=4)
MAKE = {
    "cifar10": layouts.cifar,
    "cifar100": lambda root: layouts.cifar(root, ten=False),
    "stl10": layouts.stl,
    "flowers102": layouts.flowers,
    "food101": layouts.food,
    "dtd": layouts.textures,
    "oxfordiiitpet": layouts.pets,
    "fgvcaircraft": layouts.aircraft,
}
THEIRS = {
    "cifar10": lambda root, split: datasets.CIFAR10(root, train=split == "train"),
    "cifar100": lambda root, split: datasets.CIFAR100(root, train=split == "train"),
    "stl10": lambda root, split: datasets.STL10(root, split=split),
    "flowers102": lambda root, split: datasets.Flowers102(root, split=split),
    "food101": lambda root, split: datasets.Food101(root, split=split),
    "dtd": lambda root, split: datasets.DTD(root, split=split),
    "oxfordiiitpet": lambda root, split: datasets.OxfordIIITPet(root, split=split),
    "fgvcaircraft": lambda root, split: datasets.FGVCAircraft(root, split=split),
}


def test_every_layout_is_tested():
    assert MAKE.keys() == THEIRS.keys() == LAYOUTS.keys()


@pytest.mark.parametrize(
    ("name", "split"), [(name, split) for name, layout in LAYOUTS.items() for split in layout.splits]
)
def test_images_and_classes_are_those_that_torchvision_gives(name, split, tmp_path, monkeypatch):
    MAKE[name](tmp_path)
    for kind in (datasets.CIFAR10, datasets.STL10, datasets.Flowers102):  # ours are not the published files
        monkeypatch.setattr(kind, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": None})
    monkeypatch.setattr(datasets.CIFAR100, "meta", {**datasets.CIFAR100.meta, "md5": None})
    theirs = THEIRS[name](tmp_path, split)
    names = getattr(theirs, "classes", None) if name != "flowers102" else None
    wanted = sorted((np.asarray(image).tobytes(), int(label)) for image, label in theirs)
    found = []
    for row in everything(open_source(f"torchvision:{name}:{split}:{tmp_path}", CONFIG)):
        assert isinstance(row, Row)
        label = int(row.fields.get("cls", b"-1"))
        assert row.fields.get(LABEL) == (names[label].encode() if names and label >= 0 else None)
        fields = {key: data for key, data in row.fields.items() if key in ("png", "jpg")}
        found.append((decode_image(fields).tobytes(), label))
    assert sorted(found) == wanted


@pytest.mark.parametrize("name", ["cifar10", "food101", "stl10"])
def test_it_packs_verifies_and_travels_to_workers(name, tmp_path):
    MAKE[name](tmp_path / "root")
    dataset = Dataset(tmp_path / "data")
    text = f"torchvision:{name}:train:{tmp_path / 'root'}"
    run_stage(PackStage(text), CONFIG, dataset, CPU)
    assert not [each for each in verify(dataset) if each.problem] and not dataset.column("images").rejects
    source = open_source(text, CONFIG)
    sent = pickle.dumps(source)
    assert everything(pickle.loads(sent)) == everything(source) and len(sent) < 10_000  # noqa: S301


class Harmful:
    """A pickle of it makes a folder where it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Nested:
    def __init__(self, call, *arguments):
        self.made = call, arguments

    def __reduce__(self):
        return self.made


BATCH = {"data": np.zeros((1, 3072), np.uint8), "labels": [1], "filenames": ["a.png"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda path: pickle.dumps(Harmful(str(path))), "it asks for posix.mkdir"),
        (lambda path: pickle.dumps({**BATCH, "labels": Harmful(str(path))}), "it asks for posix.mkdir"),
        (lambda _: pickle.dumps({**BATCH, "extra": Nested(eval, "1")}), "it asks for builtins.eval"),
        (lambda _: pickle.dumps({**BATCH, "extra": OrderedDict()}), "it asks for collections.OrderedDict"),
        (lambda _: pickle.dumps({**BATCH, "extra": Nested(np.dtype, np.object_)}), "it asks for numpy.object_"),
        (lambda _: pickle.dumps({**BATCH, "data": np.zeros((1, 3072), object)}), "an array that is not of bytes"),
        (lambda _: pickle.dumps({**BATCH, "data": np.zeros((1, 3000), np.uint8)}), "cannot reshape"),
        (lambda _: pickle.dumps({**BATCH, "data": [1, 2]}), "'data' is no array"),
        (lambda _: pickle.dumps({**BATCH, "labels": [1, 2]}), "it has 1 names and 2 labels"),
        (lambda _: pickle.dumps({**BATCH, "labels": [-1]}), "a label is no class number"),
        (lambda _: pickle.dumps({**BATCH, "filenames": [3]}), "a list of texts is needed"),
        (lambda _: pickle.dumps({"data": BATCH["data"]}), "is not as torchvision reads it"),
        (lambda _: pickle.dumps([BATCH]), "it is no dictionary"),
        (lambda _: pickle.dumps(BATCH)[:-40], "is not as torchvision reads it"),
        (lambda _: b"", "is not as torchvision reads it"),
        (lambda _: b"\x80\x04\x96" + b"\xff" * 7 + b"\x7f", "is not as torchvision reads it"),
        (lambda _: b"\x80\x02}r\xff\xff\xff\x7f.", "it holds the instruction LONG_BINPUT"),
        (lambda _: pickle.dumps({**BATCH, "extra": bytearray(3)}, protocol=5), "it holds the instruction BYTEARRAY8"),
        (lambda _: b"c__builtin__\neval\n(S'1'\ntR.", "it asks for"),
        (lambda _: b"(" * 5_000 + b"l" * 5_000 + b".", "is not as torchvision reads it"),
    ],
)
def test_a_pickle_that_is_no_batch_runs_nothing_and_is_one_line(content, message, tmp_path):
    layouts.cifar(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content(tmp_path / "made"))
    with pytest.raises(DataError, match=message) as caught:
        open_source(f"torchvision:cifar10:test:{tmp_path}", CONFIG)
    assert "test_batch" in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "made").exists()


def test_python_3s_pickles_of_a_newer_protocol_are_read_alike(tmp_path):
    layouts.cifar(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    before = everything(open_source(f"torchvision:cifar10:test:{tmp_path}", CONFIG))
    content = pickle.loads(path.read_bytes())  # noqa: S301
    for protocol in (0, 1, 3, 4):
        path.write_bytes(pickle.dumps(content, protocol=protocol))
        assert everything(open_source(f"torchvision:cifar10:test:{tmp_path}", CONFIG)) == before


@pytest.mark.slow
def test_no_flipped_byte_of_a_batch_is_more_than_one_line(tmp_path):
    layouts.cifar(tmp_path, count=1)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    whole = path.read_bytes()
    for at in [*range(200), *range(len(whole) - 200, len(whole))]:
        for bits in (0xFF, 0x20):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :])
            try:
                everything(open_source(f"torchvision:cifar10:test:{tmp_path}", CONFIG))
            except DataError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("torchvision:mnist:train:ROOT", ConfigError, "torchvision:mnist is not known; there are cifar10, cifar100"),
        ("torchvision:", ConfigError, "torchvision: is not known"),
        ("torchvision:dtd:ROOT", ConfigError, "with a SPLIT of train, val, test and the folder"),
        ("torchvision:dtd:train", ConfigError, "is not torchvision:dtd:SPLIT:ROOT"),
        ("torchvision:dtd:train:ROOT/none", DataError, "there is no folder .*dtd/dtd"),
        ("torchvision:stl10:train:ROOT", DataError, "there is no folder .*stl10_binary"),
        ("ROOT", DataError, "holds food101 as torchvision keeps it; name it torchvision:food101:SPLIT:ROOT"),
    ],
)
def test_a_source_that_is_not_there_is_one_line(source, error, message, tmp_path):
    layouts.put(tmp_path / "food-101" / "meta" / "train.json", "{}")
    with pytest.raises(error, match=message) as caught:
        open_source(source.replace("ROOT", str(tmp_path)), CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file", "data", "message"),
    [
        ("food101", "food-101/meta/train.json", "{", "the lists of food101"),
        ("food101", "food-101/meta/train.json", "[1]", "the lists of food101"),
        ("food101", "food-101/meta/train.json", "{}", "lists no image"),
        ("food101", "food-101/meta/train.json", '{"a": ["../../x"]}', "leads out of the dataset"),
        ("dtd", "dtd/dtd/labels/train1.txt", "/etc/passwd\n", "leads out of the dataset"),
        ("fgvcaircraft", "fgvc-aircraft-2013b/data/images_variant_train.txt", "1 Ju 52\n", "is not in list"),
        ("stl10", "stl10_binary/train_X.bin", "short", "is not a number of images"),
        ("stl10", "stl10_binary/train_y.bin", "12", "does not hold a class from 1 on"),
        ("flowers102", "flowers-102/setid.mat", "no matrix", "the lists of flowers102"),
    ],
)
def test_lists_that_are_not_as_they_should_be_are_one_line(name, file, data, message, tmp_path):
    MAKE[name](tmp_path)
    layouts.put(tmp_path / file, data)
    with pytest.raises(DataError, match=message) as caught:
        open_source(f"torchvision:{name}:train:{tmp_path}", CONFIG)
    assert "\n" not in str(caught.value)


def test_a_listed_image_that_is_missing_is_a_reject(tmp_path):
    layouts.food(tmp_path)
    (tmp_path / "food-101" / "images" / "waffles" / "0.jpg").unlink()
    rows = everything(open_source(f"torchvision:food101:train:{tmp_path}", CONFIG))
    assert [row.reason for row in rows if isinstance(row, Reject)] == ["unreadable"] and len(rows) == 4


@pytest.mark.slow
def test_reading_a_folder_imports_no_torchvision(tmp_path):
    import subprocess

    layouts.food(tmp_path)
    code = (
        "import sys; from viewkit.pipelines.pack.source import open_source; from viewkit.pipelines.pack.config import "
        f"PackConfig; s = open_source('torchvision:food101:train:{tmp_path}', PackConfig()); list(s.rows(0)); "
        "print('torchvision' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
