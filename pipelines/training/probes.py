"""The weighted kNN probe: do neighbours in feature space share a class? (Wu et al. 2018, sec. 3.4)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def knn_predict(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Float[Tensor, "n d"],
    *,
    k: int = 20,
    tau: float = 0.07,
    leave_one_out: bool = False,
    block: int = 1024,
) -> Int[Tensor, " n"]:
    """The class with the largest sum of exp(cos / tau) over the k nearest training rows by cosine.

    leave_one_out: `test` is `train`, and no row votes for itself. Of equal sums the smaller class wins.
    """
    train, test = F.normalize(train.float(), dim=1), F.normalize(test.float(), dim=1)
    num_classes = int(train_labels.max()) + 1
    k = min(k, len(train) - leave_one_out)
    predicted = []
    for start in range(0, len(test), block):
        cosine = test[start : start + block] @ train.T  # n m
        if leave_one_out:
            rows = torch.arange(len(cosine), device=cosine.device)
            cosine[rows, start + rows] = -torch.inf
        nearest, index = cosine.topk(k, dim=1)  # n k
        votes = cosine.new_zeros(len(cosine), num_classes)
        votes.scatter_add_(1, train_labels[index], ((nearest - 1) / tau).exp())  # exp(-1 / tau) cancels
        predicted.append(votes.argmax(dim=1))
    return torch.cat(predicted)


def top1(predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"], *, balanced: bool = False) -> float:
    """Share of right predictions; `balanced`: of every class, then averaged, so that large classes count no more."""
    right = (predicted == labels).double()
    if not balanced:
        return float(right.mean())
    return float(torch.stack([right[labels == label].mean() for label in labels.unique()]).mean())
