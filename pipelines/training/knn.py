"""The weighted kNN probe: do neighbours in feature space share a class? (Wu et al. 2018, sec. 3.4)."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.encoders.encoder import FeatureExtractor
from viewkit.pipelines.encoders.labelled_features import labelled_features
from viewkit.pipelines.labels import Labels, labelled_rows
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.neighbours import vote
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.column import Column
from viewkit.shards.errors import ConfigError
from viewkit.shards.spans import spanned

NEIGHBOURS = 20
FEWEST = 2
"""Labelled images of which one can vote for the other."""


@dataclass(frozen=True)
class KnnProbe:
    """Top-1 of the kNN probe on the labelled training images, each one left out of its own vote, by the backbone as it
    is. Of more than `PROBE_ROWS` of them so many take part.

    labels: attached ones, for images that have none of their own.
    """

    images: Column
    reader: SampleReader
    policy: Policy
    device: str
    labels: Labels = field(default_factory=Labels)

    @cached_property
    def labelled(self) -> list[str]:
        """Keys of the images that have a label."""
        keys = self.images.keys()
        return [keys[place] for place in np.flatnonzero(labelled_rows(self.images, self.labels)).tolist()]

    def check(self, option: str, value: int) -> None:
        """`ConfigError` naming the option where fewer than two images have a label."""
        if len(self.labelled) < FEWEST:
            raise ConfigError(
                f"{option} is {value} and {len(self.labelled) or 'none'} of the {self.images.num_rows} images has a "
                "label; leave the option out, or attach some with 'viewkit label'"
            )

    @torch.inference_mode()
    @spanned("probe")
    def __call__(self, framework: Framework) -> dict[str, float]:
        """{knn_top1: share}, or nothing where fewer than two images have a label. Leaves the framework in evaluation
        mode."""
        if len(self.labelled) < FEWEST:
            return {}
        framework.eval()
        policy = self.policy
        encoder = FeatureExtractor(framework.kept, policy.side_px, policy.mean, policy.std, self.device)
        features, labels = labelled_features(encoder, self.images, self.labelled, self.reader, self.labels)
        predicted = knn_predict(features, labels, features, k=NEIGHBOURS, leave_one_out=True)
        return {"knn_top1": top1(predicted, labels)}


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
