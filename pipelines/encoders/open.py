"""Frozen encoders by name: one way to open them, one set of errors, and the digests of the files they read."""

from collections.abc import Callable
from pathlib import Path

from viewkit.pipelines.encoders.encoder import Encoder, EncoderRequest
from viewkit.pipelines.encoders.names import Precision, encoder_card
from viewkit.pipelines.weights.cards import load
from viewkit.pipelines.weights.folder import require_folder, sha256_of
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError
from viewkit.shards.spans import spanned


@spanned("load")
def open_encoder(
    name: str,
    dataset: Dataset,
    *,
    weights: Path | None = None,
    encoder_weights: Path | None = None,
    device: str = "cpu",
    precision: Precision = "fp32",
    side_px: int | None = None,
) -> Encoder:
    """The encoder that `--encoder` names, on the device.

    weights: ``--weights``, a generator's folder, for the encoder in it. encoder_weights: ``--encoder-weights``, a
    safetensors file instead of the published weights. side_px: of its views, None for its own.
    Raises `ConfigError` for a name nobody knows or options that do not fit it, `DataError` when weights are not there.
    """
    check_files(name, weights, encoder_weights)
    create: Callable[[EncoderRequest], Encoder] = load(encoder_card(name).opened_by)
    encoder = create(EncoderRequest(name, dataset, weights, encoder_weights, device, precision, side_px))
    if side_px not in (None, encoder.side_px):
        raise ConfigError(f"side_px is {side_px}, and encoder '{name}' takes {encoder.side_px}; leave it out")
    _ = encoder.grid  # says now what would else fail at the first image
    return encoder


def encoder_inputs(name: str, weights: Path | None, encoder_weights: Path | None) -> dict[str, str]:
    """SHA-256 of the files that an encoder reads outside the dataset, for the identity of what is made with it."""
    check_files(name, weights, encoder_weights)
    card = encoder_card(name)
    in_folder = card.weights == "folder"
    digests = load(card.opened_by).digests(require_folder(weights, f"encoder '{name}'")) if in_folder else {}
    return digests if encoder_weights is None else {**digests, "encoder_weights": sha256_of(encoder_weights)}


def check_files(name: str, weights: Path | None, encoder_weights: Path | None) -> None:
    """`ConfigError` unless the encoder is given the files it needs, and none that it does not read."""
    card = encoder_card(name)
    if card.weights == "folder":
        require_folder(weights, f"encoder '{name}'")
    if encoder_weights is not None and (card.weights != "published" or name.endswith("/random")):
        raise ConfigError(
            f"encoder is '{name}', which reads no file of weights; --encoder-weights goes with timm:NAME or "
            "open_clip:MODEL/TAG"
        )


def refuse_unused_folder(name: str, weights: Path | None) -> None:
    """`ConfigError` for a ``--weights`` that nothing reads, in commands that make no views."""
    if weights is not None and encoder_card(name).weights != "folder":
        raise ConfigError(
            f"--weights is {weights}, a generator's folder, and encoder '{name}' reads none; a safetensors file with "
            "an encoder's weights goes with --encoder-weights"
        )
