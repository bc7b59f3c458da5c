import numpy as np
import pytest
import torch
import vs2fi as reference
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from viewkit.pipelines.vs2fi.consistency import consistency_curve, posterior, semantic_consistency
from viewkit.pipelines.vs2fi.histogram import bin_cells, bin_edges, count_cells, pooled_range

counts = st.lists(st.integers(0, 1000), min_size=20, max_size=20)


@settings(max_examples=60, deadline=None)
@given(counts, counts, st.floats(0.01, 0.99), st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=30))
def test_consistency_equals_the_papers_loop(positive, negative, prior, similarity):
    assume(sum(positive) and sum(negative))
    edges = np.linspace(-0.7, 0.9, 21)
    curve = consistency_curve(np.array(positive), np.array(negative), edges, prior)
    expected = reference.posterior(positive, negative, prior)
    found = semantic_consistency(np.array(similarity), curve)
    slow = [reference.semantic_consistency(s, edges.tolist(), expected) for s in similarity]
    np.testing.assert_allclose(found, slow, atol=1e-6)
    assert np.all((found >= 0) & (found <= 1))


def test_with_equal_priors_and_counts_the_posterior_is_the_share_of_positives():
    positive, negative = np.array([0, 1, 3, 4]), np.array([4, 3, 1, 0])
    np.testing.assert_allclose(posterior(positive, negative), [0, 0.25, 0.75, 1])


def test_an_empty_bin_is_crossed_by_a_straight_line_and_the_ends_stay_flat():
    curve = consistency_curve(np.array([1, 0, 3]), np.array([3, 0, 1]), np.array([0.0, 0.2, 0.4, 0.6]))
    np.testing.assert_allclose(
        semantic_consistency(np.array([-1, 0.1, 0.3, 0.5, 1]), curve), [0.25, 0.25, 0.5, 0.75, 0.75]
    )


def test_a_larger_prior_of_positives_never_lowers_consistency():
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(1, 99, 20), rng.integers(1, 99, 20)
    assert np.all(posterior(positive, negative, 0.7) >= posterior(positive, negative, 0.3))


def toy_world():
    """A symmetric joint distribution p(x1, x2) of two views over 6 symbols, in whole thousandths."""
    rng = np.random.default_rng(3)
    half = rng.integers(1, 9, (6, 6))
    joint = half + half.T + np.diag(rng.integers(20, 60, 6))
    return joint


def specs(joint):
    """Positive pairs and negative pairs (independent views) as exact integer counts, and the PMI."""
    joint = joint.astype(np.int64)
    marginal = joint.sum(axis=1)
    independent = np.outer(marginal, marginal)
    pmi = np.log(joint / joint.sum()) - np.log(independent / independent.sum())
    return joint, independent, pmi


def counted(similarity, weight):
    """Fine counts of the critic's similarities, each as often as its pair occurs."""
    values = torch.from_numpy(np.repeat(similarity.ravel(), weight.ravel())).float()
    return count_cells(values).numpy()


def posterior_of(similarity, positive, negative, bins):
    cells = np.stack([counted(similarity, positive), counted(similarity, negative)])
    span = pooled_range(cells, bins)
    edges = bin_edges(span, bins)
    curve = consistency_curve(*bin_cells(cells, span, bins), edges)
    return semantic_consistency(similarity, curve)


def test_posterior_of_an_optimal_critic_is_the_sigmoid_of_pmi():
    """Prop. 3.1: a critic tau (PMI + log C) has p(pos | S) = p12 / (p12 + p1 p2), whatever its constant."""
    positive, negative, pmi = specs(toy_world())
    # Ranks of the PMI put every distinct value on the centre of its own bin, so nothing is left to interpolation.
    values, rank = np.unique(pmi.round(12), return_inverse=True)
    bins = len(values)
    step = 2.0**-10
    similarity = (rank.reshape(pmi.shape) - bins / 2) * step
    cells = np.stack([counted(similarity, positive), counted(similarity, negative)])
    start = int((similarity.min() + 1) * cells.shape[1] / 2)
    width = int(step * cells.shape[1] / 2)
    span = (start, start + bins * width)
    curve = consistency_curve(*bin_cells(cells, span, bins), bin_edges(span, bins))
    found = semantic_consistency(similarity + step / 2, curve)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-pmi)), atol=1e-6)


@pytest.mark.slow
def test_posterior_of_a_small_trained_critic_is_near_the_sigmoid_of_pmi():
    """Unit vectors trained by InfoNCE (eq. 1) on the toy world's exact law, with 8 negatives a step."""
    positive, negative, pmi = specs(toy_world())
    torch.manual_seed(0)
    z = torch.randn(6, 16, requires_grad=True)
    marginal = torch.tensor(positive.sum(axis=1) / positive.sum(), dtype=torch.float32)
    spec = torch.tensor(positive / positive.sum(), dtype=torch.float32)
    optimizer = torch.optim.Adam([z], lr=0.03)
    tau = 0.5
    for step in range(800):
        optimizer.param_groups[0]["lr"] = 0.03 * (1 - step / 800)
        unit = torch.nn.functional.normalize(z, dim=1)
        logits = unit @ unit.T / tau
        drawn = torch.multinomial(marginal, 8 * 256, replacement=True).reshape(256, 8)
        # the expectation over positives is taken exactly, over negatives by 256 draws
        sums = logits[:, drawn].exp().sum(-1)  # 6 256
        loss = (spec[:, :, None] * -(logits[:, :, None] - (logits.exp()[:, :, None] + sums[:, None]).log())).sum((0, 1))
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    unit = torch.nn.functional.normalize(z, dim=1).detach()
    found = posterior_of((unit @ unit.T).numpy(), positive, negative, bins=200)
    wrong = np.abs(found - 1 / (1 + np.exp(-pmi)))
    assert np.average(wrong, weights=positive + negative / negative.sum() * positive.sum()) < 0.03
