"""The weighted kNN probe: do neighbours in feature space share a class? (Wu et al. 2018, sec. 3.4)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.training.neighbours import vote


def knn_predict(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    *,
    k: int = 20,
    tau: float = 0.07,
    leave_one_out: bool = False,
) -> Int[Tensor, " n"]:
    """The class with the largest sum of exp(cos / tau) over the k nearest training rows by cosine.

    leave_one_out: `test` is `train`, and no row votes for itself. Of equal sums the smaller class wins.
    """
    k = min(k, len(train) - leave_one_out)
    num_classes = int(train_labels.max()) + 1
    scores = vote(
        train, train_labels, test, neighbours=(k,), tau=tau, num_classes=num_classes, leave_one_out=leave_one_out
    )
    return scores[k].argmax(dim=1)


def top1(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"], *, balanced: bool = False) -> float:
    """Share of right predictions; `balanced`: of every class, then averaged, so that large classes count no more."""
    right = (predicted == labels).double()
    if not balanced:
        return float(right.mean())
    return float(torch.stack([right[labels == label].mean() for label in labels.unique()]).mean())
