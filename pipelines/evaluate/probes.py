"""All probes of one kind of features: what stands in one block of eval.json."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.evaluate.accuracy import measure_accuracy
from viewkit.pipelines.evaluate.config import EvaluateConfig
from viewkit.pipelines.evaluate.linear import fit_linear_probe, sample_split
from viewkit.pipelines.training.neighbours import vote
from viewkit.shards.errors import DataError


def run_probes(
    train: Float[Tensor, "m d"],
    train_labels: Int[np.ndarray, " m"],
    test: Float[Tensor, "n d"],
    test_labels: Int[np.ndarray, " n"],
    *,
    config: EvaluateConfig,
    rng: np.random.Generator,
    whose: str,
) -> list[dict[str, Any]]:
    """Accuracies of the kNN probes and of the linear one, each with what it used.

    Labels: 0 ... c - 1, every class in both. rng draws the split that chooses the linear probe's strength. A k above m
    is cut to m, which `k_used` says. Raises DataError, naming `whose`, when a feature is not finite.
    """
    if not (bool(train.isfinite().all()) and bool(test.isfinite().all())):
        raise DataError(f"evaluate: features of {whose} are not finite: its training has diverged; train it again")
    num_classes = int(train_labels.max()) + 1
    used = {k: min(k, len(train)) for k in config.neighbours()}
    votes = vote(
        train,
        torch.from_numpy(train_labels),
        test,
        neighbours=tuple(sorted(set(used.values()))),
        tau=config.tau,
        num_classes=num_classes,
    )
    results: list[dict[str, Any]] = [
        {"name": f"knn{k}", "k": k, "k_used": used[k], **measure_accuracy(votes[used[k]].numpy(), test_labels)}
        for k in used
    ]
    if config.linear:
        held = sample_split(train_labels, config.split_share, rng)
        probe = fit_linear_probe(
            train.numpy(), train_labels, test.numpy(), held=held, max_iterations=config.max_iterations
        )
        results.append(
            {
                "name": "linear",
                "strength": probe.strength,
                "split_accuracy": probe.split_accuracy,
                "converged": probe.converged,
                **measure_accuracy(probe.scores, test_labels),
            }
        )
    return results
