"""BYOL (Grill et al. 2020): a momentum encoder and no negatives."""

from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DIM, HIDDEN, MOMENTUM
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


def build(backbone: "Backbone", *, hidden: int, dim: int, momentum: float, steps: int, seed: int) -> "Framework":
    """Online: backbone, projector, predictor. Target: momentum copy of backbone and projector."""
    from viewkit.pipelines.frameworks.networks.siamese import MomentumSiamese
    from viewkit.pipelines.losses.negative_cosine import symmetric_square_distance
    from viewkit.pipelines.models.heads import byol_head
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        projector = byol_head(backbone.num_features, hidden, dim)
        predictor = byol_head(dim, hidden, dim)
    return MomentumSiamese(backbone, projector, predictor, symmetric_square_distance, momentum=momentum, steps=steps)


CARD = Card(
    name="byol",
    build=build,
    options={MOMENTUM: 0.996, HIDDEN: 4096, DIM: 256},
    # Sec. 3.3 and appendix J: 1000 epochs at 4096.
    resnet=Recipe(policy="byol", optimiser="lars", lr=0.2, weight_decay=1.5e-6),
    vit=moco_v3_recipe("byol"),
    traits=Traits(by_direction=True, rising_momentum=True),
)
