import math

import numpy as np
import torch
import vs2fi as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.pipelines.vs2fi.alignment import alignment_level, alignment_score, log_sum_edges, soft_mean
from viewkit.pipelines.vs2fi.counting import count_group
from viewkit.pipelines.vs2fi.histogram import bin_cells, bin_edges, centres, count_cells, pooled_range

TAU = 0.2


def spec(seed=0, exits=3, bins=20, negatives=63):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 50, (exits, bins))
    edges = np.stack([log_sum_edges(np.linspace(-0.3, 0.4 + 0.1 * e, bins + 1), negatives, TAU) for e in range(exits)])
    return counts, edges


def test_score_equals_the_papers_expectation_over_the_bins():
    counts, edges = spec()
    s = np.random.default_rng(1).uniform(-1, 1, (40, 3))
    found = alignment_score(s, counts, centres(edges), TAU)
    slow = [
        [reference.alignment_score(s[n, e], counts[e].tolist(), edges[e].tolist(), TAU) for e in range(3)]
        for n in range(40)
    ]
    np.testing.assert_allclose(found, slow, atol=1e-6)
    assert np.all((found > 0) & (found < 1))


def test_score_rises_with_similarity_so_more_alike_views_never_have_a_higher_level():
    counts, edges = spec()
    s = np.linspace(-1, 1, 200)[:, None].repeat(3, axis=1)
    score = alignment_score(s, counts, centres(edges), TAU)
    assert np.all(np.diff(score, axis=0) > 0)
    assert np.all(np.diff(alignment_level(score, 1 / 64)) <= 0)


def test_a_similarity_equal_to_every_negative_gives_chance():
    """N negatives with the pair's own similarity: P = 1 / (1 + N), eq. 4."""
    n = 63
    centre = np.array([[math.log(n) + 0.3 / TAU]])
    found = alignment_score(np.array([[0.3]]), np.array([[7]]), centre, TAU)
    np.testing.assert_allclose(found, [[1 / (n + 1)]], rtol=1e-12)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=1, max_size=8), st.floats(0, 0.999))
def test_level_equals_the_papers_minimum_and_lies_in_1_to_L_plus_1(scores, gamma):
    found = alignment_level(np.array(scores), gamma)
    assert found.tolist() == [reference.alignment_level(row, gamma) for row in scores]
    assert np.all((found >= 1) & (found <= 5))


def test_a_score_of_exactly_gamma_does_not_pass_and_none_gives_L_plus_1():
    assert alignment_level(np.array([[0.25, 0.25, 0.26], [0.25, 0.1, 0.0]]), 0.25).tolist() == [3, 4]


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 0.5), st.floats(0, 0.5), st.integers(0, 99))
def test_a_higher_gamma_never_lowers_a_level(a, b, seed):
    scores = np.random.default_rng(seed).uniform(0, 1, (20, 6))
    low, high = sorted((a, b))
    assert np.all(alignment_level(scores, low) <= alignment_level(scores, high))


def unit(*shape, seed=0):
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(z, dim=-1)


def test_soft_mean_is_the_log_of_the_sum_of_the_paper():
    z = torch.nn.functional.normalize(unit(6, 8).double(), dim=-1)
    other = ~torch.eye(6, dtype=torch.bool)
    found = log_sum_edges(soft_mean(z @ z.T, other, TAU).numpy(), 5, TAU)
    rows = z.tolist()
    slow = [reference.log_sum(rows[i], [rows[j] for j in range(6) if j != i], TAU) for i in range(6)]
    np.testing.assert_allclose(found, slow, atol=1e-9)


def test_soft_mean_lies_between_the_lowest_and_the_highest_negative():
    z = unit(9, 4)
    other = ~torch.eye(9, dtype=torch.bool)
    s = z @ z.T
    found = soft_mean(s, other, 0.05)
    assert torch.all(found <= s.masked_fill(~other, -2).amax(1) + 1e-6)
    assert torch.all(found >= s.masked_fill(~other, 2).amin(1) - 1e-6)


def test_a_groups_counts_equal_plain_loops():
    n, v, e = 7, 3, 2
    top, exits = unit(n, v, 8, seed=1), unit(n, v, e, 6, seed=2)
    positive, negative, sums = count_group(top, exits, TAU)
    pos = [reference.cosine(top[k, i].tolist(), top[k, j].tolist()) for k in range(n) for i, j in reference.pairs(v)]
    neg = [
        reference.cosine(top[k, i].tolist(), top[m, j].tolist())
        for i, j in reference.pairs(v) for k in range(n) for m in range(n) if k != m
    ]  # fmt: skip
    assert_counts_agree(positive, pos)
    assert_counts_agree(negative, neg)
    for level in range(e):
        z = exits[:, :, level].tolist()
        logs = [
            reference.log_sum(z[k][i], [z[m][j] for m in range(n) if m != k], TAU)
            for i in range(v) for j in range(v) if i != j for k in range(n)
        ]  # fmt: skip
        assert_counts_agree(sums[level], [TAU * (value - math.log(n - 1)) for value in logs])


def assert_counts_agree(counts, values):
    """Same number, and bin by bin the same up to values that fp32 puts on the other side of a cell's edge."""
    expected = count_cells(torch.tensor(values, dtype=torch.float64))
    assert counts.sum() == len(values) == expected.sum()
    assert (counts.cumsum(0) - expected.cumsum(0)).abs().max() <= 1


def test_permuting_a_groups_images_keeps_its_histograms():
    top, exits = unit(12, 2, 8, seed=3), unit(12, 2, 4, 8, seed=4)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(count_group(top, exits, TAU), count_group(top[order], exits[order], TAU), strict=True):
        assert ours.sum() == theirs.sum()
        assert (ours.cumsum(-1) - theirs.cumsum(-1)).abs().max() <= 1


def test_the_marginal_score_is_near_the_mean_over_sampled_negatives():
    """Eq. 6: the expectation over the 20-bin law against the average of eq. 4 over the anchors' own negatives."""
    n = 256
    base = unit(n, 1, 1, 32, seed=5)
    exits = torch.nn.functional.normalize(base + 0.6 * unit(n, 2, 1, 32, seed=6), dim=-1)
    cells = count_group(exits[:, :, 0], exits, TAU)[2].numpy()
    span = pooled_range(cells, 20)
    edges = log_sum_edges(bin_edges(span, 20), n - 1, TAU)
    for s in (0.1, 0.5, 0.9):
        found = alignment_score(np.array([[s]]), bin_cells(cells, span, 20), centres(edges)[None], TAU)[0, 0]
        q = math.exp(s / TAU)
        sums = (exits[:, 0, 0] @ exits[:, 1, 0].T / TAU).exp()
        sums = sums.sum(1) - sums.diagonal()
        assert abs(found - (q / (q + sums)).mean().item()) < 1e-3
