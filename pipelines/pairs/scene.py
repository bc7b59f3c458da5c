"""The images of a batch on the device, and the recipes of their views: what any of them is rendered from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, UInt8
from torch import Tensor

from viewkit.pipelines.engine.transfer import images_to_device
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import ORIGINAL, SOURCE
from viewkit.pipelines.views.render.render import render


@dataclass(frozen=True)
class Scene:
    """images: all images of the batch, uint8, on the device; image_index: which of them each view is cropped from.

    sides_px: side of each of the v views (they differ in multi-crop). keys: of the rows.
    """

    images: Sequence[UInt8[Tensor, "_h _w 3"]]
    image_index: Int[np.ndarray, "n v"]
    recipes: Float32[np.ndarray, "n v p"]
    sides_px: tuple[int, ...]
    policy: Policy
    keys: tuple[str, ...] = ()

    def with_views(self, views: Int[np.ndarray, "n k"]) -> "Scene":
        """The scene with only the views `views[i]` of row i, in that order; view j must have one side in all rows."""
        index = np.take_along_axis(self.image_index, views, axis=1)
        recipes = np.take_along_axis(self.recipes, views[:, :, None], axis=1)
        sides = tuple(self.sides_px[view] for view in views[0])
        return replace(self, image_index=index, recipes=recipes, sides_px=sides)

    def render(self, side_px: int | None = None) -> tuple[Float[Tensor, "n 3 _s _s"], ...]:
        """View j of every row, normalised, at its own side, or all at `side_px`."""
        sides = self.sides_px if side_px is None else (side_px,) * len(self.sides_px)
        views: dict[int, Tensor] = {}
        for side in dict.fromkeys(sides):
            same = [j for j, own in enumerate(sides) if own == side]
            rendered = render(
                self.images,
                self.recipes[:, same].swapaxes(0, 1).reshape(-1, self.recipes.shape[2]),  # (v n) p
                torch.from_numpy(self.image_index[:, same].T.reshape(-1).copy()),
                side_px=side,
                mean=self.policy.mean,
                std=self.policy.std,
                interpolation=self.policy.interpolation,
            )
            views.update(zip(same, rendered.split(len(self.recipes)), strict=True))
        return tuple(views[j] for j in range(len(sides)))


def scene_of(
    samples: Sequence[Sample],
    recipes: Float32[np.ndarray, "n v p"],
    policy: Policy,
    device: str,
    sides_px: tuple[int, ...] | None = None,
) -> Scene:
    """Images on the device, generated ones after originals. sides_px: by default the policy's side for all views."""
    images = [sample.image for sample in samples]
    index: Int[np.ndarray, "n v"] = np.repeat(np.arange(len(samples))[:, None], recipes.shape[1], axis=1)
    place: dict[int, int] = {}
    for row, view in np.argwhere(recipes[:, :, SOURCE] > ORIGINAL):
        generated = samples[row].generated
        assert generated is not None, "a sampler planned a view of a generated image that does not exist"
        if row not in place:
            place[row] = len(images)
            images.append(generated)
        index[row, view] = place[row]
    sides = sides_px or (policy.side_px,) * recipes.shape[1]
    keys = tuple(sample.key for sample in samples)
    return Scene(images_to_device(images, device), index, recipes, sides, policy, keys)
