import pytest
from small_datasets import numbers_dataset

from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.lock import writer_lock


def test_a_missing_dataset_says_how_to_make_one(tmp_path):
    with pytest.raises(
        DataError, match=r"score: .*nothing: there is no such dataset; make it with 'viewkit pack SOURCE"
    ):
        Dataset(tmp_path / "nothing").input_digest("images", for_stage="score")


def test_a_missing_input_names_the_command_that_makes_it(tmp_path):
    dataset = numbers_dataset(tmp_path)
    with pytest.raises(DataError, match=r"score: .* has no input 'estimator'; make it with 'viewkit estimator"):
        dataset.input_digest("estimator", for_stage="score")


def test_a_file_is_no_dataset(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="a file is in the place of a dataset"):
        Dataset(tmp_path / "file")


def test_an_unknown_kind_of_store_is_refused_and_not_taken_for_a_folder():
    with pytest.raises(ConfigError, match="hdfs://cluster/data: stores are named s3://BUCKET/PREFIX"):
        Dataset("hdfs://cluster/data")


def test_two_writers_of_one_column_exclude_each_other(tmp_path):
    with writer_lock(tmp_path, "images"):
        refused = pytest.raises(RefusedError, match="another process is writing 'images' right now")
        with refused, writer_lock(tmp_path, "images"):
            pass
        with pytest.raises(RefusedError), writer_lock(tmp_path, "images", (0, 2)):
            pass
        with writer_lock(tmp_path, "pairs"):
            pass


def test_parts_of_a_column_are_written_at_the_same_time_but_each_only_once(tmp_path):
    with writer_lock(tmp_path, "images", (0, 2)), writer_lock(tmp_path, "images", (1, 2)):
        with pytest.raises(RefusedError), writer_lock(tmp_path, "images", (1, 2)):
            pass
        with pytest.raises(RefusedError), writer_lock(tmp_path, "images"):
            pass
