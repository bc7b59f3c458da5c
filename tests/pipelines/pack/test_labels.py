"""`viewkit label`: labels attached later; keys stay, and evaluate and the kNN probe read them."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image
from small_datasets import CPU
from sources import encoded
from vs2fi_world import write_column

from viewkit.cli.main import run
from viewkit.pipelines.browse.measures import read_classes
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.evaluate.labelled import find_labelled, read_labelled
from viewkit.pipelines.labels import Labels, labels_of
from viewkit.pipelines.pack.composition import NO_CLASS
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.keys import row_key
from viewkit.pipelines.pack.label_config import LabelConfig
from viewkit.pipelines.pack.label_stage import LabelStage, own_classes, unlabelled_lines
from viewkit.pipelines.pack.labels import Entry, match, numbers_of, read_entries
from viewkit.pipelines.pack.packed import open_packed
from viewkit.pipelines.pack.raw import LABEL
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pairs.stream import label_of
from viewkit.shards.codecs import encode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row
from viewkit.shards.stream import RowTurn

NAMES = ("a/1.png", "a/2.png", "b/3.png", "4.png")


def ran(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def write(folder, *names):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((20, 20, 3), 40 * number, np.uint8)).save(path)


@pytest.fixture
def unlabelled(tmp_path, capsys):
    write(tmp_path / "source", *NAMES)
    assert ran(capsys, "pack", tmp_path / "source", tmp_path / "data", "--workers", "1")[0] == 0
    return Dataset(tmp_path / "data")


def attached(dataset):
    """Path in the source -> class number."""
    labels = labels_of(dataset).attached
    return {name: labels[row_key(name)] for name in NAMES if row_key(name) in labels}


def test_images_without_a_label_are_named_without_reading_any(unlabelled, monkeypatch):
    images = unlabelled.column("images")
    first, *others = images.keys()
    monkeypatch.setattr(Column, "fields", None)
    (line,) = unlabelled_lines("labels.csv", [], images, dict.fromkeys(others, "cat"))
    assert line == f"1 of 4 images have no label (first: {first})"


def test_lines_of_a_csv_file_name_keys_or_paths_and_the_keys_stay(unlabelled, tmp_path, capsys):
    with pytest.raises(DataError, match=r"no label for 4 of its 4 images.*attach labels with 'viewkit label"):
        find_labelled(unlabelled, "train")
    before = unlabelled.column("images").digest
    table = tmp_path / "labels.csv"
    table.write_text(f"file,label\n{row_key('a/1.png')},cat\n./a/2.png,cat\n\nb/3.png,dog\n4.png,ant\nnobody.png,dog\n")
    code, _, err = ran(capsys, "label", unlabelled.path, "--from", table)
    assert code == 0
    assert "label: 1 entries of" in err and "are no image of this dataset (first: line 7, nobody.png)" in err
    assert attached(unlabelled) == {"a/1.png": 1, "a/2.png": 1, "b/3.png": 2, "4.png": 0}
    assert labels_of(unlabelled).classes == {0: "ant", 1: "cat", 2: "dog"}
    assert unlabelled.column("images").digest == before
    found = read_labelled(unlabelled, "train")
    assert found.labels.tolist() == [labels_of(unlabelled).attached[key] for key in found.column.index.keys]


def test_class_numbers_of_a_csv_file_stay_as_they_are():
    assert numbers_of(["7", "3", "7"]) == {"7": 7, "3": 3}
    assert numbers_of(["b", "a"]) == {"a": 0, "b": 1}


HEADERS = [
    "key,cat",
    "filepath,cat",
    "img,cat",
    "image_path,cat",
    "Image_ID,cat",
    "image_name,label",
    "file,x",
    "a/1,Class",
]


@pytest.mark.parametrize("line", [*HEADERS, "nobody,category", "nobody,TARGET"])
def test_a_line_of_headers_is_no_class(line, tmp_path):
    (tmp_path / "labels.csv").write_text(f"{line}\na/1.png,3\na/2.png,label\n")
    found = read_entries(tmp_path / "labels.csv")
    assert [(entry.names, entry.label) for entry in found] == [(("a/1.png",), "3"), (("a/2.png",), "label")]


def test_a_first_line_of_an_image_and_its_class_is_one(tmp_path):
    (tmp_path / "labels.csv").write_text("image.png,labels\n")
    assert [entry.label for entry in read_entries(tmp_path / "labels.csv")] == ["labels"]


def test_classes_that_images_have_already_keep_their_numbers():
    own = {0: "ant", 1: "bee", 2: "cat"}
    assert numbers_of(["dog", "cat", "ape"], own) == {"ape": 3, "cat": 2, "dog": 4}
    assert numbers_of(["7", "2"], own) == {"7": 7, "2": 2}
    assert numbers_of(["10", "11"], {0: "0", 1: "10"}) == {"10": 1, "11": 2}  # folders called like numbers
    assert numbers_of(["4"], {0: None}) == {"4": 4}
    with pytest.raises(DataError, match=r"^label: 'cat' is the name of a class, and class 5 of .* write classes as nu"):
        numbers_of(["cat"], {6: "ant", 5: None})


def write_tar(path, *members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_images_of_a_partly_labelled_dataset_get_the_classes_of_the_others(tmp_path, capsys):
    members = [
        (f"{i}.{kind}", data)
        for i in range(4)
        for kind, data in (("png", encoded(i)), ("cls", b"%d" % i))
        if i < 3 or kind == "png"
    ]
    write_tar(tmp_path / "a.tar", *members)
    assert ran(capsys, "pack", tmp_path / "a.tar", tmp_path / "data", "--workers", "1")[0] == 0
    (tmp_path / "labels.csv").write_text("3.png,cat\n")
    command = ("label", tmp_path / "data", "--from", tmp_path / "labels.csv")
    code, _, err = ran(capsys, *command)
    assert code == 1 and "'cat' is the name of a class, and class 0 of images" in err
    (tmp_path / "labels.csv").write_text("3.png,2\n")
    assert ran(capsys, *command)[0] == 0
    dataset = Dataset(tmp_path / "data")
    assert list(labels_of(dataset).attached.values()) == [2]
    assert set(read_labelled(dataset, "train").labels.tolist()) == {0, 1, 2}


def test_the_names_of_own_classes_come_from_the_rows(tmp_path):
    dataset = Dataset(tmp_path)
    facts = [("ant", 0), ("bee", 1), ("cat", 2), ("cat", 2)]
    rows = [
        Row(f"k{i}", {"png": b"x", "cls": b"%d" % n, "json": encode_json({"label": name})})
        for i, (name, n) in enumerate(facts)
    ]
    write_column(dataset, "images", [*rows, Row("k9", {"png": b"x", "json": encode_json({"source": "9.png"})})], 4)
    assert own_classes(dataset.column("images")) == {0: "ant", 1: "bee", 2: "cat"}
    (tmp_path / "labels.csv").write_text("k9,cat\n")
    run_stage(LabelStage(str(tmp_path / "labels.csv")), LabelConfig(), dataset, CPU)
    assert labels_of(dataset).attached == {"k9": 2} and labels_of(dataset).classes == {2: "cat"}


@pytest.mark.parametrize("how", ["auto", "path"])
def test_the_path_that_inspect_shows_finds_the_sample_of_a_tar(how, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):  # the same file names in both
        write_tar(tmp_path / "in" / f"{name}.tar", ("0001.png", encoded(1)), ("0002.png", encoded(2)))
    assert ran(capsys, "pack", tmp_path / "in", tmp_path / "data", "--workers", "1")[0] == 0
    (tmp_path / "labels.csv").write_text("a.tar/0001.png,cat\nb.tar/0001.png,dog\n")
    code, _, err = ran(capsys, "label", tmp_path / "data", "--from", tmp_path / "labels.csv", "--match", how)
    assert code == 0 and "2 of 4 images have no label" in err
    found = labels_of(Dataset(tmp_path / "data")).attached
    assert found == {row_key("a.tar/0001"): 0, row_key("b.tar/0001"): 1}


def test_a_folder_of_class_folders_matches_by_path_or_by_the_file_s_name(unlabelled, tmp_path, capsys):
    write(tmp_path / "sorted", "cat/a/1.png", "cat/2.png", "dog/b/3.png", "dog/4.png", "top.png")
    code, _, err = ran(capsys, "label", unlabelled.path, "--from", tmp_path / "sorted")
    assert (code, "4 entries" in err) == (0, False)
    assert attached(unlabelled) == {"a/1.png": 0, "a/2.png": 0, "b/3.png": 1, "4.png": 1}
    code, _, err = ran(capsys, "label", unlabelled.path, "--from", tmp_path / "sorted", "--match", "path")
    assert code == 3 and "--redo" in err
    assert ran(capsys, "label", unlabelled.path, "--from", tmp_path / "sorted", "--match", "path", "--redo")[0] == 0
    assert attached(unlabelled) == {"a/1.png": 0, "b/3.png": 1, "4.png": 1}
    with pytest.raises(DataError, match=r"no label for 1 of its 4 images \(first: a_2_"):
        find_labelled(unlabelled, "test")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nobody.png,cat\n", "none of the 1 entries of"),
        ("a/1.png,cat\na/1.png,dog\n", "has two classes, 'cat' (line 1, a/1.png) and 'dog' (line 2, a/1.png)"),
        ("a/1.png,cat,3\n", "line 1 has 3 cells or an empty one; needed IMAGE,CLASS"),
        ("a/1.png,\n", "line 1 has 2 cells or an empty one"),
        ("file,label\n", "it has no line IMAGE,CLASS"),
        (b"\xff\xfe", "is no CSV file in UTF-8"),
        ('a/1.png,"cat\n', "is no CSV file in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_and_leaves_no_trace(unlabelled, tmp_path, capsys, text, said):
    table = tmp_path / "labels.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, _, err = ran(capsys, "label", unlabelled.path, "--from", table)
    assert code == 1 and err.count("\n") == 1 and said in err
    assert not (unlabelled.path / "labels").exists()


def test_what_labels_come_from_is_needed_and_must_exist(unlabelled, capsys):
    assert ran(capsys, "label", unlabelled.path)[::2] == (
        2,
        "error: label: --from is needed: a folder of class folders, or a CSV file of lines IMAGE,CLASS\n",
    )
    code, _, err = ran(capsys, "label", unlabelled.path, "--from", "nowhere")
    assert code == 1 and "--from is nowhere, which does not exist" in err


def test_images_that_are_all_labelled_take_no_others(tmp_path, capsys):
    write(tmp_path / "source", "a/1.png", "b/2.png")
    packed = ("pack", tmp_path / "source", tmp_path / "data", "--labels", "folders", "--workers", "1")
    assert ran(capsys, *packed)[0] == 0
    code, _, err = ran(capsys, "label", tmp_path / "data", "--from", tmp_path / "source")
    assert code == 1 and "all 2 images" in err and "labels of their own" in err


def test_a_row_s_own_label_counts_first():
    labels = Labels({"key": 3})
    assert labels.of("key", {"cls": b"1"}) == b"1"
    assert labels.of("key", {}) == b"3" and labels.of("other", {}) is None


def test_file_names_that_two_images_have_match_none():
    entries = [Entry("x/1.png", ("x/1.png", "1.png"), "x")]
    paths = {"k1": "a/1.png", "k2": "b/1.png"}
    found = match(entries, {"k1": 0, "k2": 1}, "auto", lambda: paths)
    assert found.labels == {} and len(found.unmatched) == 1
    assert match(entries, {"k1": 0}, "auto", lambda: {"k1": "a/1.png"}).labels == {"k1": "x"}


def test_labels_are_an_input_of_evaluate(unlabelled, tmp_path, capsys):
    from viewkit.pipelines.evaluate.config import EvaluateConfig
    from viewkit.pipelines.evaluate.stage import EvaluateStage

    table = tmp_path / "labels.csv"
    table.write_text("".join(f"{name},{number % 2}\n" for number, name in enumerate(NAMES)))
    assert ran(capsys, "label", unlabelled.path, "--from", table)[0] == 0
    write(tmp_path / "other", "0/x.png", "1/y.png")
    packed = ("pack", tmp_path / "other", tmp_path / "test", "--labels", "folders", "--workers", "1")
    assert ran(capsys, *packed)[0] == 0
    stage = EvaluateStage("mine", str(tmp_path / "test"), train=str(unlabelled.path))
    stage.reads = lambda config: ()
    found = stage.inputs(EvaluateConfig(), unlabelled)
    assert found["train labels"] == unlabelled.artifact("labels").digest and "test labels" not in found
    verified = ran(capsys, "verify", unlabelled.path, "--json")[1]
    subjects = [json.loads(line)["subject"] for line in verified.splitlines()]
    assert "labels/labels.json" in subjects and "labels: made from what is here" in subjects


def test_classes_that_are_one_number_in_two_spellings_are_refused():
    with pytest.raises(DataError, match=r"^label: classes '01' and '1' are both number 1; write the number") as found:
        numbers_of(["1", "2", "01"])
    assert "\n" not in str(found.value)
    assert numbers_of(["01", "02"]) == {"01": 1, "02": 2}


@pytest.fixture
def labelled(unlabelled, tmp_path, capsys):
    """One image of each class but 4.png, which has none."""
    table = tmp_path / "labels.csv"
    table.write_text("a/1.png,cat\na/2.png,dog\nb/3.png,ant\n")
    assert ran(capsys, "label", unlabelled.path, "--from", table)[0] == 0
    return unlabelled


def test_mosaics_of_a_dataset_see_the_labels_attached_to_it(labelled, tmp_path, capsys):
    config = PackConfig(mosaics=2, grid="1x2")
    parts = open_packed(labelled, config)
    named = {parts.row(at).key: parts.row(at).fields.get(LABEL) for at in range(4)}
    assert named == dict(zip(map(row_key, NAMES), (b"cat", b"dog", b"ant", None), strict=True))
    by_key = dict(zip(labelled.column("images").keys(), parts.labels().tolist(), strict=True))
    assert [by_key[row_key(name)] for name in NAMES] == [1, 2, 0, NO_CLASS]
    source = f"mosaic:{labelled.path}"
    made = open_source(source, config)
    assert made.notes == ("1 images of the source have no class and take no part in mosaics",)
    (tmp_path / "labels.csv").write_text("a/1.png,cat\na/2.png,dog\nb/3.png,dog\n")
    again = ("label", labelled.path, "--from", tmp_path / "labels.csv", "--redo")
    assert ran(capsys, *again)[0] == 0 and open_source(source, config).digest != made.digest


def test_pairs_have_attached_labels_and_an_image_s_own_first():
    labels = Labels({"a": 7, "b": 3}, {7: "cat", 3: "dog"})

    def turn(key, fields):
        return RowTurn(Row(key, fields), 0, 0)

    found = [label_of(turn(*row), labels) for row in (("a", {}), ("a", {"cls": b"1"}), ("c", {}))]
    assert found == [7, 1, -1]


def test_the_classes_of_a_page_are_those_attached(labelled):
    keys, images = [row_key(name) for name in NAMES], labelled.column("images")
    places, names = read_classes(keys, images, labels_of(labelled))
    assert names == ["ant", "cat", "dog"] and places.tolist() == [1, 2, 0, 2**16 - 1]
    assert read_classes(keys, images)[1] == []
