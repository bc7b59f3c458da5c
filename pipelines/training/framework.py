"""The interface that loop, selection and accumulation see of whatever is trained: views in, losses per row out.

A loss is computed in three moves, so that each can be done where and as often as it costs least: `encode` runs the
backbone on one view (in micro-batches, when memory is short), `project` runs the heads on a whole batch, and
`pair_losses` or `loss_of` compares views. Selecting hard views repeats the third move only.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import gather, mean_over_processes
from viewkit.pipelines.losses.row_weights import weighted_mean
from viewkit.pipelines.models.backbone import Backbone, Encoded
from viewkit.pipelines.training.trainable import Trainable


@dataclass(frozen=True)
class Outputs:
    """What the heads give of one view of every row.

    query: the side that learns (a prediction, a student's logits); key: the side it is compared with (a momentum
    encoder's projection, a teacher's logits); None where a method does not compute it for this view. z: the
    projection, or what comes closest, for watching its spread.
    """

    z: Float[Tensor, "n _d"] | None
    query: Float[Tensor, "n _q"] | None
    key: Float[Tensor, "n _k"] | None


Merge = Callable[[Sequence[Outputs]], Sequence[Outputs]]
"""Makes one view of each side's m views before they are compared (Fea_avg, DSF: `sides.merge_sides`)."""


