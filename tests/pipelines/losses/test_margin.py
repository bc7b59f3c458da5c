"""The margin between positives and negatives, against the matrices that the losses are made of."""

import pytest
import torch
import torch.nn.functional as F
from small_frameworks import batch, small_framework

from viewkit.pipelines.losses.margin import cosine_margin, dsf_margin
from viewkit.pipelines.losses.multi_view import mean_of_views
from viewkit.pipelines.losses.von_mises_fisher import VonMisesFisher, divergences, estimate_vmf


def rows(n, seed):
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))


def margin_of(similarities):
    n = len(similarities)
    others = similarities[~torch.eye(n, dtype=torch.bool)].reshape(n, n - 1)
    return (similarities.diagonal() - others.mean(dim=1)).mean()


def test_perfectly_told_apart_opposites_have_the_largest_margin_of_a_cosine():
    q = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert float(cosine_margin(q, q, tau=0.2)) == pytest.approx(2 / 0.2)


def test_the_margin_of_cosines_is_that_of_their_matrix():
    q, k, queue = rows(6, 0), rows(6, 1), F.normalize(rows(9, 2), dim=1)
    cosines = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / 0.1
    torch.testing.assert_close(cosine_margin(q, k, tau=0.1), margin_of(cosines))
    expected = (cosines.diagonal() - (F.normalize(q, dim=1) @ queue.T / 0.1).mean(dim=1)).mean()
    torch.testing.assert_close(cosine_margin(q, k, queue, tau=0.1), expected)


@pytest.mark.parametrize("exact", [False, True])
def test_the_margin_of_divergences_is_that_of_their_matrix(exact):
    q, k = (mean_of_views([rows(6, seed + view) for view in range(4)]) for seed in (0, 10))
    options = {"tau": 0.5, "shrink": 0.95, "exact": exact, "plain_kappa": False}
    ours, theirs = estimate_vmf(q), estimate_vmf(k)
    expected = margin_of(-divergences(ours, theirs, exact=exact) / 0.5)
    torch.testing.assert_close(dsf_margin(q, k, **options), expected)
    queue = F.normalize(rows(9, 3), dim=1)
    kappa = (ours.kappa.mean() + theirs.kappa.mean()) / 2
    stored = VonMisesFisher(queue, kappa.expand(9), kappa.new_zeros(9))
    positive = -divergences(ours, theirs, exact=exact).diagonal() / 0.5
    expected = (positive + divergences(ours, stored, exact=exact).mean(dim=1) / 0.5).mean()
    torch.testing.assert_close(dsf_margin(q, k, queue, **options), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["simclr", "moco_v1", "moco_v2", "moco_v3", "simsiam", "byol", "vicreg"])
def test_frameworks_with_negatives_report_their_margin(name):
    framework = small_framework(name)
    framework.loss(batch(name))
    contrastive = name in ("simclr", "moco_v1", "moco_v2", "moco_v3")
    assert ("margin" in framework.numbers()) == contrastive
