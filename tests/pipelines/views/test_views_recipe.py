import io

import numpy as np
import pytest

from viewkit.pipelines.views.recipe import (
    FIELDS,
    NUM_FIELDS,
    ORDERS,
    check_recipes,
    column,
    neutral_recipes,
    pixel_boxes,
)
from viewkit.shards.errors import DataError


def test_fields_are_named_once_and_orders_are_all_permutations() -> None:
    assert len(set(FIELDS)) == NUM_FIELDS == 21
    assert len(set(ORDERS)) == 24 and ORDERS[0] == (0, 1, 2, 3) and ORDERS[23] == (3, 2, 1, 0)


def test_recipes_survive_a_round_trip_through_npy() -> None:
    recipes, memory = neutral_recipes(3, 224), io.BytesIO()
    np.save(memory, recipes)
    memory.seek(0)
    assert (check_recipes(np.load(memory, allow_pickle=False)) == recipes).all()


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("height", np.nan, r"pairs: row 1: height is nan; needed a number in \[0, 1\] and above 0"),
        ("width", 0.0, r"row 1: width is 0; needed .* above 0"),
        ("order", 2.5, r"row 1: order is 2.5; needed a whole number in \[0, 23\]"),
        ("hue", 0.6, r"row 1: hue is 0.6; needed a number in \[-0.5, 0.5\]"),
        ("sigma", np.inf, r"row 1: sigma is inf"),
        ("side", 0.0, r"row 1: side is 0"),
        ("top", 0.5, r"row 1: the box leaves the image: top 0.5 \+ height 1 = 1.5; needed at most 1"),
        ("version", 2.0, r"row 1 has recipe version 2; this viewkit reads version 1"),
    ],
)
def test_a_wrong_number_is_named_with_its_row_and_field(field: str, value: float, message: str) -> None:
    recipes = neutral_recipes(2, 224)
    recipes[1, column(field)] = value
    with pytest.raises(DataError, match=message):
        check_recipes(recipes, "pairs")


def test_an_array_of_another_kind_is_refused() -> None:
    with pytest.raises(DataError, match=r"float64 \[2, 21\], needed float32 \[\.\.\., 21\]"):
        check_recipes(neutral_recipes(2, 224).astype(np.float64))


def test_pixel_boxes_round_to_the_nearest_pixel_and_stay_inside() -> None:
    recipes = neutral_recipes(4, 224)
    recipes[:, 4:8] = [
        (0.1, 0.2, 0.5, 0.25),
        (0.9, 0.0, 0.1, 1.0),
        (0.999, 0.999, 0.001, 0.001),
        (0.25, 0.25, 0.75, 0.75),
    ]
    sizes = np.array([[100, 200], [10, 1], [5, 5000], [3, 3]])
    boxes = pixel_boxes(recipes, sizes)
    assert boxes.tolist() == [[10, 40, 50, 50], [9, 0, 1, 1], [4, 4995, 1, 5], [1, 1, 2, 2]]
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes).all()
