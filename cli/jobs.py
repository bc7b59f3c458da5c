"""The steps of an experiment: checked as far as that goes before any runs, then run one after the other."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from viewkit.cli.chain import EVALUATE, OF_A_RUN, Job, chain_of, chosen
from viewkit.cli.commands import COMPARE
from viewkit.cli.compare import compare, comparison_of
from viewkit.cli.comparison import CompareDevices
from viewkit.cli.console import say
from viewkit.cli.events import StepEvent, emit
from viewkit.cli.progress import Chain
from viewkit.cli.run import checked_stages, redo, run_shown
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.experiments.experiment import (
    Experiment,
)
from viewkit.shards.errors import ConfigError
from viewkit.shards.identity import COLUMN
from viewkit.shards.stores.url import is_url


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


def _test_of(test: str | None, dataset: Path) -> tuple[Path, str | None]:
    """(folder of the test dataset, what has to be packed into it or None)."""
    from viewkit.shards.dataset import Dataset

    if test is not None and (Dataset(test).path if is_url(test) else Path(test)).joinpath("images", COLUMN).is_file():
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
    """`DataError` or `ConfigError` for images that `evaluate` cannot use for want of labels, before anything is done.

    test: the packed test dataset, or None where it is still to be packed. Probes learn on the run's own dataset unless
    `evaluate` names another one.
    """
    from viewkit.pipelines.evaluate.labelled import find_labelled
    from viewkit.pipelines.labels import LABELS
    from viewkit.shards.dataset import Dataset

    evaluations = [job for job in jobs if job.spec.name == "evaluate"]
    if (evaluations or COMPARE.name in {job.spec.name for job in jobs}) and test is not None:
        find_labelled(Dataset(test), "test")
    packs = {str(job.dataset): job for job in jobs if job.spec.name == "pack"}
    learnt_on = [str(job.locations.get("train") or job.dataset) for job in evaluations]
    for job in jobs:
        if job.spec.name == COMPARE.name and job.experiment is not None:
            tables = job.experiment.stages.get("evaluate", (EVALUATE,))
            learnt_on += [str(table.get("train") or job.dataset) for table in tables]
    for train in dict.fromkeys(learnt_on):
        if train not in packs:
            find_labelled(Dataset(train), "train")
        elif Dataset(train).is_artifact(LABELS):
            continue  # `viewkit label` has attached some since
        elif (pack := packs[train]).config.labels == "none" and _of_files(source := str(pack.locations["source"])):
            raise ConfigError(
                f"evaluate: probes learn on {train}, which is packed from {source} with labels 'none'; add --set "
                "pack.labels=folders, or name labelled images by --set evaluate.train=DATASET"
            )


def _of_files(source: str) -> bool:
    """Whether images get their classes, if any, from the folders they lie in."""
    from viewkit.pipelines.pack.source import labels_option  # imports numpy, which `--help` does without

    return ":" not in source and labels_option(source) == "folders"
