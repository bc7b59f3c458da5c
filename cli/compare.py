"""`viewkit compare`: trains every arm with every seed, evaluates, trains the controls, then compares them all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkit.cli.chain import COMMANDS, EVALUATE, Job, comparison_options, make_job
from viewkit.cli.commands import COMPARE
from viewkit.cli.comparison import CompareDevices, Comparison, refuse_other_runs, stale_runs, teller, train
from viewkit.cli.console import say
from viewkit.cli.options import Argument, command
from viewkit.cli.profile import refuse_profile, shown_profile
from viewkit.cli.run import FLAGS, REDO, checked_stages, redo, run_shown
from viewkit.pipelines.compare.arms import ARMS, REFERENCE
from viewkit.pipelines.compare.config import CompareConfig, check_name
from viewkit.pipelines.compare.plan import Cell, Control
from viewkit.pipelines.experiments.experiment import Experiment, load_experiment, with_changes
from viewkit.pipelines.pretrain.config import resolve
from viewkit.shards.errors import ConfigError, DataError

if TYPE_CHECKING:
    from viewkit.pipelines.compare.stage import CompareStage
    from viewkit.pipelines.pretrain.config import PretrainSettings
    from viewkit.shards.dataset import Dataset


def compare_command() -> Any:
    """The function behind `viewkit compare`."""

    def body(locations: dict[str, Any], configs: list[Any], flags: dict[str, bool]) -> None:
        config, devices = configs
        experiment = experiment_of(locations["experiment"], config, locations["set"] or [])
        places = {name: locations[name] for name in ("dataset", "test", "name")}
        job = Job(COMPARE.name, COMPARE, Path(places["dataset"]), places, config, experiment)
        if flags["dry_run"]:
            refuse_profile(devices.profile)
            tell = teller(flags["json"])
            for line in plan_lines(job, devices, redo_stale=flags["redo"]):
                tell(line)
            return
        with shown_profile(devices.profile, devices.profile_kernels, flags["json"]):
            compare(job, devices, as_json=flags["json"], redo_stale=flags["redo"])

    changes = Argument("set", "another value: pretrain.OPTION=VALUE, evaluate.OPTION=VALUE or runs.NAME.OPTION=VALUE; "
                       "may be repeated", list[str], option=True)  # fmt: skip
    arguments = (*COMPARE.arguments, changes)
    configs = [CompareConfig, CompareDevices]
    return command(
        COMPARE.name, COMPARE.help, arguments, configs, [REDO, *FLAGS], list(COMMANDS), body, beneath=options_of
    )


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the table [compare] of the experiment that is given, if one is."""
    own = {} if given["experiment"] is None else comparison_options(load_experiment(given["experiment"]))
    return {key.replace("-", "_"): value for key, value in own.items()}


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
    check_name(job.locations["name"])
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
    checked_settings(comparison)
    return comparison


def checked_settings(comparison: Comparison) -> tuple[dict[str, "PretrainSettings"], list[str]]:
    """Settings of every arm, and sentences about what differs between them; `ConfigError` for arms that are no
    comparison. Needs no images."""
    from viewkit.pipelines.compare.equality import refuse_unequal

    settings = {}
    for arm, options in comparison.arms.items():
        job = make_job(COMMANDS["pretrain"], arm, {"dataset": "", "name": comparison.name}, comparison.dataset,
                       options, f"arm '{arm}'")  # fmt: skip
        settings[arm] = resolve(job.config)
        if settings[arm].precision == "auto":
            raise ConfigError(
                f"compare: precision is 'auto' in arm '{arm}', and runs that go on elsewhere would take another one; "
                "set it to fp32 or bf16"
            )
    return settings, refuse_unequal(settings, other_spec=comparison.config.other_spec)


def check(comparison: Comparison) -> tuple[list[Cell], list[str]]:
    """The cells, and sentences about what differs between arms; raises before anything is trained.

    `ConfigError` or `DataError` for arms that are no comparison, inputs that are not there, and test images that are
    trained on.
    """
    from viewkit.pipelines.compare.equality import refuse_shared_images
    from viewkit.pipelines.evaluate.labelled import find_labelled
    from viewkit.shards.dataset import Dataset

    dataset = Dataset(comparison.dataset)
    settings, notes = checked_settings(comparison)
    for arm in comparison.arms:
        training = comparison.jobs(Cell(arm, 1), 0, baselines=False)[0]
        for stage, config in checked_stages(training.spec, training.config, dict(training.locations)):
            stage.inputs(config, dataset)
    images = dataset.column("images")
    if any(table.get("train") is None for table in comparison.evaluations):
        find_labelled(dataset, "train")
    others = {str(table["train"]) for table in comparison.evaluations if table.get("train")}
    test = find_labelled(Dataset(comparison.test), "test")
    for trained_on in [images, *(find_labelled(Dataset(other), "train") for other in sorted(others))]:
        refuse_shared_images(trained_on, test)
    own = settings[comparison.reference]
    epoch = images.num_rows // own.batch_size
    if not epoch:
        raise ConfigError(
            f"compare: batch_size is {own.batch_size} and {comparison.dataset} has {images.num_rows} images, fewer "
            "than a batch; lower it, or pack more"
        )
    lengths = comparison.config.steps_asked() or (own.steps or own.epochs * epoch,)
    return [Cell(arm, length) for length in lengths for arm in comparison.arms], notes


