"""What every framework takes, option by option, and the values of its paper.

`FrameworkOptions` holds name and help of every option; `SETTINGS` says which of them a framework has and what they
are when nobody gives them. An option that a framework has not is refused, so that none is given in vain.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from viewkit.pipelines.training.ranges import check_above_zero, check_at_least, check_within
from viewkit.shards.errors import ConfigError

FrameworkName = Literal[
    "simclr", "moco_v1", "moco_v2", "moco_v3", "byol", "simsiam", "swav", "dino", "vicreg", "barlow_twins"
]
OptimiserName = Literal["sgd", "lars", "adamw"]
Kind = Literal["vit", "resnet"]
StartName = Literal["moco_v3", "timm"]

VITS = ("vit", "flexivit", "test_vit", "eva_large", "aimv2", "beit3")
"""How the names of timm's plain ViTs begin; the other architectures that viewkit takes are ResNets."""


def kind_of(arch: str) -> Kind:
    """The kind of a backbone by its name alone: configs load no library."""
    return "vit" if arch.startswith(VITS) else "resnet"


BATCH_LOSSES: tuple[FrameworkName, ...] = ("vicreg", "barlow_twins")
"""Their loss is one number of a whole batch: no row has a loss of its own to be weighted, or selected by."""


@dataclass(frozen=True, kw_only=True)
class FrameworkOptions:
    """The framework and what is its own; None: as `SETTINGS` has it."""

    framework: Annotated[FrameworkName, "self-supervised method"] = "moco_v3"
    tau: Annotated[float | None, "temperature; DINO: the student's (default: the framework's)"] = None
    momentum: Annotated[float | None, "momentum of a momentum encoder; rises to 1, but not in moco_v1 and moco_v2"] = (
        None
    )
    hidden: Annotated[int | None, "hidden width of the heads (default: the framework's)"] = None
    dim: Annotated[int | None, "width of the outputs (default: the framework's)"] = None
    decoupled: Annotated[bool | None, "simclr, moco: leave the positive out of the denominator (DCL)"] = None
    queue_length: Annotated[int | None, "moco_v1, moco_v2: keys in the queue; swav: rows in it, 0 for none"] = None
    symmetric: Annotated[bool | None, "moco_v1, moco_v2: each view is query once and key once"] = None
    bn_splits: Annotated[
        int | None, "moco_v1, moco_v2: parts of a batch that a ResNet's batch norms see alone, keys shuffled; 1: off"
    ] = None
    num_globals: Annotated[int | None, "swav, dino: so many first views are the large ones"] = None
    prototypes: Annotated[int | None, "swav: number of prototypes"] = None
    epsilon: Annotated[float | None, "swav: entropy of the assignments, the smaller the harder"] = None
    sinkhorn_rounds: Annotated[int | None, "swav: rounds of Sinkhorn-Knopp"] = None
    prototype_freeze_steps: Annotated[int | None, "swav: first steps that leave the prototypes alone"] = None
    queue_start_epochs: Annotated[float | None, "swav: epochs before the queue is filled"] = None
    bottleneck: Annotated[int | None, "dino: width before the last layer"] = None
    teacher_tau: Annotated[float | None, "dino: the teacher's temperature after its warm-up"] = None
    teacher_tau_start: Annotated[float | None, "dino: the teacher's temperature at first"] = None
    teacher_warmup_epochs: Annotated[float | None, "dino: epochs in which the teacher's temperature rises"] = None
    centre_momentum: Annotated[float | None, "dino: momentum of the centre of the teacher's outputs"] = None
    last_freeze_epochs: Annotated[float | None, "dino: first epochs that leave the last layer alone"] = None
    clip: Annotated[float | None, "dino: largest norm of each weight's gradient; 0: no bound"] = None
    invariance: Annotated[float | None, "vicreg: weight of the distance between views"] = None
    variance: Annotated[float | None, "vicreg: weight of the spread's hinge"] = None
    covariance: Annotated[float | None, "vicreg: weight of the covariances"] = None
    redundancy: Annotated[float | None, "barlow_twins: weight of the correlations between different outputs"] = None
    bias_rate: Annotated[float | None, "barlow_twins: learning rate of biases and norms, as a share of the others'"] = (
        None
    )

    def check_framework(self) -> None:
        """`ConfigError` for a value outside its range."""
        check_above_zero(tau=self.tau, epsilon=self.epsilon, teacher_tau=self.teacher_tau, bias_rate=self.bias_rate)
        check_above_zero(teacher_tau_start=self.teacher_tau_start)
        check_within(0, 1, momentum=self.momentum, centre_momentum=self.centre_momentum)
        check_within(1, 65_536, hidden=self.hidden, bottleneck=self.bottleneck, bn_splits=self.bn_splits)
        check_within(1, 2**20, dim=self.dim, prototypes=self.prototypes)
        check_within(1, 1000, num_globals=self.num_globals, sinkhorn_rounds=self.sinkhorn_rounds)
        check_at_least(
            0,
            queue_length=self.queue_length,
            prototype_freeze_steps=self.prototype_freeze_steps,
            queue_start_epochs=self.queue_start_epochs,
            teacher_warmup_epochs=self.teacher_warmup_epochs,
            last_freeze_epochs=self.last_freeze_epochs,
            clip=self.clip,
            invariance=self.invariance,
            variance=self.variance,
            covariance=self.covariance,
            redundancy=self.redundancy,
        )
        if self.framework == "swav" and self.num_globals is not None and self.num_globals < 2:
            raise ConfigError("num_globals is 1; swav predicts the assignment of one large view from another, so 2")

    def check_batch(self, batch_size: int) -> None:
        """`ConfigError` where queue or batch norm do not fit the batch."""
        if self.queue_length and self.queue_length < batch_size:
            raise ConfigError(f"queue_length is {self.queue_length} and batch_size {batch_size}; it must hold a batch")
        if self.bn_splits and batch_size % self.bn_splits:
            raise ConfigError(f"bn_splits is {self.bn_splits}, which does not divide batch_size {batch_size}")
        if self.bn_splits == batch_size:
            raise ConfigError(
                f"bn_splits is {self.bn_splits} and batch_size {batch_size}; a batch norm needs 2 rows in a part"
            )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Policy, optimiser and start of a framework on one kind of backbone. own: fields of `FrameworkOptions` it has.

    lr: at 256 images a batch. weight_decay_end: where the weight decay moves to along a cosine, or None. decay_all:
    whether biases, norms and class tokens decay too, as they do where the released code hands its optimiser all weights
    alike. start: how a ViT begins; ResNets begin the same either way.
    """

    policy: str
    optimiser: OptimiserName
    lr: float
    weight_decay: float
    weight_decay_end: float | None = None
    decay_all: bool = False
    start: StartName = "moco_v3"
    own: Mapping[str, Any] = field(default_factory=dict)


COMMON = ("policy", "optimiser", "lr", "weight_decay", "weight_decay_end", "decay_all", "start")
"""Fields of `Settings` that every framework has."""

_NT_XENT = {"tau": 0.1, "hidden": 2048, "dim": 128, "decoupled": False}
_QUEUE = {"momentum": 0.999, "dim": 128, "queue_length": 65_536, "symmetric": False, "decoupled": False}
_MOCO_V1 = {**_QUEUE, "tau": 0.07}
_MOCO_V2 = {**_QUEUE, "tau": 0.2, "hidden": 2048}
# Eight processors of 32 rows each, between which the released code shuffles keys.
_SHUFFLED = {"bn_splits": 8}
_MOCO_V3 = {"tau": 0.2, "momentum": 0.99, "hidden": 4096, "dim": 256, "decoupled": False}
_BYOL = {"momentum": 0.996, "hidden": 4096, "dim": 256}
_SIMSIAM = {"hidden": 512, "dim": 2048}
_SWAV = {
    "tau": 0.1, "hidden": 2048, "dim": 128, "num_globals": 2, "prototypes": 3000, "epsilon": 0.05,
    "sinkhorn_rounds": 3, "prototype_freeze_steps": 313, "queue_length": 0, "queue_start_epochs": 15.0,
}  # fmt: skip
_DINO = {
    "tau": 0.1, "momentum": 0.996, "hidden": 2048, "bottleneck": 256, "dim": 65_536,
    "num_globals": 2, "teacher_tau": 0.07, "teacher_tau_start": 0.04, "teacher_warmup_epochs": 30.0,
    "centre_momentum": 0.9, "last_freeze_epochs": 1.0, "clip": 3.0,
}  # fmt: skip
_VICREG = {"hidden": 8192, "dim": 8192, "invariance": 25.0, "variance": 25.0, "covariance": 1.0}
_BARLOW = {"hidden": 8192, "dim": 8192, "redundancy": 0.0051}


def _adamw(policy: str, own: Mapping[str, Any]) -> Settings:
    """A ViT under a method whose paper has ResNets only gets MoCo v3's optimiser and start."""
    return Settings(policy=policy, optimiser="adamw", lr=1.5e-4, weight_decay=0.1, decay_all=True, own=own)


