import pytest
import reference_losses as reference
import torch
from lightly.loss import BarlowTwinsLoss, VICRegLoss

from viewkit.pipelines.losses.barlow_twins import barlow_twins
from viewkit.pipelines.losses.vicreg import vicreg, vicreg_terms


def pair(n=8, d=16, scale=0.5):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator)
    return [(scale * (x + 0.5 * torch.randn(n, d, generator=generator))).requires_grad_() for _ in range(2)]


def weighted(x, y):
    return vicreg(x, y, invariance=25.0, variance=25.0, covariance=1.0)


def test_vicregs_terms_equal_the_loop_of_the_paper():
    x, y = pair()
    terms = vicreg_terms(x, y)
    expected = reference.vicreg_terms(x.tolist(), y.tolist())
    ours = (terms.invariance, terms.variance, terms.covariance)
    assert [term.item() for term in ours] == pytest.approx(expected, rel=1e-5)
    assert weighted(x, y).item() == pytest.approx(25 * expected[0] + 25 * expected[1] + expected[2], rel=1e-5)


def test_vicregs_terms_have_their_closed_forms():
    x = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # variance 2, covariance 2
    terms = vicreg_terms(x, x + 3)
    assert terms.invariance.item() == 9.0 and terms.variance.item() == 0.0
    assert terms.covariance.item() == pytest.approx(2 * (2 * 2**2) / 2)
    assert vicreg_terms(0 * x, 0 * x).variance.item() == pytest.approx(1 - 0.01)


def test_barlow_twins_equals_the_loop_of_the_paper():
    x, y = pair()
    ours = barlow_twins(x, y, redundancy=0.0051).item()
    assert ours == pytest.approx(reference.barlow_twins(x.tolist(), y.tolist(), 0.0051), rel=1e-5)


def test_barlow_twins_of_decorrelated_equal_views_is_zero():
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert barlow_twins(x, 5 * x + 1, redundancy=1.0).item() == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(weighted, VICRegLoss()), (lambda x, y: barlow_twins(x, y, redundancy=0.0051), BarlowTwinsLoss(0.0051))],
    ids=["vicreg", "barlow_twins"],
)
def test_loss_and_gradients_equal_those_of_lightly(ours, theirs, scale):
    z = pair(n=32, scale=scale)
    loss, expected = ours(*z), theirs(*z)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(torch.autograd.grad(loss, z), torch.autograd.grad(expected, z), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_autocast_does_not_lower_the_precision():
    z = [x.detach() for x in pair()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = weighted(*z), barlow_twins(*z, redundancy=0.0051)
    assert torch.equal(inside[0], weighted(*z)) and torch.equal(inside[1], barlow_twins(*z, redundancy=0.0051))