class Framework(Trainable):
    """A self-supervised method: its networks, its loss, and what it does after a step. It knows nothing of selection.

    joins_sides: with m views a side, those of a side make one pass (`join_views`), so batch norms see them together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.merge: Merge | None = None
        self.joins_sides = False
        self.margin_of: MarginOf | None = None
        self.margin: Tensor | None = None
        self.compare: "Compare" = average_losses
        self.watched: Tensor | None = None

    @property
    @abstractmethod
    def encoder(self) -> Backbone:
        """The backbone that learns."""

    @property
    def kept(self) -> Backbone:
        """The backbone that is probed and saved: the one that learns, where the method does not keep its teacher."""
        return self.encoder

    def roles(self, num_views: int) -> tuple[Sequence[int], Sequence[int]]:
        """Which views of a row pass through the learning network, and which through the target network."""
        return range(num_views), range(num_views)

    def encode(self, views: Float[Tensor, "n 3 s s"]) -> Encoded:
        """The learning backbone on one view."""
        return (self.encoder(views),)

    def encode_target(self, views: Float[Tensor, "n 3 s s"]) -> Encoded | None:
        """The target network's backbone on one view, without gradient; None for methods without such a network."""
        return None

    @abstractmethod
    def project(self, encoded: Encoded | None, target: Encoded | None) -> Outputs:
        """The heads on one view of the whole batch; each argument is None where `roles` leaves this view out."""

    @abstractmethod
    def pair_losses(self, one: Outputs, other: Outputs) -> Float[Tensor, " n"]:
        """Loss of every row for the pair (one, other), both directions where the method is symmetric.

        Frameworks whose loss is no mean over rows (`Traits.per_row` is False) raise `TypeError`.
        """

    def loss_of(self, outputs: Sequence[Outputs], weights: Float[Tensor, " n"] | None) -> Float[Tensor, ""]:
        """Mean over rows of weight x loss, the loss of a row's views by `compare`."""
        return weighted_mean(self.compare(self, outputs), weights)

    def loss(
        self,
        views: Sequence[Tensor],
        weights: Float[Tensor, " n"] | None = None,
        targets: Sequence[Encoded | None] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch. views: view j of every row, [n 3 s s] each; weights: one per row, they sum to n.

        targets: what `encode_target` gives of the views that have that role, where it is known already.
        """
        learning, aims = self.roles(len(views))
        encoded = self._encode_all(self.encode, views, learning)
        if targets is None:
            with torch.no_grad():
                targets = self._encode_all(self.encode_target, views, aims)
        return self.loss_of_encoded(encoded, targets, weights)

    def _encode_all(
        self, encode: Callable[[Tensor], Encoded | None], views: Sequence[Tensor], roles: Sequence[int]
    ) -> list[Encoded | None]:
        """The views of the roles through one backbone, view by view or side by side."""
        found: list[Encoded | None] = []
        for side in sides_of(range(len(views))) if self.joins_sides else [[j] for j in range(len(views))]:
            passed = encode(join_views([views[j] for j in side])) if side[0] in roles else None
            found += [None] * len(side) if passed is None else _split_all(passed, len(side))
        return found

    def loss_of_encoded(
        self,
        encoded: Sequence[Encoded | None],
        targets: Sequence[Encoded | None],
        weights: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss when the backbones have run already."""
        outputs = self._project_all(encoded, targets)
        self.watch(outputs, encoded)
        compared = outputs if self.merge is None else self.merge(outputs)
        self.watch_margin(compared)
        return self.loss_of(compared, weights)

    def _project_all(self, encoded: Sequence[Encoded | None], targets: Sequence[Encoded | None]) -> list[Outputs]:
        """The heads on every view, or on all views of a side together."""
        if not self.joins_sides:
            return [self.project(own, target) for own, target in zip(encoded, targets, strict=True)]
        found: list[Outputs] = []
        for own, target in zip(sides_of(encoded), sides_of(targets), strict=True):
            joined = self.project(_join_all(own), _join_all(target))
            each = [
                split_views(values, len(own)) if values is not None else [None] * len(own)
                for values in (joined.z, joined.query, joined.key)
            ]
            found += [Outputs(z=z, query=query, key=key) for z, query, key in zip(*each, strict=True)]
        return found

    def watch(self, outputs: Iterable[Outputs], encoded: Iterable[Encoded | None]) -> None:
        """Keep what monitoring reads: the first view's projection and features."""
        self.watched = next((each.z.detach() for each in outputs if each.z is not None), None)
        self.features = next((each[0].detach() for each in encoded if each is not None), None)

    def watch_margin(self, compared: Sequence[Outputs]) -> None:
        """Keep s+ - s- of the first side's first queries and the second side's first keys, where the loss has it."""
        query, key = compared[0].query, compared[len(compared) // 2].key
        if self.margin_of is not None and query is not None and key is not None:
            self.margin = self.margin_of(query.detach(), key.detach(), self.negatives())

    def negatives(self) -> Float[Tensor, "m d"] | None:
        """Keys of earlier steps that are the negatives of every row (a queue's); None: the batch's other rows are."""
        return None

    def numbers(self) -> dict[str, float]:
        if self.margin is None:
            return {}
        return {"margin": float(mean_over_processes(self.margin))}

    @torch.no_grad()
    def spread(self) -> float:
        """Standard deviation of the last projections, normalised, averaged over dimensions, times sqrt(d).

        1 where those of all processes fill the sphere evenly, 0 where all are equal (Chen & He 2021, sec. 4.1).
        """
        if self.watched is None:
            return float("nan")
        z = F.normalize(gather(self.watched.float()), dim=1)
        return float(z.std(dim=0, correction=0).mean() * z.shape[1] ** 0.5)


def sides_of(views: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The m views of the first side, and those of the second."""
    half = len(views) // 2
    return views[:half], views[half:]


def join_views(views: Sequence[Float[Tensor, "n *shape"]]) -> Float[Tensor, "n_m *shape"]:
    """m views of every row as one batch, those of a row side by side: the released order (Jeon et al. 2026), by which
    parts of a batch (MoCo's split norms) hold all views of their rows."""
    return torch.stack(list(views), dim=1).flatten(0, 1) if len(views) > 1 else views[0]


def split_views(joined: Float[Tensor, "n_m *shape"], m: int) -> list[Float[Tensor, "n *shape"]]:
    """`join_views` undone."""
    return list(joined.unflatten(0, (-1, m)).unbind(dim=1))


def _join_all(encoded: Sequence[Encoded | None]) -> Encoded | None:
    known = [each for each in encoded if each is not None]
    return tuple(join_views(pieces) for pieces in zip(*known, strict=True)) if known else None


def _split_all(encoded: Encoded, m: int) -> list[Encoded | None]:
    return list(zip(*(split_views(each, m) for each in encoded), strict=True))


MarginOf = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Queries, keys and, where there are some, earlier keys, to s+ - s- (`losses.margin`)."""
Compare = Callable[[Framework, Sequence[Outputs]], Float[Tensor, " n"]]
"""Loss of every row from its 2 m views, m of each side: the first half of the outputs against the second."""


def average_losses(framework: Framework, outputs: Sequence[Outputs]) -> Float[Tensor, " n"]:
    """Loss_avg: the mean over the m x m pairs of the two sides (Jeon et al. 2026, Alg. 1)."""
    half = len(outputs) // 2
    pairs = [(one, other) for one in outputs[:half] for other in outputs[half:]]
    return torch.stack([framework.pair_losses(one, other) for one, other in pairs]).mean(dim=0)