def compare(
    job: Job, devices: CompareDevices, *, as_json: bool, closing: bool = True, redo_stale: bool = False
) -> None:
    """Train, evaluate, train the controls, compare; what is there already is verified and kept.

    redo_stale: first delete runs that other settings left, and the comparison, which was made from them.
    """
    from viewkit.pipelines.compare.equality import refuse_other_images
    from viewkit.pipelines.compare.verdict import Rules
    from viewkit.pipelines.report.comparisons import text_lines
    from viewkit.shards.dataset import Dataset

    comparison = comparison_of(job)
    cells, notes = check(comparison)
    tell, least = teller(as_json), Rules().min_seeds
    if comparison.config.seeds < least:
        tell(f"compare: {comparison.config.seeds} seeds decide nothing: a verdict needs {least} at least")
    for note in notes:
        tell(f"compare: {note}")
    if not redo_stale:
        refuse_other_runs(comparison, cells, devices)
    failed = train(comparison, cells, devices, as_json, redo_stale=redo_stale)
    cells = [cell for cell in cells if cell.arm not in failed]
    _refuse_failed(comparison, cells, failed)
    dataset = Dataset(comparison.dataset)
    controls = controls_of(comparison, cells, dataset) if comparison.config.controls else []
    more = train(comparison, list(dict.fromkeys(each.cell for each in controls if each.cell.control)), devices, as_json,
                 redo_stale=redo_stale)  # fmt: skip
    if more:
        controls, failed = [], {**failed, **{f"{arm}, trained longer": text for arm, text in more.items()}}
    stage = stage_of(comparison, cells, controls, notes)
    refuse_other_images(dataset, stage.reads(comparison.config))
    if redo_stale:
        redo(stage, comparison.config, dataset, devices, as_json=as_json)
    run_shown(stage, comparison.config, dataset, devices, as_json)
    if closing and not as_json:
        for line in text_lines(dataset, comparison.name):
            say(line)
    if failed:
        raise DataError(_failures(failed))


def controls_of(comparison: Comparison, cells: Sequence[Cell], dataset: "Dataset") -> list[Control]:
    """The reference trained longer by what each more expensive cell costs; cells whose cost is not known have none."""
    from viewkit.pipelines.compare.cost import OfflineCosts
    from viewkit.pipelines.compare.plan import Priced, plan_controls
    from viewkit.pipelines.compare.stage import cost_of

    found = OfflineCosts(dataset)
    costs = {cell: cost_of(dataset, [f"runs/{cell.run(comparison.name, 0)}"], found) for cell in cells}
    totals = {cell: sum(stages.values(), training) for cell, (training, stages) in costs.items()}
    priced = []
    for cell in cells:
        reference = Cell(comparison.reference, cell.steps)
        if cell != reference and not (totals[cell].uncounted or totals[reference].uncounted):
            training, stages = costs[reference]
            offline = sum(each.flops for each in stages.values())
            priced.append(Priced(cell, totals[cell].flops, training.flops, offline))
    return plan_controls(comparison.reference, priced)


def stage_of(
    comparison: Comparison, cells: Sequence[Cell], controls: Sequence[Control], notes: Sequence[str]
) -> "CompareStage":
    from viewkit.pipelines.compare.stage import CompareStage

    return CompareStage(comparison.name, comparison.reference, cells, controls, comparison.folders, notes)


def plan_lines(job: Job, devices: CompareDevices, *, redo_stale: bool = False) -> Iterator[str]:
    """What a comparison would train, and how long it might take, measured on a few steps of every arm.

    redo_stale: also what would be deleted first.
    """
    from viewkit.pipelines.engine.run import plan_stage
    from viewkit.shards.dataset import Dataset

    comparison = comparison_of(job)
    cells, notes = check(comparison)
    dataset, seeds = Dataset(comparison.dataset), comparison.config.seeds
    yield from notes
    gone: set[str] = set()
    if redo_stale:
        gone = {name for names in stale_runs(comparison, cells, devices) for name in names}
        yield f"--redo would delete {', '.join(sorted(gone)) or 'nothing'}"
    else:
        refuse_other_runs(comparison, cells, devices)
    step_s: dict[str, float] = {}
    seconds = 0.0
    there = {name for name in dataset.artifacts() if name.startswith("runs/") and dataset.artifact(name).is_complete}
    there -= gone
    for cell in cells:
        left = [seed for seed in range(seeds) if f"runs/{cell.run(comparison.name, seed)}" not in there]
        if left and cell.arm not in step_s:
            untouched = next(
                seed for seed in count() if not dataset.is_artifact(f"runs/{cell.run(comparison.name, seed)}")
            )
            first = comparison.jobs(cell, untouched, baselines=False)[0]
            ((stage, config),) = checked_stages(first.spec, first.config, dict(first.locations))
            step_s[cell.arm] = float(plan_stage(stage, config, dataset, devices)["step_s"])
        seconds += cell.steps * len(left) * step_s.get(cell.arm, 0.0)
        yield f"{cell.label}: {seeds - len(left)} of {seeds} runs are there" + (
            f", {step_s[cell.arm]:.3f} s a step for the others" if left else ""
        )
    yield f"in all about {seconds:.0f} s of training on one device, evaluations and controls not counted"


def _refuse_failed(comparison: Comparison, cells: Sequence[Cell], failed: Mapping[str, str]) -> None:
    if comparison.reference in failed or len({cell.arm for cell in cells}) < 2:
        raise DataError(_failures(failed))


def _failures(failed: Mapping[str, str]) -> str:
    said = "; ".join(f"arm '{arm}' failed: {text}" for arm, text in failed.items())
    return f"compare: {said}; the runs that finished are kept"
