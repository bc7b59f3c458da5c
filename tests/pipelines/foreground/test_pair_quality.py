import numpy as np
import pytest
import reference_quality as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.pipelines.foreground.pair_quality import pair_quality, soft_masks, split_features
from viewkit.pipelines.pairs.order import pair_index


def draw(seed, views=4, side=3, width=5):
    """Maps with a common offset, as encoders give, and a unit direction."""
    rng = torch.Generator().manual_seed(seed)
    maps = torch.randn(views, side, side, width, generator=rng) + torch.randn(width, generator=rng)
    direction = torch.randn(width, generator=rng, dtype=torch.float64)
    return maps, direction / direction.norm()


def quality_of(maps, direction):
    features = split_features(maps, soft_masks(maps, direction))
    return pair_quality(features[None])[0]


def test_quality_is_that_of_the_papers_loops():
    maps, direction = draw(0)
    ours = quality_of(maps, direction)
    for (first, second), q in zip(pair_index(4), ours.tolist(), strict=True):
        theirs = reference.quality(maps[first].tolist(), maps[second].tolist(), direction.tolist())
        assert q == pytest.approx(theirs, abs=1e-12)
    assert ours.std() > 0.01, "the pairs differ"


def test_the_best_and_the_worst_pair_have_quality_two_and_minus_two():
    """Positions (1, f) are foreground and (0, b) background: features point along f and b exactly."""
    direction = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)

    def view(foreground, background):
        return torch.tensor([[[1e-6, foreground, 0.0], [0.0, 0.0, background]]])

    maps = torch.stack([view(1, 1), view(1, -1), view(-1, 1)])
    assert quality_of(maps, direction).tolist() == pytest.approx([2, -2, 0], abs=1e-6)


def test_masks_run_from_zero_to_one_in_every_map():
    masks = soft_masks(*draw(1))
    assert masks.amin((1, 2)).tolist() == [0] * 4 and masks.amax((1, 2)).tolist() == [1] * 4


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-4, 1e4), views=st.integers(2, 5))
def test_laws_of_quality(seed, scale, views):
    maps, direction = draw(seed, views)
    q = quality_of(maps, direction)
    assert len(q) == views * (views - 1) // 2 and bool((q.abs() <= 2).all())
    scaled = maps.double() * torch.linspace(1, scale, views, dtype=torch.float64)[:, None, None, None]
    np.testing.assert_allclose(quality_of(scaled, direction), q, atol=1e-9)  # every view by its own factor
    np.testing.assert_allclose(quality_of(maps, -direction), -q, atol=1e-9)
    np.testing.assert_allclose(quality_of(maps, 7 * direction), q, atol=1e-9)
    np.testing.assert_allclose(quality_of(maps[:1].expand(views, -1, -1, -1), direction), 0, atol=1e-12)
    np.testing.assert_allclose(quality_of(maps[[1, 0]], direction), q[:1], atol=1e-12)


def test_a_map_whose_projection_is_constant_is_half_foreground_under_either_sign():
    maps, direction = draw(2)
    away = torch.tensor([-direction[1], direction[0], 0, 0, 0])  # a right angle to the direction
    maps[0] = torch.randn(3, 3, 1, generator=torch.Generator().manual_seed(0)) * away + 3 * direction
    masks = soft_masks(maps, direction)
    assert bool((masks[0] == 0.5).all()) and bool((masks[1:] != 0.5).any())
    features = split_features(maps, masks)
    mean = maps[0].double().mean((0, 1))
    np.testing.assert_allclose(features[0], (mean / mean.norm()).expand(2, -1), atol=1e-12)
    np.testing.assert_allclose(quality_of(maps, -direction), -quality_of(maps, direction), atol=1e-9)
    assert quality_of(maps[:1].repeat(2, 1, 1, 1), direction).item() == pytest.approx(0, abs=1e-12)


def test_maps_of_zeros_have_cosine_zero_with_everything():
    maps, direction = draw(3, views=3)
    maps[:2] = 0
    assert quality_of(maps, direction)[:2].tolist() == [0, 0]


def test_a_map_that_is_not_finite_gives_no_number():
    maps, direction = draw(4)
    maps[1, 0, 0, 0] = torch.inf
    q = quality_of(maps, direction)
    touched = (pair_index(4) == 1).any(axis=1)
    assert np.array_equal(~torch.isfinite(q).numpy(), touched)
