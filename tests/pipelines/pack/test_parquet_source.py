"""Parquet files: the image column found or named, labels kept, no row lost without a word."""

import json
import pickle
import warnings
from pathlib import Path

import pytest
from small_datasets import CPU
from sources import encoded, everything

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.experiments.handful import copy_handful
from viewkit.pipelines.pack import parquet as parquet_source
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.raw import LABEL, PATH
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.row import Reject, Row
from viewkit.shards.verify import verify

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}


def write(path: Path, columns: dict, features: dict | None = None, group: int = 4) -> Path:
    table = pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group)
    return path


def images(count: int = 10, first: int = 0) -> list[dict]:
    return [{"bytes": encoded(first + i), "path": f"{i}.png"} for i in range(count)]


def hugging_face(path: Path, count: int = 10, first: int = 0) -> Path:
    """As `datasets` writes it."""
    labels = pa.array([i % 2 for i in range(count)], pa.int64())
    return write(path, {"image": pa.array(images(count, first), STRUCT), "label": labels}, FEATURES)


def test_hugging_faces_files_give_images_labels_and_names(tmp_path):
    hugging_face(tmp_path / "train-00000-of-00002.parquet")
    hugging_face(tmp_path / "train-00001-of-00002.parquet", first=10)
    (tmp_path / "README.md").write_text("x")
    source = open_source(str(tmp_path), PackConfig(rows_per_shard=7))
    assert source.notes == ("1 other files in the source were left out",)
    found = {}
    for row in everything(source):
        assert isinstance(row, Row)
        found[row.fields["png"]] = row.fields["cls"], row.fields[LABEL], row.fields[PATH]
    assert found == {
        encoded(i): (
            b"%d" % (i % 2),
            [b"cat", b"dog"][i % 2],
            f"train-0000{i // 10}-of-00002.parquet/{i % 10:08d}/{i % 10}.png".encode(),
        )
        for i in range(20)
    }


def test_paths_that_are_all_null_name_no_image(tmp_path):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.null())])
    write(tmp_path / "a.parquet", {"image": pa.array([{"bytes": encoded(i), "path": None} for i in range(3)], kind)})
    rows = everything(open_source(str(tmp_path), PackConfig()))
    assert [(row.fields["jpg"], row.fields[PATH]) for row in rows if isinstance(row, Row)] == [
        (encoded(i), b"a.parquet/%08d" % i) for i in range(3)
    ]


def test_row_groups_are_mixed_and_read_once_each(tmp_path, monkeypatch):
    source = open_source(str(hugging_face(tmp_path / "a.parquet", 40)), PackConfig(rows_per_shard=16))
    opened = []
    kept = parquet_source.open_parquet
    monkeypatch.setattr(parquet_source, "open_parquet", lambda *args: opened.append(args) or kept(*args))
    order = [int(row.fields[PATH].split(b"/")[1]) for row in everything(source) if isinstance(row, Row)]
    assert order != sorted(order) and sorted(order) == list(range(40)) and len(opened) == 10
    assert list(source.rows(0)) == list(pickle.loads(pickle.dumps(source)).rows(0))  # noqa: S301


