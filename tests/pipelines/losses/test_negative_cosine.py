import losses_twins as twin
import pytest
import torch
from lightly.loss import NegativeCosineSimilarity

from viewkit.pipelines.losses.negative_cosine import negative_cosine, symmetric_negative_cosine


def draw(seed):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))


def test_parallel_costs_minus_one_and_opposite_one():
    z = draw(0)
    assert negative_cosine(2 * z, z).item() == pytest.approx(-1, abs=1e-6)
    assert negative_cosine(-z, z).item() == pytest.approx(1, abs=1e-6)


def test_loss_equals_the_loop_of_the_paper():
    p1, p2, z1, z2 = (draw(seed) for seed in range(4))
    expected = twin.simsiam(p1.tolist(), p2.tolist(), z1.tolist(), z2.tolist())
    assert symmetric_negative_cosine(p1, p2, z1, z2).item() == pytest.approx(expected, rel=1e-5)


def test_loss_and_gradient_equal_those_of_lightly():
    p, z = draw(0).requires_grad_(), draw(1)
    ours, theirs = negative_cosine(p, z), NegativeCosineSimilarity()(p, z)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(torch.autograd.grad(ours, p)[0], torch.autograd.grad(theirs, p)[0], rtol=1e-5, atol=1e-7)


def test_no_gradient_reaches_the_target():
    p, z = draw(0).requires_grad_(), draw(1).requires_grad_()
    negative_cosine(p, z).backward()
    assert z.grad is None and p.grad is not None


def test_weights_of_one_change_nothing_and_others_multiply_rows():
    p, z = draw(0), draw(1)
    torch.testing.assert_close(negative_cosine(p, z, weights=torch.ones(8)), negative_cosine(p, z))
    only = torch.zeros(8)
    only[3] = 8
    torch.testing.assert_close(negative_cosine(p, z, weights=only), negative_cosine(p[3:4], z[3:4]))
