"""Image encoders by name, all behind the face of `encoder`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.generate.clip_encoders import (
    FOLDER_ENCODERS,
    ClipFolderEncoder,
    IpAdapterEncoder,
    KandinskyEncoder,
    UnclipEncoder,
    encoder_folder,
)
from viewkit.pipelines.generate.config import Precision
from viewkit.pipelines.generate.encoder import DTYPES, Encoder, probe, three, trunk_outputs
from viewkit.pipelines.generate.library_encoders import OpenClipEncoder, TimmEncoder
from viewkit.pipelines.generate.pipeline_folder import sha256_of
from viewkit.pipelines.generate.preprocess import Preprocess
from viewkit.pipelines.models.estimator import Estimator
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError

__all__ = [
    "DTYPES",
    "ClipFolderEncoder",
    "Encoder",
    "EstimatorEncoder",
    "IpAdapterEncoder",
    "KandinskyEncoder",
    "OpenClipEncoder",
    "TimmEncoder",
    "UnclipEncoder",
    "create_encoder",
    "encoder_inputs",
    "needed",
]

OF_FILES = ("timm", "open_clip")
"""Libraries whose encoders may read their weights from a file."""


class EstimatorEncoder(Encoder):
    """The project's own estimator: tokens and features of its backbone. Needs no downloaded weights."""

    def __init__(self, dataset: Dataset, device: str) -> None:
        artifact = dataset.artifact("estimator")
        estimator = Estimator.load(artifact, device)
        self.digest = artifact.digest
        super().__init__(estimator.network.backbone.trunk, device)
        self.preprocess = Preprocess(estimator.side_px, estimator.side_px, three(estimator.mean), three(estimator.std))
        self.width, self.grid = probe(self, estimator.side_px)

    def forward(self, x: Float[Tensor, "n 3 s s"]) -> tuple[Float[Tensor, "n t k"], Float[Tensor, "n d"]]:
        return trunk_outputs(self.model, x)

    def fingerprint(self) -> Mapping[str, Any]:
        return {"encoder": "estimator", "digest": self.digest}


def create_encoder(
    name: str,
    dataset: Dataset,
    weights: Path | None,
    device: str,
    precision: Precision,
    file: Path | None = None,
) -> Encoder:
    """The encoder a config names. weights: the generator's folder, for the encoder in it. file: see `TimmEncoder`.

    Raises `ConfigError` for a name nobody knows, `DataError` when its weights are not there.
    """
    library, _, model = name.partition(":")
    if file is not None and (library not in OF_FILES or model.endswith("/random")):
        raise ConfigError(
            f"encoder is '{name}', which reads no file of weights; they go with timm:NAME or open_clip:MODEL/WEIGHTS"
        )
    if library == "timm":
        return TimmEncoder(model, device, file)
    if library == "open_clip":
        return OpenClipEncoder(model, device, file)
    if name == "estimator":
        return EstimatorEncoder(dataset, device)
    if name not in FOLDER_ENCODERS:
        raise ConfigError(
            f"encoder is '{name}'; it must be estimator, {', '.join(FOLDER_ENCODERS)}, timm: or open_clip:"
        )
    return FOLDER_ENCODERS[name](encoder_folder(name, needed(weights)), device, precision)


def encoder_inputs(name: str, weights: Path | None, file: Path | None) -> dict[str, str]:
    """SHA-256 of the files that an encoder reads outside the dataset, for the identity of what is made with it."""
    digests = encoder_folder(name, needed(weights)).digests() if name in FOLDER_ENCODERS else {}
    return dict(digests) if file is None else {**digests, "encoder_weights": sha256_of(file)}


def needed(weights: Path | None) -> Path:
    """The folder given with --weights; `ConfigError` when there is none."""
    if weights is None:
        raise ConfigError("generate: this generator needs its weights; add --weights FOLDER (docs/generators.md)")
    return weights
