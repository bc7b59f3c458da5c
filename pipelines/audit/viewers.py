"""Frozen networks that the pairs are looked at through."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from viewkit.pipelines.models.encoder import load_encoder
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.views.policy import Colour
from viewkit.pipelines.views.render import render
from viewkit.pipelines.vs2fi.candidates import colour
from viewkit.shards.dataset import Dataset

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Viewer:
    """embed: normalised views [n 3 side side] on its device -> numbers [n d]."""

    embed: Callable[[Tensor], Tensor]
    side_px: int
    mean: Colour
    std: Colour

    @torch.inference_mode()
    def look(
        self,
        images: Sequence[Tensor],
        recipes: Float32[np.ndarray, "m p"],
        index: Int64[np.ndarray, " m"],
    ) -> Float[np.ndarray, "m d"]:
        """Numbers of the views of these recipes, rendered at this viewer's own side and normalisation; fp32."""
        views = render(images, recipes, index, side_px=self.side_px, mean=self.mean, std=self.std)
        return self.embed(views).float().cpu().numpy()


def load_viewer(dataset: Dataset, name: str, device: str) -> Viewer:
    """Backbone features of ``estimator``, or of the encoder of ``runs/NAME``."""
    if name == "estimator":
        estimator = Estimator.load(dataset.artifact(name), device)
        return Viewer(estimator.features, estimator.side_px, colour(estimator.mean), colour(estimator.std))
    backbone, facts = load_encoder(dataset.artifact(name))
    return Viewer(backbone.to(device), facts.side_px, facts.mean, facts.std)
