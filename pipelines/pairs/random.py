"""Random views: sampled from the policy, anew each epoch, from the original or the generated image."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int

from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pairs.generated import PAIR, GeneratedViews
from viewkit.pipelines.pairs.plan import ViewPlan, replace_missing
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import GENERATED, ORIGINAL, SOURCE
from viewkit.pipelines.views.sample import sample_recipes, sizes_px


class RandomViews:
    """Views sampled anew each epoch, view j from the policy's specification j mod their number.

    alpha: probability that half of a row's views (at least one; any of them) are cropped from the generated image, or,
        with generated "both", that all of them are; the same rows with either. With "extra" the views are the plain
        pair of originals and a third one, which is cropped from the generated image in these rows.
    by_side: views 0, 2, 4 ... come first and then 1, 3, 5 ..., so that with two specifications the first half of the
        views follows the first.
    boxes: gives the boxes of the rows' images that the centres of their crops lie in (`CropBoxes`).
    rounds: epochs of the whole training, over which the policy's ceiling on overlaps moves from its start to its end.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int,
        stage: str,
        num_views: int,
        alpha: float = 0.0,
        generated: GeneratedViews | Literal["extra"] = "one",
        by_side: bool = False,
        rounds: int = 1,
        boxes: Callable[[Sequence[Sample]], Float64[np.ndarray, "n 4"]] | None = None,
    ) -> None:
        self.policy, self.seed, self.stage, self.alpha, self.generated = policy, seed, stage, alpha, generated
        self.rounds, self.boxes = rounds, boxes
        views = range(num_views)
        self.order = [*views[::2], *views[1::2]] if by_side else [*views]
        self.sides_px = tuple(policy.side_of(view % len(policy.views)) for view in self.order)

    def __call__(self, samples: Sequence[Sample], epoch: int) -> ViewPlan:
        """A plan; `missing_views` counts views whose generated image does not exist."""
        originals = sizes_px([sample.image for sample in samples])
        others = sizes_px([sample.image if sample.generated is None else sample.generated for sample in samples])
        recipes = self._sample(samples, epoch, originals, others if self.generated == "one" else originals)
        if self.generated != "one" and self.alpha:
            chosen = (recipes[:, :, SOURCE] > ORIGINAL).any(axis=1)
            views = slice(PAIR if self.generated == "extra" else 0, None)
            recipes[:, :, SOURCE] = ORIGINAL
            recipes[chosen, views] = self._sample(samples, epoch, others, others)[chosen, views]
            recipes[chosen, views, SOURCE] = GENERATED
        missing = replace_missing(recipes, samples)
        return ViewPlan(recipes[:, self.order], {"missing_views": missing} if self.alpha else {}, self.sides_px)

    def _sample(
        self,
        samples: Sequence[Sample],
        epoch: int,
        sizes: Int[np.ndarray, "n 2"],
        generated_sizes: Int[np.ndarray, "n 2"],
    ) -> Float32[np.ndarray, "n v p"]:
        """Recipes, in `alpha` of the rows half of them for the generated image; sizes (height, width) in px."""
        return sample_recipes(
            self.policy,
            row_ids([sample.key for sample in samples]),
            sizes,
            seed=self.seed,
            stage=self.stage,
            round=epoch,
            rounds=self.rounds,
            num_views=len(self.order),
            pipelines="alternate",
            p_generated=self.alpha,
            generated_sizes=generated_sizes,
            foreground=None if self.boxes is None else self.boxes(samples),
        )


class RandomPairs(RandomViews):
    """The plain pair: view 1 from the policy's first specification, view 2 from its second.

    alpha: probability that exactly one of the two, either one, is cropped from the generated image (GenView, sec. 3.1),
        or both with generated "both". With alpha 0 both are cropped from the original.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int,
        stage: str,
        alpha: float = 0.0,
        generated: GeneratedViews = "one",
        rounds: int = 1,
    ) -> None:
        super().__init__(policy, seed=seed, stage=stage, num_views=2, alpha=alpha, generated=generated, rounds=rounds)
