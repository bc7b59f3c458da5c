"""Weights by GenView's quality of pairs that are sampled anew each epoch: rated in the step, as `quality` rates stored
ones (sec. 3.4, eq. 10 to 14)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_card, encoder_reads
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder
from viewkit.pipelines.encoders.stored_views import RowViews
from viewkit.pipelines.foreground.artifact import Foreground
from viewkit.pipelines.foreground.rating import rate_views
from viewkit.pipelines.losses.row_weights import quality_weights
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.scene import Scene
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.step import Stepper
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError

RATER = "foreground_views"
"""The artifact with the component, and the name of the encoder that it belongs to."""

Compared = Callable[[int], Int64[np.ndarray, "k 2"]]
"""The pairs of a row's views that the loss compares, of so many views."""


@dataclass(frozen=True)
class Rater:
    """The frozen encoder of `foreground --of views`, and its component."""

    encoder: Encoder
    foreground: Foreground

    def rate(self, scene: Scene) -> Float32[np.ndarray, "n c"]:
        """q of every pair of the views of every row, in the order of `pair_index`. No gradient.

        In fp32 the bits are those that `viewkit quality` stores for the same recipes, on the same number of threads:
        the encoder renders the views itself, at its side and with its mean and std, and in batches of the same size.
        """
        rows = [_row(scene, place) for place in range(len(scene.recipes))]
        direction = self.foreground.direction.to(self.encoder.device)
        return np.concatenate(rate_views(rows, self.encoder, direction))


def open_rater(dataset: Dataset, device: str, encoder_weights: Path | None = None) -> Rater:
    """encoder_weights: safetensors file of its encoder, where that was given one. `RefusedError` where the encoder is
    not the one that the component was fitted with."""
    foreground = Foreground.read(dataset.artifact(RATER), "viewkit foreground DATASET --of views")
    says = foreground.encoder
    encoder = open_encoder(
        _encoder_name(dataset),
        dataset,
        encoder_weights=encoder_weights,
        device=device,
        precision=says["precision"],
        side_px=says["side_px"],
    )
    foreground.check_encoder(encoder.fingerprint())
    return Rater(encoder, foreground)


def rater_inputs(dataset: Dataset, stage: str, encoder_weights: Path | None) -> dict[str, str]:
    """Digests of what the rating encoder's weights come from."""
    name = _encoder_name(dataset)
    artifacts = {part: dataset.input_digest(part, for_stage=stage) for part in encoder_reads(name)}
    return {**artifacts, **encoder_inputs(name, None, encoder_weights)}


def _encoder_name(dataset: Dataset) -> str:
    """`ConfigError` for an encoder in a generator's folder, which a training is not given."""
    name = str(dataset.artifact(RATER).identity.config["encoder"])
    if encoder_card(name).weights == "folder":
        raise ConfigError(
            f"weights is 'quality' and {RATER} was fitted with encoder '{name}', which lies in a generator's folder; "
            "fit it with a timm: or open_clip: encoder, or rate stored pairs"
        )
    return name


def _row(scene: Scene, place: int) -> RowViews:
    """A row of the scene as `rate_views` takes it: one round of its views."""
    used = np.unique(scene.image_index[place])
    images = tuple(scene.images[image] for image in used)
    index = np.searchsorted(used, scene.image_index[place])[None]
    return RowViews(str(place), images, scene.recipes[place][None], index)


def compared_pairs(num_globals: int | None) -> Compared:
    """num_globals: large views of a multi-crop framework, each of which is compared with all other views; None: the
    first half of the views is compared with the second."""

    def of_sides(num_views: int) -> Int64[np.ndarray, "k 2"]:
        half = num_views // 2
        return np.array([(one, other) for one in range(half) for other in range(half, num_views)])

    def of_crops(num_views: int) -> Int64[np.ndarray, "k 2"]:
        assert num_globals is not None
        return pair_index(num_views)[pair_index(num_views)[:, 0] < num_globals]

    return of_sides if num_globals is None else of_crops


@dataclass(frozen=True)
class WeightFreshPairs:
    """Weights every row by q of its pair (eq. 13), or by the mean q of the pairs that the loss compares.

    A row without a generated view has a quality as any other: that of two views of its original.
    """

    rater: Rater
    compared: Compared

    def __call__(self, framework: Framework, batch: ViewBatch, stepper: Stepper) -> ViewBatch:
        quality = self.quality_of(batch)
        return replace(batch, quality=quality, weights=quality_weights(quality))

    def quality_of(self, batch: ViewBatch) -> Float32[Tensor, " n"]:
        """q of every row, on the batch's device."""
        assert batch.scene is not None, "views come with their scene"
        num_views = batch.scene.recipes.shape[1]
        place = {tuple(pair): number for number, pair in enumerate(pair_index(num_views).tolist())}
        numbers = [place[one, other] for one, other in self.compared(num_views).tolist()]
        q = self.rater.rate(batch.scene)[:, numbers].mean(axis=1, dtype=np.float64)
        return torch.from_numpy(q).to(batch.views[0].device, torch.float32)
