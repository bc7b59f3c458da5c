import numpy as np
import pytest

from viewkit.pipelines.pairs.objects import (
    Annotation,
    Unusable,
    common_content,
    jaccard_distance,
    read_annotation,
    shown_sets,
    shown_shares,
)
from viewkit.pipelines.views.recipe import column, neutral_recipes, pixel_boxes
from viewkit.pipelines.views.render.render import render
from viewkit.shards.codecs import encode_json, encode_png
from viewkit.shards.errors import DataError

CATEGORIES = ("cat", "dog", "cat", "sky")
THING = (True, True, True, False)


def world():
    """8 x 12 px: a cat on the left, a dog and a second cat on the right, sky above; unlabelled below."""
    mask = np.zeros((8, 12), dtype=np.int64)
    mask[:2] = 4
    mask[3:7, 1:4] = 1
    mask[3:7, 8:10] = 2
    mask[3:7, 10:12] = 3
    return mask


def png(mask):
    from io import BytesIO

    from PIL import Image

    stream = BytesIO()
    Image.fromarray(mask.astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def objects_of(mask):
    listed = []
    for value, (category, thing) in enumerate(zip(CATEGORIES, THING, strict=True), start=1):
        y, x = np.nonzero(mask == value)
        box = [int(x.min()), int(y.min()), int(x.max() - x.min() + 1), int(y.max() - y.min() + 1)]
        listed.append({"value": value, "category": category, "isthing": thing, "bbox": box})
    return listed


def fields(mask=None, **facts):
    metadata = facts.pop("metadata", {"objects": objects_of(world()), "height": 8, "width": 12})
    row = {"json": encode_json({"metadata": metadata, **facts})}
    return row if mask is None else {**row, "mask.png": png(mask)}


def annotation(masked=True):
    return read_annotation(fields(world() if masked else None), (8, 12), "row a")


def recipes(*boxes, flip=0):
    found = neutral_recipes(len(boxes), 8)
    for recipe, box in zip(found, boxes, strict=True):
        recipe[column("top") : column("width") + 1] = box
    found[:, column("flip")] = flip
    return found


@pytest.mark.parametrize("masked", [True, False])
def test_shares_of_crops_counted_by_hand(masked):
    """The objects are rectangles, so masks and boxes say the same."""
    crops = np.array([[0, 0, 8, 12], [2, 0, 6, 6], [0, 0, 2, 12], [3, 9, 2, 2], [7, 0, 1, 12]])
    expected = [
        [12 / 96, 8 / 96, 8 / 96, 24 / 96],
        [12 / 36, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 2 / 4, 2 / 4, 0],
        [0, 0, 0, 0],
    ]
    np.testing.assert_allclose(shown_shares(annotation(masked), crops), expected)


@pytest.mark.parametrize("flip", [0, 1])
def test_what_is_shown_agrees_with_the_rendered_view_also_when_it_is_mirrored(flip):
    """Each object in a colour of its own, rendered without resizing: its pixels are counted in the view."""
    mask = world()
    colours = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]], dtype=np.uint8)
    import torch

    rows = recipes((0.25, 0.0, 0.5, 4 / 12), (0.375, 8 / 12, 0.5, 4 / 12), (0, 2 / 12, 0.5, 4 / 12), flip=flip)
    crops = pixel_boxes(rows, np.tile([8, 12], (3, 1)))
    views = render([torch.from_numpy(colours[mask])], rows, [0, 0, 0], side_px=4, mean=(0, 0, 0), std=(1, 1, 1))
    shares = shown_shares(annotation(), crops)
    for view, share in zip(views.permute(0, 2, 3, 1).numpy(), shares, strict=True):
        for value in range(1, 5):
            inside = (np.abs(view - colours[value] / 255).max(axis=-1) < 1e-3).mean()
            assert inside == pytest.approx(share[value - 1], abs=1e-6)
    assert shares.any(axis=1).all()


def test_sets_tell_objects_from_categories_and_things_from_surroundings():
    shown = np.array([[True, False, False, True], [False, False, True, True], [False, True, False, False]])
    sets = shown_sets(annotation(), shown)
    cat_left, cat_right, dog = 0, 1, 2

    def distance(name, a, b):
        return jaccard_distance(sets[name][[a]], sets[name][[b]])[0]

    assert distance("things", cat_left, cat_right) == 1
    assert distance("thing_categories", cat_left, cat_right) == 0
    assert distance("segments", cat_left, cat_right) == pytest.approx(2 / 3)
    assert distance("categories", cat_left, cat_right) == 0
    assert distance("categories", cat_left, dog) == 1


