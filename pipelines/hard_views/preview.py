"""Cheaper candidates: selection sees smaller views, or views of equal colours, instead of those trained on."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from viewkit.pipelines.pairs.scene import Scene
from viewkit.pipelines.views.recipe import FIELDS, column

GEOMETRY = ("version", "spec", "source", "side", "top", "left", "height", "width", "flip")
APPEARANCE = [column(name) for name in FIELDS if name not in GEOMETRY]
"""Fields that say what happens to colours after crop and flip: jitter, grey, blur, solarize, RandAugment."""


def static_colours(recipes: Float32[np.ndarray, "n v p"]) -> Float32[np.ndarray, "n v p"]:
    """Every view of a row with the colours of its first (Hard View Selection, sec. 5.1); crop and flip stay.

    A smaller view gets a smaller sigma.
    """
    shared = recipes.copy()
    shared[:, :, APPEARANCE] = recipes[:, :1, APPEARANCE]
    shared[:, :, column("sigma")] *= recipes[:, :, column("side")] / recipes[:, :1, column("side")]
    return shared


@dataclass(frozen=True)
class Preview:
    """side_px: of all views, None for their own sides; static_colour: as in `static_colours`."""

    side_px: int | None = None
    static_colour: bool = False

    def __call__(self, scene: Scene) -> Scene:
        """The scene that selection sees; the given one stays as it is."""
        sides = scene.sides_px if self.side_px is None else (self.side_px,) * len(scene.sides_px)
        recipes = static_colours(scene.recipes) if self.static_colour else scene.recipes
        return replace(scene, recipes=recipes, sides_px=sides)
