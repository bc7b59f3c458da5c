"""The table of a generator's quality: each measure against a closed form or an independent implementation."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from scipy.stats import norm

from viewkit.pipelines.generate.measures.calibration import calibrate, five_levels, level_of, recognised_share
from viewkit.pipelines.generate.measures.copying import REAL_SHARE, copied_share, copy_threshold, nearest_distance
from viewkit.pipelines.generate.measures.frechet import frechet_distance
from viewkit.pipelines.generate.measures.table import (
    Judged,
    Real,
    doubts,
    mean_colour,
    measure_level,
    pairwise_distance,
    table_lines,
)
from viewkit.pipelines.generate.noising import squared_cosine

RNG = np.random.default_rng(0)


def judged(features, colour=None):
    colour = np.full((len(features), 3), 0.5) if colour is None else colour
    return Judged(features, features, colour)


def test_the_frechet_distance_is_that_of_the_matrix_square_root():
    a = RNG.normal(size=(60, 5)) @ RNG.normal(size=(5, 5))
    b = RNG.normal(size=(80, 5)) + 0.5
    first, second = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    shift = a.mean(axis=0) - b.mean(axis=0)
    theirs = shift @ shift + np.trace(first + second - 2 * sqrtm(first @ second).real)
    assert frechet_distance(a, b) == pytest.approx(theirs, rel=1e-9)


def test_frechet_distances_with_known_answers():
    a = RNG.normal(size=(40, 3))
    assert frechet_distance(a, a[::-1]) == pytest.approx(0, abs=1e-12)
    assert frechet_distance(a, a + np.array([3.0, 4.0, 0.0])) == pytest.approx(25)  # a shift alone: its square
    assert frechet_distance(a - a.mean(axis=0), 3 * (a - a.mean(axis=0))) == pytest.approx(
        4 * np.trace(np.cov(a, rowvar=False))
    )  # sigma and 3 sigma: (3 - 1)^2 sigma^2
    few = RNG.normal(size=(4, 50))  # fewer rows than features: singular covariances
    assert frechet_distance(few, few) == pytest.approx(0, abs=1e-9)


def test_the_nearest_known_image_is_that_of_all_pairs_less_ones_own():
    known, queries = RNG.normal(size=(300, 6)), RNG.normal(size=(2, 280, 6))
    own = np.where(np.arange(280) % 3 == 0, np.arange(280), -1)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    pairs = np.minimum(*(cdist(unit(way), unit(known)) for way in queries))
    rows = np.flatnonzero(own >= 0)
    pairs[rows, own[rows]] = np.inf
    np.testing.assert_allclose(nearest_distance(queries, known, own), pairs.min(axis=1), atol=1e-7)


def test_copies_are_copied_and_fresh_images_are_as_often_as_real_ones():
    known, real, fresh = (RNG.normal(size=(2000, 4)) for _ in range(3))
    nowhere = np.full(2000, -1)
    threshold = copy_threshold(nearest_distance(real[None], known, nowhere))
    assert copied_share(nearest_distance(known[None], known, nowhere), threshold) == 1
    assert copied_share(nearest_distance(-known[None], -known, np.arange(2000)), threshold) < 0.1
    found = copied_share(nearest_distance(fresh[None], known, nowhere), threshold)
    assert found == pytest.approx(REAL_SHARE, abs=4 * math.sqrt(REAL_SHARE * (1 - REAL_SHARE) / 2000))


def test_a_mirrored_copy_is_a_copy():
    known, other = RNG.normal(size=(50, 4)), RNG.normal(size=(50, 4))
    assert nearest_distance(np.stack([other, known]), known, np.full(50, -1)) == pytest.approx(np.zeros(50), abs=1e-7)


def test_diversity_is_the_mean_over_all_pairs_of_views():
    views = [np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[-1.0, 0], [1.0, 0]])]
    np.testing.assert_allclose(pairwise_distance(views), [(1 + 2 + 1) / 3, 0])


def test_a_row_of_the_table_has_its_closed_forms():
    sources = judged(np.eye(20), np.zeros((20, 3)))
    views = [judged(np.eye(20), np.full((20, 3), 0.25)), judged(np.roll(np.eye(20), 1, axis=0))]
    real = Real(sources, np.eye(20), np.full(20, -1), np.eye(20), np.ones(20, bool))
    row = measure_level(400, views, real, np.arange(20), threshold=0.5)
    assert (row.cosine, row.cosine_error, row.chance) == (1, 0, 0)
    assert (row.diversity, row.diversity_error) == (1, 0)
    assert (row.frechet, row.floor) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))
    assert (row.copied, row.colour, row.colour_error) == (1, 0.25, 0)
    alone = measure_level(0, [views[0].rows(np.arange(3))], real, np.arange(3), threshold=0.5)
    assert (alone.diversity, alone.frechet, alone.floor) == (None, None, None)
    assert [line.split()[:2] for line in table_lines([row.numbers(), alone.numbers()])[1:3]] == [
        ["400", "20"],
        ["0", "3"],
    ]


def test_no_image_of_a_dataset_is_its_own_copy_or_compared_with_itself():
    sources, others = judged(RNG.normal(size=(10, 3))), RNG.normal(size=(12, 3))
    few = Real.of_dataset(sources, others[:2])
    assert few.own.tolist() == list(range(10)) and few.apart.sum() == 5 and len(few.known) == 12
    assert not {tuple(row) for row in few.compared} & {tuple(row) for row in few.sources.features[few.apart]}
    many = Real.of_dataset(sources, others)
    assert many.apart.all() and np.array_equal(many.compared, others) and len(many.known) == 22
    np.testing.assert_array_equal(many.known[many.own], sources.features)


def test_mean_colours_are_shares_of_white():
    pictures = [np.full((4, 6, 3), 255, np.uint8), np.zeros((2, 2, 3), np.uint8)]
    np.testing.assert_array_equal(mean_colour(pictures), [[1, 1, 1], [0, 0, 0]])


def row(level, cosine, diversity, copied=0.0, error=0.01):
    return {
        "level": level, "images": 64, "cosine": cosine, "cosine_error": error, "diversity": diversity,
        "diversity_error": error, "copied": copied,
    }  # fmt: skip


def test_doubts_name_what_a_level_should_have_changed():
    assert doubts([row(0, 0.9, 0.1), row(999, 0.2, 0.5)]) == []
    assert doubts([row(0, 0.9, 0.1)]) == []
    same, fewer = doubts([row(0, 0.9, 0.3), row(999, 0.88, 0.1)])
    assert same.startswith("cosine is 0.900 at level 0 and 0.880 at level 999; it should fall by more than 2 standard")
    assert fewer.startswith("diversity is 0.300 at level 0 and 0.100 at level 999; it should rise")
    assert doubts([row(0, 0.9, None), row(999, 0.2, None)]) == []
    (copies,) = doubts([row(0, 0.9, 0.1, copied=0.4), row(999, 0.2, 0.5)])
    assert copies.startswith("40% of the views at level 0 have a nearer known image than 95% of the images have")


def test_two_images_are_told_apart_as_often_as_the_normal_distribution_says():
    """P = Phi(sqrt(abar) |z1 - z2| / (2 sqrt(1 - abar))) for the nearer of two points in normal noise."""
    abar, pairs = squared_cosine(), 1000
    z = torch.tensor([[0.0, 0.0, 0.0], [0.6, -0.8, 0.0]])  # a distance of 1
    noise = torch.from_numpy(RNG.standard_normal((pairs, 2, 3), dtype=np.float32))
    right = np.mean([recognised_share(z, 600, each, abar) for each in noise])
    a = float(abar[600])
    expected = norm.cdf(math.sqrt(a) / (2 * math.sqrt(1 - a)))
    assert right == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / (2 * pairs)))


def test_blocks_do_not_show_and_the_ends_are_known(monkeypatch):
    z = torch.from_numpy(RNG.standard_normal((300, 8), dtype=np.float32))
    noise = torch.from_numpy(RNG.standard_normal((300, 8), dtype=np.float32))
    abar = squared_cosine()
    whole = [recognised_share(z, level, noise, abar) for level in (0, 700, 999)]
    monkeypatch.setattr("viewkit.pipelines.generate.measures.calibration.BLOCK", 64)
    assert [recognised_share(z, level, noise, abar) for level in (0, 700, 999)] == whole
    assert whole[0] == 1 and whole[2] < 0.05
    assert recognised_share(torch.ones(5, 3), 0, torch.zeros(5, 3), abar) == 0  # equal images: nobody can tell
    shares = list(calibrate(z, noise, abar, range(0, 1000, 111)).values())
    assert shares == sorted(shares, reverse=True)


def test_levels_lie_where_the_share_falls_to_theirs():
    shares = {0: 1.0, 100: 0.8, 200: 0.4, 300: 0.0}
    assert [level_of(shares, share) for share in (1.0, 0.9, 0.5, 0.1, 0.0)] == [0, 50, 175, 275, 300]
    assert level_of({0: 1.0, 999: 0.5}, 0.1) == 999
    assert five_levels(shares) == [50, 112, 175, 225, 275]
