"""The artifact of a foreground fit: what it found, and how to read the foreground share of an image with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from viewkit.pipelines.foreground.share import count_foreground
from viewkit.pipelines.models.checkpoint import load_tensors, save_tensors
from viewkit.shards.artifact import Artifact
from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.files import read_file, write_atomic

TENSORS, FACTS, INDEX, MASKS = "foreground.safetensors", "foreground.json", "index.npy", "masks.png"


class Statistics(NamedTuple):
    """Mean and standard deviation of each feature, over images."""

    mean: Float[Tensor, " d"]
    std: Float[Tensor, " d"]


NEITHER = (
    "where neither column of that sheet shows the objects bright, this encoder does not tell them: train it longer, "
    "name another --encoder, or take --strategy constant or random, which ask for no foreground"
)


@dataclass(frozen=True)
class Foreground:
    """direction: the component times its sign, so that large scores are foreground. threshold: foreground is above it.

    encoder: fingerprint of the encoder it was fitted with; with another one the scores mean nothing. statistics: of
    the embeddings of whole images, which generators without their own standardise by; None for a fit of stored views.
    opposite: the threshold under the other sign. signs: of a fit of whole images, the sign that each way of asking
    gives, or why it gives none.
    folder, command: where it lies in the dataset and what makes it again, for messages.
    """

    direction: Float64[Tensor, " k"]
    threshold: float
    encoder: Mapping[str, Any]
    statistics: Statistics | None = None
    opposite: float | None = None
    signs: Mapping[str, str] = field(default_factory=dict)
    folder: str = "foreground"
    command: str = "viewkit generate"

    @property
    def mean(self) -> Float[Tensor, " d"]:
        assert self.statistics is not None  # `generate` reads a fit of images
        return self.statistics.mean

    @property
    def std(self) -> Float[Tensor, " d"]:
        assert self.statistics is not None
        return self.statistics.std

    def counts(self, tokens: Float[Tensor, "n t k"]) -> Int64[np.ndarray, " n"]:
        """Foreground tokens of each image."""
        return count_foreground(project(tokens, self.direction), self.threshold)

    def with_sign(self, asked: str) -> "Foreground":
        """The same fit with the sign that ``--sign`` asks for; `DataError` says why it gives none.

        Only of whole images: the component of a fit of views has the sign that the fit was asked for.
        """
        sign = asked if asked in ("+", "-") else self.signs[asked]
        if sign not in ("+", "-"):
            raise DataError(f"{sign}; {NEITHER}")
        if sign == self.stored_sign:
            return self
        assert self.opposite is not None
        return replace(self, direction=-self.direction, threshold=self.opposite, opposite=self.threshold)

    @property
    def stored_sign(self) -> str:
        """The sign of `direction` along the canonical component, as the file has it."""
        return self.signs["auto"] if self.signs.get("auto") in ("+", "-") else "+"

    def check_encoder(self, fingerprint: Mapping[str, Any]) -> None:
        """`RefusedError` unless the encoder at hand is the one of the fit."""
        if dict(fingerprint) != dict(self.encoder):
            differing = sorted(k for k in {*fingerprint, *self.encoder} if fingerprint.get(k) != self.encoder.get(k))
            raise RefusedError(
                f"foreground: fitted with another encoder (differing: {', '.join(differing)}); delete the folder "
                f"'{self.folder}' of the dataset and rerun '{self.command}'"
            )

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """facts: numbers for people, kept beside the encoder's fingerprint."""
        threshold = torch.tensor([self.threshold], dtype=torch.float64)
        tensors = {"direction": self.direction, "threshold": threshold}
        if self.opposite is not None:
            tensors["opposite"] = torch.tensor([self.opposite], dtype=torch.float64)
        if self.statistics is not None:
            tensors |= {"mean": self.statistics.mean, "std": self.statistics.std}
        save_tensors(folder / TENSORS, tensors)
        signs = {"signs": dict(self.signs)} if self.signs else {}
        content = json.dumps(
            {"encoder": dict(self.encoder), **signs, **facts}, indent=1, sort_keys=True, allow_nan=False
        )
        write_atomic(folder / FACTS, f"{content}\n".encode())

    @staticmethod
    def read(artifact: Artifact, command: str = "viewkit generate") -> "Foreground":
        tensors, _ = load_tensors(artifact.path(TENSORS))
        facts = json.loads(read_file(artifact.path(FACTS)))
        return Foreground(
            direction=tensors["direction"],
            threshold=tensors["threshold"].item(),
            encoder=facts["encoder"],
            statistics=Statistics(tensors["mean"], tensors["std"]) if "mean" in tensors else None,
            opposite=tensors["opposite"].item() if "opposite" in tensors else None,
            signs=facts.get("signs", {}),
            folder=artifact.name,
            command=command,
        )


def project(tokens: Float[Tensor, "n t k"], direction: Float64[Tensor, " k"]) -> Float64[np.ndarray, "n t"]:
    """Scores of tokens, not centred: the threshold holds the offset. In fp64: the order of sums hardly counts."""
    scores: np.ndarray = (tokens.double() @ direction.to(tokens.device)).cpu().numpy()
    return scores
