"""`viewkit run` and `viewkit experiments`: whole published experiments, from one file."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from viewkit.cli.chain import OF_A_RUN, PACK_PARTS, Job, chain_of, chosen
from viewkit.cli.commands import COMPARE
from viewkit.cli.compare import compare, comparison_of, plan_lines
from viewkit.cli.comparison import CompareDevices
from viewkit.cli.console import print_json, say
from viewkit.cli.events import MessageEvent, RehearsedEvent, ResultEvent, StepEvent, TotalEvent, emit
from viewkit.cli.profile import refuse_profile, shown_profile
from viewkit.cli.progress import Chain
from viewkit.cli.run import checked_stages, redo, run_shown, say_plan
from viewkit.cli.status import table
from viewkit.pipelines.engine.execution import HERE, Execution
from viewkit.pipelines.experiments.experiment import (
    PAPERS,
    Experiment,
    experiment_names,
    load_experiment,
    with_changes,
)
from viewkit.shards.errors import ConfigError, MissingError, ViewkitError
from viewkit.shards.stores.url import is_url

SOURCE_KINDS = "a folder of images, tars, zip or parquet files, or demo:train"


def experiments(
    paper: Annotated[
        str | None, typer.Argument(help=f"only those of one paper: {', '.join(PAPERS)}", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the published experiments that 'viewkit run' knows, by paper and table."""
    names = {each.lower(): each for each in PAPERS}
    if paper is not None and paper.lower() not in names:
        raise ConfigError(f"viewkit experiments: PAPER is '{paper}'; choose one of {', '.join(PAPERS)}")
    found = [load_experiment(name) for name in experiment_names()]
    if paper is not None:
        found = [each for each in found if each.paper == names[paper.lower()]]
    if as_json:
        for each in found:
            print_json(facts_of(each))
        return
    rows = [
        [each.name, each.paper or "-", each.table or "-", str(len(each.runs)), each.title] for each in in_order(found)
    ]
    table(["experiment", "paper", "place", "runs", "title"], rows)


def in_order(found: Sequence[Experiment]) -> list[Experiment]:
    """By paper, then by name; those of no paper first."""
    papers = ["", *PAPERS]
    return sorted(found, key=lambda each: (papers.index(each.paper), each.name))


def facts_of(experiment: Experiment) -> dict[str, Any]:
    """An experiment as JSON values."""
    return {
        "name": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "table": experiment.table,
        "source": experiment.source,
        "data": experiment.data,
        "cost": experiment.cost,
        "needs": dict(experiment.needs),
        "notes": list(experiment.notes),
        "stages": {name: [dict(each) for each in tables] for name, tables in experiment.stages.items()},
        "runs": {name: dict(options) for name, options in experiment.runs.items()},
        "published": [vars(each) for each in experiment.published],
    }


