"""Where the loop's batches come from: rows from the loader, recipes from a chooser, views rendered on the device."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, UInt8
from torch import Tensor

from viewkit.pipelines.seeds import row_ids
from viewkit.pipelines.training.framework import Encoded
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.training.scene import Scene, scene_of
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import column
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.loader import Loader

SOURCE = column("source")
Sides = Literal["one", "both"]
"""Which views of a row with generated ones are cut from the generated image."""


@dataclass(frozen=True)
class Choice:
    """The views of every row of a batch; the field `source` says which are cut from the generated image.

    counts: numbers of rows worth reporting, e.g. `missing_views`. sides_px: of every view, where not the policy's.
    quality: q of every row's pair (GenView, eq. 12), NaN where it is unknown; None where nobody asked.
    """

    recipes: Float32[np.ndarray, "n v p"]
    counts: Mapping[str, int] = field(default_factory=dict)
    sides_px: tuple[int, ...] | None = None
    quality: Float32[np.ndarray, " n"] | None = None


Chooser = Callable[[Sequence[Sample], int], Choice]
"""Decides which views every row gives in an epoch. Draws by (seed, key, epoch) alone, so order does not count."""


@dataclass(frozen=True)
class ViewBatch:
    """Rendered views on the device, and the host's seconds spent waiting for rows and rendering.

    views: view j of every row, normalised, [n 3 s s] each; the sides s may differ between views (multi-crop).
    weights: one a row, they sum to n; None: all count the same. scene: from which other views can be rendered.
    quality: q of every row's pair, NaN where unknown, of which `quality_weights` makes weights.
    targets: what the target network's backbone gives of the views, where it is known already.
    """

    views: tuple[Float[Tensor, "n 3 _s _s"], ...]
    weights: Float[Tensor, " n"] | None
    counts: Mapping[str, int]
    wait_s: float
    render_s: float
    scene: Scene | None = None
    quality: Float32[Tensor, " n"] | None = None
    targets: tuple[Encoded | None, ...] | None = None

    @property
    def views1(self) -> Float[Tensor, "n 3 s s"]:
        """The first view of every row."""
        return self.views[0]

    @property
    def views2(self) -> Float[Tensor, "n 3 s s"]:
        """The second view of every row."""
        return self.views[1]


class RandomViews:
    """Views drawn afresh in every epoch, view j by the law j mod the number of laws of the policy.

    alpha: probability that half of a row's views (at least one; any of them) are cut from the generated image, or, with
        generated "both", that all of them are; the same rows with either.
    by_side: views 0, 2, 4 ... come first and then 1, 3, 5 ..., so that the first half follows the first law of two.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int,
        stage: str,
        num_views: int,
        alpha: float = 0.0,
        generated: Sides = "one",
        by_side: bool = False,
    ) -> None:
        self.policy, self.seed, self.stage, self.alpha, self.generated = policy, seed, stage, alpha, generated
        views = range(num_views)
        self.order = [*views[::2], *views[1::2]] if by_side else [*views]
        self.sides_px = tuple(policy.side_of(view % len(policy.views)) for view in self.order)

    def __call__(self, samples: Sequence[Sample], epoch: int) -> Choice:
        others = [sample.image if sample.generated is None else sample.generated for sample in samples]
        recipes = self.draw(samples, epoch, sizes_of([sample.image for sample in samples]), sizes_of(others))
        if self.generated == "both" and self.alpha:
            drawn = (recipes[:, :, SOURCE] > 0).any(axis=1)
            recipes[drawn] = self.draw(samples, epoch, sizes_of(others), sizes_of(others))[drawn]
            recipes[drawn, :, SOURCE] = 1
        missing = without_missing(recipes, samples)
        return Choice(recipes[:, self.order], {"missing_views": missing} if self.alpha else {}, self.sides_px)

    def draw(
        self,
        samples: Sequence[Sample],
        epoch: int,
        sizes: Int[np.ndarray, "n 2"],
        generated_sizes: Int[np.ndarray, "n 2"],
    ) -> Float32[np.ndarray, "n v p"]:
        """Recipes with half of the views in `alpha` of the rows cut from the generated image; sizes in px."""
        return sample_recipes(
            self.policy,
            row_ids([sample.key for sample in samples]),
            sizes,
            seed=self.seed,
            stage=self.stage,
            round=epoch,
            num_views=len(self.order),
            pipelines="alternate",
            p_generated=self.alpha,
            generated_sizes=generated_sizes,
        )


class RandomPairs(RandomViews):
    """The plain pair: view 1 by the policy's first law, view 2 by its second.

    alpha: probability that exactly one of the two, either one, is cut from the generated image (GenView, sec. 3.1), or
        both with generated "both". With alpha 0 both are cut from the original.
    """

    def __init__(self, policy: Policy, *, seed: int, stage: str, alpha: float = 0.0, generated: Sides = "one") -> None:
        super().__init__(policy, seed=seed, stage=stage, num_views=2, alpha=alpha, generated=generated)


def sizes_of(images: Sequence[UInt8[Tensor, "_h _w 3"]]) -> Int[np.ndarray, "n 2"]:
    """Heights and widths in px."""
    return np.array([image.shape[:2] for image in images], dtype=np.int64).reshape(len(images), 2)


def without_missing(recipes: Float32[np.ndarray, "n v p"], samples: Sequence[Sample]) -> int:
    """Turn views of generated images that do not exist into views of the originals, in place; return their number."""
    lacking = np.array([sample.generated is None for sample in samples])
    missing = lacking[:, None] & (recipes[:, :, SOURCE] > 0)
    recipes[missing, SOURCE] = 0
    return int(missing.sum())


class PairSource:
    """Batches of rendered views, epoch by epoch; the same ones whenever and from wherever an epoch is started.

    preview: the views are rendered of what it makes of the scene (smaller, say), the batch keeps the scene itself.
    turns: whether several generated views of an image are taken in turn, epoch by epoch.
    """

    def __init__(
        self,
        loader: Loader[Sample],
        choose: Chooser,
        policy: Policy,
        device: str,
        preview: Callable[[Scene], Scene] | None = None,
        *,
        turns: bool = False,
    ) -> None:
        self.loader, self.choose, self.policy, self.device, self.preview = loader, choose, policy, device, preview
        self.turns = turns

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[ViewBatch]:
        """Batches of `epoch` from `start_step` on."""
        reader: Callable[..., Sample] = self.loader.transform
        batches = self.loader.epoch(epoch, start_step, transform=partial(reader, epoch=epoch) if self.turns else reader)
        while True:
            asked = time.perf_counter()
            samples = next(batches, None)
            if samples is None:
                return
            got = time.perf_counter()
            choice = self.choose(samples, epoch)
            scene = scene_of(samples, choice.recipes, self.policy, self.device, choice.sides_px)
            views = (scene if self.preview is None else self.preview(scene)).render()
            rendered = time.perf_counter()
            quality = None if choice.quality is None else torch.from_numpy(choice.quality).to(self.device)
            yield ViewBatch(views, None, choice.counts, got - asked, rendered - got, scene=scene, quality=quality)
