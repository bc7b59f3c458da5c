import math

import pytest
import reference_dsf as reference
import torch
import torch.nn.functional as F

from viewkit.pipelines.losses.multi_view import dsf_info_nce, mean_of_views
from viewkit.pipelines.losses.von_mises_fisher import (
    divergences,
    estimate_vmf,
    log_normaliser,
    mean_length,
    paired_divergences,
    polynomials,
)


def groups(p, m, seed=0, rows=4, spread=1.0, dtype=torch.float32):
    """Means of m unit vectors around a row's centre, of queries and of keys."""
    generator = torch.Generator().manual_seed(seed)
    centre = F.normalize(torch.randn(rows, p, generator=generator, dtype=torch.float64), dim=1)
    noise = torch.randn(2 * m, rows, p, generator=generator, dtype=torch.float64) * spread / p**0.5
    views = (centre + noise).to(dtype)
    return mean_of_views(list(views[:m])), mean_of_views(list(views[m:]))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("p", [16, 128, 256])
def test_the_loss_in_fp32_is_that_of_forty_digits(p, m, exact):
    q, k = groups(p, m)
    queue = F.normalize(torch.randn(7, p, generator=torch.Generator().manual_seed(1)), dim=1)
    for negatives in (None, queue):
        found = dsf_info_nce(q, k, queue=negatives, exact=exact)
        stored = None if negatives is None else queue.tolist()
        expected = reference.losses(q.tolist(), k.tolist(), stored, 0.95, exact)
        torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", [16, 128, 256])
def test_every_divergence_in_fp32_is_that_of_forty_digits(p):
    q, k = groups(p, 4, spread=0.7)
    ours, theirs = estimate_vmf(q), estimate_vmf(k)
    for exact in (False, True):
        expected = torch.tensor([
            [
                float(reference.divergence(reference.estimate(a, 0.95, p), reference.estimate(b, 0.95, p), p, exact))
                for b in k.tolist()
            ]
            for a in q.tolist()
        ])  # fmt: skip
        found = divergences(ours, theirs, exact=exact)
        # Of the terms, not of their sum: similar distributions have a divergence close to 0.
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6 * float(ours.kappa.max()))
        torch.testing.assert_close(paired_divergences(ours, theirs, exact=exact), found.diagonal())


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("queued", [False, True])
def test_gradients_are_those_of_finite_differences_and_none_reaches_keys_or_queue(exact, queued):
    q, k = (x.double().requires_grad_() for x in groups(16, 2, rows=3, dtype=torch.float64))
    queue = F.normalize(torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2)), dim=1)
    queue = queue.requires_grad_() if queued else None

    if not queued:  # with a queue kappa of the stored keys follows the queries' and has no gradient
        torch.autograd.gradcheck(lambda x: dsf_info_nce(x, k.detach(), exact=exact), q)
    dsf_info_nce(q, k, queue=queue, exact=exact).sum().backward()
    assert q.grad.abs().min() > 0 and k.grad is None
    assert queue is None or queue.grad is None


def test_a_gradient_in_fp32_is_that_in_float64():
    for p in (16, 128, 256):
        q, k = groups(p, 4, dtype=torch.float64)
        gradients = []
        for dtype in (torch.float32, torch.float64):
            x = q.to(dtype).requires_grad_()
            dsf_info_nce(x, k.to(dtype)).sum().backward()
            gradients.append(x.grad.double())
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=2e-6 * float(gradients[1].abs().max()))


def test_identical_distributions_have_divergence_zero():
    q, _ = groups(128, 4)
    vmf = estimate_vmf(q.double())
    for exact in (False, True):
        assert divergences(vmf, vmf, exact=exact).diagonal().abs().max() < 1e-12


