import pytest
import torch
import torch.nn.functional as F

from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.losses.info_nce import queue_info_nce, symmetric_info_nce
from viewkit.pipelines.losses.multi_view import dsf_info_nce, mean_of_views
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.framework import Outputs
from viewkit.pipelines.training.multi_view import MULTI_VIEW
from viewkit.pipelines.training.sides import merge_sides


def framework(name, method="loss_avg", views_per_side=2, **options):
    config = PretrainConfig(
        framework=name, arch="resnet10_narrow", batch_size=5, dim=16, views_per_side=views_per_side, multi_view=method,
        **({"bn_splits": 1, "queue_length": 12} if name in ("moco_v1", "moco_v2") else {"hidden": 32}), **options,
    )  # fmt: skip
    network = create_framework(create_backbone(config.arch, 16, seed=1), resolve(config), steps=10).train()
    MULTI_VIEW[method].apply(network, **resolve(config).compared)
    return network


def views(count, rows=5):
    return [torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(j)) for j in range(count)]


def outputs_of(network, given):
    learning, targets = network.roles(len(given))
    return [
        network.project(
            network.encode(view) if j in learning else None, network.encode_target(view) if j in targets else None
        )
        for j, view in enumerate(given)
    ]


def test_the_mean_of_views_is_that_of_their_directions():
    found = mean_of_views([torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.5]])])
    assert found.tolist() == [[0.5, 0.5]]
    assert mean_of_views([torch.ones(1, 2, dtype=torch.bfloat16)]).dtype == torch.float32


@pytest.mark.parametrize("name", ["simclr", "moco_v1", "moco_v3", "byol", "simsiam"])
def test_loss_avg_is_the_mean_over_all_pairs_of_the_two_sides(name):
    network, given = framework(name), views(6)
    with torch.no_grad():
        outputs = outputs_of(network, given)
        expected = sum(network.pair_losses(outputs[j], outputs[k]).mean() for j in range(3) for k in range(3, 6)) / 9
        torch.testing.assert_close(network.loss(given), expected)


def test_fea_avg_is_the_loss_of_the_sides_mean_directions():
    network, given = framework("moco_v3", "fea_avg"), views(4)
    with torch.no_grad():
        o = outputs_of(network, given)
        q1, q2 = (sum(F.normalize(o[j].query, dim=1) for j in side) / 2 for side in ((0, 1), (2, 3)))
        k1, k2 = (sum(F.normalize(o[j].key, dim=1) for j in side) / 2 for side in ((0, 1), (2, 3)))
        expected = symmetric_info_nce(q1, q2, k1, k2, 1.0).mean()
        torch.testing.assert_close(network.loss(given), expected)


@pytest.mark.parametrize("name", ["simclr", "moco_v1", "moco_v3", "byol", "simsiam"])
def test_with_one_view_a_side_fea_avg_is_the_frameworks_own_loss(name):
    plain, merged, given = framework(name), framework(name, "fea_avg"), views(2)
    with torch.no_grad():
        torch.testing.assert_close(merged.loss(given), plain.loss(given))


def test_dsf_of_moco_v3_adds_both_directions_of_all_pairs():
    network, given = framework("moco_v3", "dsf"), views(4)
    with torch.no_grad():
        one, other = merge_sides(outputs_of(network, given))
        expected = dsf_info_nce(one.query, other.key) + dsf_info_nce(other.query, one.key)
        torch.testing.assert_close(network.loss(given), expected.mean())


def test_dsf_of_moco_has_the_queue_as_negatives_and_one_direction():
    network, given = framework("moco_v1", "dsf"), views(4)
    with torch.no_grad():
        one, other = merge_sides(outputs_of(network, given))
        assert one.key is None and other.query is None
        expected = dsf_info_nce(one.query, other.key, queue=network.queue.rows)
        torch.testing.assert_close(network.loss(given), expected.mean())
        # one view a side: cosine over a temperature (Theorem 1), here 0.11449 of 16 dimensions
        single = framework("moco_v1", "dsf", views_per_side=1)
        one, other = merge_sides(outputs_of(single, given[:2]))
        cosine = queue_info_nce(one.query, other.key, single.queue.rows, 0.11449).mean()
        torch.testing.assert_close(single.loss(given[:2]), cosine, rtol=1e-3, atol=0)


@pytest.mark.parametrize("method", ["fea_avg", "dsf"])
def test_the_queue_takes_one_mean_direction_a_row(method):
    network, given = framework("moco_v1", method), views(4)
    before = network.queue.rows.clone()
    network.loss(given)
    _, other = merge_sides(outputs_of(network, given))
    network.step = 1
    network.after_step()
    fresh = network.queue.rows[(network.queue.rows != before).any(dim=1)]
    torch.testing.assert_close(fresh, F.normalize(other.key, dim=1))


@pytest.mark.parametrize("method", ["loss_avg", "fea_avg", "dsf"])
def test_training_on_several_views_lowers_the_loss(method):
    network, given = framework("moco_v3", method), views(4)
    given = [given[0] + 0.1 * view for view in given]
    optimiser = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    losses = []
    for _ in range(4):
        loss = network.loss(given)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and network.spread() > 0.1


def test_a_role_that_no_view_has_stays_out():
    q = torch.eye(3)
    one, other = merge_sides(
        [Outputs(None, q, None), Outputs(None, q, None), Outputs(None, None, q), Outputs(None, None, q)]
    )
    assert one.key is None and other.query is None and torch.equal(one.query, q) and torch.equal(other.key, q)
