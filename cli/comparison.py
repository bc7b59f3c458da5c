"""The runs of a comparison: what each is made of, and all of them side by side on the devices there are."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from viewkit.cli.chain import COMMANDS, Job, baselines_of, make_job
from viewkit.cli.console import say
from viewkit.cli.events import MessageEvent, RunEvent, emit
from viewkit.cli.run import checked_stages, redo
from viewkit.pipelines.compare.config import CompareConfig
from viewkit.pipelines.compare.plan import Cell
from viewkit.pipelines.engine.execution import Devices, cores
from viewkit.shards.errors import ConfigError, ViewkitError


@dataclass(frozen=True, kw_only=True)
class CompareDevices(Devices):
    """Options that are no part of the result."""

    jobs: Annotated[
        int | None, "runs side by side, each on one thread of a CPU (default: one per core, or one per GPU)"
    ] = None

    def __post_init__(self) -> None:
        if self.jobs is not None and not 1 <= self.jobs <= 8 * cores():
            raise ConfigError(f"--jobs is {self.jobs}; it must lie in 1 ... {8 * cores()}, eight per core")

    def num_jobs(self, devices: Sequence[str]) -> int:
        return self.jobs or (cores() if list(devices) == ["cpu"] else len(devices))


@dataclass(frozen=True)
class Comparison:
    """arms: name -> options of `pretrain`, without steps and seed. evaluations: tables of options of `evaluate`."""

    name: str
    dataset: Path
    test: Path
    reference: str
    arms: Mapping[str, Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    config: CompareConfig

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(str(table.get("folder", "eval")) for table in self.evaluations)

    def jobs(self, cell: Cell, seed: int, *, baselines: bool) -> list[Job]:
        """Training and evaluations of one run.

        baselines: also measure them, once for the comparison. An evaluation that is there already stays as it is.
        """
        run, where = cell.run(self.name, seed), f"arm '{cell.arm}'"
        options = {**self.arms[cell.arm], "steps": cell.steps, "seed": seed}
        places = {"dataset": str(self.dataset), "name": run}
        jobs = [make_job(COMMANDS["pretrain"], f"pretrain {run}", places, self.dataset, options, where)]
        for table, folder in zip(self.evaluations, self.folders, strict=True):
            places = {"run": str(self.dataset / "runs" / run), "test": str(self.test)}
            kept = baselines_of(self.dataset, f"runs/{run}/{folder}")
            own = {**table, "baselines": baselines and table.get("baselines", True) if kept is None else kept}
            jobs.append(make_job(COMMANDS["evaluate"], f"evaluate {run}", places, self.dataset, own, where))
        return jobs


@dataclass(frozen=True)
class Trained:
    """Made in every worker process: does the jobs of one run after the other. devices: one for each worker, in turn."""

    runs: Sequence[Sequence[Job]]
    devices: Sequence[str]

    def __call__(self, number: int) -> "Trainer":
        return Trainer(self.runs, self.devices[number % len(self.devices)])


@dataclass(frozen=True)
class Trainer:
    runs: Sequence[Sequence[Job]]
    device: str

    def __call__(self, run: int, report: Any) -> dict[str, Any]:
        """What the last job says, or why the run failed; other runs may still succeed."""
        from viewkit.pipelines.engine.interrupts import Interrupted
        from viewkit.pipelines.engine.memory import OUT_OF_MEMORY, is_out_of_memory
        from viewkit.pipelines.engine.run import run_stage
        from viewkit.shards.dataset import Dataset

        started = time.monotonic()
        numbers: dict[str, Any] = {}
        written = 0
        try:
            for job in self.runs[run]:
                for stage, config in checked_stages(job.spec, job.config, dict(job.locations)):
                    summary = run_stage(stage, config, Dataset(job.dataset), Devices(device=self.device))
                    written += summary.written
                    if job.spec.name == "evaluate":
                        numbers |= named_probes(summary.numbers, str(job.locations["folder"]))
        except Interrupted:
            raise
        except ViewkitError as error:
            return {"failed": str(error)}
        except (RuntimeError, MemoryError) as error:  # of one arm, e.g. with more views; others may need less
            if not is_out_of_memory(error):
                raise
            free_memory(self.device)
            return {"failed": OUT_OF_MEMORY}
        return {"top1": numbers, "seconds": time.monotonic() - started, "was_there": not written}


def free_memory(device: str) -> None:
    """Give back what torch keeps of a GPU's memory, so that the next run has all of it."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def stages_of(comparison: Comparison, cells: Sequence[Cell]) -> Iterator[tuple[Any, Any]]:
    """Stage and config of every training and evaluation, a run's one after the other."""
    for seed in range(comparison.config.seeds):
        for cell in cells:
            for job in comparison.jobs(cell, seed, baselines=False):
                yield from checked_stages(job.spec, job.config, dict(job.locations))