def test_it_packs_and_verifies_and_the_path_beside_the_bytes_stays_known(tmp_path):
    dataset = Dataset(tmp_path / "data")
    run_stage(PackStage(str(hugging_face(tmp_path / "a.parquet"))), PackConfig(rows_per_shard=4), dataset, CPU)
    column = dataset.column("images")
    facts = [decode_json(column.fields(i)["json"]) for i in range(10)]
    assert sorted(each["source"].split("/")[2] for each in facts) == [f"{i}.png" for i in range(10)]
    assert {each["label"] for each in facts} == {"cat", "dog"}
    assert not [each for each in verify(dataset) if each.problem]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"id": [1, 2], "picture": [encoded(1), encoded(2)]}, "picture"),
        ({"raw": [encoded(1), encoded(2)], "id": ["a", "b"]}, "raw"),
        ({"thumb": [b"", b""], "img": [encoded(1), encoded(2)]}, "img"),
        ({"mask": [b"", b""], "photo_of_it": pa.array(images(2), STRUCT)}, "photo_of_it"),
    ],
)
def test_the_column_of_images_is_found_by_type_and_name(columns, found, tmp_path):
    source = open_source(str(write(tmp_path / "a.parquet", columns)), PackConfig())
    values = columns[found].to_pylist() if isinstance(columns[found], pa.Array) else columns[found]
    wanted = {value["bytes"] if isinstance(value, dict) else value for value in values}
    assert {data for row in everything(source) for name, data in row.fields.items() if name in ("png", "jpg")} == wanted


def test_text_labels_are_numbered_in_the_order_of_their_names(tmp_path):
    write(tmp_path / "a.parquet", {"image": [encoded(i) for i in range(4)], "label": ["dog", "cat", None, "eel"]})
    rows = everything(open_source(str(tmp_path / "a.parquet"), PackConfig()))
    assert {row.fields["jpg"]: (row.fields.get("cls"), row.fields.get(LABEL)) for row in rows} == {
        encoded(0): (b"1", b"dog"),
        encoded(1): (b"0", b"cat"),
        encoded(2): (None, None),
        encoded(3): (b"2", b"eel"),
    }


def test_a_hidden_label_is_none_and_a_named_column_counts(tmp_path):
    columns = {"image": [encoded(0), encoded(1)], "fine_label": [-1, 3], "coarse_label": [0, 1]}
    features = {name: {"_type": "ClassLabel", "names": list("abcd")} for name in ("fine_label", "coarse_label")}
    path = str(write(tmp_path / "a.parquet", columns, features))
    source = open_source(path, PackConfig())
    assert source.notes == (
        "columns 'fine_label', 'coarse_label' hold labels and none was kept; name one with --label-column",
    )
    assert all("cls" not in row.fields for row in everything(source))
    rows = everything(open_source(path, PackConfig(label_column="fine_label")))
    assert {row.fields.get("cls"): row.fields.get(LABEL) for row in rows} == {None: None, b"3": b"d"}


def test_rows_without_bytes_are_rejects_and_never_lost(tmp_path):
    rows = [None, {"bytes": None, "path": None}, {"bytes": None, "path": "a.jpg"}, {"bytes": encoded(), "path": None}]
    write(tmp_path / "a.parquet", {"image": pa.array(rows, STRUCT)})
    found = everything(open_source(str(tmp_path / "a.parquet"), PackConfig()))
    assert [row.reason if isinstance(row, Reject) else "" for row in found] == ["empty", "empty", "unreadable", ""]
    assert "the row has a path and no bytes; embed the images first" in str(found[2])
    (large,) = everything(
        open_source(str(write(tmp_path / "b.parquet", {"image": [bytes(2 * 10**6)]})), PackConfig(max_file_mb=1))
    )
    assert isinstance(large, Reject) and large.reason == "too_many_bytes"


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        ({"a": [1], "b": ["x"]}, {}, DataError, "has no column of encoded images, .* its columns are 'a', 'b'"),
        ({"image": pa.array([images(1)], pa.list_(STRUCT))}, {}, DataError, "has no column of encoded images"),
        ({"x": [b""], "y": [b""]}, {}, ConfigError, r"several columns that may hold images \('x', 'y'\)"),
        ({"image": [b""]}, {"image_column": "img"}, ConfigError, "--image-column is 'img', and .* the columns 'image'"),
        ({"image": [b""], "a": [1]}, {"image_column": "a"}, ConfigError, "--image-column is 'a', of type int64"),
        ({"image": [b""]}, {"label_column": "x"}, ConfigError, "--label-column is 'x', and 'a.parquet' has"),
        ({"image": [b""], "x": [0.5]}, {"label_column": "x"}, ConfigError, "--label-column is 'x', of type double"),
        ({"image": [b""]}, {"labels": "folders"}, ConfigError, "parquet files have a column of labels"),
        ({"image": pa.array([], pa.binary())}, {}, DataError, "'a.parquet' has no row"),
    ],
)
def test_what_cannot_be_read_is_one_line(columns, options, error, message, tmp_path):
    write(tmp_path / "a.parquet", columns)
    with pytest.raises(error, match=message) as caught:
        open_source(str(tmp_path / "a.parquet"), PackConfig(**options))
    assert "\n" not in str(caught.value)


