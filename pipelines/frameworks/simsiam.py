"""SimSiam (Chen & He 2021): a predictor on one side, stop-gradient on the other, and swapped."""

from typing import TYPE_CHECKING

from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DIM, HIDDEN
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework


def build(backbone: "Backbone", *, hidden: int, dim: int, seed: int) -> "Framework":
    """Both views through backbone and projector. The predictor's learning rate stays at its peak (sec. 4.2: it should
    adapt to the newest outputs)."""
    from viewkit.pipelines.frameworks.networks.siamese import Siamese
    from viewkit.pipelines.losses.negative_cosine import symmetric_negative_cosine
    from viewkit.pipelines.models.heads import simsiam_predictor, simsiam_projector
    from viewkit.pipelines.models.initial import seeded_weights

    with seeded_weights(seed + 1):
        projector = simsiam_projector(backbone.num_features, dim)
        predictor = simsiam_predictor(dim, hidden)
    return Siamese(backbone, projector, symmetric_negative_cosine, predictor=predictor, fixed_predictor_lr=True)


CARD = Card(
    name="simsiam",
    build=build,
    options={HIDDEN: 512, DIM: 2048},
    # Sec. 3.
    resnet=Recipe(policy="simsiam", optimiser="sgd", lr=0.05, weight_decay=1e-4, warmup_epochs=0.0, decay_all=True),
    vit=moco_v3_recipe("simsiam"),
    traits=Traits(by_direction=True),
)
