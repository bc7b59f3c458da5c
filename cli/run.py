"""Runs the stages of one command."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkit.cli.command import StageCommand
from viewkit.cli.commands import COMPARE, PIPELINE
from viewkit.cli.console import say
from viewkit.cli.events import NextEvent, PlanEvent, RemovedEvent, emit
from viewkit.cli.options import command, flag
from viewkit.cli.profile import refuse_profile, shown_profile
from viewkit.cli.progress import Chain, JsonProgress, PlainProgress
from viewkit.pipelines.engine.execution import Devices
from viewkit.shards.errors import ConfigError, MissingError

if TYPE_CHECKING:
    from viewkit.cli.live import LiveProgress
    from viewkit.shards.dataset import Dataset

FLAGS = (
    flag("dry_run", "Say what would be done and how long it might take; write nothing."),
    flag("json", "Print events as JSON lines (docs/events.md) instead of a progress display."),
)
REDO = flag(
    "redo",
    "Delete what this command would replace and all that was made from it, nothing that stays the same; say what.",
)


def run_command(spec: StageCommand) -> Callable[..., None]:
    """The function behind `viewkit SPEC.NAME`."""

    def body(locations: dict[str, Any], configs: list[Any], flags: dict[str, bool]) -> None:
        config, execution = configs
        if flags["dry_run"]:
            refuse_profile(execution.profile)
        with shown_profile(execution.profile, execution.profile_kernels, flags["json"]):
            work_off(locations, config, execution, flags)

    def work_off(locations: dict[str, Any], config: Any, execution: Devices, flags: dict[str, bool]) -> None:
        from viewkit.shards.dataset import Dataset

        dataset = Dataset(_dataset_path(spec, locations))
        work = checked_stages(spec, config, locations)  # all before the first runs, which may take hours
        for switch, name in spec.also:
            other = next(each for each in PIPELINE if each.name == name)
            places = {argument.name: argument.default for argument in other.arguments}
            if "pairs" in places and "column" in locations:
                places["pairs"] = locations["column"]  # what this command writes
            work += checked_stages(other, other.config_class()(), places) if flags[switch] else []
        gone: list[str] = []
        for place, (stage, own) in enumerate(work):
            if flags["redo"]:
                gone += redo(stage, own, dataset, execution, as_json=flags["json"], dry_run=flags["dry_run"])
            if flags["dry_run"] and stage.writes not in gone:  # else its plan would be that of what is still there
                say_plan(stage, own, dataset, execution, flags["json"], waits=place > 0)
            elif not flags["dry_run"]:
                run_shown(stage, own, dataset, execution, flags["json"])
        if flags["dry_run"]:
            return
        if not flags["json"]:
            for line in spec.closing_lines(dataset, locations):
                say(line)
            if spec.page is not None:
                say(f"\nThe page: {dataset.path / spec.page}")
        following = spec.next_command({**vars(config), **locations, "dataset": dataset.path})
        if following is not None:
            emit(NextEvent(command=following)) if flags["json"] else say(f"next: {following}")

    names = [each.name for each in (*PIPELINE, COMPARE)]
    configs, presets = [spec.config_class(), spec.execution_class()], spec.preset_options()
    switches = [flag(switch, f"Then run 'viewkit {other}' too, as it is by default.") for switch, other in spec.also]
    return command(spec.name, spec.help, spec.arguments, configs, [*switches, REDO, *FLAGS], names, body, presets)


def checked_stages(spec: StageCommand, config: Any, locations: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The stages of a command, each with its own config, checked as far as that goes without the dataset."""
    work = []
    for step in spec.steps:
        stage = step.stage_class()(**{name: locations[name] for name in step.takes})
        own = config if step.config is None else getattr(config, step.config)()
        stage.check(own)
        work.append((stage, own))
    return work


def _dataset_path(spec: StageCommand, locations: dict[str, Any]) -> str:
    """The dataset a command works on: its DATASET argument, or the one that RUN lies in."""
    if "dataset" in locations:
        return str(locations["dataset"])
    run = Path(locations["run"])
    if run.parent.name != "runs":
        raise ConfigError(f"viewkit {spec.name}: RUN is {run}; it must be the folder of a run, DATASET/runs/NAME")
    return str(run.parent.parent)


def make_progress(as_json: bool, chain: Chain | None = None) -> "JsonProgress | PlainProgress | LiveProgress":
    """JSON events when asked for, a live display on a terminal, plain lines otherwise."""
    if as_json:
        return JsonProgress(chain)
    if sys.stderr is not None and sys.stderr.isatty():
        from viewkit.cli.live import LiveProgress

        return LiveProgress(chain)
    return PlainProgress(chain)


def run_shown(
    stage: Any, config: Any, dataset: "Dataset", execution: Devices, as_json: bool, chain: Chain | None = None
) -> bool:
    """Run a stage and show its progress; returns whether there was anything to do."""
    from viewkit.pipelines.engine.run import run_stage

    progress = make_progress(as_json, chain)
    try:
        return run_stage(stage, config, dataset, execution, progress).written > 0
    finally:
        progress.stop()


def redo(
    stage: Any, config: Any, dataset: "Dataset", execution: Devices, *, as_json: bool, dry_run: bool = False
) -> list[str]:
    """Delete what `stage` would replace and what was made from it, and say so; dry_run: only say so. Returns names."""
    from viewkit.pipelines.engine.redo import replaced_by
    from viewkit.shards.removal import remove

    names = replaced_by(stage, config, dataset, execution)
    if not dry_run:
        remove(dataset, names, files_of_stage)
    if names and as_json:
        emit(RemovedEvent(names=names, dry_run=dry_run))
    elif names:
        say(f"{stage.name}: --redo {'would delete' if dry_run else 'deleted'} {', '.join(names)}")
    return names


def files_of_stage(name: str) -> list[str]:
    """Names of the files that a stage writes into its artifact; nothing for a stage that no command runs."""
    for spec in (*PIPELINE, COMPARE):
        for step in spec.steps:
            stage: Any = step.stage_class()
            if stage.name == name and hasattr(stage, "own_files"):
                return list(stage.own_files())
    return []


def say_plan(
    stage: Any, config: Any, dataset: "Dataset", execution: Devices, as_json: bool, waits: bool
) -> dict[str, Any]:
    """Print what a stage would do, and return it.

    waits: whether an earlier step may still have to write what it reads.
    """
    from viewkit.pipelines.engine.run import plan_stage

    try:
        plan = plan_stage(stage, config, dataset, execution)
    except MissingError as error:
        if not waits:
            raise
        plan = {"stage": stage.name, "waits_for": f"the step before this one ({error})"}
    if as_json:
        emit(PlanEvent(stage=plan["stage"], numbers={name: each for name, each in plan.items() if name != "stage"}))
        return plan
    say(f"{plan['stage']}: would do")
    for name, value in plan.items():
        if name != "stage":
            say(f"  {name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    return plan
