"""`viewkit slurm`: an experiment as batch scripts, columns as arrays, every step after those it needs."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from viewkit.cli.chain import OF_A_RUN, Job
from viewkit.cli.console import say
from viewkit.cli.jobs import checked_jobs
from viewkit.cli.run_experiment import DATASET_PLACE, SOURCE_KINDS
from viewkit.cli.sbatch import WRITTEN_BY, Queue, Task, render
from viewkit.pipelines.experiments.experiment import load_experiment, with_changes
from viewkit.shards.errors import ConfigError, RefusedError
from viewkit.shards.files import make_folder, write_atomic
from viewkit.shards.stores.url import with_two_slashes

MOST_PARTS = 1000
"""Slurm's own limit of an array, MaxArraySize, is 1001 unless a cluster sets another."""
WITHOUT_MODELS = ("pack", "label", "draw", "rescore", "report", "browse")
"""Commands that run no models, and so need no GPU."""


def slurm(
    experiment: Annotated[str, typer.Argument(help="name of an experiment, or a TOML file", metavar="EXPERIMENT")],
    source: Annotated[str, typer.Argument(help=f"the images: {SOURCE_KINDS}", metavar="SOURCE")],
    dataset: Annotated[Path, typer.Argument(help=DATASET_PLACE, metavar="DATASET")],
    to: Annotated[Path, typer.Option("--to", help="folder to write the scripts to", show_default=False)],
    test: Annotated[
        str | None,
        typer.Option("--test", help="labelled test images: a dataset, or a source that is packed into DATASET-test"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="another value: STAGE.OPTION=VALUE or runs.NAME.OPTION=VALUE; may be repeated"),
    ] = None,
    array: Annotated[
        int, typer.Option("--array", help="tasks that share the shards of a column, each doing many of them")
    ] = 8,
    partition: Annotated[str | None, typer.Option("--partition", help="partition to submit to")] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="GPUs of a task that runs models, as sbatch takes them: 1, a100:2")
    ] = None,
    cpus: Annotated[int | None, typer.Option("--cpus", help="processor cores of a task", show_default=False)] = None,
    time: Annotated[str | None, typer.Option("--time", help="time of a task, as sbatch takes it: 12:00:00")] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option("--setup", help="line that every script begins with, e.g. 'module load cuda'; may be repeated"),
    ] = None,
    max_rejects: Annotated[
        float, typer.Option("--max-rejects", help="share of rejected rows above which a stage fails")
    ] = 0.01,
) -> None:
    """Write an experiment as batch scripts for Slurm: arrays, dependencies, and a submit.sh (docs/cluster.md)."""
    if not 1 <= array <= MOST_PARTS:
        raise ConfigError(f"--array is {array}; it must lie in 1 ... {MOST_PARTS}, what Slurm takes by default")
    if any(
        not value.strip() or "\n" in value for value in (partition, gpus, time, *(setup or ())) if value is not None
    ):
        raise ConfigError("--partition, --gpus, --time and --setup are one line each, and not empty")
    found = with_changes(load_experiment(experiment), changes or [])
    jobs = [job for job, _ in checked_jobs(found, source, dataset, test)]
    arguments = [experiment, source, with_two_slashes(str(dataset)), *(["--test", test] if test is not None else [])]
    arguments += [word for change in changes or [] for word in ("--set", change)]
    queue = Queue(
        experiment=found.name,
        program=str(program()),
        arguments=[*arguments, "--max-rejects", f"{max_rejects:g}"],
        folder=str(Path.cwd()),
        partition=partition,
        gpus=gpus,
        cpus=cpus,
        time=time,
        setup=setup or (),
    )
    files = render(tasks_of(jobs, array), queue)
    _refuse_foreign(to)
    make_folder(to)
    for old in to.iterdir():
        if is_own(old):
            old.unlink()
    for name, content in files.items():
        write_atomic(to / name, content.encode())
    (to / "submit.sh").chmod(0o755)
    say(f"{len(files) - 1} scripts in {to}; submit them, and go on where they were, with: {to / 'submit.sh'}")


def program() -> Path:
    """The viewkit to start: beside this Python, else the one that the shell finds."""
    beside = Path(sys.executable).with_name("viewkit")
    found = str(beside) if beside.is_file() else shutil.which("viewkit")
    if found is None:
        raise ConfigError("viewkit slurm: the command 'viewkit' is not installed beside this Python, nor on the PATH")
    return Path(found).absolute()


def _refuse_foreign(folder: Path) -> None:
    """`RefusedError` where other files lie than `viewkit slurm` writes."""
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    strangers = [each.name for each in there if each.name not in ("submit.sh", "log") and not is_own(each)]
    if strangers:
        raise RefusedError(
            f"--to {folder}: it holds {strangers[0]}, which 'viewkit slurm' did not write; name a folder for its "
            "scripts alone"
        )


def is_own(path: Path) -> bool:
    """Whether `viewkit slurm` wrote this batch script."""
    return path.suffix == ".sbatch" and path.is_file() and WRITTEN_BY in path.read_text(errors="replace")


def tasks_of(jobs: Sequence[Job], parts: int) -> list[Task]:
    """The queue of a chain. A column is an array, after a single task where something is fitted for it first.

    Steps before the runs follow each other; runs are side by side, each with its own evaluations, unless their options
    name other runs; what comes after the runs waits for all of them.
    """
    tasks: list[Task] = []
    before: tuple[int, ...] = ()  # what the next step waits for
    shared: tuple[int, ...] = ()  # what the next run waits for
    runs: list[int] = []

    def add(job: Job, number: int, after: tuple[int, ...]) -> int:
        gpu = job.spec.name not in WITHOUT_MODELS
        several = job.spec.maps_rows and parts > 1
        if several and _fits_first(job):
            tasks.append(Task(number=number, name=f"{job.name} fit", options=("--fits-only",), after=after, gpu=gpu))
            after = (len(tasks) - 1,)
        tasks.append(Task(number=number, name=job.name, parts=parts if several else 1, after=after, gpu=gpu))
        return len(tasks) - 1

    for number, job in enumerate(jobs, 1):
        if job.spec.name == "pretrain":
            shared = before if not runs else shared
            runs.append(add(job, number, (*shared, *runs) if _names_runs(job.config) else shared))
            before = (*before, runs[-1]) if len(runs) > 1 else (runs[-1],)
            current = runs[-1]
        elif job.spec.name in OF_A_RUN:
            others = tuple(runs) if _names_runs(job.config) else ()
            before = (*before, add(job, number, tuple(dict.fromkeys((current, *others)))))
        else:
            before = (add(job, number, before),)
    return tasks


def _fits_first(job: Job) -> bool:
    from viewkit.pipelines.engine.contract import FitStage

    return any(issubclass(step.stage_class(), FitStage) for step in job.spec.steps)  # type: ignore[arg-type]


def _names_runs(config: Any) -> bool:
    """Whether an option is another run's folder, ``runs/NAME``."""
    return any(isinstance(value, str) and value.startswith("runs/") for value in vars(config).values())
