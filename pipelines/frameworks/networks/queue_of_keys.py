"""A momentum encoder and a queue of its keys (MoCo, He et al. 2020)."""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.distributed import first_row, gather
from viewkit.pipelines.engine.seeds import stream
from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.losses.info_nce import queue_info_nce
from viewkit.pipelines.losses.margin import cosine_margin
from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.models.momentum import momentum_copy, move_towards
from viewkit.pipelines.models.norms import split_norms
from viewkit.pipelines.models.queue import Queue
from viewkit.pipelines.training.framework import Framework, Outputs


class MoCo(Framework):
    """Queries of the first half of the views, keys of the second; negatives are the keys of earlier steps.

    symmetric: both halves are both, and the two directions are added. head: on top of backbone and momentum backbone.
    bn_splits: parts of the batch that batch norms see alone, with the keys' rows shuffled between the parts; 1: off.
    decoupled: the denominator has the queue alone (Yeh et al. 2022).
    """

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        *,
        dim: int,
        tau: float,
        momentum: float,
        queue_length: int,
        symmetric: bool,
        decoupled: bool,
        seed: int,
        bn_splits: int = 1,
    ) -> None:
        super().__init__()
        if bn_splits > 1:
            split_norms(backbone, bn_splits)
        self.backbone, self.head = backbone, head
        self.momentum_backbone, self.momentum_head = momentum_copy(backbone), momentum_copy(head)
        self.queue = Queue(queue_length, dim, seed)
        self.tau, self.momentum, self.symmetric, self.decoupled = tau, momentum, symmetric, decoupled
        self.seed, self.bn_splits = seed, bn_splits
        self.margin_of = partial(cosine_margin, tau=tau)
        self.fresh_keys: list[Tensor] = []

    @property
    def encoder(self) -> Backbone:
        return self.backbone

    def roles(self, num_views: int) -> tuple[Sequence[int], Sequence[int]]:
        if self.symmetric:
            return super().roles(num_views)
        return range(num_views // 2), range(num_views // 2, num_views)

    def encode_target(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        if self.bn_splits == 1:
            return (self.momentum_backbone(views),)
        everyone, own = gather(views), slice(first_row(len(views)), first_row(len(views)) + len(views))
        order = to_device(stream(self.seed, "shuffle", self.step).permutation(len(everyone)), views.device)
        keys = gather(self.momentum_backbone(everyone[order[own]]))
        return (keys[order.argsort()[own]],)

    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        query = None if encoded is None else self.head(encoded[0])
        with torch.no_grad():
            key = None if target is None else nn.functional.normalize(self.momentum_head(target[0]).float(), dim=1)
        return Outputs(z=query, query=query, key=key)

    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        losses = self._one_direction(one, other)
        return losses + self._one_direction(other, one) if self.symmetric else losses

    def _one_direction(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        assert one.query is not None and other.key is not None
        return queue_info_nce(one.query, other.key, self.queue.rows, self.tau, decoupled=self.decoupled)

    def negatives(self) -> Float[Tensor, "m d"]:
        """The queue's keys."""
        return self.queue.rows

    def loss_of(self, outputs: Sequence[Outputs], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
        """As any framework's; the keys, of which merged views give means, are kept for the queue."""
        keys = outputs if self.symmetric else outputs[len(outputs) // 2 :]
        self.fresh_keys = [nn.functional.normalize(each.key, dim=1) for each in keys if each.key is not None]
        return super().loss_of(outputs, weights)

    def after_step(self) -> None:
        """Moves the momentum encoder and puts the keys of the step's batch into the queue."""
        move_towards(self.momentum_backbone, self.backbone, self.momentum)
        move_towards(self.momentum_head, self.head, self.momentum)
        for keys in self.fresh_keys:
            self.queue.push(keys)
        self.fresh_keys = []
