"""What an arm costs: its trainings, and every offline stage that its runs read, each counted once per arm.

Operations are counted (`torch.utils.flop_counter`, two for a multiplication and an addition): of a training on one of
its steps, of stages that embed views on one view. Decoding and rendering are in the seconds of trainings alone.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from viewkit.pipelines.compare.sampling_cost import cost_of_own_view
from viewkit.pipelines.encoders.names import weights_from_outside
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.foreground.artifact import INDEX
from viewkit.pipelines.foreground.samples import passes_over_images, passes_over_views
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.selections import SELECT
from viewkit.pipelines.training.cost import counting
from viewkit.pipelines.training.metrics import AUTOENCODER_METRICS, METRICS, read_metrics
from viewkit.shards.artifact import Artifact
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity

FREE = ("pack", "draw", "rescore")
"""Stages that run no network, or that every arm needs alike."""
VIEWS = 32
"""Views of the pass that is timed."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """seconds: on one core or device; None where nobody recorded or could estimate them. passes: images through a
    network, learnt from counted three times. flops: operations. uncounted: what of it is not in these numbers."""

    seconds: float | None = 0.0
    passes: float = 0.0
    flops: float = 0.0
    uncounted: tuple[str, ...] = ()

    def __add__(self, other: "Cost") -> "Cost":
        known = self.seconds is not None and other.seconds is not None
        return Cost(
            seconds=(self.seconds or 0.0) + (other.seconds or 0.0) if known else None,
            passes=self.passes + other.passes,
            flops=self.flops + other.flops,
            uncounted=tuple(dict.fromkeys((*self.uncounted, *other.uncounted))),
        )


def training_cost(artifact: Artifact) -> Cost:
    """Of a run, the estimator or a generator, by what it recorded: operations of a step, and lines of metrics."""
    numbers = artifact.numbers
    if "step_flops" not in numbers:
        return Cost(seconds=None, uncounted=(artifact.name,))
    steps = int(numbers["steps"])
    own = Cost(
        seconds=training_seconds(artifact, METRICS, artifact.identity.config.get("batch_size")),
        passes=steps * float(numbers["step_passes"]),
        flops=steps * float(numbers["step_flops"]),
    )
    return own + autoencoder_cost(artifact)


def autoencoder_cost(artifact: Artifact) -> Cost:
    """Of the training of an autoencoder that came before a generator's own, where one did."""
    numbers, identity = artifact.numbers, artifact.identity
    if "autoencoder_flops" in numbers:
        seconds = training_seconds(artifact, AUTOENCODER_METRICS, numbers["autoencoder_batch"])
        return Cost(seconds=seconds, flops=float(numbers["autoencoder_flops"]))
    was_given = any(name.startswith("autoencoder/") for name in identity.inputs)
    was_trained = identity.config.get("autoencoder_steps") and not was_given
    return Cost(seconds=None, uncounted=(f"{artifact.name}'s autoencoder",)) if was_trained else Cost()


def training_seconds(artifact: Artifact, log: str, batch_size: int | None) -> float | None:
    """Seconds of all steps of a log, interruptions left out; None without one."""
    if log not in artifact.files or batch_size is None:
        return None
    seconds, before = 0.0, 0
    for line in read_metrics(artifact.path(log)):
        step, rate = int(line["step"] or 0), line.get("images_per_s")
        if rate:
            seconds += (step - before) * int(batch_size) / float(rate)
        before = step
    return seconds


@dataclass
class OfflineCosts:
    """Costs of a dataset's offline stages, each found once. device: where forward passes are counted and timed."""

    dataset: Dataset
    device: str = "cpu"
    found: dict[str, Cost] = field(default_factory=dict)
    forwards: dict[str, Cost] = field(default_factory=dict)

    def of_run(self, run: str) -> dict[str, Cost]:
        """Column or artifact that the run was made from, directly or not -> its cost."""
        return {name: self.of(name) for name in self._needed(f"runs/{run}")}

    def of(self, name: str) -> Cost:
        if name not in self.found:
            part = self.dataset.artifact(name) if self.dataset.is_artifact(name) else self.dataset.column(name)
            identity = part.identity
            count = STAGES.get(identity.stage)
            if identity.stage in FREE:
                self.found[name] = Cost()
            elif isinstance(part, Artifact) and identity.stage in ("pretrain", "estimator", "generator"):
                self.found[name] = training_cost(part)
            elif count is None:
                self.found[name] = Cost(seconds=None, uncounted=(name,))
            else:
                self.found[name] = count(self, name, identity)
        return self.found[name]

    def views(self, count: float, encoder: str) -> Cost:
        """`count` views through an encoder, by its name; not counted where its weights lie outside of the dataset."""
        if encoder not in self.forwards:
            self.forwards[encoder] = self._forward(encoder)
        one = self.forwards[encoder]
        seconds = None if one.seconds is None else count * one.seconds
        return Cost(seconds=seconds, passes=count * one.passes, flops=count * one.flops, uncounted=one.uncounted)

    def rows(self, name: str) -> int:
        return self.dataset.column(name).num_rows

    def _forward(self, encoder: str) -> Cost:
        if encoder == ESTIMATOR:
            whole = Estimator.load(self.dataset.artifact("estimator"), self.device)
            return one_forward(whole.network, whole.side_px, self.device)
        if weights_from_outside(encoder):
            return Cost(seconds=None, uncounted=(encoder,))
        opened = open_encoder(encoder, self.dataset, device=self.device)
        return one_forward(opened.model, opened.side_px, self.device)

    def _needed(self, name: str) -> Iterator[str]:
        """What a run was made from, directly or not. Of scored pairs whose scores its selection does not read it needs
        the generated views alone: `draw` samples such pairs without a network."""
        config = self.dataset.artifact(name).identity.config
        selection = SELECT[config["select"]] if "select" in config else None
        drawn = config["pairs"] if selection and selection.stored and "scores" not in selection.needs else None
        seen: dict[str, None] = {}

        def visit(identity: Identity, only: str = "") -> None:
            for source in identity.inputs:
                is_there = self.dataset.is_column(source) or self.dataset.is_artifact(source)
                if not is_there or source in seen or source == "images" or not source.startswith(only):
                    continue
                if source == drawn:
                    visit(self._identity(source), only="genview")
                    continue
                seen[source] = None
                visit(self._identity(source))

        visit(self.dataset.artifact(name).identity)
        yield from seen

    def _identity(self, name: str) -> Identity:
        found = self.dataset.artifact(name) if self.dataset.is_artifact(name) else self.dataset.column(name)
        return found.identity


