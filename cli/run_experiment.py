"""`viewkit run`: a whole experiment from one file, with its plan and its results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from viewkit.cli.chain import Job
from viewkit.cli.commands import COMPARE
from viewkit.cli.compare import plan_lines
from viewkit.cli.comparison import CompareDevices
from viewkit.cli.console import say
from viewkit.cli.events import MessageEvent, ResultEvent, TotalEvent, emit
from viewkit.cli.jobs import checked_jobs, devices_of, is_map, run_jobs
from viewkit.cli.profile import refuse_profile, shown_profile
from viewkit.cli.rehearsal import rehearse_experiment
from viewkit.cli.run import redo, say_plan
from viewkit.pipelines.engine.execution import HERE, Execution
from viewkit.pipelines.experiments.experiment import (
    Experiment,
    load_experiment,
    with_changes,
)
from viewkit.shards.errors import MissingError

SOURCE_KINDS = "a folder of images, tars, zip or parquet files, its URL in a store, or demo:train"
DATASET_PLACE = "folder of the dataset to make, or its URL in a store"


def run_experiment(
    experiment: Annotated[str, typer.Argument(help="name of an experiment, or a TOML file", metavar="EXPERIMENT")],
    source: Annotated[str, typer.Argument(help=f"the images: {SOURCE_KINDS}", metavar="SOURCE")],
    dataset: Annotated[Path, typer.Argument(help=DATASET_PLACE, metavar="DATASET")],
    test: Annotated[
        str | None,
        typer.Option("--test", help="labelled test images: a dataset, or a source that is packed into DATASET-test"),
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run the chain in miniature on a handful of the images; keep nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is left and how long it might take; write nothing.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="another value: STAGE.OPTION=VALUE or runs.NAME.OPTION=VALUE; may be repeated"),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="only these steps, by name or number, separated by commas")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="only this step and those after it")] = None,
    device: Annotated[
        str, typer.Option("--device", help="where models run: auto, cpu, cuda, or a list such as cuda:0,cuda:1")
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            help="processes of the stages that write columns, runs of a comparison side by side",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option("--on", help="where shards and parts are done: here, ray or ray://HOST:PORT (docs/cluster.md)"),
    ] = HERE,
    part: Annotated[
        str, typer.Option("--part", help="part I of N of the shards, as I/N counted from 0, e.g. from a Slurm array")
    ] = "0/1",
    fits_only: Annotated[
        bool, typer.Option("--fits-only", help="Of the chosen steps only what is fitted; write no column.")
    ] = False,
    max_rejects: Annotated[
        float, typer.Option("--max-rejects", help="share of rejected rows above which a stage fails")
    ] = 0.01,
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="write what took how long to this file, for ui.perfetto.dev (docs/profile.md)"),
    ] = None,
    redo_stale: Annotated[
        bool, typer.Option("--redo", help="Delete what other settings or images left, and all that was made from it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines (docs/events.md).")] = False,
) -> None:
    """Run an experiment from its images to its table: stage after stage, resumed by the same command."""
    found = with_changes(load_experiment(experiment), changes or [])
    execution = Execution(device=device, workers=workers, on=on, part=part, max_rejects=max_rejects, profile=profile)
    if rehearse:
        with shown_profile(profile, 0, as_json):
            rehearse_experiment(found, source, execution, as_json=as_json)
        return
    checked = checked_jobs(found, source, dataset, test, only, start)
    if fits_only:
        checked = [(job, [each for each in stages if not is_map(each[0])]) for job, stages in checked]
    if dry_run:
        refuse_profile(profile)
        _say_plans(found, checked, execution, as_json, redo_stale=redo_stale)
        return
    with shown_profile(profile, 0, as_json):
        run_jobs(checked, execution, as_json=as_json, redo_stale=redo_stale, experiment=found)
    _say_results(found, dataset, as_json)
    if found.next and not as_json:
        say("Go on with:")
        for text in found.next:
            say(f"  {text.format(dataset=dataset)}")


def _say_plans(
    experiment: Experiment,
    checked: Sequence[tuple[Job, Sequence[tuple[Any, Any]]]],
    execution: Execution,
    as_json: bool,
    *,
    redo_stale: bool,
) -> None:
    from viewkit.shards.dataset import Dataset

    seconds, size, waiting = 0.0, 0, 0
    for job, stages in checked:
        if not as_json:
            say(f"[{job.name}]")
        for stage, config in stages:
            if redo_stale and redo(stage, config, Dataset(job.dataset), execution, as_json=as_json, dry_run=True):
                waiting += 1
                continue
            plan = say_plan(stage, config, Dataset(job.dataset), execution, as_json, waits=True)
            seconds += float(plan.get("estimated_s", 0))
            size += int(plan.get("estimated_bytes", 0))
            waiting += "waits_for" in plan
        if job.spec.name == COMPARE.name:
            waiting += _say_comparison(job, devices_of(execution), as_json)
    total: dict[str, Any] = {
        "estimated_s": round(seconds, 1),
        "estimated_bytes": size,
        "waiting": waiting,
        "cost": experiment.cost,
    }
    if as_json:
        emit(TotalEvent(**total))
        return
    say(f"in all, of what can be measured now: {seconds:.0f} s on {', '.join(execution.devices())}, {size} bytes; "
        f"{waiting} stages wait for what earlier ones write")  # fmt: skip
    if experiment.cost:
        say(f"the paper's authors used {experiment.cost}")


def _say_comparison(job: Job, devices: CompareDevices, as_json: bool) -> bool:
    """Print what a comparison would train; whether it waits for earlier stages."""
    try:
        lines, waits = list(plan_lines(job, devices)), False
    except MissingError as error:
        lines, waits = [f"waits for the steps before this one ({error})"], True
    for line in lines:
        if as_json:
            emit(MessageEvent(text=line))
        else:
            say(f"  {line}")
    return waits


def _say_results(experiment: Experiment, dataset: Path, as_json: bool) -> None:
    from viewkit.pipelines.published import compare_published, table_lines
    from viewkit.shards.dataset import Dataset

    comparisons = compare_published(experiment.published, Dataset(dataset))
    if as_json:
        for each in comparisons:
            yours = None if each.yours is None else round(each.yours.value, 3)
            emit(
                ResultEvent(
                    name=each.name,
                    metric=each.metric,
                    published=each.published,
                    yours=yours,
                    difference=each.difference,
                    doubt=each.doubt,
                )
            )
        return
    for line in ["", *table_lines(comparisons)] if comparisons else []:
        say(line)
