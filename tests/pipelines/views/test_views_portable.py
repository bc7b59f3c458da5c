import math
from statistics import NormalDist

import numpy as np

from viewkit.pipelines.views import portable


def test_exp_and_log_agree_with_the_c_library() -> None:
    x = np.linspace(-50, 50, 4001)
    expected = np.array([math.exp(value) for value in x])
    assert np.abs(portable.exp(x) / expected - 1).max() < 1e-15 * 4
    y = np.concatenate([np.geomspace(1e-300, 1e300, 4001), 1 + np.linspace(-1e-3, 1e-3, 101)])
    expected = np.array([math.log(value) for value in y])
    assert (np.abs(portable.log(y) - expected) <= 4e-16 * np.maximum(np.abs(expected), 1)).all()


def test_erf_agrees_with_the_c_library() -> None:
    for x in (-7.0, -2.0, -0.1, 0.0, 1e-8, 0.5, 1.0, 2.0, 3.5, 5.0, 7.0):
        assert abs(portable.erf(x) - math.erf(x)) < 4e-15


def test_normal_quantile_inverts_the_normal_distribution() -> None:
    q = np.concatenate([np.linspace(-0.4999, 0.4999, 201), [1e-12, 0.4999999]])
    expected = np.array([NormalDist().inv_cdf(value + 0.5) for value in q])
    assert np.allclose(portable.normal_quantile(q), expected, rtol=1e-9, atol=1e-15)
