"""Foreground maths: moments, component, sign, threshold and levels."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import reference_genview as reference

from viewkit.pipelines.encoders.preprocess import Preprocess
from viewkit.pipelines.foreground.artifact import project
from viewkit.pipelines.foreground.component import canonical, fit_component
from viewkit.pipelines.foreground.covariance import Moments
from viewkit.pipelines.foreground.share import count_foreground, fit_threshold
from viewkit.pipelines.foreground.sign import (
    Evidence,
    flat_patches,
    released_sign,
    resolve_sign,
    sign_evidence,
)
from viewkit.shards.errors import DataError


def moments_of(images):
    moments = Moments(images.shape[2])
    for tokens in images:
        moments.add(torch.from_numpy(tokens))
    return moments


def evidence_of(scores, flat=None, released=None):
    return sign_evidence(scores, np.zeros(scores.shape, bool) if flat is None else flat, released)


def component_of(images):
    moments = moments_of(images)
    return fit_component(moments.covariance(), moments.mean())


def test_component_is_the_first_singular_vector_of_all_tokens():
    images = np.random.default_rng(0).standard_normal((40, 16, 24)).astype(np.float32)
    images *= np.linspace(3, 0.5, 24, dtype=np.float32)
    images[..., 0] *= 2
    images += 5
    found = component_of(images).vector.numpy()
    expected = reference.first_component(images.reshape(-1, 24).astype(np.float64))
    assert 1 - abs(found @ expected) < 1e-10
    assert np.abs(found - expected * np.sign(found @ expected)).max() < 1e-6


@pytest.mark.parametrize("offset", [0.0, 20.0])
@pytest.mark.parametrize("width", [192, 384])
def test_component_agrees_with_numpys_svd_to_1e_6_with_large_means_and_outlying_channels(width, offset):
    rng = np.random.default_rng(width)
    images = rng.standard_normal((60, 64, width)).astype(np.float32) * rng.gamma(2, size=width).astype(np.float32)
    images[..., 3] += 1.5 * images[..., :10].sum(axis=-1)
    images[..., width // 2] += offset
    found = component_of(images).vector.numpy()
    expected = reference.first_component(images.reshape(-1, width).astype(np.float64))
    assert np.linalg.norm(found - expected * np.sign(found @ expected)) < 1e-6


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
    tokens, masks = reference.discs(np.random.default_rng(images), images=images, sign=sign)
    component = component_of(tokens)
    scores = project(torch.from_numpy(tokens), component.vector)
    evidence = evidence_of(scores.reshape(-1, 16, 16))
    chosen = resolve_sign(evidence, "auto")
    foreground = chosen * scores > fit_threshold(chosen * scores.ravel(), masks.mean())
    overlap = (foreground & masks.reshape(images, -1)).sum() / (foreground | masks.reshape(images, -1)).sum()
    assert abs(evidence.t) > 5
    assert overlap > 0.8


def test_evidence_changes_sign_with_the_scores():
    scores = np.random.default_rng(3).gamma(2, size=(30, 8, 8))
    one, other = evidence_of(scores), evidence_of(-scores)
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


def test_grids_without_an_inside_leave_the_sign_open():
    evidence = evidence_of(np.random.default_rng(0).standard_normal((20, 2, 2)))
    assert evidence.t == 0
    with pytest.raises(DataError, match="undecided"):
        resolve_sign(evidence, "auto")


def test_shares_do_not_depend_on_the_eigenvectors_sign():
    tokens, _ = reference.discs(np.random.default_rng(4))
    component = component_of(tokens)
    counts = []
    for vector in (component.vector, -component.vector):
        scores = project(torch.from_numpy(tokens), vector)
        chosen = resolve_sign(evidence_of(scores.reshape(-1, 16, 16)), "auto")
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


def test_huge_tokens_do_not_decide_the_sign():
    tokens, _ = reference.discs(np.random.default_rng(6), images=60)
    scores = project(torch.from_numpy(tokens), component_of(tokens).vector).reshape(-1, 16, 16)
    expected = evidence_of(scores)
    scores[:3, 0, 0] = 1e6 * np.sign(expected.t)  # three register tokens in a corner
    found = evidence_of(scores)
    assert np.sign(found.t) == np.sign(expected.t)
    assert abs(found.t) > 5


def test_bars_of_letterboxed_images_do_not_decide_the_sign():
    rng = np.random.default_rng(7)
    tokens, _ = reference.discs(rng, images=80, sign=1)
    scores = project(torch.from_numpy(tokens), component_of(tokens).vector).reshape(-1, 16, 16)
    sign = resolve_sign(evidence_of(scores), "auto")
    flat = np.zeros(scores.shape, bool)
    flat[:, :3] = flat[:, -3:] = True
    scores[flat] = sign * 50  # bars score like the very middle of a thing
    assert resolve_sign(evidence_of(scores, flat), "auto") == sign
    assert evidence_of(scores, flat).flat == 6 / 16
    assert np.sign(evidence_of(scores).t) == -sign


def test_images_without_a_centre_or_a_border_left_are_passed_over():
    scores = np.random.default_rng(0).standard_normal((12, 8, 8)) + np.arange(8)
    flat = np.zeros(scores.shape, bool)
    flat[0] = True
    found = evidence_of(scores, flat)
    assert np.isfinite([found.t, found.skewness]).all()
    assert evidence_of(scores, np.ones(scores.shape, bool)).t == 0


def test_flat_patches_are_those_of_one_colour():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    image[:8] = (10, 20, 30)
    image[8:16, :8] = 200
    image[8, 0] = 202  # what JPEG leaves
    image[8:16, 8:16] = 100
    image[8, 8] = 103
    see = Preprocess(32, 32, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    flat = flat_patches(see(image)[None], see.std, (4, 4))[0]
    expected = np.zeros((4, 4), bool)
    expected[0] = expected[1, 0] = True
    np.testing.assert_array_equal(flat, expected)


def test_the_released_component_is_known_by_its_largest_channel():
    vector = torch.full((1280,), 0.02, dtype=torch.float64)
    vector[621] = 0.476
    assert (released_sign(vector), released_sign(-vector)) == (1, -1)
    assert released_sign(vector.roll(1)) is None
    assert released_sign(vector[:1024]) is None


def test_a_released_component_that_contradicts_stops_and_can_be_asked_for():
    evidence = Evidence(t=9.0, skewness=0.4, released=-1)
    with pytest.raises(DataError, match="GenView's released component disagree"):
        resolve_sign(evidence, "auto")
    assert resolve_sign(evidence, "reference") == -1
    with pytest.raises(DataError, match="--sign reference is for ViT-H/14"):
        resolve_sign(Evidence(t=9.0, skewness=0.4), "reference")


def test_a_component_in_one_channel_or_with_a_close_second_is_doubted():
    rng = np.random.default_rng(8)
    plain = rng.standard_normal((30, 16, 12)).astype(np.float32)
    close = component_of(plain).doubts()
    plain[..., 5] *= 40
    one_channel = component_of(plain)
    assert any("times the second" in doubt for doubt in close)
    assert one_channel.largest_channel == 5
    assert ["channel 5 holds" in doubt for doubt in one_channel.doubts()] == [True]