SETTINGS: dict[tuple[FrameworkName, Kind], Settings] = {
    # Chen et al. 2020a, sec. 2.2: LARS, 0.3 at 256, weight decay 1e-6; temperature 0.1 is the best of its table 5.
    ("simclr", "resnet"): Settings(policy="simclr", optimiser="lars", lr=0.3, weight_decay=1e-6, own=_NT_XENT),
    ("simclr", "vit"): _adamw("simclr", _NT_XENT),
    # He et al. 2020, sec. 3.3; Chen et al. 2020b.
    ("moco_v1", "resnet"): Settings(
        policy="moco_v1", optimiser="sgd", lr=0.03, weight_decay=1e-4, decay_all=True, own=_MOCO_V1 | _SHUFFLED
    ),
    ("moco_v1", "vit"): _adamw("moco_v1", _MOCO_V1),
    ("moco_v2", "resnet"): Settings(
        policy="moco_v2", optimiser="sgd", lr=0.03, weight_decay=1e-4, decay_all=True, own=_MOCO_V2 | _SHUFFLED
    ),
    ("moco_v2", "vit"): _adamw("moco_v2", _MOCO_V2),
    # Chen et al. 2021: ViT with AdamW; ResNet-50 with LARS, 0.3 at 256 for 300 epochs and more (0.6 for 100), tau 1.
    ("moco_v3", "resnet"): Settings(
        policy="moco_v3", optimiser="lars", lr=0.3, weight_decay=1e-6, own=_MOCO_V3 | {"tau": 1.0}
    ),
    ("moco_v3", "vit"): _adamw("moco_v3_vit", _MOCO_V3),
    # Grill et al. 2020, sec. 3.3 and appendix J: 1000 epochs at 4096.
    ("byol", "resnet"): Settings(policy="byol", optimiser="lars", lr=0.2, weight_decay=1.5e-6, own=_BYOL),
    ("byol", "vit"): _adamw("byol", _BYOL),
    # Chen & He 2021, sec. 3.
    ("simsiam", "resnet"): Settings(
        policy="simsiam", optimiser="sgd", lr=0.05, weight_decay=1e-4, decay_all=True, own=_SIMSIAM
    ),
    ("simsiam", "vit"): _adamw("simsiam", _SIMSIAM),
    # Caron et al. 2020, appendix A.1: 4.8 at 4096; with 256 rows it takes a queue of 3840 and 0.6.
    ("swav", "resnet"): Settings(policy="swav", optimiser="lars", lr=0.3, weight_decay=1e-6, own=_SWAV),
    ("swav", "vit"): _adamw("swav", _SWAV),
    # Caron et al. 2021, sec. 3.2 and appendix; the released code's settings for ViT-S and ResNet-50. Its ViTs learn
    # positions and patch projection, from truncated normals as in timm.
    ("dino", "vit"): Settings(
        policy="dino", optimiser="adamw", lr=5e-4, weight_decay=0.04, weight_decay_end=0.4, start="timm", own=_DINO
    ),
    ("dino", "resnet"): Settings(policy="dino", optimiser="sgd", lr=0.03, weight_decay=1e-4, own=_DINO | {"clip": 0.0}),
    # Bardes et al. 2022, appendix C.
    ("vicreg", "resnet"): Settings(policy="vicreg", optimiser="lars", lr=0.2, weight_decay=1e-6, own=_VICREG),
    ("vicreg", "vit"): _adamw("vicreg", _VICREG),
    # Zbontar et al. 2021, sec. 2.2; biases and norms learn at 0.0048 beside 0.2.
    ("barlow_twins", "resnet"): Settings(
        policy="byol", optimiser="lars", lr=0.2, weight_decay=1e-6, own=_BARLOW | {"bias_rate": 0.024}
    ),
    ("barlow_twins", "vit"): _adamw("byol", _BARLOW | {"bias_rate": 1.0}),
}  # fmt: skip


def resolve(options: FrameworkOptions, kind: Kind) -> dict[str, Any]:
    """Values of the framework's own options, given or default. `ConfigError` for an option that it has not."""
    defaults = SETTINGS[options.framework, kind].own
    given = {name: getattr(options, name) for name in FrameworkOptions.__dataclass_fields__ if name != "framework"}
    for name, value in given.items():
        if value is not None and name not in defaults:
            has = ", ".join(sorted(defaults))
            raise ConfigError(f"{name} is {value}: {options.framework} on a {kind} has no such option; it has {has}")
    return {name: default if given[name] is None else given[name] for name, default in defaults.items()}
