"""Where the loop's batches come from: rows from the loader, recipes from a chooser, views rendered on the device."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, UInt8
from torch import Tensor

from viewkit.pipelines.seeds import row_ids
from viewkit.pipelines.training.samples import Sample
from viewkit.pipelines.views.policy import Policy
from viewkit.pipelines.views.recipe import column
from viewkit.pipelines.views.render import render
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.loader import Loader

SOURCE = column("source")


@dataclass(frozen=True)
class Choice:
    """The two views of every row of a batch; the field `source` says which are cut from the generated image.

    counts: numbers of rows worth reporting, e.g. `missing_views`.
    """

    recipes: Float32[np.ndarray, "n 2 p"]
    counts: Mapping[str, int] = field(default_factory=dict)


Chooser = Callable[[Sequence[Sample], int], Choice]
"""Decides which pair every row gives in an epoch. Draws by (seed, key, epoch) alone, so order does not count."""


@dataclass(frozen=True)
class PairBatch:
    """Rendered pairs on the device, and the host's seconds spent waiting for rows and rendering."""

    views1: Float[Tensor, "n 3 s s"]
    views2: Float[Tensor, "n 3 s s"]
    weights: Float[Tensor, " n"] | None
    counts: Mapping[str, int]
    wait_s: float
    render_s: float


class RandomPairs:
    """The plain pair: view 1 by the policy's first law, view 2 by its second, fresh in every epoch.

    alpha: probability that exactly one of the two, either one, is cut from the generated image (GenView, sec. 3.1).
    """

    def __init__(self, policy: Policy, *, seed: int, stage: str, alpha: float = 0.0) -> None:
        self.policy, self.seed, self.stage, self.alpha = policy, seed, stage, alpha

    def __call__(self, samples: Sequence[Sample], epoch: int) -> Choice:
        others = [sample.image if sample.generated is None else sample.generated for sample in samples]
        recipes = sample_recipes(
            self.policy,
            row_ids([sample.key for sample in samples]),
            sizes_of([sample.image for sample in samples]),
            seed=self.seed,
            stage=self.stage,
            round=epoch,
            num_views=2,
            pipelines="alternate",
            p_generated=self.alpha,
            generated_sizes=sizes_of(others),
        )
        missing = without_missing(recipes, samples)
        return Choice(recipes, {"missing_views": missing} if self.alpha else {})


def sizes_of(images: Sequence[UInt8[Tensor, "_h _w 3"]]) -> Int[np.ndarray, "n 2"]:
    """Heights and widths in px."""
    return np.array([image.shape[:2] for image in images], dtype=np.int64).reshape(len(images), 2)


def without_missing(recipes: Float32[np.ndarray, "n 2 p"], samples: Sequence[Sample]) -> int:
    """Turn views of generated images that do not exist into views of the originals, in place; return their number."""
    lacking = np.array([sample.generated is None for sample in samples])
    missing = lacking[:, None] & (recipes[:, :, SOURCE] > 0)
    recipes[missing, SOURCE] = 0
    return int(missing.sum())


class PairSource:
    """Batches of rendered pairs, epoch by epoch; the same ones whenever and from wherever an epoch is started."""

    def __init__(self, loader: Loader[Sample], choose: Chooser, policy: Policy, device: str) -> None:
        self.loader, self.choose, self.policy, self.device = loader, choose, policy, device

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[PairBatch]:
        """Batches of `epoch` from `start_step` on."""
        batches = self.loader.epoch(epoch, start_step)
        while True:
            asked = time.perf_counter()
            samples = next(batches, None)
            if samples is None:
                return
            got = time.perf_counter()
            choice = self.choose(samples, epoch)
            views1, views2 = self.render(samples, choice)
            yield PairBatch(views1, views2, None, choice.counts, wait_s=got - asked, render_s=time.perf_counter() - got)

    def render(self, samples: Sequence[Sample], choice: Choice) -> tuple[Tensor, Tensor]:
        """Both views of every row, [n 3 s s] each, normalised, on the device."""
        images = [sample.image for sample in samples]
        index: Int[np.ndarray, "n 2"] = np.repeat(np.arange(len(samples))[:, None], 2, axis=1)
        for row, view in np.argwhere(choice.recipes[:, :, SOURCE] > 0):
            generated = samples[row].generated
            assert generated is not None, "a chooser left a view of a generated image that is not there"
            index[row, view] = len(images)
            images.append(generated)
        views = render(
            [image.to(self.device) for image in images],
            choice.recipes.swapaxes(0, 1).reshape(2 * len(samples), -1),  # (2 n) p
            torch.from_numpy(index.T.reshape(-1).copy()),
            side_px=self.policy.side_px,
            mean=self.policy.mean,
            std=self.policy.std,
            interpolation=self.policy.interpolation,
        )
        return views[: len(samples)], views[len(samples) :]
