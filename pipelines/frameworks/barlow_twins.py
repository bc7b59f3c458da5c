"""Barlow Twins (Zbontar et al. 2021): the cross-correlation of two views' outputs."""

from functools import partial
from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DIM, HIDDEN
from viewkit.pipelines.training.choices import Option
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


REDUNDANCY = Option("redundancy", float, "weight of the correlations between different outputs", 0)
BIAS_RATE = Option("bias_rate", float, "learning rate of biases and norms, as a share of the others'", positive=True)


def build(
    backbone: "Backbone", *, hidden: int, dim: int, redundancy: float, bias_rate: float, seed: int
) -> "Framework":
    """Backbone and expander on both views, whose correlations should be the identity."""
    from viewkit.pipelines.frameworks.networks.batch_statistics import BatchStatistics
    from viewkit.pipelines.losses.barlow_twins import barlow_twins
    from viewkit.pipelines.models.heads import expander
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        projector = expander(backbone.num_features, hidden, dim)
    return BatchStatistics(backbone, projector, partial(barlow_twins, redundancy=redundancy), bias_rate=bias_rate)


CARD = Card(
    name="barlow_twins",
    build=build,
    options={HIDDEN: 8192, DIM: 8192, REDUNDANCY: 0.0051, BIAS_RATE: 1.0},
    # Sec. 2.2; biases and norms learn at 0.0048 beside 0.2. The released code's cosine ends at a thousandth.
    resnet=Recipe(
        policy="byol", optimiser="lars", lr=0.2, weight_decay=1e-6, lr_end_share=0.001, options={BIAS_RATE: 0.024}
    ),
    vit=moco_v3_recipe("byol"),
    traits=Traits(per_row=False),
)
