"""Which pairs a page shows, and what else the dataset knows of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from viewkit.pipelines.browse.candidates import Groups, joined, read_groups
from viewkit.pipelines.hard_views.log import read_view_log
from viewkit.pipelines.pairs.column import has_scores
from viewkit.pipelines.pairs.generated import GENVIEW, generated_column
from viewkit.pipelines.pairs.load import rates
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.same_policy import policy_of
from viewkit.pipelines.pairs.samples import QUALITY
from viewkit.pipelines.views.policies import POLICIES, load_policy
from viewkit.pipelines.views.policy import Policy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.identity import Identity


@dataclass(frozen=True)
class Shown:
    """groups: reads about so many pairs. of: name of the column, or ``runs/NAME``. policy: that sampled the views.

    side_px: of the views in training, None where the recipes say it. genview, quality, histograms: names of what
    belongs to these pairs, None where it is not there. scored: whether they have the indicators of VS-2FI.
    """

    of: str
    identity: Identity
    groups: Callable[[int], Groups]
    policy: Policy
    scored: bool
    side_px: int | None = None
    genview: str | None = None
    quality: str | None = None
    histograms: str | None = None

    @property
    def run(self) -> str | None:
        """Name of the run that logged the pairs; None for stored ones."""
        return self.of.removeprefix("runs/") if self.of.startswith("runs/") else None

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.identity.config)

    def beside(self) -> list[str]:
        """Names of what is read beside the images and the pairs."""
        return [name for name in (self.genview, self.quality, self.histograms) if name is not None]


def stored_pairs(dataset: Dataset, column: str, policy: str | None) -> Shown:
    """The pairs of a column, with the column of generated views that they were cropped from, else the usual one."""
    pairs = dataset.column(column)
    identity = pairs.identity
    scored = has_scores(pairs)
    histograms = None
    if scored and _whole(dataset, "histograms"):
        same = identity.inputs.get("histograms") == dataset.artifact("histograms").digest
        histograms = "histograms" if same else None
    quality = QUALITY if _whole(dataset, QUALITY) and rates(dataset, column, QUALITY) else None
    genview = generated_column(identity.inputs) or (GENVIEW if _whole(dataset, GENVIEW) else None)
    return Shown(
        of=column,
        identity=identity,
        groups=lambda points: read_groups(pairs, points),
        policy=_policy(identity, policy, f"column '{column}'"),
        scored=scored,
        genview=genview,
        quality=quality,
        histograms=histograms,
    )


def logged_pairs(dataset: Dataset, run: str, policy: str | None) -> Shown:
    """The candidate pairs that a run with ``--select hard --log-views`` wrote down, with their losses.

    `DataError` for a run that wrote none, wrote them without keys, or compared more than pairs (multi-crop).
    """
    artifact = dataset.artifact(f"runs/{run}")
    config = artifact.identity.config
    where = f"browse: run '{run}'"
    if not any(name.startswith("views/") for name in artifact.files):
        raise DataError(f"{where} logged no pairs; a run with --select hard --log-views STEPS does")

    def groups(points: int) -> Groups:
        log = read_view_log(artifact.whole_folder("views/"))
        if "keys" not in log:
            raise DataError(f"{where} logged its pairs without their keys, as older versions did; train it again")
        if log["losses"].ndim != 2:
            raise DataError(f"{where} compared combinations of many crops, not pairs; nothing can be shown of it")
        wanted = max(1, points // log["losses"].shape[1])
        rows = np.linspace(0, len(log["keys"]) - 1, min(wanted, len(log["keys"]))).round().astype(int)
        pairs = pair_index(log["recipes"].shape[1])
        chosen = (log["views"][rows][:, None, :] == pairs[None]).all(axis=2)
        return Groups(
            keys=[str(key) for key in log["keys"][rows]],
            places=log["step"][rows].astype(np.int64),
            recipes=log["recipes"][rows],
            extra={"loss": log["losses"][rows].astype(np.float32)},
            chosen=chosen,
        )

    return Shown(
        of=f"runs/{run}",
        identity=artifact.identity,
        groups=groups,
        policy=_policy(artifact.identity, policy, f"run '{run}'"),
        scored=False,
        side_px=config.get("side_px"),
        genview=config.get("genview", GENVIEW) if config.get("alpha") else None,
    )


def logged_by(dataset: Dataset, runs: Sequence[str], policy: str | None) -> Shown:
    """The logged pairs of one or several runs. `ConfigError` for runs whose views are not rendered alike."""
    parts = [logged_pairs(dataset, run, policy) for run in runs]
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        for name, ours, theirs in (
            ("side_px", first.side_px, part.side_px),
            ("interpolation", first.policy.interpolation, part.policy.interpolation),
            ("genview", first.genview, part.genview),
        ):
            if ours != theirs:
                raise ConfigError(
                    f"browse: {name} is {ours} in run '{first.run}' and {theirs} in run '{part.run}'; browse them one "
                    "by one"
                )
    where = f"browse: runs {', '.join(runs)}"
    return replace(
        first,
        of=f"runs/{','.join(runs)}",
        groups=lambda points: joined([each.groups(points // len(parts)) for each in parts], where),
    )


def _whole(dataset: Dataset, name: str) -> bool:
    """Whether a column or artifact is there and complete."""
    if dataset.is_column(name):
        column = dataset.column(name)
        return len(column.complete_shards()) == column.num_shards
    return dataset.is_artifact(name) and dataset.artifact(name).is_complete


def _policy(identity: Identity, given: str | None, what: str) -> Policy:
    """The policy whose resizing the views have. `ConfigError` where nothing names it."""
    if given is not None:
        return load_policy(given)
    name = identity.config.get("policy", "a policy of its own")
    found = policy_of(identity) if "policy" in identity.inputs else POLICIES.get(name)
    if found is None:
        raise ConfigError(f"browse: {what} was sampled by '{name}', a file or a changed policy; give it with --policy")
    return found
