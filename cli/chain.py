"""The commands of an experiment in the order in which they run, with their options checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from viewkit.cli.command import StageCommand
from viewkit.cli.commands import COMPARE, PIPELINE
from viewkit.cli.options import fields_of, located
from viewkit.pipelines.engine.config import make_config, unknown_option
from viewkit.pipelines.experiments.experiment import Experiment, Options
from viewkit.pipelines.pack.config import MOSAIC_OPTIONS
from viewkit.shards.errors import ConfigError

COMMANDS = {spec.name: spec for spec in (*PIPELINE, COMPARE)}
PACK_PARTS = "pack parts"
EVALUATE: Options = {"k": "20"}
"""Options of `evaluate` in a comparison of runs for which none are given."""
OF_A_RUN = ("pretrain", "evaluate")
"""Commands that run once for every run of an experiment."""


@dataclass(frozen=True)
class Job:
    """One command of a chain. name: of the command, with what tells it from others of the same one.

    dataset: the folder it works on. locations: the command's arguments by name. experiment: of a comparison, whose runs
    are its arms. says: what the step shows and why, a sentence of the experiment's.
    """

    name: str
    spec: StageCommand
    dataset: Path
    locations: Mapping[str, Any]
    config: Any
    experiment: Experiment | None = None
    says: str = ""


def chain_of(experiment: Experiment, source: str, dataset: Path, test: Path, test_source: str | None) -> list[Job]:
    """Every command of the experiment in order. Runs are trained and evaluated one after the other.

    test: folder of the labelled test dataset, which `evaluate` reads. test_source: what is packed into it, or None
    where it is there already. Where [pack] has options of mosaics, these are made of the source's images, which are
    packed into a dataset of their own, too, that probes learn on.
    `ConfigError` for a stage or an option that does not exist, or a value that does not fit.
    """
    where = f"experiment '{experiment.name}'"
    unknown = [name for name in experiment.stages if name not in COMMANDS]
    if unknown:
        near = get_close_matches(unknown[0], COMMANDS, n=2)
        guess = f"did you mean [{'] or ['.join(near)}]?" if near else f"the stages are {', '.join(COMMANDS)}"
        raise ConfigError(f"{where}: there is no stage [{unknown[0]}]; {guess}")
    if len(experiment.stages.get("pack", ())) > 1:
        raise ConfigError(f"{where}: [[pack]] stands twice; a dataset is packed once, in one table [pack]")
    if COMPARE.name in experiment.stages and "evaluate" not in experiment.stages:
        experiment = replace(experiment, stages={**experiment.stages, "evaluate": (EVALUATE,)})
    jobs: list[Job] = []
    packed: Options = experiment.stages.get("pack", ({},))[0]
    if is_mosaic := any(option.replace("-", "_") in MOSAIC_OPTIONS for option in packed):
        experiment = _on_parts(experiment, parts_of(dataset))
    for spec in PIPELINE:
        tables = experiment.stages.get(spec.name, ())
        if spec.name == "pack":
            made_of = f"mosaic:{source.removeprefix('mosaic:')}" if is_mosaic else source
            sources: list[tuple[str, str, Path, Options | None]] = [("pack", made_of, dataset, packed)]
            if is_mosaic and "evaluate" in experiment.stages:
                sources.append((PACK_PARTS, source.removeprefix("mosaic:"), parts_of(dataset), None))
            if test_source is not None and "evaluate" in experiment.stages:
                sources.append(("pack test", test_source, test, None))
            for name, from_, folder, given in sources:
                table = _labelled(packed, from_) if given is None else given
                places = {"source": from_, "dataset": str(folder)}
                jobs.append(make_job(spec, name, places, folder, table, where))
        elif spec.name == "pretrain":
            runs = _runs(experiment, dataset, test, where)
            jobs += [_comparison(experiment, dataset, test, where)] if COMPARE.name in experiment.stages else runs
        elif spec.name not in OF_A_RUN:
            for place, table in enumerate(tables):
                name = spec.name if place == 0 else f"{spec.name} {place + 1}"
                jobs.append(make_job(spec, name, {"dataset": str(dataset)}, dataset, table, where))
    told = experiment.says
    return [replace(job, says=told.get(job.name, told.get(job.spec.name, ""))) for job in _after_pairs(jobs)]


def _after_pairs(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the fits on stored views, which need pairs, after the last job that writes pairs."""
    of_views = [job for job in jobs if job.spec.name == "foreground" and job.locations["of"] == "views"]
    others = [job for job in jobs if job not in of_views]
    place = max((number for number, job in enumerate(others, 1) if job.spec.name in ("score", "draw")), default=0)
    return [*others[:place], *of_views, *others[place:]] if place else list(jobs)


def parts_of(dataset: Path) -> Path:
    """Where the images lie that an experiment's mosaics are made of; its probes learn on them."""
    return dataset.with_name(f"{dataset.name}-parts")


def _on_parts(experiment: Experiment, parts: Path) -> Experiment:
    """The experiment with probes that learn on the parts of its mosaics: a mosaic has no class."""
    tables = tuple({"train": str(parts), **table} for table in experiment.stages.get("evaluate", ()))
    return replace(experiment, stages={**experiment.stages, **({"evaluate": tables} if tables else {})})


