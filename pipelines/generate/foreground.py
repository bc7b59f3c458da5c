"""The foreground artifact: what the fit found, and how to read the foreground share of an image with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from viewkit.pipelines.foreground.threshold import count_foreground
from viewkit.pipelines.models.checkpoint import load_tensors, save_tensors
from viewkit.shards.artifact import Artifact
from viewkit.shards.errors import DataError
from viewkit.shards.files import read_file, write_whole

TENSORS, FACTS, INDEX, MASKS = "foreground.safetensors", "foreground.json", "index.npy", "masks.png"


@dataclass(frozen=True)
class Foreground:
    """direction: the component times its sign, so that large scores are foreground. threshold: foreground is above it.

    mean, std: of the embeddings, which generators without their own statistics standardise by. encoder: fingerprint of
    the encoder it was fitted with; with another one the scores mean nothing.
    """

    direction: Float64[Tensor, " k"]
    threshold: float
    mean: Float[Tensor, " d"]
    std: Float[Tensor, " d"]
    encoder: Mapping[str, Any]

    def counts(self, tokens: Float[Tensor, "n t k"]) -> Int64[np.ndarray, " n"]:
        """Foreground tokens of each image."""
        return count_foreground(project(tokens, self.direction), self.threshold)

    def check_encoder(self, fingerprint: Mapping[str, Any]) -> None:
        """`DataError` unless the encoder at hand is the one of the fit."""
        if dict(fingerprint) != dict(self.encoder):
            differing = sorted(k for k in {*fingerprint, *self.encoder} if fingerprint.get(k) != self.encoder.get(k))
            raise DataError(
                f"foreground: fitted with another encoder (differing: {', '.join(differing)}); delete the folder "
                "'foreground' of the dataset and rerun 'viewkit generate'"
            )

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """facts: numbers for people, kept beside the encoder's fingerprint."""
        threshold = torch.tensor([self.threshold], dtype=torch.float64)
        tensors = {"direction": self.direction, "threshold": threshold, "mean": self.mean, "std": self.std}
        save_tensors(folder / TENSORS, tensors)
        content = json.dumps({"encoder": dict(self.encoder), **facts}, indent=1, sort_keys=True, allow_nan=False)
        write_whole(folder / FACTS, f"{content}\n".encode())

    @staticmethod
    def read(artifact: Artifact) -> "Foreground":
        tensors, _ = load_tensors(artifact.path(TENSORS))
        facts = json.loads(read_file(artifact.path(FACTS)))
        return Foreground(
            direction=tensors["direction"],
            threshold=tensors["threshold"].item(),
            mean=tensors["mean"],
            std=tensors["std"],
            encoder=facts["encoder"],
        )


def project(tokens: Float[Tensor, "n t k"], direction: Float64[Tensor, " k"]) -> Float64[np.ndarray, "n t"]:
    """Scores of tokens, not centred: the threshold holds the offset. In fp64: the order of sums hardly counts."""
    scores: np.ndarray = (tokens.double() @ direction.to(tokens.device)).cpu().numpy()
    return scores