def run_experiment(
    experiment: Annotated[str, typer.Argument(help="name of an experiment, or a TOML file", metavar="EXPERIMENT")],
    source: Annotated[str, typer.Argument(help=f"the images: {SOURCE_KINDS}", metavar="SOURCE")],
    dataset: Annotated[Path, typer.Argument(help="folder of the dataset to make", metavar="DATASET")],
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
        str, typer.Option("--on", help="where shards are done: here, ray or ray://HOST:PORT (docs/cluster.md)")
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


def checked_jobs(
    experiment: Experiment,
    source: str,
    dataset: Path,
    test: str | None,
    only: str | None = None,
    start: str | None = None,
) -> list[tuple[Job, list[tuple[Any, Any]]]]:
    """The steps to run, each with its stages and their configs, checked as far as that goes before any runs."""
    test_path, test_source = _test_of(test, dataset)
    jobs = chosen(chain_of(experiment, source, dataset, test_path, test_source), only, start)
    _refuse_missing(experiment, jobs, source, test)
    _refuse_unlabelled(jobs, test_path if test_source is None else None)
    return [(job, stages_of(job)) for job in jobs]


def is_map(stage: Any) -> bool:
    from viewkit.pipelines.engine.contract import MapStage

    return isinstance(stage, MapStage)


def stages_of(job: Job) -> list[tuple[Any, Any]]:
    """The stages of a job with their configs, checked; none of a comparison, which makes its own as it goes."""
    if job.spec.name == COMPARE.name:
        comparison_of(job)
        return []
    return checked_stages(job.spec, job.config, dict(job.locations))


def devices_of(execution: Execution) -> CompareDevices:
    """As many runs side by side as there are workers of other stages."""
    return CompareDevices(device=execution.device, jobs=execution.workers)


def run_jobs(
    checked: Sequence[tuple[Job, Sequence[tuple[Any, Any]]]],
    execution: Execution,
    *,
    as_json: bool,
    closing: bool = True,
    redo_stale: bool = False,
    experiment: Experiment | None = None,
) -> None:
    """Run every stage of every job. closing: also print what a command prints when it is done, e.g. its table.

    redo_stale: first delete what a stage would replace, and what was made from it. experiment: kept in the dataset as
    soon as that has images, for its page.
    """
    from viewkit.pipelines.published import write_record
    from viewkit.shards.dataset import Dataset

    chain = Chain([job.spec.name for job, _ in checked])
    for place, (job, stages) in enumerate(checked):
        chain.place, begin = place, time.monotonic()
        if experiment is not None and Dataset(job.dataset).is_column("images") and not job.name.startswith("pack"):
            write_record(experiment.record(), Dataset(job.dataset))
        if as_json:
            emit(StepEvent(name=job.name, place=place + 1, of=len(checked)))
        else:
            say(f"[{place + 1}/{len(checked)}] {job.name}" + (f": {job.says}" if job.says else ""))
        if job.spec.name == COMPARE.name:
            compare(job, devices_of(execution), as_json=as_json, closing=closing, redo_stale=redo_stale)
            continue
        worked = False
        for stage, config in stages:
            if redo_stale:
                redo(stage, config, Dataset(job.dataset), execution, as_json=as_json)
            worked |= run_shown(stage, config, Dataset(job.dataset), execution, as_json, chain)
        chain.finished(time.monotonic() - begin, worked)
        if as_json or not closing:
            continue
        for line in job.spec.closing_lines(Dataset(job.dataset), job.locations):
            say(line)
        if job.spec.page is not None:
            say(f"The page: {job.dataset / job.spec.page}")


def rehearse_experiment(experiment: Experiment, source: str, execution: Execution, *, as_json: bool) -> None:
    """Run the miniature of an experiment on a handful of the source's images; its folder is deleted afterwards."""
    from viewkit.pipelines.experiments.handful import copy_handful
    from viewkit.pipelines.experiments.rehearse import TEST_IMAGES, TRAIN_IMAGES, rehearsal_of
    from viewkit.pipelines.pack.config import PARQUET_OPTIONS

    begin = time.monotonic()
    chain_of(experiment, source, Path("dataset"), Path("test"), source)  # its own options, before they are made smaller
    rehearsal = rehearsal_of(experiment)
    packed = experiment.stages.get("pack", ({},))[0]
    labels = str(packed.get("labels", "none"))
    columns = {name: str(packed[name]) for name in PARQUET_OPTIONS if name in packed}
    folder = Path(tempfile.mkdtemp(prefix="viewkit-rehearsal-"))
    try:
        train, test = folder / "train", folder / "test"
        notes = copy_handful(source, labels, train, test, images=(TRAIN_IMAGES, TEST_IMAGES), columns=columns)
        jobs = chain_of(rehearsal.experiment, str(train), folder / "dataset", folder / "dataset-test", str(test))
        checked = [(job, stages_of(job)) for job in jobs]
        small = Execution(device=execution.device, workers=1, max_rejects=execution.max_rejects)
        try:
            run_jobs(checked, small, as_json=as_json, closing=False)
        except ViewkitError as error:
            raise type(error)(f"the rehearsal of '{experiment.name}' stopped: {error}") from error
    finally:
        shutil.rmtree(folder)
    seconds = round(time.monotonic() - begin, 1)
    if as_json:
        replaced = [*notes, *rehearsal.replaced]
        emit(RehearsedEvent(steps=len(jobs), seconds=seconds, replaced=replaced))
        return
    for note in notes:
        say(f"note: {note}")
    for text in rehearsal.replaced:
        say(f"note: {text} stood in")
    say(f"the rehearsal of '{experiment.name}' went through: {len(jobs)} steps in {seconds:g} s; nothing was kept")


def _test_of(test: str | None, dataset: Path) -> tuple[Path, str | None]:
    """(folder of the test dataset, what has to be packed into it or None)."""
    from viewkit.shards.dataset import Dataset

    if (
        test is not None
        and (Dataset(test).path if is_url(test) else Path(test)).joinpath("images/column.json").is_file()
    ):
        return Path(test), None
    return dataset.with_name(f"{dataset.name}-test"), test


def _refuse_missing(experiment: Experiment, jobs: Sequence[Job], source: str, test: str | None) -> None:
    """`ConfigError` that names everything the jobs need and the user still has to get, before anything runs."""
    missing, run = [], {job.spec.name for job in jobs}
    if COMPARE.name in run:
        run |= set(OF_A_RUN)
    if "pack" in {job.name for job in jobs} and ":" not in source and not Path(source).exists():
        missing.append(f"the images, {experiment.data}: SOURCE '{source}' does not exist")
    if "evaluate" in run and test is None:
        missing.append("labelled test images: --test SOURCE")
    elif test is not None and ":" not in test and not Path(test).exists():
        missing.append(f"labelled test images: --test '{test}' does not exist")
    for place, text in experiment.needs.items():
        stage, _, option = place.partition(".")
        if stage in run and not any(option in each for each in experiment.stages.get(stage, ())):
            missing.append(f"{text}: --set {place}=PATH")
    if missing:
        raise ConfigError(
            f"experiment '{experiment.name}' lacks {'; '.join(missing)}. '--rehearse' tries the chain without them"
        )


def _refuse_unlabelled(jobs: Sequence[Job], test: Path | None) -> None:
    """`DataError` for datasets that are packed already and that `evaluate` could not use, before anything is trained.

    test: the packed test dataset, or None where it is still to be packed.
    """
    from viewkit.pipelines.evaluate.labelled import find_labelled
    from viewkit.shards.dataset import Dataset

    evaluations = [job for job in jobs if job.spec.name == "evaluate"]
    if (evaluations or COMPARE.name in {job.spec.name for job in jobs}) and test is not None:
        find_labelled(Dataset(test), "test")
    made = {str(job.dataset) for job in jobs if job.name == PACK_PARTS}
    for train in dict.fromkeys(str(job.locations["train"]) for job in evaluations if job.locations.get("train")):
        if train not in made:
            find_labelled(Dataset(train), "train")


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
