"""A framework from outside: its card and what it builds, in one file; tests add its line to the table."""

from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DIM
from viewkit.pipelines.training.choices import Option
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework

TOY_OPTION = Option("toy_option", int, "power of the distance between two views", 1, 4)


def build(backbone: "Backbone", *, dim: int, toy_option: int, seed: int) -> "Framework":
    """Two projections should be near each other, by a power of their distance; collapses, as a toy may."""
    from torch import nn

    from viewkit.pipelines.frameworks.networks.siamese import Siamese
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        projector = nn.Linear(backbone.num_features, dim)
    return Siamese(backbone, projector, lambda q1, q2, k1, k2: (q1 - q2).abs().pow(toy_option).mean(dim=1))


CARD = Card(
    name="toy",
    build=build,
    options={DIM: 8, TOY_OPTION: 2},
    resnet=Recipe(policy="simclr", optimiser="sgd", lr=0.01, weight_decay=0.0),
    vit=moco_v3_recipe("simclr"),
    traits=Traits(couples_rows=True),
)
