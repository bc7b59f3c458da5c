import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from torchvision.transforms import InterpolationMode

from viewkit.pipelines.views.randaugment import OPERATIONS, strengths
from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.pipelines.views.render.operations import apply_operations


def batch(count=3, side=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, count, side, side), generator=generator).float()


def applied(name, strength, views):
    recipes = neutral_recipes(views.shape[1], 24)
    recipes[:, column("op_1")], recipes[:, column("strength_1")] = OPERATIONS.index(name), strength
    views = views.clone()
    apply_operations(views, recipes)
    return views.transpose(0, 1)


TORCHVISION = {
    "brightness": lambda x, s: F.adjust_brightness(x, s),
    "saturation": lambda x, s: F.adjust_saturation(x, s),
    "contrast": lambda x, s: F.adjust_contrast(x, s),
    "sharpness": lambda x, s: F.adjust_sharpness(x, s),
    "autocontrast": lambda x, s: F.autocontrast(x),
    "solarize": lambda x, s: torch.where(x >= s, 1 - x, x),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_colour_operations_are_torchvisions(name):
    views = batch()
    for strength in (0.4, 1.7):
        expected = TORCHVISION[name](views.transpose(0, 1) / 255, strength) * 255
        assert (applied(name, strength, views) - expected).abs().max() < 0.01


@pytest.mark.parametrize("name, function", [("equalize", F.equalize), ("posterize", lambda x: F.posterize(x, 4))])
def test_whole_level_operations_are_torchvisions_on_uint8(name, function):
    views = torch.cat([batch(2), batch(1) // 4 + 30, torch.full((3, 1, 24, 24), 9.0)], dim=1)
    expected = function(views.transpose(0, 1).to(torch.uint8)).float()
    assert (applied(name, 4, views) == expected).all()


@pytest.mark.parametrize("name, move", [("translate_x", (5, 0)), ("translate_y", (0, 5))])
def test_translations_are_torchvisions_the_other_way(name, move):
    views = batch()
    still = {"angle": 0.0, "scale": 1.0, "shear": [0.0, 0.0], "interpolation": InterpolationMode.NEAREST}
    expected = F.affine(views.transpose(0, 1), translate=[-move[0], -move[1]], **still)
    assert (applied(name, 5.4 / 24, views) == expected).all()


def test_rotation_is_torchvisions_but_for_ties():
    views = batch()
    expected = F.rotate(views.transpose(0, 1), 17.0, InterpolationMode.NEAREST)
    assert (applied("rotate", 17.0, views) == expected).float().mean() > 0.99


def test_shears_move_rows_by_their_distance_from_the_edge():
    views = torch.zeros(3, 1, 24, 24)
    views[:, :, :, 12] = 255.0
    moved = applied("shear_x", 0.25, views)[0, 0]
    places = moved.argmax(dim=1)
    assert (places == 12 - (0.25 * (torch.arange(24) + 0.5)).round()).float().mean() > 0.9
    assert torch.equal(applied("shear_y", 0.25, views.transpose(2, 3))[0, 0], moved.T)


def test_magnitude_nine_has_torchvisions_strengths():
    operation = np.arange(14)
    found = strengths(operation, np.full(14, 9.0), np.zeros(14, dtype=bool))
    expected = [0, 0.09, 0.09, 45 / 331, 45 / 331, 9, 1.27, 1.27, 1.27, 1.27, 7, 0.7, 0, 0]
    assert np.allclose(found, expected)
    negative = strengths(operation, np.full(14, 9.0), np.ones(14, dtype=bool))
    assert np.allclose(negative[1:6], -found[1:6]) and np.allclose(negative[6:10], 2 - found[6:10])
