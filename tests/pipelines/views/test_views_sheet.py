import numpy as np
import pytest

from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import column, neutral_recipes
from viewkit.pipelines.views.sheet import GAP, contact_sheet, describe
from viewkit.shards.errors import ConfigError


def test_a_sheet_has_a_line_for_every_image_and_is_the_same_each_time():
    images = [np.full((30, 60, 3), 200, dtype=np.uint8), np.full((50, 20, 3), 10, dtype=np.uint8)]
    sheet = contact_sheet(images, ["a", "b"], load_policy("moco_v3"), num_views=3, tile_px=24)
    assert sheet.shape == (2 * 28 + GAP, 4 * 28 + 2 * GAP, 3)
    assert (sheet[GAP : GAP + 12, GAP : GAP + 24] == 200).all() and (
        sheet[GAP + 12 : GAP + 24, GAP : GAP + 24] == 255
    ).all()
    again = contact_sheet(images, ["a", "b"], load_policy("moco_v3"), num_views=3, tile_px=24)
    assert (sheet == again).all()


def test_a_caption_names_what_changes_the_picture():
    recipe = neutral_recipes(1, 224)[0]
    assert describe(recipe) == "crop 1.00 x 1.00"
    recipe[column("flip")], recipe[column("sigma")], recipe[column("solarize")] = 1, 0.5, 0.5
    assert describe(recipe) == "crop 1.00 x 1.00, flip, blur 0.50 px, solarize"


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ConfigError, match="1 images and 2 keys"):
        contact_sheet([np.zeros((4, 4, 3), dtype=np.uint8)], ["a", "b"], load_policy("byol"))
