import numpy as np
import pytest

from viewkit.pipelines.views.boxes import box_corner, box_extent, foreground_boxes, overlap
from viewkit.shards.errors import ConfigError


def test_overlap_of_known_boxes() -> None:
    whole, half = np.array([0.0, 0, 1, 1]), np.array([0.0, 0, 1, 0.5])
    quarter, opposite = np.array([0.0, 0, 0.5, 0.5]), np.array([0.5, 0.5, 0.5, 0.5])
    pairs = [(whole, whole, 1.0), (whole, half, 0.5), (quarter, opposite, 0.0), (half, quarter, 0.5)]
    for a, b, expected in pairs:
        assert overlap(a, b) == pytest.approx(expected)
        assert overlap(a, b) == overlap(b, a)


@pytest.mark.parametrize("aspect", [1.0, 500 / 375, 600 / 200, 5000.0, 1 / 5000])
def test_the_area_is_kept_exactly_on_any_image(aspect: float) -> None:
    rng = np.random.default_rng(0)
    area = rng.uniform(0.08, 1.0, 5000)
    height, width = box_extent(area, rng.uniform(np.log(3 / 4), np.log(4 / 3), 5000), np.full(5000, aspect))
    assert np.allclose(height * width, area, rtol=1e-12)
    assert (height <= 1).all() and (width <= 1).all()


def test_an_aspect_that_fits_is_kept() -> None:
    height, width = box_extent(np.array([0.3]), np.log(np.array([1.2])), np.array([500 / 375]))
    assert width / height * 500 / 375 == pytest.approx(1.2)


def test_corners_keep_the_centre_in_the_foreground_where_that_is_possible() -> None:
    extent, position = np.full(11, 0.3), np.linspace(0, 1, 11)
    corner = box_corner(extent, position, np.full(11, 0.4), np.full(11, 0.6))
    assert np.allclose(corner + 0.15, np.linspace(0.4, 0.6, 11))
    assert np.allclose(box_corner(extent, position, np.zeros(11), np.ones(11)), position * 0.7)
    cut = box_corner(np.full(11, 0.8), position, np.full(11, 0.9), np.full(11, 1.0))
    assert np.allclose(cut, 0.2)


def test_foreground_boxes_hold_what_exceeds_the_threshold() -> None:
    maps = np.zeros((3, 4, 8))
    maps[0, 1:3, 2:7] = 1.0
    maps[1] = 5.0
    maps[2, 0, 0], maps[2, 3, 7] = 1.0, 0.05
    found = foreground_boxes(maps, threshold=0.1)
    assert found.tolist() == [[0.25, 0.25, 0.5, 0.625], [0, 0, 1, 1], [0, 0, 0.25, 0.125]]
    with pytest.raises(ConfigError, match=r"threshold is 1\.5"):
        foreground_boxes(maps, threshold=1.5)
