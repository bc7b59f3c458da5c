"""Batches of rendered views: rows from the loader, recipes from a sampler, pixels rendered on the device."""

import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float, Float32
from torch import Tensor

from viewkit.pipelines.engine.transfer import to_device
from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.pairs.plan import RecipeSampler
from viewkit.pipelines.pairs.samples import Sample
from viewkit.pipelines.pairs.scene import Scene, scene_of
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.loader import Loader
from viewkit.shards.spans import span


@dataclass(frozen=True)
class ViewBatch:
    """Rendered views on the device, and the host's seconds spent waiting for rows and rendering.

    views: view j of every row, normalised, [n 3 s s] each; the sides s may differ between views (multi-crop). Of a
    generator, what it learns from, which may be latents [n c s s].
    weights: one per row, they sum to n; None: every row has weight 1. counts: rows of a kind; those that the device
    counted are still there. scene: from which other views can be rendered.
    quality: q of every row's pair, NaN where unknown, from which `quality_weights` computes weights.
    targets: the target backbone's outputs for the views, where they are known already.
    """

    views: tuple[Float[Tensor, "n _c _s _s"], ...]
    weights: Float[Tensor, " n"] | None
    counts: Mapping[str, int | Tensor]
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


class PairSource:
    """Batches of rendered views, epoch by epoch; an epoch is the same whenever and from whichever step it is started.

    sampler: samples the recipes of every batch. preview: the views are rendered from what it makes of the scene (e.g.
    smaller ones), while the batch keeps the scene itself. cycle_generated: take the generated views of an image in
    turn, epoch by epoch, where it has several; else always the first, which is the one that `viewkit score` sees.
    """

    def __init__(
        self,
        loader: Loader[Sample],
        sampler: RecipeSampler,
        policy: Policy,
        device: str,
        preview: Callable[[Scene], Scene] | None = None,
        *,
        cycle_generated: bool = False,
    ) -> None:
        self.loader, self.sampler, self.policy, self.device, self.preview = loader, sampler, policy, device, preview
        self.cycle_generated = cycle_generated

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch

    @property
    def batch_size(self) -> int:
        return self.loader.batch_size

    def with_batches_of(self, rows: int) -> "PairSource":
        """The same source in batches of so many rows."""
        other = copy(self)
        other.loader = self.loader.with_batches_of(rows)
        return other

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[ViewBatch]:
        """Batches of `epoch` from `start_step` on."""
        reader: Callable[..., Sample] = self.loader.transform
        transform = partial(reader, epoch=epoch) if self.cycle_generated else reader
        batches = self.loader.epoch(epoch, start_step, transform=transform)
        while True:
            started = time.perf_counter()
            with span("wait"):
                samples = next(batches, None)
            if samples is None:
                return
            loaded = time.perf_counter()
            with span("plan"):
                plan = self.sampler(samples, epoch)
            with span("to device"):
                scene = scene_of(samples, plan.recipes, self.policy, self.device, plan.sides_px)
            views = (scene if self.preview is None else self.preview(scene)).render()
            rendered = time.perf_counter()
            quality = None if plan.quality is None else to_device(plan.quality, self.device)
            yield ViewBatch(views, None, plan.counts, loaded - started, rendered - loaded, scene=scene, quality=quality)
