"""Batches of a fixed size, and the padding that keeps results independent of their number."""

from hypothesis import given
from hypothesis import strategies as st

from viewkit.pipelines.engine.batches import batches, padded


@given(st.integers(1, 9), st.integers(0, 30))
def test_batches_hold_every_item_once_and_are_full_when_padded(size, count):
    cut = list(batches(range(count), size))
    assert [item for batch in cut for item in batch] == list(range(count))
    assert all(len(padded(batch, size)) == size for batch in cut)


def test_padding_repeats_from_the_start():
    assert padded([1, 2, 3], 8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert padded([], 4) == []
