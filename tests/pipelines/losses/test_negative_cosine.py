import pytest
import reference_losses as reference
import torch
from lightly.loss import NegativeCosineSimilarity

from viewkit.pipelines.losses.negative_cosine import (
    negative_cosine,
    symmetric_negative_cosine,
    symmetric_square_distance,
)


def draw(seed):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))


def test_parallel_costs_minus_one_and_opposite_one():
    z = draw(0)
    torch.testing.assert_close(negative_cosine(2 * z, z), -torch.ones(8))
    torch.testing.assert_close(negative_cosine(-z, z), torch.ones(8))


def test_loss_equals_the_loop_of_the_paper():
    p1, p2, z1, z2 = (draw(seed) for seed in range(4))
    expected = reference.simsiam(p1.tolist(), p2.tolist(), z1.tolist(), z2.tolist())
    assert symmetric_negative_cosine(p1, p2, z1, z2).mean().item() == pytest.approx(expected, rel=1e-5)


def test_loss_and_gradient_equal_those_of_lightly():
    p, z = draw(0).requires_grad_(), draw(1)
    ours, theirs = negative_cosine(p, z).mean(), NegativeCosineSimilarity()(p, z)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(torch.autograd.grad(ours, p)[0], torch.autograd.grad(theirs, p)[0], rtol=1e-5, atol=1e-7)


def test_byols_loss_is_the_square_distance_of_unit_vectors_in_both_directions():
    p1, p2, z1, z2 = (draw(seed) for seed in range(4))
    unit = [torch.nn.functional.normalize(x, dim=1) for x in (p1, p2, z1, z2)]
    expected = (unit[0] - unit[3]).square().sum(dim=1) + (unit[1] - unit[2]).square().sum(dim=1)
    torch.testing.assert_close(symmetric_square_distance(p1, p2, z1, z2), expected, rtol=1e-5, atol=1e-6)
    criterion = NegativeCosineSimilarity()
    theirs = (criterion(p1, z2) + criterion(p2, z1)) / 2
    torch.testing.assert_close(symmetric_square_distance(p1, p2, z1, z2).mean(), 4 + 4 * theirs, rtol=1e-5, atol=1e-6)


def test_no_gradient_reaches_the_target():
    p, z = draw(0).requires_grad_(), draw(1).requires_grad_()
    negative_cosine(p, z).sum().backward()
    assert z.grad is None and p.grad is not None
