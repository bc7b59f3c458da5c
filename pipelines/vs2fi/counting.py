"""One group of N + 1 images to counts: pairs of one image, of two, and every anchor's sum over its N negatives."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from viewkit.pipelines.vs2fi.alignment import soft_mean
from viewkit.pipelines.vs2fi.histogram import CELLS, count_cells
from viewkit.shards.spans import spanned

ANCHORS_AT_ONCE = 256


@spanned("count")
def count_group(
    top: Float[Tensor, "n v d"], exits: Float[Tensor, "n v e d2"], tau: float
) -> tuple[Int64[Tensor, " cells"], Int64[Tensor, " cells"], Int64[Tensor, "e cells"]]:
    """Fine counts of a group of n = N + 1 different images, v views of each: positives, negatives, soft means by exit.

    As in the estimator's training, an anchor's negatives are one view of each of the other N images: view i of an
    image against view j != i of all others, for every ordered (i, j). Negative pairs are counted once for each
    unordered (i, j) and ordered pair of images. Memory grows with ANCHORS_AT_ONCE * n, not with n * n.
    """
    n, num_views, num_exits = exits.shape[:3]
    top, exits = top.float(), exits.float()
    positive, negative = (torch.zeros(CELLS, dtype=torch.int64, device=top.device) for _ in range(2))
    sums = torch.zeros((num_exits, CELLS), dtype=positive.dtype, device=positive.device)
    ordered = [(i, j) for i in range(num_views) for j in range(num_views) if i != j]
    for i, j in ordered:
        if i < j:
            positive += count_cells((top[:, i] * top[:, j]).sum(dim=-1))  # as `pair_similarities` sums
        for start in range(0, n, ANCHORS_AT_ONCE):
            rows = slice(start, min(start + ANCHORS_AT_ONCE, n))
            anchors = torch.arange(rows.start, rows.stop, device=top.device)
            other = anchors[:, None] != torch.arange(n, device=top.device)  # the same image is no negative
            if i < j:
                negative += count_cells((top[rows, i] @ top[:, j].T)[other])
            for exit_ in range(num_exits):
                similarity = exits[rows, i, exit_] @ exits[:, j, exit_].T
                sums[exit_] += count_cells(soft_mean(similarity, other, tau))
    return positive, negative, sums
