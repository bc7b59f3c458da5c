"""Hard view selection: of N views of a row, train on the pair with the worst loss (Ferreira et al., eq. 2, Alg. 1)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.training.candidates import Looked, look_at_pairs, looks_at_rows_alone, losses_of_pairs
from viewkit.pipelines.training.framework import Encoded, Framework
from viewkit.pipelines.training.pairs import ViewBatch
from viewkit.pipelines.training.preview import Preview
from viewkit.pipelines.training.scene import Scene
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.training.view_log import ViewLog
from viewkit.pipelines.views.boxes import overlap
from viewkit.pipelines.views.recipe import BOX
from viewkit.pipelines.views.select import SELECTIONS, Candidates, pairs_of

Rule = Literal["hard", "easy"]


@dataclass(frozen=True)
class HardViews:
    """Picks, from a batch whose views are candidates, each row's pair with the highest ("easy": lowest) loss.

    Ties go to the earlier pair of (0, 1), (0, 2) ...; the lower index becomes view 1. preview: what the batch was
    rendered of; then the chosen views are rendered anew from the scene, else their pixels are used as they are.
    agreement_every: in every so many steps selection is repeated on the views themselves, and equal choices counted.
    """

    rule: Rule = "hard"
    preview: Preview | None = None
    agreement_every: int | None = None
    log: ViewLog | None = None

    def __call__(self, framework: Framework, batch: ViewBatch, stepper: Stepper) -> ViewBatch:
        """The batch with two views, and with the target backbone's outputs where training need not repeat them.

        counts gains `lowest_iou`, rows whose pair overlaps least, and, where asked, `agreement_rows` and
        `agreement_same`.
        """
        scene = batch.scene
        assert scene is not None, "candidates come with their scene"
        looked = look_at_pairs(framework, batch.views, stepper)
        losses = losses_of_pairs(framework, looked.outputs, stepper).cpu().numpy()
        chosen = select_by_loss(self.rule, losses)
        pairs = pairs_of(len(batch.views))[chosen]  # n 2
        shared = overlaps(scene)
        counts = {**batch.counts, "lowest_iou": int((chosen == shared.argmin(axis=1)).sum())}
        if self.agreement_every and framework.step % self.agreement_every == 0:
            outputs = look_at_pairs(framework, scene.render(), stepper).outputs
            full = losses_of_pairs(framework, outputs, stepper).cpu().numpy()
            counts["agreement_rows"] = len(chosen)
            counts["agreement_same"] = int((select_by_loss(self.rule, full) == chosen).sum())
        if self.log is not None:
            self.log.write(framework.step, scene, views=pairs, losses=losses, iou=shared)
        started = time.perf_counter()
        picked = scene.chosen(pairs)
        views = picked.render() if self.preview is not None else gather_views(batch.views, pairs)
        render_s = batch.render_s + time.perf_counter() - started
        reusable = self.preview is None and looks_at_rows_alone(framework.encoder)
        targets = gather_targets(framework, looked, pairs) if reusable else None
        return replace(batch, views=views, scene=picked, counts=counts, render_s=render_s, targets=targets)


def select_by_loss(rule: Rule, losses: Float[np.ndarray, "n c"]) -> Int[np.ndarray, " n"]:
    """Index of each row's pair; ties go to the earlier one."""
    unused = np.zeros(len(losses))  # nothing is drawn
    return SELECTIONS[rule](Candidates(num_views=0, losses=losses), unused)


def overlaps(scene: Scene) -> Float[np.ndarray, "n c"]:
    """Intersection over union of the crops of every pair of a row's views."""
    boxes = scene.recipes[:, :, BOX].astype(np.float64)
    first, second = pairs_of(boxes.shape[1]).T
    return overlap(boxes[:, first], boxes[:, second])


def gather_views(
    views: Sequence[Float[Tensor, "n ..."]], chosen: Int[np.ndarray, "n k"]
) -> tuple[Float[Tensor, "n ..."], ...]:
    """View `chosen[i, j]` of row i as its j-th; only chosen rows are copied. One side for all rows of a column."""
    found = []
    for column in chosen.T:
        out = torch.empty_like(views[int(column[0])])
        for view in np.unique(column).tolist():
            rows = torch.from_numpy(np.flatnonzero(column == view)).to(out.device)
            out.index_copy_(0, rows, views[view].index_select(0, rows))
        found.append(out)
    return tuple(found)


def gather_targets(
    framework: Framework, looked: Looked, pairs: Int[np.ndarray, "n 2"]
) -> tuple[Encoded | None, Encoded | None] | None:
    """The target backbone's outputs of the chosen pairs, for the roles they have; None for methods without one.

    Only for backbones that look at rows alone: then these are what a new pass in training would give. The heads are
    no part of them, their batch norms have still to see the chosen rows together.
    """
    known = [target for target in looked.targets if target is not None]
    if not known:
        return None
    _, roles = framework.roles(2)
    found: list[Encoded | None] = []
    for role in range(2):
        pieces = []
        for place in range(len(known[0]) if role in roles else 0):
            views = [known[0][place] if target is None else target[place] for target in looked.targets]
            pieces.append(gather_views(views, pairs[:, [role]])[0])
        found.append(tuple(pieces) if pieces else None)
    return found[0], found[1]
