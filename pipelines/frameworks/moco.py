"""MoCo v1 (He et al. 2020) and v2 (Chen et al. 2020b): a momentum encoder and a queue of its keys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DECOUPLED, DIM, HIDDEN, TAU, check_queue
from viewkit.pipelines.training.choices import Option
from viewkit.pipelines.training.schedules import LrSchedule
from viewkit.pipelines.training.traits import Traits
from viewkit.shards.errors import ConfigError

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework

MOMENTUM = Option(
    "momentum", float, "constant momentum of the momentum encoder; lower in a short training where not given", 0, 1
)
QUEUE_LENGTH = Option("queue_length", int, "keys in the queue", 1)
SYMMETRIC = Option("symmetric", bool, "each view is query once and key once")
BN_SPLITS = Option(
    "bn_splits", int, "parts of a batch that a ResNet's batch norms see alone, keys shuffled; 1: off", 1, 65_536
)


def build_v1(backbone: "Backbone", *, dim: int, seed: int, **options: Any) -> "Framework":
    """With a linear head. options: of `MoCo`."""
    from viewkit.pipelines.frameworks.networks.queue_of_keys import MoCo
    from viewkit.pipelines.models.heads import moco_v1_head
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        head = moco_v1_head(backbone.num_features, dim)
    return MoCo(backbone, head, dim=dim, seed=seed, **options)


def build_v2(backbone: "Backbone", *, hidden: int, dim: int, seed: int, **options: Any) -> "Framework":
    """With two layers. options: of `MoCo`."""
    from viewkit.pipelines.frameworks.networks.queue_of_keys import MoCo
    from viewkit.pipelines.models.heads import moco_v2_head
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        head = moco_v2_head(backbone.num_features, hidden, dim)
    return MoCo(backbone, head, dim=dim, seed=seed, **options)


def check(own: Mapping[str, Any], batch_size: int) -> None:
    """`ConfigError` where queue or batch norm do not fit the batch."""
    check_queue(own, batch_size)
    splits = own.get("bn_splits", 1)
    if batch_size % splits:
        raise ConfigError(f"bn_splits is {splits}, which does not divide batch_size {batch_size}")
    if splits == batch_size:
        raise ConfigError(f"bn_splits is {splits} and batch_size {batch_size}; a batch norm needs 2 rows in a part")


SHARED = {MOMENTUM: 0.999, DIM: 128, QUEUE_LENGTH: 65_536, SYMMETRIC: False, DECOUPLED: False}
TRAITS = Traits(by_direction=True, momentum_keys=True)


def _resnet(policy: str, lr_schedule: LrSchedule) -> Recipe:
    """bn_splits: eight processors of 32 rows each, between which the released code shuffles keys."""
    return Recipe(
        policy=policy,
        optimiser="sgd",
        lr=0.03,
        weight_decay=1e-4,
        warmup_epochs=0.0,
        lr_schedule=lr_schedule,
        decay_all=True,
        options={BN_SPLITS: 8},
    )


V1 = Card(
    name="moco_v1",
    build=build_v1,
    options={**SHARED, TAU: 0.07},
    # He et al. 2020, sec. 3.3: the rate falls in steps.
    resnet=_resnet("moco_v1", "steps"),
    vit=moco_v3_recipe("moco_v1"),
    traits=TRAITS,
    check=check,
)
V2 = Card(
    name="moco_v2",
    build=build_v2,
    options={**SHARED, TAU: 0.2, HIDDEN: 2048},
    resnet=_resnet("moco_v2", "cosine"),
    vit=moco_v3_recipe("moco_v2"),
    traits=TRAITS,
    check=check,
)
