"""The SGD linear probe: several learning rates in one pass, the best chosen on images held out of train."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewkit.pipelines.evaluate.heads import LinearHeads
from viewkit.shards.errors import DataError

Batch = tuple[Tensor, Tensor, Tensor]
"""Features [n d], their labels [n] and numbers of their rows [n], on one device."""
Epochs = Callable[[int], Iterator[Batch]]
"""The batches of an epoch: all training rows once."""

INITIAL_STD = 0.01
"""Of a classifier's first weights (released code of MoCo v3, main_lincls.py)."""
SCALED_AT = 256
"""Images in a batch for which rates are given; they grow in proportion (Goyal et al. 2017)."""


@dataclass(frozen=True)
class Sweep:
    """scores: of the test rows. rate: the one chosen. split_accuracy: its top-1 on the rows held out."""

    scores: Float[np.ndarray, "n c"]
    rate: float
    split_accuracy: float | None


def cosine(epoch: int, epochs: int) -> float:
    """Half a cosine from 1 down to 0, constant within an epoch as in MoCo v3's released code."""
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def cut(rows: Int[np.ndarray, " n"], batch_size: int) -> list[Int[np.ndarray, " _"]]:
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
        for part in cut(order(number).permutation(len(features)), batch_size):
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
    equal ones the smallest; the scores are those of its twin that saw all rows. Test labels are not even given. With
    one rate nothing is chosen and nothing held out. rates: ascending, at 256 images a batch. first: weights that all
    begin with. Raises `DataError` when every rate diverges.
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
