"""The SGD linear probe: several learning rates in one pass, the best chosen on images held out of train.

All classifiers are trained side by side, as one tensor, each with its own learning rate and images.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewkit.shards.errors import DataError

Batch = tuple[Tensor, Tensor, Tensor]
"""Features [n d], their labels [n] and numbers of their rows [n], on one device."""
Epochs = Callable[[int], Iterator[Batch]]
"""The batches of an epoch: all training rows once."""

MOMENTUM = 0.9
INITIAL_STD = 0.01
"""Of a classifier's first weights (released code of MoCo v3, main_lincls.py)."""
SCALED_AT = 256
"""Images in a batch for which rates are given; they grow in proportion (Goyal et al. 2017)."""


class LinearHeads:
    """h softmax classifiers of width d and c classes under SGD with momentum 0.9 and no weight decay.

    All begin with the same weights [c d] and no bias. They share nothing but their images, so each is what it would
    be if it were trained alone.
    """

    def __init__(self, first: Float[Tensor, "c d"], num_heads: int) -> None:
        self.weight = first.repeat(num_heads, 1, 1)  # h c d
        self.bias = first.new_zeros(num_heads, len(first))  # h c
        self._weight_velocity = torch.zeros_like(self.weight)
        self._bias_velocity = torch.zeros_like(self.bias)

    def scores(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "h n c"]:
        h, c, d = self.weight.shape
        flat = x @ self.weight.reshape(h * c, d).T  # n (h c)
        return flat.reshape(len(x), h, c).transpose(0, 1) + self.bias[:, None]

    def step(
        self,
        x: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        counted: Float[Tensor, "h n"],
        rates: Float[Tensor, " h"],
    ) -> None:
        """One step on the mean cross-entropy of each head's own rows.

        counted: 1 where a head learns from a row, 0 where it does not; without any it sees a gradient of 0. The
        gradient of the cross-entropy to the scores is softmax less one-hot.
        """
        share = counted / counted.sum(dim=1, keepdim=True).clamp(min=1)
        g = self.scores(x).softmax(dim=2)  # h n c
        g[:, torch.arange(len(x), device=x.device), labels] -= 1
        g = g * share[:, :, None]
        self._weight_velocity.mul_(MOMENTUM).add_(g.transpose(1, 2) @ x)
        self._bias_velocity.mul_(MOMENTUM).add_(g.sum(dim=1))
        self.weight -= rates[:, None, None] * self._weight_velocity
        self.bias -= rates[:, None] * self._bias_velocity

    def finite(self) -> list[bool]:
        """Which heads have not diverged."""
        return [bool(w.isfinite().all() and b.isfinite().all()) for w, b in zip(self.weight, self.bias, strict=True)]


@dataclass(frozen=True)
class Sweep:
    """scores: of the test rows. rate: the one chosen. split_accuracy: its top-1 on the rows held out."""

    scores: Float[np.ndarray, "n c"]
    rate: float
    split_accuracy: float | None


def cosine(epoch: int, epochs: int) -> float:
    """Half a cosine from 1 down to 0, constant within an epoch as in MoCo v3's released code."""
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def split_evenly(rows: Int[np.ndarray, " n"], batch_size: int) -> list[Int[np.ndarray, " _"]]:
    """Batches of at most `batch_size` rows, of sizes that differ by at most one: none is tiny."""
    return np.array_split(rows, -(-len(rows) // batch_size))


def cached_epochs(
    features: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    batch_size: int,
    order: Callable[[int], np.random.Generator],
) -> Epochs:
    """Epochs over features that never change; `order(epoch)` shuffles them."""

    def epoch(number: int) -> Iterator[Batch]:
        for part in split_evenly(order(number).permutation(len(features)), batch_size):
            rows = torch.from_numpy(part).to(features.device)
            yield features[rows], labels[rows], rows

    return epoch


def sweep_rates(
    epochs_of: Epochs,
    train: Float[Tensor, "m d"],
    labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    *,
    rates: Sequence[float],
    held: Bool[np.ndarray, " m"],
    epochs: int,
    batch_size: int,
    first: Float[Tensor, "c d"],
    advance: Callable[[int], None] = lambda count: None,
) -> Sweep:
    """Train a classifier for every rate on the rows not `held` and, in the same pass, another on all rows.

    The first kind is measured on the held rows (features `train` of centre crops); the rate with the best one wins, of
    equal ones the smallest; the scores are those of the classifier of that rate that learnt from all rows. Test labels
    are not even given. With one rate nothing is chosen and nothing held out. rates: ascending, at 256 images a batch.
    first: weights that all begin with. Raises `DataError` when every rate diverges.
    """
    chooses = len(rates) > 1
    heads = LinearHeads(first, len(rates) * (2 if chooses else 1))
    learns = torch.from_numpy(~held).to(train).repeat(len(rates), 1)  # h m
    counted = torch.cat([learns, torch.ones_like(learns)]) if chooses else torch.ones_like(learns)
    largest = math.ceil(len(train) / math.ceil(len(train) / batch_size))
    scaled = train.new_tensor(list(rates) * (2 if chooses else 1)) * largest / SCALED_AT
    for epoch in range(epochs):
        for x, y, rows in epochs_of(epoch):
            heads.step(x, y, counted[:, rows], scaled * cosine(epoch, epochs))
        advance(1)
    best, accuracy = 0, None
    finite = heads.finite()
    if chooses:
        rows = torch.from_numpy(held).to(train.device)
        right = (heads.scores(train[rows])[: len(rates)].argmax(dim=2) == labels[rows]).double().mean(dim=1)
        both = [finite[place] and finite[place + len(rates)] for place in range(len(rates))]
        judged = [float(share) if fine else -1.0 for share, fine in zip(right, both, strict=True)]
        accuracy = max(judged)
        best = judged.index(accuracy)
        finite = both
    if not finite[best]:
        raise DataError(
            f"evaluate: the classifier diverges at every learning rate tried ({', '.join(f'{r:g}' for r in rates)}); "
            "give smaller ones with --rates"
        )
    scores = heads.scores(test)[best + (len(rates) if chooses else 0)]
    return Sweep(scores.double().cpu().numpy(), rates[best], accuracy)


def draw_weights(num_classes: int, width: int, rng: np.random.Generator) -> Float[Tensor, "c d"]:
    """First weights of a classifier, normal."""
    return torch.from_numpy(rng.normal(0, INITIAL_STD, (num_classes, width))).float()
