"""The encoder `colour`: where an image has which colours."""

import numpy as np
import pytest

from viewkit.pipelines.encoders.open import open_encoder
from viewkit.shards.dataset import Dataset


@pytest.fixture
def encoder(tmp_path):
    return open_encoder("colour", Dataset(tmp_path))


def picture(top, bottom, side=96):
    image = np.zeros((side, side, 3), np.uint8)
    image[: side // 2], image[side // 2 :] = top, bottom
    return image


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def test_tokens_are_means_and_spreads_of_cells_and_colours_are_shares(encoder):
    tokens, features = encoder.encode_images([picture((255, 0, 0), (0, 0, 255))])
    assert encoder.grid == (4, 4) and tokens.shape == (1, 16, 6) and features.shape == (1, 16 * 6 + 64)
    np.testing.assert_allclose(tokens[0, 0], [1, -1, -1, 0, 0, 0], atol=1e-3)
    np.testing.assert_allclose(tokens[0, 15], [-1, -1, 1, 0, 0, 0], atol=1e-3)
    shares = features[0, 96:] ** 2
    assert shares.sum() == pytest.approx(1)
    assert shares[3 * 16] == pytest.approx(0.5, abs=0.05) and shares[3] == pytest.approx(0.5, abs=0.05)


def test_alike_pictures_are_nearer_than_others(encoder):
    _, (red, orange, blue) = encoder.encode_images(
        [picture((250, 0, 0), (0, 250, 0)), picture((250, 30, 0), (20, 250, 0)), picture((0, 0, 250), (9, 9, 9))]
    )
    assert cosine(red, orange) > 0.9 > 0.3 > cosine(red, blue)
