"""The compiled renderer against torch's operations, which decide what is right."""

import numpy as np
import pytest
import torch

from viewkit.pipelines.engine.renderer import VARIABLE, find_library
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.views.policies import POLICIES, load_policy
from viewkit.pipelines.views.recipe import NUM_FIELDS, ORDERS, column, neutral_recipes
from viewkit.pipelines.views.render import kernels
from viewkit.pipelines.views.render import render as render_module
from viewkit.pipelines.views.render.kernels import TOLERANCE
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.views.sample import sample_recipes

pytestmark = pytest.mark.skipif(isinstance(find_library(), str), reason=f"the compiled renderer: {find_library()}")
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
SIDES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 49, 64, 97)
SIZES = [(1, 1), (1, 90), (90, 1), (2, 3), (17, 16), (64, 64), (75, 100), (130, 48)]


def picture(height, width, seed):
    """Colour gradients with edges and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    planes = [np.sin(9 * x + c) * np.cos(7 * y - c) + ((x * 5 + c).astype(int) % 2) for c in range(3)]
    pixels = 90 * np.stack(planes, axis=2) + 100 + rng.normal(0, 8, (height, width, 3))
    return torch.from_numpy(pixels.clip(0, 255).astype(np.uint8))


PICTURES = [picture(*size, seed) for seed, size in enumerate(SIZES)]


def sampled(policy, count, seed):
    index = np.arange(count) % len(SIZES)
    ids = row_ids([f"row{number}" for number in range(count)])
    recipes = sample_recipes(policy, ids, np.array(SIZES)[index], seed=seed, stage="test", num_views=3)
    return recipes.reshape(-1, NUM_FIELDS), np.repeat(index, 3)


def both(monkeypatch, images, recipes, index, **options):
    views = []
    for renderer in ("torch", "compiled"):
        monkeypatch.setenv(VARIABLE, renderer)
        views.append(render(images, recipes, index, **(PLAIN | options)) * 255)
    return views


def gaps(torch_views, compiled_views, recipes):
    """Levels between the two; 0 for values so close to their solarize threshold that they may fall on either side."""
    limit = torch.from_numpy(recipes[:, column("solarize")] * 255)[:, None, None, None]
    near = ((torch_views - limit).abs() < TOLERANCE) | ((255 - torch_views - limit).abs() < TOLERANCE)
    assert near.float().mean() < 0.01
    return torch.where(near, 0.0, (torch_views - compiled_views).abs())


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("side_px", SIDES)
def test_resized_levels_are_the_same_bits(monkeypatch, side_px, interpolation):
    recipes, index = sampled(load_policy("simclr"), 32, seed=side_px)
    plain = neutral_recipes(len(recipes), side_px)
    plain[:, 4:9] = recipes[:, 4:9]
    expected, found = both(monkeypatch, PICTURES, plain, index, side_px=side_px, interpolation=interpolation)
    assert torch.equal(expected.round(), found.round())


@pytest.mark.parametrize("name", POLICIES)
def test_views_of_every_policy_are_within_the_tolerance(monkeypatch, name):
    for number, side_px in enumerate(SIDES):
        policy = load_policy(name)
        recipes, index = sampled(policy, len(SIZES), seed=number)
        options = {"side_px": side_px, "interpolation": policy.interpolation}
        expected, found = both(monkeypatch, PICTURES, recipes, index, **options)
        assert gaps(expected, found, recipes).max() <= TOLERANCE, side_px


@pytest.mark.parametrize("side_px", [21, 60])
def test_every_order_and_extreme_factor_is_within_the_tolerance(monkeypatch, side_px):
    rng = np.random.default_rng(side_px)
    recipes = neutral_recipes(len(ORDERS) * 8, side_px)
    fields = {"brightness": (0, 2), "contrast": (0, 2), "saturation": (0, 2), "hue": (-0.5, 0.5), "solarize": (0, 2)}
    for name, bounds in fields.items():
        recipes[:, column(name)] = rng.uniform(*bounds, len(recipes))
    recipes[:, column("order")] = np.arange(len(recipes)) % len(ORDERS)
    for name, most in (("grey", 3), ("flip", 2)):
        recipes[:, column(name)] = rng.integers(0, most, len(recipes))
    recipes[:, column("sigma")] = rng.uniform(0, 3, len(recipes)) * rng.integers(0, 2, len(recipes))
    recipes[::7, column("sigma")] = 40.0  # wider than the view
    expected, found = both(monkeypatch, PICTURES, recipes, np.arange(len(recipes)) % len(SIZES), side_px=side_px)
    assert gaps(expected, found, recipes).max() <= TOLERANCE


def test_float_images_and_those_with_gaps_in_memory_are_within_the_tolerance(monkeypatch):
    recipes, index = sampled(load_policy("byol"), len(SIZES), seed=5)
    wide = [torch.cat([image, image], dim=1)[:, : image.shape[1]] for image in PICTURES]  # rows lie apart
    planar = [image.permute(2, 0, 1).contiguous().permute(1, 2, 0) for image in PICTURES]
    floats = [image.float() / 255 for image in PICTURES]
    doubles = [image.double() / 255 for image in PICTURES]
    for side_px in (24, 57):
        monkeypatch.setenv(VARIABLE, "compiled")
        plain = render(PICTURES, recipes, index, side_px=side_px, **PLAIN)
        for images in (wide, planar):
            assert torch.equal(render(images, recipes, index, side_px=side_px, **PLAIN), plain)
        for images in (floats, doubles):
            expected, found = both(monkeypatch, images, recipes, index, side_px=side_px)
            assert gaps(expected, found, recipes).max() <= TOLERANCE


def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(monkeypatch):
    monkeypatch.setenv(VARIABLE, "compiled")
    monkeypatch.setattr(kernels, "PIXELS_PER_THREAD", 1)
    recipes, index = sampled(load_policy("dsf_cifar"), 16, seed=9)
    real, threads = kernels.run_kernels, torch.get_num_threads()
    first = render(PICTURES, recipes, index, side_px=37)
    try:
        for copy in range(find_library().viewkit_copies()):
            monkeypatch.setattr(render_module, "run_kernels", lambda *a, _c=copy, **k: real(*a, **k, copy=_c))
            for count in (1, 3):
                torch.set_num_threads(count)
                assert torch.equal(render(PICTURES, recipes, index, side_px=37), first)
    finally:
        torch.set_num_threads(threads)
