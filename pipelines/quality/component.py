"""The artifact `quality_component`: the direction that tells foreground in the encoder's maps, and whose maps."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float64
from torch import Tensor

from viewkit.pipelines.models.checkpoint import load_tensors, save_tensors
from viewkit.shards.artifact import Artifact
from viewkit.shards.errors import RefusedError
from viewkit.shards.files import read_file, write_whole

TENSORS, FACTS, MASKS = "component.safetensors", "component.json", "masks.png"


@dataclass(frozen=True)
class QualityComponent:
    """direction: unit first component times its sign, so that large projections are foreground. encoder: fingerprint of
    the encoder it was fitted with; with another one it means nothing."""

    direction: Float64[Tensor, " k"]
    encoder: Mapping[str, Any]

    def check_encoder(self, fingerprint: Mapping[str, Any]) -> None:
        """`RefusedError` unless the encoder at hand is the one of the fit."""
        names = sorted({*fingerprint, *self.encoder})
        differing = [name for name in names if fingerprint.get(name) != self.encoder.get(name)]
        if differing:
            raise RefusedError(
                f"quality: the component was fitted with another encoder (differing: {', '.join(differing)}); delete "
                "the folder 'quality_component' of the dataset and rerun 'viewkit quality'"
            )

    def write(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """facts: numbers for people, kept beside the encoder's fingerprint."""
        save_tensors(folder / TENSORS, {"direction": self.direction})
        content = json.dumps({"encoder": dict(self.encoder), **facts}, indent=1, sort_keys=True, allow_nan=False)
        write_whole(folder / FACTS, f"{content}\n".encode())

    @staticmethod
    def read(artifact: Artifact) -> "QualityComponent":
        tensors, _ = load_tensors(artifact.path(TENSORS))
        return QualityComponent(tensors["direction"], json.loads(read_file(artifact.path(FACTS)))["encoder"])
