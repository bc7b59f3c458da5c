import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkit.pipelines.views.colours import BINS, hellinger, lab_histograms


def slow_hellinger(h1, h2):
    """Eq. 22, letter by letter."""
    n = len(h1)
    mean1, mean2 = sum(h1) / n, sum(h2) / n
    total = 0.0
    for i in range(n):
        total += math.sqrt(h1[i] * h2[i])
    return math.sqrt(max(0.0, 1 - total / math.sqrt(mean1 * mean2 * n**2)))


histograms = st.lists(st.integers(0, 1000), min_size=5, max_size=5).filter(any)


@given(histograms, histograms)
def test_the_distance_equals_the_papers_loop_and_lies_in_0_to_1(a, b):
    found = hellinger(np.array(a, dtype=np.float64), np.array(b, dtype=np.float64))
    assert abs(found - slow_hellinger(a, b)) < 1e-6
    assert 0 <= found <= 1


@given(histograms, st.floats(1e-3, 1e3))
def test_proportional_histograms_are_0_apart(a, scale):
    h = np.array(a, dtype=np.float64)
    assert hellinger(h, h * scale) < 1e-7


def test_histograms_without_a_common_bin_are_1_apart():
    assert hellinger(np.array([3.0, 0, 0]), np.array([0, 1.0, 5])) == 1


def test_the_distance_of_two_known_laws():
    """p = (1/2, 1/2), q = (1, 0): sqrt(1 - 1/sqrt(2))."""
    assert hellinger(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == pytest.approx(math.sqrt(1 - math.sqrt(0.5)))


def test_a_histogram_counts_every_pixel_once_a_channel():
    views = np.random.default_rng(0).random((3, 7, 7, 3))
    found = lab_histograms(views)
    assert found.shape == (3, 3 * BINS)
    np.testing.assert_array_equal(found.reshape(3, 3, BINS).sum(axis=2), 49)


@pytest.mark.parametrize(
    ("rgb", "lab"), [((0, 0, 0), (0, 0, 0)), ((1, 1, 1), (100, 0, 0)), ((1, 0, 0), (53.24, 80.09, 67.20))]
)
def test_one_colour_fills_the_bins_of_its_lab_values(rgb, lab):
    found = lab_histograms(np.tile(np.array(rgb, dtype=np.float64), (1, 4, 4, 1)))[0].reshape(3, BINS)
    assert found[0].argmax() == min(int(lab[0] / 100 * BINS), BINS - 1)
    for channel in (1, 2):
        near = {int((lab[channel] + shift + 128) / 256 * BINS) for shift in (-0.01, 0.01)}
        assert found[channel].max() == 16 and int(found[channel].argmax()) in near


def test_histograms_equal_those_of_numpy():
    from skimage.color import rgb2lab

    view = np.random.default_rng(1).random((5, 5, 3))
    lab = rgb2lab(view)
    slow = [
        np.histogram(lab[..., channel], bins=BINS, range=ends)[0]
        for channel, ends in enumerate(((0, 100), (-128, 128), (-128, 128)))
    ]
    np.testing.assert_array_equal(lab_histograms(view[None])[0], np.concatenate(slow))


def test_a_mirrored_view_is_0_apart_and_a_darker_one_is_not():
    view = np.random.default_rng(2).random((1, 8, 8, 3))
    original, mirrored, darker = (lab_histograms(each)[0] for each in (view, view[:, :, ::-1], view * 0.5))
    assert hellinger(original, mirrored) < 1e-7
    assert hellinger(original, darker) > 0.3
