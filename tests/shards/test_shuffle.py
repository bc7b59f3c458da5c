"""The order of an epoch: every row once, whole or in parts, and evenly spread."""

import numpy as np
import pytest

from viewkit.shards import shuffle
from viewkit.shards.shuffle import Feistel, order_of


def keys(seed: int) -> np.ndarray:
    return np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)).random_raw(shuffle.ROUNDS)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 15, 16, 17, 255, 1000, 1025, 65_537])
def test_every_row_comes_once(rows):
    assert np.array_equal(np.sort(Feistel(rows, keys(rows)).rows(0, rows)), np.arange(rows))


def test_a_stretch_of_the_order_is_what_the_whole_says():
    order = Feistel(10_007, keys(1))
    whole = order.rows(0, 10_007)
    assert all(np.array_equal(order.rows(at, at + 64), whole[at : at + 64]) for at in range(0, 10_007, 640))
    assert len(order.rows(10_000, 20_000)) == 7


def test_a_billion_rows_take_no_array():
    rows = order_of(10**9, seed=0, epoch=3).rows(999_999_000, 10**9)
    assert len(set(rows.tolist())) == 1000 and rows.min() >= 0 and rows.max() < 10**9
    assert abs(rows.mean() / 1e9 - 0.5) < 0.05  # a deviation of 0.009


def test_seed_and_epoch_decide_and_neighbours_are_strangers():
    orders = [order_of(1 << 21, seed, epoch).rows(0, 4096) for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0))]
    assert np.array_equal(orders[0], orders[3])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(orders[one], orders[other])[0, 1]) < 0.08  # five deviations
    assert abs(np.corrcoef(orders[0][:-1], orders[0][1:])[0, 1]) < 0.08


def test_rows_fall_evenly_into_shards():
    """The first tenth of an epoch over 1,024 shards: counts as even as those of independent draws."""
    shards = order_of(1 << 21, seed=5, epoch=2).rows(0, (1 << 21) // 10) // 2048
    counts = np.bincount(shards, minlength=1024)
    expected = len(shards) / 1024
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert 1023 - 6 * np.sqrt(2 * 1023) < chi2 / 0.9 < 1023 + 6 * np.sqrt(2 * 1023)  # a tenth is drawn without return


def test_small_sets_keep_the_order_that_they_always_had():
    generator = np.random.Generator(np.random.Philox(key=np.array([3, 7], dtype=np.uint64)))
    assert np.array_equal(order_of(1000, 3, 7).rows(0, 1000), generator.permutation(1000))
