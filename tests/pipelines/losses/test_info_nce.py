import math

import pytest
import reference_losses as reference
import torch
from lightly.loss import NTXentLoss

from viewkit.pipelines.losses.info_nce import exit_info_nce, info_nce, queue_info_nce, symmetric_info_nce
from viewkit.pipelines.losses.row_weights import weighted_mean


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(draw(*shape, seed=seed), dim=-1)


def test_equal_keys_cost_log_of_their_number():
    q, k = draw(6, 16), torch.ones(6, 16)
    torch.testing.assert_close(info_nce(q, k, 0.2), torch.full((6,), math.log(6)), rtol=0, atol=1e-6)
    torch.testing.assert_close(info_nce(q, k, 0.2, decoupled=True), torch.full((6,), math.log(5)), rtol=0, atol=1e-6)


def test_orthogonal_pairs_cost_the_closed_form():
    n, tau = 8, 0.5
    q = torch.eye(n)
    expected = math.log(math.exp(1 / tau) + n - 1) - 1 / tau
    torch.testing.assert_close(info_nce(q, 3 * q, tau), torch.full((n,), expected), rtol=0, atol=1e-6)
    torch.testing.assert_close(
        info_nce(q, q, tau, scaled=True), torch.full((n,), 2 * tau * expected), rtol=0, atol=1e-6
    )
    decoupled = torch.full((n,), math.log(n - 1) - 1 / tau)
    torch.testing.assert_close(info_nce(q, q, tau, decoupled=True), decoupled, rtol=0, atol=1e-6)


@pytest.mark.parametrize("tau", [0.07, 0.2, 1.0])
def test_loss_equals_the_loop_of_the_paper(tau):
    q1, q2, k1, k2 = (draw(8, 16, seed=seed) for seed in range(4))
    ours = symmetric_info_nce(q1, q2, k1, k2, tau).mean().item()
    assert ours == pytest.approx(reference.moco_v3(q1.tolist(), q2.tolist(), k1.tolist(), k2.tolist(), tau), rel=1e-5)
    rows = reference.info_nce(q1.tolist(), k1.tolist(), tau)
    torch.testing.assert_close(info_nce(q1, k1, tau), torch.tensor(rows), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("tau", [0.07, 0.2])
def test_the_queues_loss_equals_the_loop_of_the_paper(tau, decoupled):
    q, k, queue = draw(8, 16), draw(8, 16, seed=1), unit(20, 16, seed=2)
    rows = reference.queue_info_nce(q.tolist(), k.tolist(), queue.tolist(), tau, decoupled)
    ours = queue_info_nce(q, k, queue, tau, decoupled=decoupled)
    torch.testing.assert_close(ours, torch.tensor(rows), rtol=1e-5, atol=1e-5)


def test_the_queues_loss_and_gradient_equal_those_of_lightly():
    q, k, queue = draw(8, 16).requires_grad_(), draw(8, 16, seed=1), unit(20, 16, seed=2)
    loss = NTXentLoss(temperature=0.07, memory_bank_size=(20, 16))
    loss.memory_bank.bank = queue.clone()
    ours, theirs = queue_info_nce(q, k, queue, 0.07).mean(), loss(q, k)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    expected = torch.autograd.grad(theirs, q)[0]
    torch.testing.assert_close(torch.autograd.grad(ours, q)[0], expected, rtol=1e-5, atol=1e-6)


def test_loss_and_gradient_equal_those_of_lightly():
    """lightly's MoCo form: one positive key and a bank of negatives. With a bank of the other rows' keys, one row at a
    time, its cross entropy is ours."""
    q, k = draw(5, 16).requires_grad_(), draw(5, 16, seed=1)
    ours = info_nce(q, k, 0.2).mean()
    (gradient,) = torch.autograd.grad(ours, q)
    theirs = torch.zeros(())
    for row in range(5):
        others = torch.cat([k[:row], k[row + 1 :]])
        loss = NTXentLoss(temperature=0.2, memory_bank_size=(4, 16))
        loss.memory_bank.bank = torch.nn.functional.normalize(others, dim=1)
        theirs = theirs + loss(q[row : row + 1], k[row : row + 1]) / 5
    (expected,) = torch.autograd.grad(theirs, q)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_decoupling_is_the_queues_loss_with_the_other_keys_as_the_queue():
    q, k = draw(5, 16), unit(5, 16, seed=1)
    ours = info_nce(q, k, 0.2, decoupled=True)
    for row in range(5):
        others = torch.cat([k[:row], k[row + 1 :]])
        expected = queue_info_nce(q[row : row + 1], k[row : row + 1], others, 0.2, decoupled=True)
        torch.testing.assert_close(ours[row : row + 1], expected)


def test_swapping_the_views_keeps_the_loss():
    q1, q2, k1, k2 = (draw(8, 16, seed=seed) for seed in range(4))
    torch.testing.assert_close(
        symmetric_info_nce(q1, q2, k1, k2, 0.2), symmetric_info_nce(q2, q1, k2, k1, 0.2), rtol=1e-6, atol=0
    )


def test_the_factor_two_tau_is_the_only_difference_of_scaled():
    q, k = draw(4, 8), draw(4, 8, seed=1)
    torch.testing.assert_close(info_nce(q, k, 0.2, scaled=True), 0.4 * info_nce(q, k, 0.2))


def test_weights_multiply_rows():
    losses = torch.tensor([1.0, 2.0, 4.0, 8.0])
    assert weighted_mean(losses, torch.tensor([0.0, 1.0, 0.5, 2.5])).item() == (2 + 2 + 20) / 4
    assert weighted_mean(losses, None).item() == 15 / 4


def test_autocast_does_not_lower_the_precision():
    q, k = draw(8, 16), draw(8, 16, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, queued = info_nce(q, k, 0.07), queue_info_nce(q, k, k, 0.07)
    assert torch.equal(inside, info_nce(q, k, 0.07)) and torch.equal(queued, queue_info_nce(q, k, k, 0.07))


def test_exits_cost_what_each_costs_alone():
    q, k = draw(6, 3, 16), draw(6, 3, 16, seed=1)
    q.requires_grad_()
    ours = exit_info_nce(q, k, 0.2)
    alone = torch.stack([info_nce(q[:, level], k[:, level], 0.2, scaled=True) for level in range(3)], dim=1)
    torch.testing.assert_close(ours, alone, rtol=1e-5, atol=1e-6)
    for level in range(3):
        rows = reference.info_nce(q[:, level].tolist(), k[:, level].tolist(), 0.2)
        torch.testing.assert_close(ours[:, level], 0.4 * torch.tensor(rows), rtol=1e-5, atol=1e-6)
    ours_gradient, expected_gradient = torch.autograd.grad(ours.sum(), q)[0], torch.autograd.grad(alone.sum(), q)[0]
    torch.testing.assert_close(ours_gradient, expected_gradient, rtol=1e-5, atol=1e-6)