def _labelled(packed: Options, source: str) -> Options:
    """Options to pack test images, or the parts of mosaics: as the images, but with labels and never as mosaics."""
    from viewkit.pipelines.pack.source import labels_option  # imports numpy, which `--help` does without

    return {**{key: value for key, value in packed.items() if key.replace("-", "_") not in MOSAIC_OPTIONS},
            "labels": labels_option(source)}  # fmt: skip


def _runs(experiment: Experiment, dataset: Path, test: Path, where: str) -> list[Job]:
    runs = dict(experiment.runs) or ({"default": {}} if "pretrain" in experiment.stages else {})
    if runs and not experiment.runs:
        experiment = replace(experiment, runs=runs)
    jobs: list[Job] = []
    for run in runs:
        places = {"dataset": str(dataset), "name": run}
        jobs.append(
            make_job(COMMANDS["pretrain"], f"pretrain {run}", places, dataset, experiment.run_options(run), where)
        )
        for table in experiment.stages.get("evaluate", ()):
            places = {"run": str(dataset / "runs" / run), "test": str(test)}
            name = f"evaluate {run}" + (f" {table['folder']}" if "folder" in table else "")
            kept = baselines_of(dataset, f"runs/{run}/{table.get('folder', 'eval')}")
            options = {"baselines": run == next(iter(runs)) if kept is None else kept, **table}  # once is enough
            jobs.append(make_job(COMMANDS["evaluate"], name, places, dataset, options, where))
    return jobs


def baselines_of(dataset: Path, evaluation: str) -> bool | None:
    """Whether an evaluation measured the baselines, too; None where there is none."""
    from viewkit.shards.dataset import Dataset

    there = Dataset(dataset)
    if evaluation not in there.artifacts():
        return None
    return bool(there.artifact(evaluation).identity.config.get("baselines", True))


def _comparison(experiment: Experiment, dataset: Path, test: Path, where: str) -> Job:
    """The job that trains, evaluates and compares the experiment's runs over seeds. ``lengths`` may be a list."""
    if len(experiment.stages[COMPARE.name]) > 1:
        raise ConfigError(f"{where}: [[compare]] stands twice; an experiment is one comparison, in one table [compare]")
    listed = comparison_options(experiment)
    places = {"dataset": str(dataset), "test": str(test), "name": experiment.name.replace("-", "_")}
    return replace(make_job(COMPARE, COMPARE.name, places, dataset, listed, where), experiment=experiment)


def comparison_options(experiment: Experiment) -> dict[str, Any]:
    """The experiment's table [compare] as options; none where it has no such table."""
    (table,) = experiment.stages.get(COMPARE.name, ({},))
    return {key: ",".join(map(str, value)) if isinstance(value, list) else value for key, value in table.items()}


def make_job(spec: StageCommand, name: str, places: dict[str, Any], dataset: Path, table: Options, where: str) -> Job:
    """A command with the options of its table, which may also be locations (``column``, ``encoder_weights``)."""
    config = spec.config_class()
    options = {key.replace("-", "_"): value for key, value in table.items()}
    arguments = {argument.name: argument for argument in spec.arguments if argument.option}
    known = [*(field.name for field in fields_of(config)), *arguments, *(["preset"] if spec.presets else [])]
    place = f"{where}: [{name}]"
    for option in options:
        if option not in known:
            raise ConfigError(f"{place}: {unknown_option(option, known)}")
    locations = {key: argument.default for key, argument in arguments.items()} | places
    for key in [key for key in options if key in arguments]:
        locations[key] = located(options.pop(key), arguments[key].kind, f"{place}: {key}")
    texts = {field.name for field in fields_of(config) if field.kind is str and not field.choices}  # ``k``, ``rates``
    options = {key: str(value) if key in texts and is_number(value) else value for key, value in options.items()}
    presets = spec.preset_options()
    if presets is not None and "preset" in options:
        options = {**presets(options.pop("preset")), **options}
    return Job(name, spec, dataset, locations, make_config(config, options, place))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def chosen(jobs: Sequence[Job], only: str | None, start: str | None) -> list[Job]:
    """The jobs that ``--only`` names (commands, jobs or their numbers from 1, separated by commas), from the one that
    ``--from`` names."""
    numbers = {job.name: str(number) for number, job in enumerate(jobs, 1)}
    names = list(dict.fromkeys([*(job.name for job in jobs), *(job.spec.name for job in jobs), *numbers.values()]))

    def matches(job: Job, word: str) -> bool:
        return word in (job.name, job.spec.name, numbers[job.name])

    for word in [*(only.split(",") if only else []), *([start] if start else [])]:
        if word not in names:
            near = get_close_matches(word, names, n=3)
            guess = f"did you mean {' or '.join(near)}?" if near else f"its steps are {', '.join(numbers)}"
            raise ConfigError(f"the experiment has no step '{word}'; {guess}")
    kept = list(jobs)
    if start:
        first = next(place for place, job in enumerate(kept) if matches(job, start))
        kept = kept[first:]
    if only:
        kept = [job for job in kept if any(matches(job, word) for word in only.split(","))]
    if not kept:
        raise ConfigError(f"--only is '{only}', and none of that comes after --from '{start}'; leave one out")
    return kept
