"""Hard view selection for multi-crop (DINO): two of G large views, l of L small ones (Ferreira et al., sec. 3.3)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.engine.seeds import stream
from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.hard_views.combinations import Combination, combination_at, count_combinations, sample_ranks
from viewkit.pipelines.hard_views.forward import forward_candidates
from viewkit.pipelines.hard_views.log import ViewLog
from viewkit.pipelines.hard_views.pairs import SELECTIONS, Rule, gather_views
from viewkit.pipelines.hard_views.preview import Preview
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.policy import Policy


@runtime_checkable
class ComparesCrops(Protocol):
    """A framework that gives the loss of every teacher's view against every student's, in the order of the views."""

    def crop_losses(self, outputs: Sequence[Outputs]) -> Float[Tensor, "n t s"]: ...


@dataclass(frozen=True)
class HardCrops:
    """Selects, from a batch of `num_large` large views (specifications 1, 2, 1, 2 ...) and small ones, each row's
    combination with the highest ("easy": lowest) loss: one large view of either specification, `num_chosen` small ones.

    A combination's loss is that of training, every teacher's view against every other view. comparisons: how many
    combinations are compared in a step, the same ones for all rows, sampled without replacement by (seed, stage, step);
    all of them where there are no more. preview: as in `HardPairs`.
    """

    num_large: int
    num_chosen: int
    comparisons: int
    seed: int
    stage: str
    rule: Rule = "hard"
    preview: Preview | None = None
    log: ViewLog | None = None

    def __call__(self, framework: Framework, batch: ViewBatch, stepper: Stepper) -> ViewBatch:
        """The batch with 2 + `num_chosen` views, the large ones first."""
        scene = batch.scene
        assert scene is not None and isinstance(framework, ComparesCrops)
        num_views = len(batch.views)
        outputs = forward_candidates(framework, batch.views, range(num_views), range(self.num_large), stepper).outputs
        with torch.no_grad(), stepper.autocast():
            crops = framework.crop_losses(outputs).float()
        combinations = self.sample(framework.step, num_views - self.num_large)
        losses = losses_of_combinations(crops, combinations)
        best = SELECTIONS[self.rule](losses)
        flat = np.array([[first, second, *small] for first, second, small in combinations], dtype=np.int64)
        views = to_device(flat, losses.device)[best]  # n k
        if self.log is not None and self.log.logs(framework.step):
            found = crops.cpu().numpy()
            self.log.write(framework.step, scene, views=views.cpu().numpy(), losses=found, iou=None)
        started = time.perf_counter()
        chosen = None if self.preview is None else scene.with_views(views.cpu().numpy())
        rendered = self._gather(batch.views, views) if chosen is None else chosen.render()
        render_s = batch.render_s + time.perf_counter() - started
        return replace(batch, views=rendered, scene=chosen, render_s=render_s)

    def _gather(self, views: Sequence[Tensor], selected: Int[Tensor, "n k"]) -> tuple[Tensor, ...]:
        large = gather_views(views[: self.num_large], selected[:, :2])
        if not self.num_chosen:
            return large
        return large + gather_views(views[self.num_large :], selected[:, 2:] - self.num_large)

    def sample(self, step: int, num_small: int) -> list[Combination]:
        """The combinations that are compared in a step, in ascending order, so that ties go to the earliest."""
        sizes = self.num_large, num_small, self.num_chosen
        generator = stream(self.seed, self.stage, "comparisons", step)
        ranks = sample_ranks(generator, count_combinations(*sizes), self.comparisons)
        return [combination_at(int(rank), *sizes) for rank in ranks]


def with_candidates(policy: Policy, *, num_large: int, num_small: int, large_specs: int) -> Policy:
    """The policy with more views than are trained on: `num_large` by its first `large_specs` specifications in turn,
    then `num_small` by the others.
    """
    total = len(policy.views)
    origin = [j % large_specs for j in range(num_large)]
    origin += [large_specs + j % (total - large_specs) for j in range(num_small)]
    return replace(policy, views=tuple(policy.views[old] for old in origin), num_views=len(origin))


def losses_of_combinations(crops: Float[Tensor, "n t s"], combinations: Sequence[Combination]) -> Float[Tensor, "n k"]:
    """Mean over the pairs of a teacher's and a student's view that are not the same view; ascending combinations."""
    num_large = crops.shape[1]
    found: list[Tensor] = []
    for first, second in dict.fromkeys(each[:2] for each in combinations):
        subsets = [small for *large, small in combinations if (first, second) == tuple(large)]
        uses = torch.zeros(len(subsets), crops.shape[2] - num_large, device=crops.device)  # k l
        if subsets[0]:
            places = to_device(np.array(subsets) - num_large, crops.device)
            uses.scatter_(1, places, 1.0)
        large = crops[:, first, second] + crops[:, second, first]
        small = (crops[:, first, num_large:] + crops[:, second, num_large:]) @ uses.T  # n k
        found.append((large[:, None] + small) / (2 + 2 * len(subsets[0])))
    return torch.cat(found, dim=1)