ESTIMATOR = "the whole estimator"
"""With its projector and exits, as scoring uses it; ``estimator`` is its backbone alone."""


def one_forward(network: torch.nn.Module, side_px: int, device: str) -> Cost:
    """One view through a network, without gradients; seconds are those of `VIEWS` together, on one thread of a CPU."""
    views = torch.zeros(VIEWS, 3, side_px, side_px, device=device)
    with torch.no_grad(), counting(network) as found:
        network(views)
    with torch.no_grad():
        started = time.perf_counter()
        network(views)
        if device != "cpu":
            torch.cuda.synchronize()
    return Cost(seconds=(time.perf_counter() - started) / VIEWS, passes=1, flops=found.flops / VIEWS)


def _of_histograms(costs: OfflineCosts, name: str, identity: Identity) -> Cost:
    images = costs.dataset.artifact(name).numbers["images"]
    return costs.views(images * identity.config["num_views"], ESTIMATOR)


def _of_scores(costs: OfflineCosts, name: str, identity: Identity) -> Cost:
    return costs.views(costs.rows(name) * identity.config["rounds"] * identity.config["num_views"], ESTIMATOR)


def _of_foreground(costs: OfflineCosts, name: str, identity: Identity) -> Cost:
    """Maps and squares of a sample of images or of stored views; with an index the embeddings of all images, too."""
    pairs, size = _pairs_of(identity), int(identity.config["sample"])
    if pairs is not None:
        _, passes = passes_over_views(costs.dataset, size, pairs)
    else:
        _, passes = passes_over_images(costs.dataset, size, INDEX in costs.dataset.artifact(name).files)
    return costs.views(passes, identity.config["encoder"])


def _pairs_of(identity: Identity) -> str | None:
    """The column of pairs that something was made from."""
    return next((each for each in identity.inputs if each.startswith("pairs")), None)


def _of_views(costs: OfflineCosts, name: str, identity: Identity, encoder: str = "encoder") -> Cost:
    """A map of every stored view."""
    pairs = _pairs_of(identity)
    assert pairs is not None, f"'{name}' rates pairs"
    config = costs.dataset.column(pairs).identity.config
    count = costs.rows(name) * int(config.get("rounds", 1)) * int(config.get("num_views", 2))
    return costs.views(count, identity.config[encoder])


def _of_generated(costs: OfflineCosts, name: str, identity: Identity) -> Cost:
    """Foreground and embedding of every image, and all passes of a generator of one's own; other diffusion generators
    are not counted, since their weights lie elsewhere."""
    encoder = costs.dataset.artifact("foreground").identity.config["encoder"]
    found = costs.views(costs.rows(name), encoder)
    if identity.config["generator"] == "retrieval":
        return found
    if identity.config["generator"] == "own":
        folder = costs.dataset.artifact("generator").whole_folder()
        flops, seconds = cost_of_own_view(folder, identity.config, costs.device)
        views = costs.rows(name) * int(identity.config["views_per_image"])
        return found + Cost(seconds=views * seconds, flops=views * flops)
    return found + Cost(seconds=None, uncounted=(f"generator {identity.config['generator']}",))


STAGES: Mapping[str, Callable[[OfflineCosts, str, Identity], Cost]] = {
    "histograms": _of_histograms,
    "score": _of_scores,
    "foreground": _of_foreground,
    "quality": partial(_of_views, encoder="encoder"),
    "generate": _of_generated,
}
"""Stages that embed views, by how many of them go through which network."""


def as_values(cost: Cost) -> dict[str, Any]:
    """As JSON values."""
    return {
        "seconds": cost.seconds,
        "passes": cost.passes,
        "flops": cost.flops,
        **({"uncounted": list(cost.uncounted)} if cost.uncounted else {}),
    }
