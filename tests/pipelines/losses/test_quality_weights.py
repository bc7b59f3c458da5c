import math
import os

import pytest
import reference_quality as reference
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from hypothesis import given
from hypothesis import strategies as st

from viewkit.pipelines.losses.row_weights import quality_weights

Q = [0.3, -0.2, 0.0, 1.1, 0.25, -0.9]


def test_weights_are_eq_13_times_n():
    ours = quality_weights(torch.tensor(Q, dtype=torch.float64))
    assert ours.tolist() == pytest.approx(reference.weights(Q), abs=1e-14)


def test_equal_qualities_weigh_one():
    assert quality_weights(torch.full((7,), 0.4)).tolist() == pytest.approx([1] * 7, abs=1e-6)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=40))
def test_weights_sum_to_n_and_differ_by_at_most_e_to_the_fourth(q):
    weights = quality_weights(torch.tensor(q, dtype=torch.float64))
    assert weights.sum().item() == pytest.approx(len(q))
    assert weights.max() / weights.min() <= math.exp(4) * (1 + 1e-12)


def test_the_extremes_differ_by_e_to_the_fourth():
    best, worst = quality_weights(torch.tensor([2.0, -2.0], dtype=torch.float64)).tolist()
    assert best / worst == pytest.approx(math.exp(4))


def test_rows_of_unknown_quality_weigh_one_and_leave_the_others_alone():
    weights = quality_weights(torch.tensor([0.3, math.nan, -0.2, math.nan]))
    assert weights[[1, 3]].tolist() == [1, 1]
    assert torch.equal(weights[[0, 2]], quality_weights(torch.tensor([0.3, -0.2])))
    assert quality_weights(torch.tensor([math.nan] * 3)).tolist() == [1] * 3


def test_no_gradient_reaches_the_quality():
    q = torch.tensor(Q, requires_grad=True)
    assert not quality_weights(q).requires_grad


def _join(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(quality_weights(torch.tensor(Q)[3 * rank : 3 * rank + 3]), os.path.join(folder, f"{rank}.pt"))
    dist.destroy_process_group()


@pytest.mark.slow
def test_the_softmax_runs_over_the_rows_of_all_processes(tmp_path):
    multiprocessing.spawn(_join, (str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    torch.testing.assert_close(torch.cat(parts), quality_weights(torch.tensor(Q)))