def test_other_sources_have_no_columns(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded())
    for source in (str(tmp_path), "demo:test"):
        with pytest.raises(ConfigError, match="--label-column is for parquet files alone; the source is"):
            open_source(source, PackConfig(label_column="x"))


def test_files_with_other_columns_are_refused_by_name(tmp_path):
    write(tmp_path / "a.parquet", {"image": [encoded()]})
    write(tmp_path / "b.parquet", {"img": [encoded()]})
    with pytest.raises(DataError, match=r"'a.parquet' and 'b.parquet' have other columns"):
        open_source(str(tmp_path), PackConfig())


def test_a_named_column_is_part_of_the_identity(tmp_path):
    source = str(write(tmp_path / "a.parquet", {"x": [encoded(1)], "y": [encoded(2)]}))
    run_stage(PackStage(source), PackConfig(image_column="x"), Dataset(tmp_path / "data"), CPU)
    with pytest.raises(RefusedError, match="'image column: x' there and 'image column: y' now"):
        run_stage(PackStage(source), PackConfig(image_column="y"), Dataset(tmp_path / "data"), CPU)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"x")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(
        ConfigError, match=r"which takes pyarrow; pip install '.\[parquet\]', where viewkit's source is"
    ):
        open_source(str(tmp_path), PackConfig())


@pytest.mark.slow
def test_what_datasets_itself_writes_is_read_with_its_classes(tmp_path):
    datasets = pytest.importorskip("datasets")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
        table = {"image": [{"bytes": encoded(i), "path": f"{i}.png"} for i in range(12)], "label": [0, 1] * 6}
        datasets.Dataset.from_dict(table, features=features).to_parquet(tmp_path / "a.parquet", batch_size=5)
    rows = everything(open_source(str(tmp_path / "a.parquet"), PackConfig()))
    assert {(row.fields["png"], row.fields[LABEL]) for row in rows} == {
        (encoded(i), [b"cat", b"dog"][i % 2]) for i in range(12)
    }


@pytest.mark.slow
def test_no_cut_or_flipped_byte_is_more_than_a_reject_or_one_line(tmp_path):
    path = hugging_face(tmp_path / "a.parquet")
    whole = path.read_bytes()
    flips = [whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :] for at in range(0, len(whole), 97)]
    for data in [whole[:at] for at in range(0, len(whole), 997)] + flips:
        path.write_bytes(data)
        try:
            rows = everything(open_source(str(path), PackConfig()))
        except (DataError, ConfigError) as error:
            assert "\n" not in str(error)
        else:
            assert all(isinstance(row, Row | Reject) for row in rows)


def test_a_rehearsals_handful_is_taken_from_the_named_column(tmp_path):
    count = 40
    columns = {"a": [b"x"] * count, "b": [encoded(i) for i in range(count)], "label": [i % 2 for i in range(count)]}
    source = str(write(tmp_path / "a.parquet", columns))
    folders = tmp_path / "train", tmp_path / "test"
    assert copy_handful(source, "none", *folders, images=(24, 16), columns={"image_column": "b"}) == ()
    copied = [path.read_bytes() for folder in folders for path in folder.rglob("*.png")]
    assert len(copied) == len(set(copied)) >= 12 and set(copied) <= set(columns["b"])
