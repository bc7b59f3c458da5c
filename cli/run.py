"""Runs the stages of one command."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkit.cli.commands import PIPELINE, StageCommand
from viewkit.cli.console import LiveProgress, make_progress, print_json, say
from viewkit.cli.options import command, flag
from viewkit.pipelines.engine.execution import Devices, Execution
from viewkit.shards.errors import ConfigError, MissingError

if TYPE_CHECKING:
    from viewkit.shards.dataset import Dataset

FLAGS = (
    flag("dry_run", "Say what would be done and how long it might take; write nothing."),
    flag("json", "Print events as JSON lines instead of a progress display."),
)


def run_command(spec: StageCommand) -> Callable[..., None]:
    """The function behind `viewkit SPEC.NAME`."""

    def body(locations: dict[str, Any], configs: list[Any], flags: dict[str, bool]) -> None:
        from viewkit.shards.dataset import Dataset

        config, execution = configs
        dataset = Dataset(_dataset_path(spec, locations))
        jobs = [(step, config, locations) for step in spec.steps]
        for switch, name in spec.also:
            other = next(each for each in PIPELINE if each.name == name)
            places = {argument.name: argument.default for argument in other.arguments}
            jobs += [(step, other.config_class()(), places) for step in other.steps] if flags[switch] else []
        work: list[tuple[Any, Any]] = []
        for step, options, places in jobs:  # all are checked before the first runs, which may take hours
            stage = step.stage_class()(**{name: places[name] for name in step.takes})
            work.append((stage, options if step.config is None else getattr(options, step.config)()))
            stage.check(work[-1][1])
        for place, (stage, own) in enumerate(work):
            if flags["dry_run"]:
                _say_plan(stage, own, dataset, execution, flags["json"], waits=place > 0)
            else:
                _run(stage, own, dataset, execution, flags["json"])
        if not (flags["dry_run"] or flags["json"]):
            for line in spec.closing_lines(dataset):
                say(line)
            if spec.page is not None:
                say(f"\nThe page: {dataset.path / spec.page}")

    names = [each.name for each in PIPELINE]
    options = Execution if spec.maps_rows else Devices
    configs, presets = [spec.config_class(), options], spec.preset_options()
    switches = [flag(switch, f"Then run 'viewkit {other}' too, as it is by default.") for switch, other in spec.also]
    return command(spec.name, spec.help, spec.arguments, configs, [*switches, *FLAGS], names, body, presets)


def _dataset_path(spec: StageCommand, locations: dict[str, Any]) -> str:
    """The dataset a command works on: its DATASET argument, or the one that RUN lies in."""
    if "dataset" in locations:
        return str(locations["dataset"])
    run = Path(locations["run"])
    if run.parent.name != "runs":
        raise ConfigError(f"viewkit {spec.name}: RUN is {run}; it must be the folder of a run, DATASET/runs/NAME")
    return str(run.parent.parent)


def _run(stage: Any, config: Any, dataset: "Dataset", execution: Devices, as_json: bool) -> None:
    from viewkit.pipelines.engine.run import run_stage

    progress = make_progress(as_json)
    try:
        run_stage(stage, config, dataset, execution, progress)
    finally:
        if isinstance(progress, LiveProgress):
            progress.stop()


def _say_plan(stage: Any, config: Any, dataset: "Dataset", execution: Devices, as_json: bool, waits: bool) -> None:
    """waits: whether an earlier step of the command may still have to write what this one reads."""
    from viewkit.pipelines.engine.run import plan_stage

    try:
        plan = plan_stage(stage, config, dataset, execution)
    except MissingError as error:
        if not waits:
            raise
        plan = {"stage": stage.name, "waits_for": f"the step before this one ({error})"}
    if as_json:
        print_json({"event": "plan", **plan})
        return
    say(f"{plan.pop('stage')}: would do")
    for name, value in plan.items():
        say(f"  {name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
