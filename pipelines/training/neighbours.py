"""The weighted kNN probe (Wu et al. 2018, sec. 3.4): the nearest training images vote for their class."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 2**25
"""Similarities held at once: 128 MiB in fp32, whatever the number of images."""


def vote(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    *,
    neighbours: tuple[int, ...],
    tau: float,
    num_classes: int,
    leave_one_out: bool = False,
) -> dict[int, Float[Tensor, "n c"]]:
    """Class scores of the test rows for every number k in `neighbours` (each at most m).

    leave_one_out: `test` is `train`, and no row votes for itself (k is then at most m - 1).
    A neighbour votes with exp(cosine / tau), here relative to the nearest one's (the same ranking, no overflow).
    A class among whose rows there is no neighbour scores -inf. Where several rows are equally near at place k, which
    of them votes is left to `torch.topk`.
    """
    train, test = normalise(train), normalise(test)
    most = max(neighbours)
    parts: dict[int, list[Tensor]] = {k: [] for k in neighbours}
    size = max(1, CHUNK // len(train))
    for start in range(0, len(test), size):
        rows = test[start : start + size]
        similarity = rows @ train.T  # n m
        if leave_one_out:
            own = torch.arange(len(rows), device=rows.device)
            similarity[own, start + own] = -torch.inf
        cosine, nearest = similarity.topk(most, dim=1)  # n k, nearest first
        weight = ((cosine - cosine[:, :1]) / tau).exp()
        labels = train_labels[nearest]
        for k in neighbours:
            scores = weight.new_zeros(len(rows), num_classes)
            scores.scatter_add_(1, labels[:, :k], weight[:, :k])
            voted = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, labels[:, :k], True)
            parts[k].append(scores.masked_fill(~voted, -torch.inf))
    return {k: torch.cat(scores) for k, scores in parts.items()}


def normalise(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows of unit length, fp32; a row of zeros stays one."""
    return torch.nn.functional.normalize(features.float(), dim=1)
