import pytest
import torch
import torch.nn.functional as F

from viewkit.pipelines.frameworks.table import create_framework
from viewkit.pipelines.losses.info_nce import queue_info_nce, symmetric_info_nce
from viewkit.pipelines.losses.multi_view import dsf_info_nce, mean_of_views
from viewkit.pipelines.losses.von_mises_fisher import divergences, estimate_vmf
from viewkit.pipelines.models.backbones import create_backbone
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.training.framework import Outputs, join_views, split_views
from viewkit.pipelines.training.multi_view import MULTI_VIEW
from viewkit.pipelines.training.sides import merge_sides
from viewkit.pipelines.training.step import Stepper


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


@pytest.mark.parametrize(
    "name", ["simclr", "moco_v1", "moco_v2", "moco_v3", "byol", "simsiam", "barlow_twins", "vicreg"]
)
def test_one_more_positive_is_compared_with_the_first_view_beside_the_pair(name):
    network, given = framework(name), views(3)
    with torch.no_grad():
        pair, extra = (network.loss([given[0], given[other]]) for other in (1, 2))
        torch.testing.assert_close(network.loss(given), (pair + extra) / 2)


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


@pytest.mark.parametrize("name", ["moco_v1", "moco_v3", "simsiam", "simclr", "byol"])
@pytest.mark.parametrize("method", ["loss_avg", "fea_avg"])
def test_a_sides_views_make_one_pass_in_which_batch_norms_see_them_all(name, method):
    network, given = framework(name, method, views_per_side=3), views(6)
    sides = [torch.stack(given[:3], dim=1).flatten(0, 1), torch.stack(given[3:], dim=1).flatten(0, 1)]  # (n m)
    learning, targets = network.roles(2)
    with torch.no_grad():
        whole = [
            network.project(
                network.encode(side) if j in learning else None, network.encode_target(side) if j in targets else None
            )
            for j, side in enumerate(sides)
        ]
        parts = [
            Outputs(*(None if x is None else x.reshape(5, 3, -1)[:, j] for x in (o.z, o.query, o.key)))
            for o in whole
            for j in range(3)
        ]
        expected = network.loss_of(parts if network.merge is None else network.merge(parts), None)
        apart = network.loss(given)
        network.joins_sides = True
        torch.testing.assert_close(network.loss(given), expected)
    assert not torch.isclose(apart, expected, rtol=1e-4)


def test_one_pass_a_side_is_one_call_of_each_backbone():
    network, calls = framework("moco_v3", "dsf", views_per_side=4), []
    network.joins_sides = True
    network.backbone.register_forward_hook(lambda module, args, out: calls.append(("own", len(out))))
    network.momentum_backbone.register_forward_hook(lambda module, args, out: calls.append(("key", len(out))))
    network.loss(views(8)).backward()
    assert calls == [("own", 20), ("own", 20), ("key", 20), ("key", 20)]


def test_the_views_of_a_row_are_neighbours_in_a_joined_batch():
    given = views(3)
    joined = join_views(given)
    assert torch.equal(joined[6:9], torch.stack([view[2] for view in given]))
    assert all(torch.equal(split, view) for split, view in zip(split_views(joined, 3), given, strict=True))


def test_without_norms_one_pass_a_side_changes_nothing():
    config = PretrainConfig(
        framework="moco_v1", arch="vit_pico_patch8", side_px=16, batch_size=5, dim=16, queue_length=12,
        views_per_side=2, multi_view="dsf",
    )  # fmt: skip
    network = create_framework(create_backbone(config.arch, 16, seed=1), resolve(config), steps=10).train()
    MULTI_VIEW["dsf"].apply(network, **resolve(config).compared)
    with torch.no_grad():
        apart = network.loss(views(4))
        network.joins_sides = True
        torch.testing.assert_close(network.loss(views(4)), apart)


def test_micro_batches_of_joined_sides_give_the_gradients_of_the_whole():
    gradients = []
    for micro_batch in (None, 2):
        config = PretrainConfig(
            framework="moco_v3", arch="vit_pico_patch8", side_px=16, batch_size=5, dim=16, hidden=32, views_per_side=2,
            multi_view="dsf",
        )  # fmt: skip
        network = create_framework(create_backbone(config.arch, 16, seed=1), resolve(config), steps=10).train()
        MULTI_VIEW["dsf"].apply(network, **resolve(config).compared)
        network.joins_sides = True
        optimiser = torch.optim.SGD(network.parameters(), lr=0.0)
        Stepper.make("cpu", micro_batch=micro_batch)(network, optimiser, views(4), None)
        gradients.append(network.backbone.trunk.blocks[0].attn.qkv.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


def test_dsf_divides_by_its_temperature_and_without_both_curbs_kappa_is_banerjees():
    generator = torch.Generator().manual_seed(0)
    q, k = (mean_of_views([torch.randn(6, 16, generator=generator) for _ in range(4)]) for _ in range(2))
    ours, theirs = estimate_vmf(q), estimate_vmf(k)
    expected = F.cross_entropy(-divergences(ours, theirs) / 0.1, torch.arange(6), reduction="none")
    torch.testing.assert_close(dsf_info_nce(q, k, tau=0.1), expected)
    torch.testing.assert_close(dsf_info_nce(q, k), dsf_info_nce(q, k, tau=1.0))
    plain = estimate_vmf(q, 1.0, divided=False)
    length = q.norm(dim=1)
    torch.testing.assert_close(plain.kappa, length * (16 - length**2) / (1 - length**2))
    torch.testing.assert_close(
        dsf_info_nce(q, k, shrink=1.0, plain_kappa=True),
        F.cross_entropy(-divergences(plain, estimate_vmf(k, 1.0, divided=False)), torch.arange(6), reduction="none"),
    )
