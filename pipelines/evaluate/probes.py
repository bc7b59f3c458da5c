"""Probes of features that are at hand: kNN, logistic regression, and linear classifiers by SGD."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewkit.pipelines.evaluate.accuracy import measured_and_predicted, over_seeds
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.linear import fit_linear_probe
from viewkit.pipelines.evaluate.sweep import cached_epochs, draw_weights, sweep_rates
from viewkit.pipelines.training.neighbours import vote
from viewkit.shards.errors import DataError
from viewkit.shards.spans import spanned

Streams = Callable[..., np.random.Generator]
"""`Run.generator`: names -> a generator that depends on them and the seed alone."""


@dataclass(frozen=True)
class FeatureProbes:
    """Features of centre crops, fp32 on the CPU, and their labels 0 ... c - 1, every class in both.

    held: rows of `train` that choose C and the learning rate. whose: names the features in errors. scorers: class
    scores of other features by what `measure` has fitted, by the names of its results (kNN and linear).
    Raises `DataError` when one of them is not finite.
    """

    train: Float[Tensor, "m d"]
    train_labels: Int[np.ndarray, " m"]
    test: Float[Tensor, "n d"]
    test_labels: Int[np.ndarray, " n"]
    held: Bool[np.ndarray, " m"]
    config: EvaluateConfig
    streams: Streams
    whose: str
    device: str = "cpu"
    scorers: dict[str, Callable[[Tensor], Float[np.ndarray, "n c"]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (bool(self.train.isfinite().all()) and bool(self.test.isfinite().all())):
            raise DataError(
                f"evaluate: features of {self.whose} are not finite: its training has diverged; train it again"
            )

    @property
    def num_classes(self) -> int:
        return int(self.train_labels.max()) + 1

    @spanned("probe")
    def measure(self, probe: str) -> list[dict[str, Any]]:
        """The results of `knn` (one for every k), `linear` or `sgd`, as eval.json has them; none for another probe."""
        if probe == "knn":
            return self.neighbours()
        if probe == "linear":
            return [self.logistic()]
        return [self.descended()] if probe == "sgd" else []

    def neighbours(self) -> list[dict[str, Any]]:
        """A k above m is cut to m, which `k_used` says."""
        used = {k: min(k, len(self.train)) for k in self.config.neighbours()}
        votes = self.votes(self.test, *used.values())
        for k, own in used.items():
            self.scorers[f"knn{k}"] = partial(self.vote_of, own)
        return [
            {"name": f"knn{k}", "k": k, "k_used": used[k], **self.accuracy(votes[used[k]].numpy())} for k in used
        ]  # fmt: skip

    def votes(self, features: Float[Tensor, "n d"], *neighbours: int) -> dict[int, Float[Tensor, "n c"]]:
        """Number of neighbours -> class scores."""
        return vote(
            self.train,
            torch.from_numpy(self.train_labels),
            features,
            neighbours=tuple(sorted(set(neighbours))),
            tau=self.config.tau,
            num_classes=self.num_classes,
        )

    def vote_of(self, neighbours: int, features: Float[Tensor, "n d"]) -> Float[np.ndarray, "n c"]:
        return np.asarray(self.votes(features, neighbours)[neighbours].numpy())

    def logistic(self) -> dict[str, Any]:
        """`strength`: the C chosen."""
        fit = fit_linear_probe(
            self.train.numpy(),
            self.train_labels,
            self.test.numpy(),
            held=self.held,
            max_iterations=self.config.max_iterations,
        )
        self.scorers["linear"] = lambda features: fit.classifier.scores(features.numpy())
        return {
            "name": "linear",
            "strength": fit.strength,
            "split_accuracy": fit.split_accuracy,
            "converged": fit.converged,
            **self.accuracy(fit.scores),
        }

    def descended(self) -> dict[str, Any]:
        """`rates`: the learning rates chosen, one a repetition."""
        train, test = self.train.to(self.device), self.test.to(self.device)
        labels = torch.from_numpy(self.train_labels).to(self.device)
        sweeps = []
        for seed in range(self.config.seeds):

            def order(epoch: int, seed: int = seed) -> np.random.Generator:
                return self.streams("sgd", seed, "order", epoch)

            first = draw_weights(self.num_classes, train.shape[1], self.streams("sgd", seed, "weights"))
            sweeps.append(
                sweep_rates(
                    cached_epochs(train, labels, self.config.batch_size, order),
                    train,
                    labels,
                    test,
                    rates=self.config.rates_tried(),
                    held=self.held,
                    epochs=self.config.epochs,
                    batch_size=self.config.batch_size,
                    first=first.to(self.device),
                )
            )
        return {
            "name": "sgd",
            "rates": [sweep.rate for sweep in sweeps],
            "split_accuracies": [sweep.split_accuracy for sweep in sweeps],
            **over_seeds([self.accuracy(sweep.scores) for sweep in sweeps]),
        }

    def accuracy(self, scores: Float[np.ndarray, "n c"]) -> dict[str, Any]:
        return measured_and_predicted(scores, self.test_labels)
