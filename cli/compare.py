"""`viewkit compare`: trains every arm with every seed, evaluates, trains the controls, then compares them all."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from viewkit.cli.chain import COMMANDS, Job, make_job
from viewkit.cli.commands import COMPARE
from viewkit.cli.console import print_json, say
from viewkit.cli.options import Argument, command
from viewkit.cli.run import FLAGS, checked_stages, run_shown
from viewkit.pipelines.compare.arms import ARMS, REFERENCE
from viewkit.pipelines.compare.config import CompareConfig
from viewkit.pipelines.compare.plan import Cell, Control
from viewkit.pipelines.engine.execution import Devices, cores
from viewkit.pipelines.experiments.experiment import Experiment, load_experiment, with_changes
from viewkit.pipelines.pretrain.config import resolve
from viewkit.shards.errors import ConfigError, DataError, ViewkitError

if TYPE_CHECKING:
    from viewkit.pipelines.compare.stage import CompareStage
    from viewkit.shards.dataset import Dataset

EVALUATE = {"k": "20"}
"""Options of `evaluate` where the experiment has none."""
JUDGED = 6
"""Seeds below which there is no verdict (`compare.verdict`), said before the work begins."""


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
        """Training and evaluations of one run. baselines: also measure them, once for the comparison."""
        run, where = cell.run(self.name, seed), f"arm '{cell.arm}'"
        options = {**self.arms[cell.arm], "steps": cell.steps, "seed": seed}
        places = {"dataset": str(self.dataset), "name": run}
        jobs = [make_job(COMMANDS["pretrain"], f"pretrain {run}", places, self.dataset, options, where)]
        for table in self.evaluations:
            places = {"run": str(self.dataset / "runs" / run), "test": str(self.test)}
            own = {**table, "baselines": baselines and table.get("baselines", True)}
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
        from viewkit.pipelines.engine.run import run_stage
        from viewkit.shards.dataset import Dataset

        started = time.monotonic()
        numbers: dict[str, Any] = {}
        try:
            for job in self.runs[run]:
                for stage, config in checked_stages(job.spec, job.config, dict(job.locations)):
                    summary = run_stage(stage, config, Dataset(job.dataset), Devices(device=self.device))
                    numbers |= summary.numbers if job.spec.name == "evaluate" else {}
        except Interrupted:
            raise
        except ViewkitError as error:
            return {"failed": str(error)}
        top1 = {name.removeprefix("encoder "): value for name, value in numbers.items() if name.startswith("encoder ")}
        return {"top1": top1, "seconds": time.monotonic() - started}


def compare_command() -> Any:
    """The function behind `viewkit compare`."""

    def body(locations: dict[str, Any], configs: list[Any], flags: dict[str, bool]) -> None:
        config, devices = configs
        experiment = experiment_of(locations["experiment"], config, locations["set"] or [])
        places = {name: locations[name] for name in ("dataset", "test", "name")}
        job = Job(COMPARE.name, COMPARE, Path(places["dataset"]), places, config, experiment)
        if flags["dry_run"]:
            for line in plan_lines(job, devices):
                say(line)
            return
        compare(job, devices, as_json=flags["json"])

    changes = Argument("set", "another value: pretrain.OPTION=VALUE, evaluate.OPTION=VALUE or runs.NAME.OPTION=VALUE; "
                       "may be repeated", list[str], option=True)  # fmt: skip
    arguments = (*COMPARE.arguments, changes)
    return command(COMPARE.name, COMPARE.help, arguments, [CompareConfig, CompareDevices], FLAGS, list(COMMANDS), body)


def experiment_of(name: str | None, config: CompareConfig, changes: Sequence[str]) -> Experiment:
    """The experiment that is asked for, or an empty one, with the arms that are asked for as its runs."""
    found = load_experiment(name) if name else Experiment(name="compare", title="arms by name")
    stages = {"pretrain": ({},), "evaluate": (EVALUATE,), **found.stages}
    return with_changes(replace(found, stages=stages, runs=chosen_arms(found, config)), changes)


def chosen_arms(experiment: Experiment, config: CompareConfig) -> dict[str, Mapping[str, Any]]:
    """Name -> what it changes: runs of the experiment, else arms by name. `ConfigError` for a name of neither."""
    asked = config.arms_asked() or tuple(experiment.runs)
    for name in asked:
        if name not in experiment.runs and name not in ARMS:
            raise ConfigError(
                f"compare: there is no arm '{name}'; arms are {', '.join(dict.fromkeys([*experiment.runs, *ARMS]))}"
            )
    if len(asked) < 2:
        raise ConfigError(
            f"compare: arms are {', '.join(asked) or 'not given'}; name two at least, e.g. --arms random,vs2fi"
        )
    return {name: experiment.runs[name] if name in experiment.runs else ARMS[name].options for name in asked}


def comparison_of(job: Job) -> Comparison:
    """Everything a comparison runs; options are checked."""
    experiment, config = job.experiment, job.config
    assert experiment is not None
    arms = chosen_arms(experiment, config)
    experiment = replace(experiment, runs=arms)
    reference = config.reference or (REFERENCE if REFERENCE in arms else next(iter(arms)))
    if reference not in arms:
        raise ConfigError(f"compare: reference is '{reference}', which is none of the arms {', '.join(arms)}")
    comparison = Comparison(
        name=job.locations["name"],
        dataset=job.dataset,
        test=Path(job.locations["test"]),
        reference=reference,
        arms={name: experiment.run_options(name) for name in sorted(arms, key=lambda name: name != reference)},
        evaluations=experiment.stages.get("evaluate", (EVALUATE,)),
        config=config,
    )
    for arm in comparison.arms:
        for each in comparison.jobs(Cell(arm, 1), 0, baselines=False):
            checked_stages(each.spec, each.config, dict(each.locations))
    return comparison


def check(comparison: Comparison) -> tuple[list[Cell], list[str]]:
    """The cells, and sentences about what differs between arms; raises before anything is trained.

    `ConfigError` or `DataError` for arms that are no comparison, inputs that are not there, and test images that are
    trained on.
    """
    from viewkit.pipelines.compare.equality import refuse_shared_images, refuse_unequal
    from viewkit.pipelines.evaluate.labelled import find_labelled
    from viewkit.shards.dataset import Dataset

    dataset, settings = Dataset(comparison.dataset), {}
    for arm, options in comparison.arms.items():
        job = make_job(COMMANDS["pretrain"], arm, {"dataset": "", "name": comparison.name}, comparison.dataset,
                       options, f"arm '{arm}'")  # fmt: skip
        settings[arm] = resolve(job.config).values()
        for stage, config in checked_stages(job.spec, job.config, dict(job.locations)):
            stage.inputs(config, dataset)
    notes = refuse_unequal(settings, other_spec=comparison.config.other_spec)
    images = dataset.column("images")
    if all(table.get("train") is None for table in comparison.evaluations):
        find_labelled(dataset, "train")
    refuse_shared_images(images, find_labelled(Dataset(comparison.test), "test"))
    own = settings[comparison.reference]
    steps = own["steps"] or own["epochs"] * (images.num_rows // own["batch_size"])
    if steps < 1:
        raise ConfigError(
            f"compare: batch_size is {own['batch_size']} and {comparison.dataset} has {images.num_rows} images, fewer "
            "than a batch; lower it, or pack more"
        )
    lengths = comparison.config.steps_asked() or (steps,)
    return [Cell(arm, length) for length in lengths for arm in comparison.arms], notes


def compare(job: Job, devices: Devices, *, as_json: bool, closing: bool = True) -> None:
    """Train, evaluate, train the controls, compare; what is there already is verified and kept."""
    from viewkit.pipelines.report.comparisons import text_lines
    from viewkit.shards.dataset import Dataset

    comparison = comparison_of(job)
    cells, notes = check(comparison)
    tell = _teller(as_json)
    if comparison.config.seeds < JUDGED:
        tell(f"compare: {comparison.config.seeds} seeds decide nothing: a verdict needs {JUDGED} at least")
    for note in notes:
        tell(f"compare: {note}")
    failed = train(comparison, cells, devices, tell)
    cells = [cell for cell in cells if cell.arm not in failed]
    _refuse_failed(comparison, cells, failed)
    dataset = Dataset(comparison.dataset)
    controls = controls_of(comparison, cells, dataset) if comparison.config.controls else []
    more = train(comparison, list(dict.fromkeys(each.cell for each in controls)), devices, tell)
    if more:
        controls, failed = [], {**failed, **{f"{arm}, trained longer": text for arm, text in more.items()}}
    stage = stage_of(comparison, cells, controls, notes)
    run_shown(stage, comparison.config, dataset, devices, as_json)
    if closing and not as_json:
        for line in text_lines(dataset, comparison.name):
            say(line)
    if failed:
        raise DataError(_failures(failed))


def train(comparison: Comparison, cells: Sequence[Cell], devices: Devices, tell: Any) -> dict[str, str]:
    """Every run of the cells, side by side; a line for each. Returns arm -> why it failed."""
    from viewkit.pipelines.engine.interrupts import interruptible
    from viewkit.pipelines.engine.workers import run_shards

    if not cells:
        return {}
    order = [(cell, seed) for seed in range(comparison.config.seeds) for cell in cells]
    runs = [comparison.jobs(cell, seed, baselines=(cell, seed) == order[0] and not cell.control)
            for cell, seed in order]  # fmt: skip
    places = devices.devices()
    side_by_side = min(len(runs), devices.num_jobs(places) if isinstance(devices, CompareDevices) else
                       CompareDevices(device=devices.device).num_jobs(places))  # fmt: skip
    failed: dict[str, str] = {}
    tell(f"compare: {len(runs)} runs, {side_by_side} at a time")

    def named(number: int) -> str:
        return f"run {order[number][0].run(comparison.name, order[number][1])}"

    started = time.monotonic()
    with interruptible("run the same command again, it goes on with the runs that are left"):
        found = run_shards(Trained(runs, places), range(len(runs)), side_by_side, lambda news: None, named)
        for done, (number, result) in enumerate(found, start=1):
            cell, seed = order[number]
            if "failed" in result:
                failed.setdefault(cell.arm, result["failed"])
                tell(f"compare: [{done}/{len(runs)}] {cell.label}, seed {seed}: failed: {result['failed']}")
                continue
            numbers = ", ".join(f"{probe} {100 * value:.1f}" for probe, value in result["top1"].items())
            left = (time.monotonic() - started) / done * (len(runs) - done)
            tell(f"compare: [{done}/{len(runs)}] {cell.label}, seed {seed}: {numbers} ({result['seconds']:.0f} s; "
                 f"about {left:.0f} s left)")  # fmt: skip
    return failed


def controls_of(comparison: Comparison, cells: Sequence[Cell], dataset: "Dataset") -> list[Control]:
    """The reference trained longer by what each dearer cell costs; cells whose cost is not known have none."""
    from viewkit.pipelines.compare.cost import OfflineCosts
    from viewkit.pipelines.compare.plan import plan_controls
    from viewkit.pipelines.compare.stage import cost_of

    offline = OfflineCosts(dataset)
    totals = {}
    for cell in cells:
        training, stages = cost_of(dataset, [f"runs/{cell.run(comparison.name, 0)}"], offline)
        totals[cell] = sum(stages.values(), training).flops
    ratios = [
        (cell, totals[cell] / totals[Cell(comparison.reference, cell.steps)])
        for cell in cells
        if cell.arm != comparison.reference
    ]
    return plan_controls(comparison.reference, ratios)


def stage_of(
    comparison: Comparison, cells: Sequence[Cell], controls: Sequence[Control], notes: Sequence[str]
) -> "CompareStage":
    from viewkit.pipelines.compare.stage import CompareStage

    return CompareStage(comparison.name, comparison.reference, cells, controls, comparison.folders, notes)


def plan_lines(job: Job, devices: Devices) -> Iterator[str]:
    """What a comparison would train, and how long it might take, measured on a few steps of every arm."""
    from viewkit.pipelines.engine.run import plan_stage
    from viewkit.shards.dataset import Dataset

    comparison = comparison_of(job)
    cells, notes = check(comparison)
    dataset, seeds = Dataset(comparison.dataset), comparison.config.seeds
    yield from notes
    step_s: dict[str, float] = {}
    seconds = 0.0
    for cell in cells:
        if cell.arm not in step_s:
            first = comparison.jobs(Cell(cell.arm, cell.steps), 0, baselines=False)[0]
            ((stage, config),) = checked_stages(first.spec, first.config, dict(first.locations))
            plan = plan_stage(stage, config, dataset, devices)
            step_s[cell.arm] = float(plan.get("step_s", 0.0))
        seconds += cell.steps * seeds * step_s[cell.arm]
        yield f"{cell.label}: {seeds} runs" + (f", {step_s[cell.arm]:.3f} s a step" if step_s[cell.arm] else ", there")
    yield f"in all about {seconds:.0f} s of training on one device, evaluations and controls not counted"


def _teller(as_json: bool) -> Any:
    def tell(text: str) -> None:
        if as_json:
            print_json({"event": "message", "text": text})
        else:
            say(text)

    return tell


def _refuse_failed(comparison: Comparison, cells: Sequence[Cell], failed: Mapping[str, str]) -> None:
    if comparison.reference in failed or len({cell.arm for cell in cells}) < 2:
        raise DataError(_failures(failed))


def _failures(failed: Mapping[str, str]) -> str:
    said = "; ".join(f"arm '{arm}' failed: {text}" for arm, text in failed.items())
    return f"compare: {said}; the runs that finished are kept"
