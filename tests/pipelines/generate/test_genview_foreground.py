"""Foreground maths: moments, component, sign, threshold and levels."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import genview_twins as twin

from viewkit.pipelines.generate.component import Evidence, canonical, fit_component, resolve_sign, sign_evidence
from viewkit.pipelines.generate.covariance import Moments
from viewkit.pipelines.generate.foreground import project
from viewkit.pipelines.generate.levels import LEVELS, adaptive_level, sample_level
from viewkit.pipelines.generate.threshold import count_foreground, fit_threshold
from viewkit.shards.errors import DataError


def moments_of(images):
    moments = Moments(images.shape[2])
    for tokens in images:
        moments.add(torch.from_numpy(tokens))
    return moments


def component_of(images):
    moments = moments_of(images)
    return fit_component(moments.covariance(), moments.mean())


def test_component_is_the_first_singular_vector_of_all_tokens():
    images = np.random.default_rng(0).standard_normal((40, 16, 24)).astype(np.float32)
    images *= np.linspace(3, 0.5, 24, dtype=np.float32)
    images[..., 0] *= 2
    images += 5
    found = component_of(images).vector.numpy()
    expected = twin.first_component(images.reshape(-1, 24).astype(np.float64))
    assert 1 - abs(found @ expected) < 1e-10
    assert np.abs(found - expected * np.sign(found @ expected)).max() < 1e-6


def test_covariance_and_mean_equal_numpys():
    images = np.random.default_rng(1).normal(3, 2, (20, 9, 5)).astype(np.float32)
    moments = moments_of(images)
    tokens = images.reshape(-1, 5).astype(np.float64)
    assert moments.tokens == 180
    np.testing.assert_allclose(moments.mean().numpy(), tokens.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(moments.covariance().numpy(), np.cov(tokens.T), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_moments_are_bit_equal_for_any_merge_order(scale):
    rng = np.random.default_rng(2)
    images = (rng.standard_normal((60, 16, 12)) * scale * np.exp(rng.normal(size=(60, 1, 1)))).astype(np.float32)
    parts = [moments_of(images[i : i + 10]) for i in range(0, 60, 10)]
    totals = []
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 60):
        merged = Moments(12)
        for i in order:
            merged.merge(parts[i])
        totals.append(merged.total())
    one_by_one = moments_of(images[rng.permutation(60)]).total()
    assert all(torch.equal(total, one_by_one) for total in totals)


def test_tokens_too_large_to_sum_exactly_are_an_error():
    with pytest.raises(DataError, match="too large to sum"):
        Moments(3).add(torch.full((4, 3), 1e8))


def test_tokens_that_are_all_alike_have_no_component():
    with pytest.raises(DataError, match="all alike"):
        component_of(np.ones((12, 9, 4), np.float32))


@given(st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=2, max_size=8).filter(any))
def test_canonical_gives_the_same_vector_for_both_signs(values):
    vector = torch.tensor(values, dtype=torch.float64)
    if vector.abs().topk(2).values.diff().item() != 0:
        assert torch.equal(canonical(vector), canonical(-vector))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("images", [40, 200])
def test_sign_of_discs_near_the_centre_is_recovered(sign, images):
    tokens, masks = twin.discs(np.random.default_rng(images), images=images, sign=sign)
    component = component_of(tokens)
    scores = project(torch.from_numpy(tokens), component.vector)
    evidence = sign_evidence(scores.reshape(-1, 16, 16))
    chosen = resolve_sign(evidence, "auto")
    foreground = chosen * scores > fit_threshold(chosen * scores.ravel(), masks.mean())
    overlap = (foreground & masks.reshape(images, -1)).sum() / (foreground | masks.reshape(images, -1)).sum()
    assert abs(evidence.t) > 5
    assert overlap > 0.8


def test_evidence_changes_sign_with_the_scores():
    scores = np.random.default_rng(3).gamma(2, size=(30, 8, 8))
    one, other = sign_evidence(scores), sign_evidence(-scores)
    assert one.t == pytest.approx(-other.t)
    assert one.skewness == pytest.approx(-other.skewness)
    assert one.skewness > 0.5


def test_an_undecided_sign_stops_with_the_way_out():
    with pytest.raises(DataError, match=r"\|t\| is 1\.0, 5 is needed.*masks\.png.*--sign \+ or --sign -"):
        resolve_sign(Evidence(t=1.0, skewness=0.1), "auto")
    with pytest.raises(DataError, match="disagree"):
        resolve_sign(Evidence(t=9.0, skewness=-0.6), "auto")


@pytest.mark.parametrize(("asked", "sign"), [("+", 1), ("-", -1), ("skewness", -1)])
def test_a_given_sign_overrules_the_evidence(asked, sign):
    assert resolve_sign(Evidence(t=9.0, skewness=-0.6), asked) == sign


def test_sign_does_not_depend_on_skewness_of_grids_without_an_inside():
    assert sign_evidence(np.random.default_rng(0).standard_normal((20, 2, 2))) == Evidence(t=0.0, skewness=0.0)


def test_shares_do_not_depend_on_the_eigenvectors_sign():
    tokens, _ = twin.discs(np.random.default_rng(4))
    component = component_of(tokens)
    counts = []
    for vector in (component.vector, -component.vector):
        scores = project(torch.from_numpy(tokens), vector)
        chosen = resolve_sign(sign_evidence(scores.reshape(-1, 16, 16)), "auto")
        direction = chosen * vector
        scores = project(torch.from_numpy(tokens), direction)
        counts.append(count_foreground(scores, fit_threshold(scores.ravel(), 0.4)))
    np.testing.assert_array_equal(*counts)


@given(st.integers(5, 200), st.floats(0.05, 0.95))
def test_threshold_leaves_exactly_the_share_above_it(m, share):
    scores = np.random.default_rng(m).permutation(m).astype(np.float64)
    assert (scores > fit_threshold(scores, share)).sum() == math.floor(share * m)


def test_threshold_ignores_how_far_an_outlier_lies():
    scores = np.arange(100, dtype=np.float64)
    assert fit_threshold(scores, 0.4) == 59
    scores[99] = 1e9
    assert fit_threshold(scores, 0.4) == 59


def test_scores_that_are_not_finite_are_an_error():
    with pytest.raises(DataError, match="not finite"):
        fit_threshold(np.array([0.0, np.nan]), 0.5)


def test_levels_of_all_shares_of_256_tokens_follow_the_paper_and_its_cap():
    for k in range(257):
        expected = 400 if k == 256 else 100 * (5 * k // 256)
        assert adaptive_level(k, 256) == expected
    assert [adaptive_level(k, 5) for k in range(6)] == [0, 100, 200, 300, 400, 400]  # 3/5 is level 300


def test_random_levels_are_alike():
    rng = np.random.default_rng(0)
    drawn = [sample_level(rng) for _ in range(5000)]
    counts = [drawn.count(level) for level in LEVELS]
    assert sum(counts) == 5000
    assert min(counts) > 900
