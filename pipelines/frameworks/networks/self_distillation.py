"""Self-distillation on several crops (DINO, Caron et al. 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import mean_over_processes
from viewkit.pipelines.losses.crop_cross_entropy import crop_cross_entropy
from viewkit.pipelines.losses.row_weights import weighted_mean
from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.models.heads import DINOHead
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.schedules import cosine_momentum


@dataclass(frozen=True)
class TeacherTau:
    """Temperature of the teacher: linear from `start` at step 0 to `end` at step `warmup_steps`, then constant.

    The released code takes a new value every epoch, not every step.
    """

    start: float
    end: float
    warmup_steps: int

    def at(self, step: int) -> float:
        share = 1.0 if step >= self.warmup_steps else step / self.warmup_steps
        return self.start + (self.end - self.start) * share


class DINO(Framework):
    """The student predicts, from any view, what the teacher (its momentum copy) says of the first `num_globals` views.

    `z` of the outputs is the head's bottleneck, `query` the student's logits, `key` the teacher's. Teacher logits are
    centred by their running mean over all processes. The last layer is frozen in the first `last_freeze_steps`;
    norm_last: the lengths of its prototypes are held at 1. The teacher is what is kept, as in the released code.
    clip: largest norm of each weight's gradient, 0 for no bound.
    steps: of the whole training, over which the momentum rises to 1.
    """

    centre: Tensor

    def __init__(
        self,
        backbone: Backbone,
        *,
        hidden: int,
        bottleneck: int,
        dim: int,
        tau: float,
        teacher_tau: float,
        teacher_tau_start: float,
        teacher_warmup_steps: int,
        centre_momentum: float,
        last_freeze_steps: int,
        norm_last: bool,
        clip: float,
        num_globals: int,
        momentum: float,
        steps: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        with seeded_weights(seed + 1):
            self.head = DINOHead(backbone.num_features, hidden, bottleneck, dim, norm_last=norm_last)
        self.momentum_backbone = momentum_copy(self.backbone)
        self.momentum_head = momentum_copy(self.head)
        self.register_buffer("centre", torch.zeros(dim))
        self.teacher_tau = TeacherTau(teacher_tau_start, teacher_tau, teacher_warmup_steps)
        self.tau, self.num_globals, self.freeze_steps = tau, num_globals, last_freeze_steps
        self.centre_momentum, self.momentum, self.steps, self.clip = centre_momentum, momentum, steps, clip
        self.fresh_centre: Tensor | None = None

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    @property
    def kept(self) -> Backbone:
        return self.momentum_backbone

    def roles(self, num_views: int) -> tuple[Sequence[int], Sequence[int]]:
        """Every view to the student, the large ones to the teacher."""
        return range(num_views), range(min(self.num_globals, num_views))

    def encode_target(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        return (self.momentum_backbone(views),)

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z, query = self.head(encoded[0])
        with torch.no_grad():
            key = None if target is None else self.momentum_head(target[0])[1]
        return Outputs(z=z, query=query, key=key)

    def crop_losses(self, outputs: Sequence[Outputs]) -> Float[Tensor, "n t s"]:
        """Cross entropy of every teacher view against every student view, each in the order of `outputs`.

        Views without a key are left out of t. The pairs in which both are the same view stay in: whoever
        averages leaves them out.
        """
        keys = [each.key for each in outputs if each.key is not None]
        queries = [each.query for each in outputs if each.query is not None]
        tau = self.teacher_tau.at(self.step)
        return crop_cross_entropy(keys, queries, self.centre, teacher_tau=tau, tau=self.tau)

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        """Mean of both directions; both views are large ones."""
        losses = self.crop_losses([one, other])
        return (losses[:, 0, 1] + losses[:, 1, 0]) / 2

    def loss_of(self, outputs: Sequence[Outputs], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
        """Mean over pairs of a teacher's and a student's view that are not the same view."""
        keys = [each.key for each in outputs if each.key is not None]
        self.fresh_centre = torch.cat(keys).float().mean(dim=0)
        teachers = [j for j, each in enumerate(outputs) if each.key is not None]
        students = [j for j, each in enumerate(outputs) if each.query is not None]
        losses = self.crop_losses(outputs)
        pairs = [
            losses[:, t, s] for t, teacher in enumerate(teachers) for s, student in enumerate(students)
            if teacher != student
        ]  # fmt: skip
        return weighted_mean(torch.stack(pairs).mean(dim=0), weights)

    def before_update(self) -> None:
        """Bounds the gradient of each weight by itself, as the released code does; freezes the last layer at first."""
        for parameter in (*self.backbone.parameters(), *self.head.parameters()) if self.clip else ():
            if parameter.grad is not None:
                torch.nn.utils.clip_grad_norm_(parameter, self.clip)
        if self.step < self.freeze_steps:
            for weight in self.head.last.parameters():
                weight.grad = None

    def after_step(self) -> None:
        """Moves the teacher and the centre."""
        m = cosine_momentum(self.step, steps=self.steps, start=self.momentum)
        move_towards(self.momentum_backbone, self.backbone, m)
        move_towards(self.momentum_head, self.head, m)
        if self.fresh_centre is not None:
            self.centre.lerp_(mean_over_processes(self.fresh_centre), 1 - self.centre_momentum)
            self.fresh_centre = None
