"""Assignments to prototypes that one view predicts of another (SwAV, Caron et al. 2020)."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.distributed import world_size
from viewkit.pipelines.losses.assignment import balanced_assignments, swapped_prediction
from viewkit.pipelines.losses.row_weights import weighted_mean
from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.models.heads import swav_projector
from viewkit.pipelines.models.initial import seeded_weights
from viewkit.pipelines.models.queue import Queue
from viewkit.pipelines.training.framework import Framework, Outputs


class SwAV(Framework):
    """The first `num_globals` views are assigned to prototypes, in equal shares; all other views predict that.

    `z` of the outputs has length 1, `query` are its products with the prototypes. queue_length: rows of earlier steps
    that take part in the assignment, one queue for every large view, filled from step `queue_start_steps` on and used
    when full; 0: none. Prototypes have length 1 at the start of every step and are frozen in the first
    `prototype_freeze_steps`. Batch norms see every view alone (the released code: all views of a size together).
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        hidden: int,
        dim: int,
        tau: float,
        num_globals: int,
        prototypes: int,
        epsilon: float,
        sinkhorn_rounds: int,
        prototype_freeze_steps: int,
        queue_length: int,
        queue_start_steps: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        with seeded_weights(seed + 1):
            self.projector = swav_projector(backbone.num_features, hidden, dim)
            self.prototypes = nn.Linear(dim, prototypes, bias=False)
        self.queues = nn.ModuleList(Queue(queue_length, dim, seed + i) for i in range(num_globals) if queue_length)
        self.tau, self.epsilon, self.rounds, self.num_globals = tau, epsilon, sinkhorn_rounds, num_globals
        self.freeze_steps, self.queue_start_steps = prototype_freeze_steps, queue_start_steps
        self.fresh_rows: list[Tensor] = []
        self._normalise_prototypes()

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        assert encoded is not None
        z = F.normalize(self.projector(encoded[0]).float(), dim=1)
        return Outputs(z=z, query=self.prototypes(z), key=None)

    def assign(self, outputs: Outputs, place: int) -> Float[Tensor, "n k"]:
        """Assignments of one large view. place: which of the large views it is, as each has a queue of its own."""
        assert outputs.query is not None
        queued = None
        if len(self.queues) and self._queues_are_full(len(outputs.query) * world_size()):
            queued = self.prototypes(cast(Queue, self.queues[place]).rows).detach()
        return balanced_assignments(outputs.query.detach(), epsilon=self.epsilon, rounds=self.rounds, queued=queued)

    def _queues_are_full(self, batch_size: int) -> bool:
        filled = max(0, self.step - self.queue_start_steps) * batch_size
        return filled >= len(cast(Queue, self.queues[0]).rows)

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert one.query is not None and other.query is not None
        there = swapped_prediction(one.query, self.assign(other, 1), self.tau)
        return (there + swapped_prediction(other.query, self.assign(one, 0), self.tau)) / 2

    def loss_of(self, outputs: Sequence[Outputs], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
        """Mean over large views of the mean over all other views' predictions of its assignment."""
        large = outputs[: self.num_globals]
        self.fresh_rows = [each.z.detach() for each in large if each.z is not None]
        losses = []
        for place, assigned in enumerate(large):
            q = self.assign(assigned, place)
            queries = [each.query for j, each in enumerate(outputs) if j != place and each.query is not None]
            losses += [swapped_prediction(query, q, self.tau) for query in queries]
        return weighted_mean(torch.stack(losses).mean(dim=0), weights)

    def before_update(self) -> None:
        """Keeps the prototypes frozen at first."""
        if self.step < self.freeze_steps:
            self.prototypes.weight.grad = None

    def after_step(self) -> None:
        """Brings prototypes back to length 1 and queues the batch."""
        self._normalise_prototypes()
        if len(self.queues) and self.step > self.queue_start_steps:
            for queue, rows in zip(self.queues, self.fresh_rows, strict=True):
                cast(Queue, queue).push(rows)
        self.fresh_rows = []

    @torch.no_grad()
    def _normalise_prototypes(self) -> None:
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))
