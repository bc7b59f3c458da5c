"""What a dataset holds, what is unfinished, and which command makes what is missing."""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from viewkit.shards.commands import command_for
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity

OWN, BROWSE = "report", "browse"
"""The pages: each shows what there is, and is no part of it."""

PREPARED = ("estimator", "foreground", "genview", "histograms", "pairs", "foreground_views", "quality", "audit")
"""What may be prepared beside the images, in the order of a full run: the page says which of it is not there yet."""


@dataclass(frozen=True)
class Part:
    """A column or artifact. rows, rejects: of columns. remedy: the command that completes it."""

    name: str
    is_complete: bool
    identity: Identity
    digest: str = ""
    rows: int | None = None
    rejects: Mapping[str, int] = field(default_factory=dict)
    reject_examples: tuple[tuple[str, str, str], ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        return "" if self.is_complete else command_of(self.identity.stage, self.name)

    @property
    def num_rejects(self) -> int:
        return sum(self.rejects.values())


@dataclass(frozen=True)
class Inventory:
    """columns and artifacts by name. missing: (name, command that makes it)."""

    columns: Mapping[str, Part]
    artifacts: Mapping[str, Part]
    missing: tuple[tuple[str, str], ...]

    def without(self, runs: Collection[str]) -> "Inventory":
        """The same but for these runs and what lies in their folders."""
        left = {
            name: part
            for name, part in self.artifacts.items()
            if name not in runs and name.rpartition("/")[0] not in runs
        }
        return replace(self, artifacts=left)

    def has(self, name: str) -> bool:
        part = self.columns.get(name) or self.artifacts.get(name)
        return part is not None and part.is_complete

    @property
    def parts(self) -> list[Part]:
        return [*self.columns.values(), *self.artifacts.values()]

    @property
    def runs(self) -> list[Part]:
        """Finished runs, in order of their names."""
        return [part for name, part in self.artifacts.items() if is_run(name) and part.is_complete]


COMMANDS = {
    "pretrain": "viewkit pretrain DATASET --name {run}",
    "evaluate": "viewkit evaluate DATASET/runs/{run} TEST_DATASET",
    "compare": "viewkit compare DATASET TEST_DATASET --name {run}",
}
"""Of stages whose folder has a name that users choose."""


def command_of(stage: str, name: str) -> str:
    """The command that writes the column or artifact `name` by `stage`."""
    run = name.split("/")[1] if "/" in name else "NAME"
    if stage in COMMANDS:
        return COMMANDS[stage].replace("{run}", shlex.quote(run))
    return f"{command_for(name, stage)} DATASET"


def is_run(name: str) -> bool:
    return name.startswith("runs/") and name.count("/") == 1


def take_inventory(dataset: Dataset) -> Inventory:
    """Read receipts and identities only. Raises DataError where they are damaged, or the dataset does not exist."""
    dataset.column("images")  # says how to make one
    columns = {name: column_part(dataset, name) for name in dataset.columns()}
    artifacts = {name: artifact_part(dataset, name) for name in dataset.artifacts() if name not in (OWN, BROWSE)}
    stages = {name: str(command_for(name)).split()[1] for name in PREPARED if name not in {*columns, *artifacts}}
    missing = [(name, command_of(stage, name)) for name, stage in stages.items()]
    runs = [name for name in artifacts if is_run(name)]
    if not runs:
        missing.append(("runs", command_of("pretrain", "runs")))
    missing += [
        (f"{run}/eval", command_of("evaluate", run))
        for run in runs
        if artifacts[run].is_complete and not any(name.startswith(f"{run}/") for name in artifacts)
    ]
    return Inventory(columns, artifacts, tuple(missing))


def column_part(dataset: Dataset, name: str) -> Part:
    column = dataset.column(name)
    if len(column.complete_shards()) < column.num_shards:
        return Part(name, False, column.identity)
    rejects = column.rejects
    return Part(
        name,
        True,
        column.identity,
        digest=column.digest,
        rows=column.num_rows,
        rejects=dict(sorted(Counter(reject.reason for reject in rejects.values()).items())),
        reject_examples=tuple((key, reject.reason, reject.detail) for key, reject in list(rejects.items())[:5]),
    )


def artifact_part(dataset: Dataset, name: str) -> Part:
    artifact = dataset.artifact(name)
    if not artifact.is_complete:
        return Part(name, False, artifact.identity)
    return Part(name, True, artifact.identity, digest=artifact.digest, numbers=artifact.numbers)
