import pytest
import torch

from viewkit.pipelines.training.monitoring import feature_std, rank_me


def test_the_rank_of_orthogonal_rows_is_their_number_and_of_equal_rows_one():
    assert rank_me(torch.eye(8, 32)) == pytest.approx(8, rel=1e-4)
    assert rank_me(torch.ones(8, 32)) == pytest.approx(1, rel=1e-4)


def test_the_rank_is_the_exponential_of_the_entropy_of_the_singular_values():
    z = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    p = torch.linalg.svdvals(z.double())
    p = p / p.sum()
    assert rank_me(z) == pytest.approx(float(torch.exp(-(p * p.log()).sum())), rel=1e-4)
    assert rank_me(z.T.contiguous()) == pytest.approx(rank_me(z), rel=1e-4)


def test_features_that_are_not_finite_have_no_rank():
    assert rank_me(torch.tensor([[1.0, float("nan")], [0.0, 1.0]])) != rank_me(torch.eye(2))


def test_the_deviation_is_one_on_the_sphere_and_zero_at_a_point():
    assert feature_std(torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))) == pytest.approx(1, abs=0.02)
    assert feature_std(torch.ones(8, 16)) == pytest.approx(0, abs=1e-6)