def test_jaccard_distances_of_known_sets():
    a = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0]], dtype=bool)
    b = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    np.testing.assert_allclose(jaccard_distance(a, b), [2 / 3, 1, np.nan, 1])


def test_cocos_own_names_are_read_too():
    metadata = {"annotations": [{"bbox": [1, 3, 3, 4], "category_id": 17}]}
    found = read_annotation(fields(metadata=metadata), (8, 12), "row a")
    assert found.categories == ("17",) and found.is_thing.tolist() == [True]
    np.testing.assert_array_equal(found.boxes, [[3, 1, 4, 3]])


def test_a_palette_mask_is_read_by_its_indices():
    from io import BytesIO

    from PIL import Image

    image = Image.fromarray(world().astype(np.uint8))
    image.putpalette([200, 10, 30] * 256)
    stream = BytesIO()
    image.save(stream, "PNG")
    row = {**fields(), "mask.png": stream.getvalue()}
    np.testing.assert_array_equal(read_annotation(row, (8, 12), "row a").mask, world())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "no objects are listed"),
        (fields(metadata=["a"]), "no objects are listed"),
        (fields(metadata={"objects": []}), "no objects are listed"),
        (fields(world(), done=["exif_orientation"]), "turned"),
        (fields(world()[:, :6]), "mask is of another size"),
        (fields(metadata={"objects": objects_of(world()), "height": 80, "width": 120}), "boxes are of an image"),
    ],
)
def test_an_annotation_that_does_not_fit_is_not_used_and_says_why(row, reason):
    with pytest.raises(Unusable, match=reason):
        read_annotation(row, (8, 12), "row a")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (fields(metadata={"objects": [{"category": "cat"}]}), r"row a: its objects cannot be read .*'bbox'"),
        (fields(metadata={"objects": [{"bbox": [1, 2, 3], "category": "cat"}]}), "row a: its objects cannot be read"),
        (fields(world(), metadata={"objects": [{"bbox": [0, 0, 1, 1], "category": "c"}]}), "'value' where there is a"),
        ({**fields(), "mask.png": b"no png"}, "row a: its mask does not decode"),
        ({**fields(), "mask.png": encode_png(np.zeros((8, 12, 3), dtype=np.uint8))}, "its mask is RGB"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_an_error_that_names_the_row(row, message):
    with pytest.raises(DataError, match=message):
        read_annotation(row, (8, 12), "row a")


def test_values_of_the_mask_that_no_object_has_count_for_nobody():
    few = annotation()
    one = Annotation(("dog",), np.array([True]), few.boxes[1:2], few.mask, np.array([2]))
    assert shown_shares(one, np.array([[0, 0, 8, 12]])).tolist() == [[8 / 96]]


def test_common_content_of_crops_of_a_mosaic():
    """Four tiles of 4 px: the views show tile 0; half of 0, half of 1; 1; all four; and the generated image."""
    tiles = [{"bbox": [4 * (k % 2), 4 * (k // 2), 4, 4], "category": "cat"} for k in range(4)]
    mosaic = read_annotation(fields(metadata={"objects": tiles, "height": 8, "width": 8}), (8, 8), "row a")
    views = recipes((0, 0, 0.5, 0.5), (0, 0.25, 0.5, 0.5), (0, 0.5, 0.5, 0.5), (0, 0, 1, 1), (0, 0, 0.5, 0.5))
    views[4, column("source")] = 1
    found = common_content(mosaic, views, (8, 8))
    nan = np.nan
    expected = [0.5, 0, 0.25, nan, 0.5, 0.5, nan, 0.25, nan, nan]  # (0, 1), (0, 2), (0, 3), (0, 4), (1, 2), ...
    np.testing.assert_allclose(found, expected)


def test_content_that_is_no_countable_object_is_not_common():
    """Of the world with masks: two views of the sky share nothing, two of a cat do."""
    views = recipes((0, 0, 0.25, 1), (0, 0, 0.25, 0.5), (0.375, 1 / 12, 0.5, 3 / 12), (0.375, 1 / 12, 0.5, 3 / 12))
    np.testing.assert_allclose(common_content(annotation(), views, (8, 12)), [0, 0, 0, 0, 0, 1])
    sky = Annotation(("sky",), np.array([False]), np.array([[0.0, 0, 2, 12]]), None, np.array([0]))
    assert np.isnan(common_content(sky, views, (8, 12))).all()
    assert np.isnan(common_content(None, views, (8, 12))).all()
