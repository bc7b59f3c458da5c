"""MoCo v3 (Chen, Xie & He 2021): keys of a momentum encoder, the batch's other keys are the negatives."""

from functools import partial
from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DECOUPLED, DIM, HIDDEN, MOMENTUM, TAU
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


def build(
    backbone: "Backbone",
    *,
    hidden: int,
    dim: int,
    tau: float,
    momentum: float,
    decoupled: bool,
    steps: int,
    seed: int,
) -> "Framework":
    """Symmetric InfoNCE with the factor 2 tau. decoupled: DCL (Yeh et al. 2022)."""
    from viewkit.pipelines.frameworks.networks.siamese import MomentumSiamese
    from viewkit.pipelines.losses.info_nce import symmetric_info_nce
    from viewkit.pipelines.losses.margin import cosine_margin
    from viewkit.pipelines.models.heads import moco_v3_predictor, moco_v3_projector
    from viewkit.pipelines.models.initial import seeded_weights

    vit = backbone.kind == "vit"
    with seeded_weights(seed + 1):
        projector = moco_v3_projector(backbone.num_features, hidden, dim, layers=3 if vit else 2)
        predictor = moco_v3_predictor(dim, hidden, end_norm=vit)
    losses = partial(symmetric_info_nce, tau=tau, decoupled=decoupled)
    framework = MomentumSiamese(backbone, projector, predictor, losses, momentum=momentum, steps=steps)
    framework.margin_of = partial(cosine_margin, tau=tau)
    return framework


CARD = Card(
    name="moco_v3",
    build=build,
    options={TAU: 0.2, MOMENTUM: 0.99, HIDDEN: 4096, DIM: 256, DECOUPLED: False},
    # ResNet-50: LARS, 0.3 at 256 for 300 epochs and more (0.6 for 100), tau 1.
    resnet=Recipe(policy="moco_v3", optimiser="lars", lr=0.3, weight_decay=1e-6, options={TAU: 1.0}),
    vit=moco_v3_recipe("moco_v3_vit"),
    traits=Traits(by_direction=True, momentum_keys=True, rising_momentum=True),
)
