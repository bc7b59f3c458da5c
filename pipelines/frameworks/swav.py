"""SwAV (Caron et al. 2020): the large views are assigned to prototypes, all other views predict the assignments."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from viewkit.pipelines.frameworks import options
from viewkit.pipelines.frameworks.card import Card, Recipe, moco_v3_recipe
from viewkit.pipelines.frameworks.options import DIM, HIDDEN, TAU, check_queue
from viewkit.pipelines.training.choices import Option
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework

NUM_GLOBALS = replace(options.NUM_GLOBALS, low=2)  # one large view predicts the assignment of another
PROTOTYPES = Option("prototypes", int, "number of prototypes", 1, 2**20)
EPSILON = Option("epsilon", float, "entropy of the assignments, the smaller the harder", positive=True)
SINKHORN_ROUNDS = Option("sinkhorn_rounds", int, "iterations of Sinkhorn-Knopp", 1, 1000)
PROTOTYPE_FREEZE_STEPS = Option("prototype_freeze_steps", int, "first steps in which the prototypes are frozen", 0)
QUEUE_LENGTH = Option("queue_length", int, "rows in the queue, 0 for none", 0)
QUEUE_START_EPOCHS = Option("queue_start_epochs", float, "epochs before the queue is filled", 0)


def build(backbone: "Backbone", **values: Any) -> "Framework":
    """values: the arguments of `SwAV`."""
    from viewkit.pipelines.frameworks.networks.prototypes import SwAV

    return SwAV(backbone, **values)


CARD = Card(
    name="swav",
    build=build,
    options={
        TAU: 0.1,
        HIDDEN: 2048,
        DIM: 128,
        NUM_GLOBALS: 2,
        PROTOTYPES: 3000,
        EPSILON: 0.05,
        SINKHORN_ROUNDS: 3,
        PROTOTYPE_FREEZE_STEPS: 313,
        QUEUE_LENGTH: 0,
        QUEUE_START_EPOCHS: 15.0,
    },
    # Appendix A.1: 4.8 at 4096, down to 0.0048; with 256 rows it takes a queue of 3840 and 0.6. Its LARC is a wrapper
    # around SGD on all weights: biases and norms are adapted and decay like matrices.
    resnet=Recipe(policy="swav", optimiser="lars", lr=0.3, weight_decay=1e-6, lr_end_share=0.001, decay_all=True),
    vit=moco_v3_recipe("swav"),
    traits=Traits(multi_crop=True, couples_rows=True),
    check=check_queue,
)
