import numpy as np
import pytest
import torch
import vs2fi as reference
from hypothesis import example, given, settings
from hypothesis import strategies as st

from viewkit.pipelines.vs2fi.histogram import CELLS, bin_cells, bin_edges, count_cells, pooled_range
from viewkit.shards.errors import DataError

similarities = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@example([-1e-45, 1.0, -1.0], 3)
@given(similarities, st.integers(1, 40))
def test_binned_counts_are_exact_on_the_stated_edges(values, bins):
    cells = count_cells(torch.tensor(values)).numpy()[None]
    span = pooled_range(cells, bins)
    edges = bin_edges(span, bins)
    inside = [min(value, 1 - 1 / CELLS) for value in values]  # the last cell also holds 1
    assert bin_cells(cells, span, bins)[0].tolist() == reference.histogram(inside, edges.tolist())


@settings(max_examples=60, deadline=None)
@given(similarities, similarities)
def test_counting_parts_and_adding_equals_counting_all_in_any_order(a, b):
    parts = count_cells(torch.tensor(a)) + count_cells(torch.tensor(b))
    assert torch.equal(parts, count_cells(torch.tensor(b[::-1] + a)))


@settings(max_examples=60, deadline=None)
@given(similarities, similarities, st.integers(1, 40))
def test_the_pooled_range_holds_every_value_and_at_most_one_cell_a_bin_more(a, b, bins):
    cells = np.stack([count_cells(torch.tensor(part)).numpy() for part in (a, b)])
    start, stop = pooled_range(cells, bins)
    filled = np.flatnonzero(cells.any(axis=0))
    assert (stop - start) % bins == 0
    assert start <= filled[0] and filled[-1] < stop
    assert (stop - start) - (filled[-1] - filled[0] + 1) < bins
    assert bin_cells(cells, (start, stop), bins).sum() == len(a) + len(b)


def test_cosines_that_rounding_left_outside_are_counted_at_the_ends():
    counts = count_cells(torch.tensor([-1.0000001, 1.0000001]))
    assert counts[0] == 1 and counts[-1] == 1


def test_a_nan_similarity_is_refused():
    with pytest.raises(DataError, match="NaN"):
        count_cells(torch.tensor([0.0, float("nan")]))


def test_no_pairs_at_all_is_an_error():
    with pytest.raises(DataError, match="no pair was counted"):
        pooled_range(np.zeros((2, CELLS), dtype=np.int64), 20)
