"""Hard view selection: of N views per row, train on the pair with the highest loss (Ferreira et al., eq. 2, Alg. 1)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.hard_views.forward import CandidateOutputs, forward_pairs, is_row_independent, losses_of_pairs
from viewkit.pipelines.hard_views.log import ViewLog
from viewkit.pipelines.hard_views.preview import Preview
from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.scene import Scene
from viewkit.pipelines.pairs.select import pair_overlaps
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.training.framework import Framework
from viewkit.pipelines.training.step import Stepper
from viewkit.pipelines.views.recipe import BOX

Rule = Literal["hard", "easy"]


def select_hardest(losses: Float[Tensor, "n c"]) -> Int[Tensor, " n"]:
    """The pair with the highest loss (Hard View Selection, eq. 2)."""
    return losses.argmax(dim=1)


def select_easiest(losses: Float[Tensor, "n c"]) -> Int[Tensor, " n"]:
    """The pair with the lowest loss (Hard View Selection, appendix F.2: the cooperative case)."""
    return losses.argmin(dim=1)


SELECTIONS: Mapping[Rule, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"hard": select_hardest, "easy": select_easiest}
)
"""Losses [n c] -> index of every row's pair, on their device; ties go to the earlier one."""


@dataclass(frozen=True)
class HardPairs:
    """Selects, from a batch whose views are candidates, each row's pair with the highest ("easy": lowest) loss.

    Ties go to the earlier pair of (0, 1), (0, 2) ...; the lower index becomes view 1. Selection stays on the device:
    the host does not wait for it, and does not know what was selected. preview: what the candidates of the batch were
    rendered with; the selected views are then rendered again from the scene, for which the host does wait, otherwise
    their pixels are used as they are. agreement_every: every so many steps, repeat the selection on the full views and
    count how often both agree.
    """

    rule: Rule = "hard"
    preview: Preview | None = None
    agreement_every: int | None = None
    log: ViewLog | None = None

    def __call__(self, framework: Framework, batch: ViewBatch, stepper: Stepper) -> ViewBatch:
        """The batch with two views, and with the target backbone's outputs where training can reuse them. Its scene is
        that of the two views where they were rendered again, else none.

        counts gains `lowest_iou`, the rows whose pair overlaps least, of `lowest_iou_rows`, those whose views are all
        crops of one image (others, with generated images among the candidates, have pairs that cannot be compared);
        and with agreement_every `agreement_rows` and `agreement_same`.
        """
        scene = batch.scene
        assert scene is not None, "candidates come with their scene"
        candidates = forward_pairs(framework, batch.views, stepper)
        losses = losses_of_pairs(framework, candidates.outputs, stepper)
        select = SELECTIONS[self.rule]
        selected = select(losses)
        views = to_device(pair_index(len(batch.views)), losses.device)[selected]  # n 2
        overlaps = overlaps_within_images(scene)
        comparable = ~np.isnan(overlaps).any(axis=1)
        lowest = to_device(np.where(comparable, np.nan_to_num(overlaps).argmin(axis=1), -1), losses.device)
        counts = {**batch.counts, "lowest_iou": (selected == lowest).sum(), "lowest_iou_rows": int(comparable.sum())}
        if self.agreement_every and framework.step % self.agreement_every == 0:
            outputs = forward_pairs(framework, scene.render(), stepper).outputs
            full = losses_of_pairs(framework, outputs, stepper)
            counts["agreement_rows"] = len(selected)
            counts["agreement_same"] = (select(full) == selected).sum()
        if self.log is not None and self.log.logs(framework.step):
            found = losses.cpu().numpy()
            self.log.write(framework.step, scene, views=views.cpu().numpy(), losses=found, iou=overlaps)
        started = time.perf_counter()
        chosen = None if self.preview is None else scene.with_views(views.cpu().numpy())
        rendered = gather_views(batch.views, views) if chosen is None else chosen.render()
        render_s = batch.render_s + time.perf_counter() - started
        reusable = self.preview is None and is_row_independent(framework.encoder)
        targets = gather_targets(framework, candidates, views) if reusable else None
        return replace(batch, views=rendered, scene=chosen, counts=counts, render_s=render_s, targets=targets)


def overlaps_within_images(scene: Scene) -> Float[np.ndarray, "n c"]:
    """Overlap of the crops of every pair; NaN for two crops of different images, which have none."""
    first, second = pair_index(scene.recipes.shape[1]).T
    together = scene.image_index[:, first] == scene.image_index[:, second]
    return np.where(together, pair_overlaps(scene.recipes[:, :, BOX].astype(np.float64)), np.nan)


def gather_views(
    views: Sequence[Float[Tensor, "n *shape"]], selected: Int[Tensor, "n k"]
) -> tuple[Float[Tensor, "n *shape"], ...]:
    """View `selected[i, j]` of row i as its j-th, all of one shape; nothing waits for what was selected."""
    stacked = torch.stack(list(views))  # v n ...
    rows = torch.arange(len(selected), device=selected.device)
    return tuple(stacked[column, rows] for column in selected.unbind(dim=1))


def gather_targets(
    framework: Framework, candidates: CandidateOutputs, views: Int[Tensor, "n 2"]
) -> tuple[Encoded | None, Encoded | None] | None:
    """The target backbone's outputs for the selected pairs, in the roles they have; None for methods without one.

    Only for backbones that treat every row alone: then a second pass in training would give the same. The heads are
    left out: their batch norms must see the selected rows together.
    """
    known = [target for target in candidates.targets if target is not None]
    if not known:
        return None
    _, roles = framework.roles(2)
    found: list[Encoded | None] = []
    for role in range(2):
        pieces = []
        for place in range(len(known[0]) if role in roles else 0):
            outputs = [known[0][place] if target is None else target[place] for target in candidates.targets]
            pieces.append(gather_views(outputs, views[:, [role]])[0])
        found.append(tuple(pieces) if pieces else None)
    return found[0], found[1]