def test_the_exact_divergence_is_never_negative_and_the_released_one_is_sometimes():
    generator = torch.Generator().manual_seed(3)
    q, k = (0.3 + 0.7 * torch.rand(400, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    direction = F.normalize(torch.randn(1, 16, generator=generator, dtype=torch.float64), dim=1)
    near = F.normalize(direction + 0.05 * torch.randn(400, 16, generator=generator, dtype=torch.float64), dim=1)
    ours, theirs = estimate_vmf(q * direction), estimate_vmf(k * near)
    assert paired_divergences(ours, theirs, exact=True).min() > -1e-6
    assert paired_divergences(ours, theirs).min() < -0.01


@pytest.mark.parametrize(("p", "tau"), [(16, 0.11449), (64, 0.10958), (128, 0.10880), (256, 0.10842)])
def test_one_view_a_side_is_cosine_over_tau_plus_a_constant(p, tau):
    q, k = groups(p, 1, rows=6)
    similarities = -divergences(estimate_vmf(q.double()), estimate_vmf(k.double()))
    constant = similarities - q.double() @ k.double().T / tau
    assert float(constant.max() - constant.min()) < 2e-4 / tau  # tau is known to five digits
    losses = F.cross_entropy(q.double() @ k.double().T / tau, torch.arange(6), reduction="none")
    torch.testing.assert_close(dsf_info_nce(q.double(), k.double()), losses, rtol=1e-3, atol=0)


@pytest.mark.parametrize(("p", "tau"), [(128, 1.375), (256, 2.719)])
def test_with_the_exact_mean_length_one_view_a_side_has_hardly_any_contrast(p, tau):
    q, k = groups(p, 1, rows=6, dtype=torch.float64)
    constant = -divergences(estimate_vmf(q), estimate_vmf(k), exact=True) - q @ k.T / tau
    assert float(constant.max() - constant.min()) < 1e-3


@pytest.mark.parametrize(("p", "kappa"), [(16, 9.19399), (128, 9.67489), (256, 9.70924)])
def test_concentration_of_views_that_all_agree(p, kappa):
    one = F.one_hot(torch.tensor([0]), p).double()
    vmf = estimate_vmf(one)
    assert vmf.kappa.item() == pytest.approx(kappa, abs=5e-6) and vmf.length.item() == pytest.approx(0.95)


@pytest.mark.parametrize(("p", "share"), [(16, 0.01055), (128, 0.00135)])
def test_banerjees_estimate_is_close_to_the_exact_inverse(p, share):
    worst = 0.0
    for r in torch.linspace(0.05, 0.95, 19).tolist():
        kappa = estimate_vmf(r * F.one_hot(torch.tensor([0]), p).double(), shrink=1.0).kappa.item() * p
        v = reference.mp.mpf(p) / 2 - 1
        exact = reference.mp.findroot(
            lambda x, v=v, r=r: reference.mp.besseli(v + 1, x) / reference.mp.besseli(v, x) - r, kappa
        )
        worst = max(worst, abs(kappa / float(exact) - 1))
    assert worst <= share


@pytest.mark.parametrize(("p", "error"), [(16, 4e-7), (128, 1e-11)])
def test_the_expansion_has_the_digits_it_claims(p, error):
    v = reference.mp.mpf(p) / 2 - 1
    found, expected = [], []
    for kappa in (0.25, 1.0, 4.0, 9.5, 40.0, 300.0, 2500.0):
        found.append(float(log_normaliser(torch.tensor(kappa, dtype=torch.float64), p)))
        exact = reference.mp.log(reference.mp.besseli(v, kappa)) - v * reference.mp.log(kappa)
        # the constant that the expansion leaves out: v - log(2 pi v) / 2 - v log(2 v)
        constant = v - reference.mp.log(2 * reference.mp.pi * v) / 2 - v * reference.mp.log(2 * v)
        expected.append(float(exact - constant))
        ratio = float(reference.mp.besseli(v + 1, kappa) / reference.mp.besseli(v, kappa))
        assert float(mean_length(torch.tensor(kappa, dtype=torch.float64), p)) == pytest.approx(ratio, rel=2e-6)
    assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) < error


def test_the_polynomials_of_the_expansion_are_those_of_the_tables():
    first, second, *_ = polynomials(2)
    assert first == pytest.approx((0, 3 / 24, 0, -5 / 24))  # DLMF 10.41.10
    assert second == pytest.approx((0, 0, 81 / 1152, 0, -462 / 1152, 0, 385 / 1152))


@pytest.mark.parametrize(
    ("tau", "losses"),
    [
        (1.0, (3.5736, 6.3196, 9.0905)),
        (0.5, (1.7385, 4.3310, 7.0912)),
        (0.2, (0.011555, 0.170551, 1.380108)),
        (0.1, (5.3e-7, 8.4e-6, 1.35e-4)),
    ],
)
def test_info_nce_at_its_best_cosines_is_table_2_of_the_paper(tau, losses):
    found = [math.log1p(count * math.exp(-2 / tau)) for count in (256, 4096, 65536)]
    assert found == pytest.approx(losses, rel=1e-2 if tau == 0.1 else 5e-5)


def test_the_loss_does_not_change_inside_autocast():
    q, k = groups(128, 2)
    plain = dsf_info_nce(q, k)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(dsf_info_nce(q, k), plain)


def test_scores_of_eight_views_come_from_their_mean_alone_and_are_no_multiple_of_it():
    q, k = groups(64, 4)
    assert dsf_info_nce(q, k).tolist() != pytest.approx(dsf_info_nce(0.5 * q, k).tolist(), rel=1e-2)
