import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from io import FileIO

import pytest
import webdataset
from small_datasets import numbers_dataset

from viewkit.shards import column as column_module
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.receipt import tar_path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return numbers_dataset(tmp_path_factory.mktemp("numbers"))


def plain_webdataset(column):
    tars = [str(path) for path in sorted(column.path.glob("*.tar"))]
    return list(webdataset.WebDataset(tars, shardshuffle=False))


def test_plain_webdataset_finds_the_same_keys_and_bytes(dataset):
    column = dataset.column("images")
    theirs = plain_webdataset(column)
    assert [sample["__key__"] for sample in theirs] == list(column.keys())
    for index, sample in enumerate(theirs):
        assert {name: value for name, value in sample.items() if not name.startswith("__")} == column.fields(index)


def test_positioned_reads_and_reads_in_order_give_the_same_rows(dataset):
    column = dataset.column("images")
    in_order = [row for shard in range(column.num_shards) for row in column.rows(shard)]
    assert [column.row(index) for index in range(column.num_rows)] == in_order


def test_rejects_keep_their_place_and_the_counts_are_conserved(dataset):
    column = dataset.column("images")
    assert column.num_rows + len(column.rejects) == column.identity.plan["rows"] == 30
    first = column.receipt(0)
    assert [(place, reject.key, reject.reason) for place, reject in first.rejects] == [(7, "row00007", "unlucky")]
    assert column.rejects["row00013"].reason == "unreadable"


def test_threads_share_a_column_even_when_few_files_stay_open(dataset, monkeypatch):
    monkeypatch.setattr(column_module, "most_open_files", lambda: 1)
    column = Dataset(dataset.path).column("images")
    expected = [dataset.column("images").fields(index) for index in range(column.num_rows)]
    order = random.Random(0).choices(range(column.num_rows), k=2000)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(column.fields, order))
    assert found == [expected[index] for index in order]


def test_a_file_that_another_thread_replaces_stays_open_while_a_row_is_read(dataset, monkeypatch):
    column = dataset.column(dataset.columns()[0])
    expected = [column.fields(place) for place in range(4)]
    monkeypatch.setattr(
        type(column), "_file", lambda self, shard: FileIO(tar_path(self.path, shard))
    )  # held by nobody else
    assert [column.fields(place) for place in range(4)] == expected


def test_a_column_travels_to_another_process_by_its_path_alone(dataset):
    column = dataset.column("images")
    column.fields(0)
    assert len(pickle.dumps(column)) < 500
    assert pickle.loads(pickle.dumps(column)).fields(3) == column.fields(3)  # noqa: S301 our own bytes


def test_the_digest_says_whether_two_columns_hold_the_same(dataset, tmp_path):
    same = numbers_dataset(tmp_path / "same").column("images")
    other = numbers_dataset(tmp_path / "other", rows=29).column("images")
    assert same.digest == dataset.column("images").digest != other.digest


def test_a_missing_shard_is_named_with_the_command_that_goes_on(tmp_path):
    column = numbers_dataset(tmp_path).column("images")
    (column.path / "000002.json").unlink()
    with pytest.raises(
        DataError, match=r"1 of 4 shards are not written yet \(first: 000002\); rerun 'viewkit pack SOURCE'"
    ):
        Dataset(tmp_path).column("images").keys()


def test_a_receipt_of_another_shard_is_found(tmp_path):
    column = numbers_dataset(tmp_path).column("images")
    (column.path / "000001.json").write_bytes((column.path / "000000.json").read_bytes())
    with pytest.raises(DataError, match="it is the receipt of images/000000"):
        Dataset(tmp_path).column("images").keys()
