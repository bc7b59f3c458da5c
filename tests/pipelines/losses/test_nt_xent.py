import math

import pytest
import reference_losses as reference
import torch
from lightly.loss import DCLLoss, NTXentLoss

from viewkit.pipelines.losses.nt_xent import nt_xent


def pair(n=8, d=16):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, generator=generator).requires_grad_() for _ in range(2)]


def test_orthogonal_pairs_cost_the_closed_form():
    n, tau = 4, 0.5
    expected = math.log(math.exp(1 / tau) + 2 * (n - 1)) - 1 / tau
    torch.testing.assert_close(nt_xent(torch.eye(n), 2 * torch.eye(n), tau), torch.full((n,), expected))


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_every_row_costs_what_the_loop_of_the_paper_says(tau, decoupled):
    z1, z2 = pair()
    rows = torch.tensor(reference.nt_xent(z1.tolist(), z2.tolist(), tau, decoupled))
    torch.testing.assert_close(nt_xent(z1, z2, tau, decoupled=decoupled), rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("decoupled", "theirs"), [(False, NTXentLoss), (True, DCLLoss)])
def test_loss_and_gradients_equal_those_of_lightly(decoupled, theirs):
    z = pair()
    ours, expected = nt_xent(*z, 0.1, decoupled=decoupled).mean(), theirs(temperature=0.1)(*z)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(torch.autograd.grad(ours, z), torch.autograd.grad(expected, z), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_swapping_the_views_keeps_every_rows_loss():
    z1, z2 = pair()
    torch.testing.assert_close(nt_xent(z1, z2, 0.1), nt_xent(z2, z1, 0.1))


def test_two_rows_decoupled_have_finite_gradients():
    z = pair(n=2)
    gradients = torch.autograd.grad(nt_xent(*z, 0.1, decoupled=True).sum(), z)
    assert all(gradient.isfinite().all() for gradient in gradients)
