import os

import numpy as np
import pytest
from small_datasets import CPU, numbers_dataset
from toy_stages import LengthsConfig, LengthsStage

from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.loader import Loader, default_threads
from viewkit.shards.shuffle import order_of


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = numbers_dataset(tmp_path_factory.mktemp("numbers"), rows=100)
    run_stage(LengthsStage(), LengthsConfig(), made, CPU)
    return made


def key_loader(dataset, **options):
    return Loader(dataset, **{"batch_size": 8, "seed": 0, "transform": lambda row: row.key, **options})


def test_an_epoch_gives_every_row_at_most_once_and_drops_the_short_batch(dataset):
    loader = key_loader(dataset)
    keys = [key for batch in loader.epoch(0) for key in batch]
    assert len(keys) == len(set(keys)) == loader.steps_per_epoch * 8 == loader.num_rows // 8 * 8


def test_epochs_differ_and_the_same_epoch_repeats(dataset):
    assert list(key_loader(dataset).epoch(0)) == list(key_loader(dataset).epoch(0))
    assert list(key_loader(dataset).epoch(0)) != list(key_loader(dataset).epoch(1))
    assert list(key_loader(dataset).epoch(0)) != list(key_loader(dataset, seed=1).epoch(0))


def test_the_shuffle_is_global(dataset):
    column = dataset.column("images")
    shards = [column.index.shard_of(column.place_of[key]) for key in next(key_loader(dataset).epoch(0))]
    assert len(set(shards)) > 3


@pytest.mark.parametrize("start", [0, 1, 5])
def test_an_epoch_resumes_in_its_middle_exactly(dataset, start):
    assert list(key_loader(dataset).epoch(2, start)) == list(key_loader(dataset).epoch(2))[start:]


def test_threads_do_not_change_the_order(dataset):
    assert list(key_loader(dataset, threads=1).epoch(0)) == list(key_loader(dataset, threads=7).epoch(0))


def test_ranks_have_equal_steps_and_share_the_global_batch(dataset):
    ranks = [list(key_loader(dataset, batch_size=4, rank=rank, world_size=2).epoch(0)) for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1])
    together = [first + second for first, second in zip(*ranks, strict=True)]
    assert together == list(key_loader(dataset, batch_size=8).epoch(0))


def test_joined_columns_come_along_and_rejected_rows_are_none(dataset):
    loader = Loader(dataset, ("images", "lengths"), batch_size=4, seed=0, transform=lambda row: row)
    lengths = dataset.column("lengths")
    rows = [row for batch in loader.epoch(0) for row in batch]
    for row in rows:
        expected = None if row.key in lengths.rejects else lengths.fields(lengths.place_of[row.key])
        assert row.joined["lengths"] == expected
    assert any(row.joined["lengths"] is None for row in rows)


def test_fewer_rows_than_a_batch_is_an_error_before_anything_is_read(dataset):
    with pytest.raises(ConfigError, match=r"\d+ rows are fewer than one batch needs \(batch size 512 on 2 processes\)"):
        key_loader(dataset, batch_size=512, world_size=2)


def test_an_error_in_a_transform_reaches_the_trainer(dataset):
    def fail(row):
        raise DataError(f"{row.key}: broken")

    with pytest.raises(DataError, match="broken"):
        list(key_loader(dataset, transform=fail).epoch(0))


def test_a_permutation_holds_every_row_once():
    assert np.array_equal(np.sort(order_of(1000, seed=3, epoch=7).rows(0, 1000)), np.arange(1000))


@pytest.mark.parametrize(
    ("cores", "ranks", "expected"),
    [(1, None, 2), (2, None, 2), (8, None, 8), (64, None, 16), (64, "8", 8), (8, "8", 2)],
)
def test_threads_follow_the_cores_of_a_rank(monkeypatch, cores, ranks, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if ranks is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert default_threads() == expected
