"""VICReg (Bardes et al. 2022): invariance, variance and covariance of the expander's outputs."""

from functools import partial
from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DIM, HIDDEN
from viewkit.pipelines.training.choices import Option
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


INVARIANCE = Option("invariance", float, "weight of the distance between views", 0)
VARIANCE = Option("variance", float, "weight of the hinge on the standard deviations", 0)
COVARIANCE = Option("covariance", float, "weight of the covariances", 0)


def build(
    backbone: "Backbone",
    *,
    hidden: int,
    dim: int,
    invariance: float,
    variance: float,
    covariance: float,
    seed: int,
) -> "Framework":
    """Backbone and expander on both views, under the three terms."""
    from viewkit.pipelines.frameworks.networks.batch_statistics import BatchStatistics
    from viewkit.pipelines.losses.vicreg import vicreg
    from viewkit.pipelines.models.heads import expander
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        projector = expander(backbone.num_features, hidden, dim)
    loss = partial(vicreg, invariance=invariance, variance=variance, covariance=covariance)
    return BatchStatistics(backbone, projector, loss)


CARD = Card(
    name="vicreg",
    build=build,
    options={HIDDEN: 8192, DIM: 8192, INVARIANCE: 25.0, VARIANCE: 25.0, COVARIANCE: 1.0},
    # Appendix C; the released code's cosine ends at a thousandth.
    resnet=Recipe(policy="vicreg", optimiser="lars", lr=0.2, weight_decay=1e-6, lr_end_share=0.001),
    vit=moco_v3_recipe("vicreg"),
    traits=Traits(per_row=False),
)