def refuse_other_runs(comparison: Comparison, cells: Sequence[Cell], devices: Devices) -> None:
    """`RefusedError` for a run or an evaluation that is there with other settings, before anything is trained or
    replaced. Those that were made before images were added are not of these."""
    from viewkit.pipelines.engine.contract import is_growth
    from viewkit.pipelines.engine.fit import identity_of_fit
    from viewkit.pipelines.engine.folder import refuse_another
    from viewkit.shards.artifact import IDENTITY
    from viewkit.shards.dataset import Dataset

    dataset = Dataset(comparison.dataset)
    for stage, config in stages_of(comparison, cells):
        if not dataset.is_artifact(stage.writes):
            continue
        artifact = dataset.artifact(stage.writes)
        begun = any(path.name != IDENTITY for path in artifact.folder.iterdir())
        wanted = identity_of_fit(stage, config, dataset, devices)
        grown = artifact.is_complete and is_growth(dataset, artifact.identity, wanted)
        if begun and not grown:
            refuse_another(stage, dataset, artifact.folder / IDENTITY, wanted)


def stale_runs(comparison: Comparison, cells: Sequence[Cell], devices: Devices) -> Iterator[list[str]]:
    """What --redo would delete for every run and evaluation, by name."""
    from viewkit.pipelines.engine.redo import replaced_by
    from viewkit.shards.dataset import Dataset

    dataset = Dataset(comparison.dataset)
    for stage, config in stages_of(comparison, cells):
        if dataset.is_artifact(stage.writes):
            yield replaced_by(stage, config, dataset, devices)


def named_probes(numbers: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The encoder's accuracies by probe; those of a folder beside ``eval`` are named with it.

    numbers: of `evaluate`, ``ENCODER PROBE`` and, for errors under corruptions, ``ENCODER PROBE TOTAL``.
    """
    words = {name: name.split(" ") for name in numbers}
    own = {each[1]: numbers[name] for name, each in words.items() if each[0] == "encoder" and len(each) == 2}
    return own if folder == "eval" else {f"{name} ({folder})": value for name, value in own.items()}


def train(
    comparison: Comparison, cells: Sequence[Cell], devices: CompareDevices, as_json: bool, *, redo_stale: bool = False
) -> dict[str, str]:
    """Every run of the cells, side by side; a line for each. Returns arm -> why it failed.

    redo_stale: first delete what other settings left of these runs.
    """
    from viewkit.pipelines.engine.interrupts import interruptible
    from viewkit.pipelines.engine.units import Words
    from viewkit.pipelines.engine.workers import run_shards
    from viewkit.shards.dataset import Dataset

    if not cells:
        return {}
    order = [(cell, seed) for seed in range(comparison.config.seeds) for cell in cells]
    runs = [comparison.jobs(cell, seed, baselines=(cell, seed) == order[0] and not cell.control)
            for cell, seed in order]  # fmt: skip
    for job in [job for jobs in runs for job in jobs] if redo_stale else []:
        for stage, config in checked_stages(job.spec, job.config, dict(job.locations)):
            redo(stage, config, Dataset(job.dataset), devices, as_json=as_json)
    places, tell = devices.devices(), teller(as_json)
    side_by_side = min(len(runs), devices.num_jobs(places))
    failed: dict[str, str] = {}
    tell(f"compare: {len(runs)} runs, {side_by_side} at a time")

    def named(number: int) -> str:
        return f"run {order[number][0].run(comparison.name, order[number][1])}"

    started, worked = time.monotonic(), 0
    with interruptible("run the same command again, it goes on with the runs that are left"):
        words = Words("run", named)
        found = run_shards(Trained(runs, places), range(len(runs)), side_by_side, lambda news: None, words)
        for done, (number, result) in enumerate(found, start=1):
            cell, seed = order[number]
            if "failed" in result:
                failed.setdefault(cell.arm, result["failed"])
                tell(f"compare: [{done}/{len(runs)}] {cell.label}, seed {seed}: failed: {result['failed']}")
                continue
            worked += not result.pop("was_there")
            if as_json:
                emit(RunEvent(arm=cell.arm, steps=cell.steps, seed=seed, done=done, of=len(runs), **result))
                continue
            numbers = ", ".join(f"{probe} {100 * value:.1f}" for probe, value in result["top1"].items())
            spent = "there already"
            if worked:  # what was there took no time
                left = (time.monotonic() - started) / worked * (len(runs) - done)
                spent = f"{result['seconds']:.0f} s; about {left:.0f} s left"
            tell(f"compare: [{done}/{len(runs)}] {cell.label}, seed {seed}: {numbers} ({spent})")
    return failed


def teller(as_json: bool) -> Callable[[str], None]:
    """How a line is told: as text, or as a JSON event."""

    def tell(text: str) -> None:
        if as_json:
            emit(MessageEvent(text=text))
        else:
            say(text)

    return tell
