import numpy as np
import torch
import vs2fi as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.pipelines.pairs.order import pair_index, pair_similarities


@settings(deadline=None)
@given(st.integers(1, 9))
def test_pairs_come_in_the_order_of_the_papers_loop(num_views):
    assert [tuple(pair) for pair in pair_index(num_views)] == reference.pairs(num_views)
    assert len(pair_index(num_views)) == num_views * (num_views - 1) // 2


def unit(*shape, seed=0):
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(z, dim=-1)


def test_similarities_equal_cosines_of_a_plain_loop():
    z = unit(3, 4, 2, 8)
    found = pair_similarities(z)
    assert found.shape == (3, 6, 2)
    for n in range(3):
        for c, (i, j) in enumerate(reference.pairs(4)):
            for e in range(2):
                assert abs(found[n, c, e] - reference.cosine(z[n, i, e].tolist(), z[n, j, e].tolist())) < 1e-6


def test_swapping_two_views_permutes_similarities_to_the_bit():
    z = unit(2, 5, 3, 16)
    index = {tuple(sorted(pair)): c for c, pair in enumerate(pair_index(5).tolist())}
    order = [3, 1, 4, 0, 2]
    permuted = pair_similarities(z[:, order])
    same = [index[tuple(sorted((order[i], order[j])))] for i, j in pair_index(5)]
    assert torch.equal(permuted, pair_similarities(z)[:, same])


def test_a_row_does_not_depend_on_its_neighbours():
    z = unit(7, 5, 3, 16)
    assert torch.equal(pair_similarities(z)[2:3], pair_similarities(z[2:3]))


def test_identical_views_have_similarity_one_and_opposite_ones_minus_one():
    z = unit(1, 1, 1, 8).repeat(1, 3, 1, 1)
    z[0, 2] *= -1
    np.testing.assert_allclose(pair_similarities(z)[0, :, 0], [1, -1, -1], atol=1e-6)
