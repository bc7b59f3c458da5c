"""What every probe answered for every test image, on disk: what tests over images need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from viewkit.pipelines.models.checkpoint import load_tensors, save_tensors
from viewkit.shards.document import digest
from viewkit.shards.errors import DataError

PREDICTIONS = "predictions.safetensors"
LABELS = "labels"
KEYS = "keys"
PREDICTED = "predicted"
"""Where a result of a probe holds its predictions, a list for every repetition, until they are written."""


@dataclass(frozen=True)
class Predictions:
    """labels: right classes. of: ``ENCODER/PROBE`` -> answers of every repetition. keys: digest of the images' keys.

    Images are in the order of their keys.
    """

    labels: Int[np.ndarray, " n"]
    of: Mapping[str, Int[np.ndarray, "r n"]]
    keys: str

    def correct(self, probe: str) -> Bool[np.ndarray, "r n"]:
        """Which images a probe of the run's encoder got right; `DataError` where it was not measured."""
        name = f"encoder/{probe}"
        if name not in self.of:
            raise DataError(f"there are no predictions of '{probe}'; there are {', '.join(sorted(self.of))}")
        return np.asarray(self.of[name] == self.labels)


def save_predictions(
    path: Path,
    probes: Mapping[str, Sequence[dict[str, Any]]],
    keys: Sequence[str],
    labels: Int[np.ndarray, " n"],
) -> None:
    """Write the predictions that the results hold, and take them out of the results.

    keys, labels: of the test images, in the order of the predictions.
    """
    order = np.argsort(np.asarray(keys), kind="stable")
    tensors = {LABELS: torch.from_numpy(labels[order].astype(np.int32))}
    for name, results in probes.items():
        for result in results:
            answers = np.asarray(result.pop(PREDICTED), dtype=np.int32)
            tensors[f"{name}/{result['name']}"] = torch.from_numpy(np.ascontiguousarray(answers[:, order]))
    save_tensors(path, tensors, {KEYS: digest(sorted(keys))})


def load_predictions(path: Path) -> Predictions:
    """`DataError` when the file is damaged."""
    tensors, state = load_tensors(path)
    found = {name: tensor.numpy() for name, tensor in tensors.items()}
    labels = found.pop(LABELS)
    return Predictions(labels, found, str(state[KEYS]))
