"""SimCLR (Chen et al. 2020a): the other rows' views are the negatives."""

from functools import partial
from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DECOUPLED, DIM, HIDDEN, TAU
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


def build(backbone: "Backbone", *, hidden: int, dim: int, tau: float, decoupled: bool, seed: int) -> "Framework":
    """Backbone and projector on both views, under NT-Xent. decoupled: DCL (Yeh et al. 2022)."""
    from viewkit.pipelines.frameworks.networks.siamese import Siamese
    from viewkit.pipelines.losses.margin import cosine_margin
    from viewkit.pipelines.losses.nt_xent import nt_xent
    from viewkit.pipelines.models.heads import simclr_projector
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        projector = simclr_projector(backbone.num_features, hidden, dim)
    framework = Siamese(backbone, projector, lambda q1, q2, k1, k2: nt_xent(q1, q2, tau, decoupled=decoupled))
    framework.margin_of = partial(cosine_margin, tau=tau)
    return framework


CARD = Card(
    name="simclr",
    build=build,
    options={TAU: 0.1, HIDDEN: 2048, DIM: 128, DECOUPLED: False},
    # Sec. 2.2: LARS, 0.3 at 256, weight decay 1e-6; temperature 0.1 is the best of table 5.
    resnet=Recipe(policy="simclr", optimiser="lars", lr=0.3, weight_decay=1e-6),
    vit=moco_v3_recipe("simclr"),
    traits=Traits(by_direction=True),
)
