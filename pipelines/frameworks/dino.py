"""DINO (Caron et al. 2021): a student predicts, from any view, its momentum teacher's output on the large views."""

from typing import TYPE_CHECKING, Any

from viewkit.pipelines.frameworks.card import Card, Recipe
from viewkit.pipelines.frameworks.options import DIM, HIDDEN, MOMENTUM, NUM_GLOBALS
from viewkit.pipelines.training.choices import Option
from viewkit.pipelines.training.traits import Traits

if TYPE_CHECKING:
    from viewkit.pipelines.models.backbone import Backbone
    from viewkit.pipelines.training.framework import Framework

TAU = Option("tau", float, "the student's temperature", positive=True)
BOTTLENECK = Option("bottleneck", int, "width before the last layer", 1, 65_536)
TEACHER_TAU = Option("teacher_tau", float, "the teacher's temperature after its warm-up", positive=True)
TEACHER_TAU_START = Option("teacher_tau_start", float, "the teacher's temperature at first", positive=True)
TEACHER_WARMUP_EPOCHS = Option("teacher_warmup_epochs", float, "epochs in which the teacher's temperature rises", 0)
CENTRE_MOMENTUM = Option("centre_momentum", float, "momentum of the centre of the teacher's outputs", 0, 1)
LAST_FREEZE_EPOCHS = Option("last_freeze_epochs", float, "first epochs in which the last layer is frozen", 0)
NORM_LAST = Option("norm_last", bool, "hold the length of every prototype of the last layer at 1")
CLIP = Option("clip", float, "largest norm of each weight's gradient; 0: no bound", 0)


def build(backbone: "Backbone", **values: Any) -> "Framework":
    """values: the arguments of `DINO`."""
    from viewkit.pipelines.frameworks.networks.self_distillation import DINO

    return DINO(backbone, **values)


CARD = Card(
    name="dino",
    build=build,
    options={
        TAU: 0.1,
        MOMENTUM: 0.996,
        HIDDEN: 2048,
        BOTTLENECK: 256,
        DIM: 65_536,
        NUM_GLOBALS: 2,
        TEACHER_TAU: 0.07,
        TEACHER_TAU_START: 0.04,
        TEACHER_WARMUP_EPOCHS: 30.0,
        CENTRE_MOMENTUM: 0.9,
        LAST_FREEZE_EPOCHS: 1.0,
        NORM_LAST: True,
        CLIP: 3.0,
    },
    # Sec. 3.2 and appendix; the released code's settings for ViT-S and ResNet-50. Its ViTs learn positions and patch
    # projection, from truncated normals as in timm.
    resnet=Recipe(policy="dino_resnet", optimiser="sgd", lr=0.03, weight_decay=1e-4, lr_end=1e-6, options={CLIP: 0.0}),
    vit=Recipe(
        policy="dino",
        optimiser="adamw",
        lr=5e-4,
        weight_decay=0.04,
        lr_end=1e-6,
        drop_path=0.1,
        weight_decay_end=0.4,
        init="timm",
    ),
    traits=Traits(multi_crop=True, rising_momentum=True),
)
