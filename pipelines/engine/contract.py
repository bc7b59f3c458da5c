"""The stage contract: what a stage says about itself, and what the runner gives it.

A **map stage** turns every row of its input columns into one row or one reject of the column it writes. A **fit
stage** turns a dataset into one folder. Neither opens, locks, resumes or retries anything: `run` does, once, for all
of them. Locations (a source folder, a run's name) are arguments of the stage object; everything that changes
the result is its config.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from viewkit.pipelines.engine.config import identity_values
from viewkit.pipelines.engine.seeds import stream
from viewkit.pipelines.engine.workers import Report
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.identity import Identity
from viewkit.shards.row import Reject, Row
from viewkit.shards.sources import ColumnSources, Sources
from viewkit.shards.stores.mounts import mirror_of

ShardFn = Callable[[Iterator[Row]], Iterator[Row | Reject]]
PartFn = Callable[[Any, Report], Any]
Config = TypeVar("Config")


@runtime_checkable
class Progress(Protocol):
    """Where a job reports its progress. `cli.console` has three: a live display, plain lines and JSON events."""

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None: ...

    def advance(self, count: int, **numbers: float | int | str) -> None: ...

    def message(self, text: str) -> None: ...

    def finish(self, **summary: Any) -> None: ...


class Silent:
    """Progress that shows nothing: for tests, workers and calls from Python."""

    def start(self, stage: str, total: int, unit: str, done: int = 0) -> None:
        pass

    def advance(self, count: int, **numbers: float | int | str) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def finish(self, **summary: Any) -> None:
        pass


@runtime_checkable
class Crew(Protocol):
    """Who does the parts of a fit. is_alone: it is this process, to which cutting would be of no use."""

    is_alone: bool

    def do(self, parts: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """(place among `parts`, what the stage's `part_work` found in it), as they are done. May be called again:
        models stay loaded."""


@dataclass(frozen=True)
class Run:
    """What a stage is given: where its inputs are, where it writes, on which device, and its random streams.

    folder: the column's or artifact's folder. A fit stage writes its files there; a map stage writes nothing itself.
    crew: who does the parts of a fit that has some. threads: of a worker that does parts, those that `side_by_side` may
    take; None: as many as it likes.
    """

    dataset: Dataset
    folder: Path
    stage: str
    seed: int = 0
    device: str = "cpu"
    progress: Progress = field(default_factory=Silent)
    remade: tuple[str, ...] = ()
    crew: Crew | None = None
    threads: int | None = None

    def keep(self) -> None:
        """Called when work that an interrupted stage goes on from has been saved in the folder. Of a dataset in a store
        it is kept there, too, so that another machine can go on; `FitStage.remade` is left out."""
        mirror = mirror_of(self.folder)
        if mirror is None:
            return
        try:
            mirror.artifacts.keep_unfinished(self.folder, self.remade)
        except DataError as error:  # the work goes on, and is kept on this machine
            self.progress.message(f"{self.stage}: not kept in the store this time ({error})")

    def generator(self, *names: object) -> np.random.Generator:
        """A numpy generator that depends on (seed, stage, names) alone."""
        return stream(self.seed, self.stage, *names)


class Stage(ABC, Generic[Config]):
    """What both kinds share. `version` is raised whenever the same config would give other bytes."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    shown_as: ClassVar[str]
    """Name of the column or artifact in the docs, e.g. ``runs/NAME``."""
    holds: ClassVar[Mapping[str, str]]
    """Field or file -> what it holds, with shapes and units; docs/columns.md is made of it."""

    elsewhere: ClassVar[str] = "another dataset"
    """Where a result with other settings could go instead, for the refusal to overwrite one."""

    @property
    @abstractmethod
    def writes(self) -> str:
        """Folder below the dataset: a column's name, or an artifact's path such as ``runs/moco``."""

    @abstractmethod
    def reads(self, config: Config) -> tuple[str, ...]:
        """Names of the columns and artifacts of the dataset that this config needs; the first column gives the rows."""

    def on_device(self, config: Config, device: str) -> Config:
        """The config with what it leaves to the device decided, such as a precision "auto"; the identity holds that."""
        return config

    def for_images(self, config: Config, dataset: Dataset, device: str) -> Config:
        """The config with what it leaves to the images and the machine decided, such as a preset "auto"; the identity
        holds that."""
        return config

    def advice(self, config: Config, dataset: Dataset, device: str) -> list[str]:
        """Lines for whoever starts the stage, e.g. what `for_images` decided and why. config: as it was given."""
        return []

    def settings(self, config: Config) -> dict[str, Any]:
        """The config as the identity holds it."""
        return identity_values(config)

    def check(self, config: Config) -> None:
        """Raise `ConfigError` or `DataError` for what config and locations show to be wrong, before any stage runs."""

    def inputs(self, config: Config, dataset: Dataset) -> Mapping[str, str]:
        """Input name -> content digest; part of the identity. Each input must be complete, else `DataError`."""
        return {name: dataset.input_digest(name, for_stage=self.name) for name in self.reads(config)}


def is_growth(dataset: Dataset, found: Identity, wanted: Identity) -> bool:
    """Whether the inputs of `wanted` are those of `found`, or columns of the dataset that were these before they grew;
    of an unfinished column the shards before are those of `found`."""
    same = (found.stage, found.version, found.config) == (wanted.stage, wanted.version, wanted.config)
    changed = [name for name in wanted.inputs if found.inputs.get(name) != wanted.inputs[name]]
    if not same or found.inputs.keys() != wanted.inputs.keys() or not changed:
        return False
    return all(dataset.is_column(name) and found.inputs[name] in dataset.column(name).earlier for name in changed)


class MapStage(Stage[Config]):
    """Rows in, rows or rejects out, shard by shard."""

    uses_torch: ClassVar[bool] = True
    """Whether models run in `prepare`'s function: then every worker computes on one thread of its own."""
    by_choice: ClassVar[frozenset[str]] = frozenset()
    """Reasons of rows that the config leaves out on purpose: they do not count for ``--max-rejects``."""

    def sources(self, config: Config, dataset: Dataset) -> Sources:
        """Where the rows come from: by default the columns among `reads`, joined by key."""
        columns = tuple(name for name in self.reads(config) if dataset.is_column(name))
        return ColumnSources(dataset, columns)

    def grows(self, config: Config, dataset: Dataset, found: Identity, wanted: Identity) -> bool:
        """Whether a column that was written as `found` can go on as `wanted`, its shards untouched: by default where
        the columns that it reads have only got new shards, and all else is the same.

        Neither has states of before.
        """
        return is_growth(dataset, found, wanted)

    def keeps_rows(self, config: Config) -> bool:
        """Whether rows cost so much that those of a shard that was cut short are kept for the next run."""
        return False

    @abstractmethod
    def prepare(self, config: Config, run: Run) -> ShardFn:
        """Load models once per worker; return the function that is then called for every shard.

        The function yields exactly one `Row` or `Reject` for every input row, in the order of the inputs, and a
        row's result does not depend on its neighbours.
        """


class FitStage(Stage[Config]):
    """A dataset in, one folder out."""

    logs: ClassVar[tuple[str, ...]] = ("metrics.jsonl",)
    """Names of files and folders that may differ between two runs of one identity (they hold times); kept out of the
    digest."""
    scratch: ClassVar[tuple[str, ...]] = ()
    """Folders that are needed until the artifact is complete, and are then deleted: they are no part of it."""
    remade: ClassVar[tuple[str, ...]] = ()
    """Those of `scratch` that a machine which goes on makes again by itself; not kept in a store."""
    resumes: ClassVar[bool] = False
    """Whether an unfinished folder holds work worth keeping (checkpoints). If not, another config starts it over."""
    trains: ClassVar[bool] = False
    """Whether it trains networks: then all threads share its sums, and its last bits depend on their number."""
    distributed: ClassVar[bool] = False
    """Whether it may run on several processes, started by torchrun; `fit` then runs on all, and the main one writes."""
    in_parts: ClassVar[bool] = False
    """Whether `fit` leaves what takes long to `run.crew`, in parts that add up exactly whoever does them (`parts`)."""
    replaces: ClassVar[bool] = False
    """Whether a finished artifact of another identity is simply written anew, as a report is, and not refused."""

    @classmethod
    def own_files(cls) -> list[str]:
        """Names of all that it writes, unfinished work included; those of folders end in /."""
        return [*cls.holds, *cls.logs, *(f"{name}/" for name in (*cls.logs, *cls.scratch))]

    @abstractmethod
    def fit(self, config: Config, run: Run) -> Mapping[str, Any]:
        """Write every file of the artifact into `run.folder`; return the numbers worth showing (JSON values).

        Called again after an interruption with whatever the folder then holds; resume from it or start over.
        """

    def part_work(self, config: Config, run: Run) -> PartFn:
        """Load models once per worker; return the function that is then called for every part that `fit` gave to
        `run.crew`, with a function for news: counts of what is done.

        Parts and results travel between processes: numpy arrays, no tensors, which torch would share. The function
        writes nothing, and a part's result does not depend on other parts.
        """
        raise NotImplementedError(f"{self.name} has no parts")

    def plan(self, config: Config, run: Run) -> Mapping[str, Any]:
        """Numbers for ``--dry-run``: what would be done and an estimate of the time, measured on this machine."""
        return {}
