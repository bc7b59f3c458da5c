"""An experiment: one TOML file that holds a whole chain, its runs, and the numbers that the paper prints.

A table of the file is a stage, called like its command, with options as a config file has them; a stage that is
absent does not run, and one that is to run twice is a list of tables. Every ``[runs.NAME]`` is a run of `pretrain`: its
options override those of ``[pretrain]``. ``base`` names another experiment, or a file beside this one, whose tables are
merged with this file's, key by key. Plain Python: whether the options exist is checked where the commands are known
(`cli.chain`).
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.config import load_toml
from viewkit.pipelines.published import Published, Record
from viewkit.shards.errors import ConfigError

FOLDER = Path(__file__).parent / "files"
ABOUT = (
    "title", "paper", "table", "source", "data", "cost", "base", "notes", "needs", "published", "runs", "says", "next"
)  # fmt: skip
"""What a file holds beside the tables of its stages."""
PAPERS = ("VS-2FI", "HVS", "DSF", "GenView", "JointCrop")

Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """paper: one of `PAPERS`, or none. table: the place in it. data: what the source should hold, for people.

    cost: what the paper's authors used, where they say so. needs: ``stage.option`` -> what a user must have for it, and
    where it could be had. stages: command -> its options, once for every time it runs, in the file's order. runs: NAME
    -> options of `pretrain`. says: step or command -> a sentence about it. next: commands to go on with; ``{dataset}``
    stands for the folder.
    """

    name: str
    title: str
    paper: str = ""
    table: str = ""
    source: str = ""
    data: str = "images"
    cost: str = ""
    notes: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    stages: Mapping[str, tuple[Options, ...]] = field(default_factory=dict)
    runs: Mapping[str, Options] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    next: tuple[str, ...] = ()

    def record(self) -> Record:
        """What a dataset keeps of the experiment that made it, for its page."""
        return Record(self.name, self.title, self.paper, self.table, self.data, self.published)

    def run_options(self, run: str) -> dict[str, Any]:
        """The options of `pretrain` for one run; `ConfigError` names the runs when there is none of this name."""
        if run not in self.runs:
            raise ConfigError(f"experiment '{self.name}' has no run '{run}'; its runs are {', '.join(self.runs)}")
        (shared,) = self.stages.get("pretrain", ({},))
        return {**shared, **self.runs[run]}


@cache
def experiment_names() -> tuple[str, ...]:
    """The experiments that come with viewkit, in alphabetical order."""
    return tuple(path.stem for path in sorted(FOLDER.glob("*.toml")))


def load_experiment(name: str) -> Experiment:
    """An experiment of viewkit by its name, or a file of one's own (a path that ends in ``.toml``).

    `ConfigError` for an unknown name (the nearest are given), a file that is no TOML, or one that is no experiment.
    """
    content = _merged(name, ())
    where = f"experiment '{name}'"
    _check_about(content, where)
    stages = {
        key: tuple(value) if isinstance(value, list) else (value,) for key, value in content.items() if key not in ABOUT
    }
    for stage, tables in stages.items():
        if not all(isinstance(table, Mapping) for table in tables):
            raise ConfigError(f"{where}: '{stage}' is no table of options; what a file says about itself is called "
                              f"{', '.join(ABOUT)}")  # fmt: skip
    if len(stages.get("pretrain", ({},))) != 1:
        raise ConfigError(f"{where}: [pretrain] is a list; every run is one [runs.NAME], [pretrain] is what they share")
    runs = dict(content.get("runs", {}))
    published = tuple(_published(entry, runs, where) for entry in content.get("published", []))
    plain = ("title", "paper", "table", "source", "data", "cost")
    return Experiment(
        name=Path(name).stem,
        notes=tuple(" ".join(note.split()) for note in content.get("notes", [])),
        needs=dict(content.get("needs", {})),
        published=published,
        stages=stages,
        runs=runs,
        says=dict(content.get("says", {})),
        next=tuple(content.get("next", [])),
        **{key: " ".join(content[key].split()) for key in plain if key in content},
    )


def pretrain_options(name: str) -> dict[str, Any]:
    """The options of one run of an experiment, for `viewkit pretrain --preset EXPERIMENT/RUN` alone.

    RUN may be left out where there is only one. `ConfigError` for an unknown experiment or run.
    """
    whole = name.endswith(".toml") or "/" not in name
    experiment, _, run = (name, "", "") if whole else name.rpartition("/")
    found = load_experiment(experiment)
    if not run and len(found.runs) != 1:
        raise ConfigError(f"--preset is '{name}', which has several runs; choose one of "
                          f"{', '.join(f'{experiment}/{each}' for each in found.runs)}")  # fmt: skip
    return found.run_options(run or next(iter(found.runs)))


def _merged(name: str, heirs: tuple[str, ...]) -> dict[str, Any]:
    """The file's content with its base's; heirs: the experiments that build on this one."""
    if name in heirs:
        raise ConfigError(f"experiment '{heirs[0]}': its bases go round in a circle: {' -> '.join([*heirs, name])}")
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not name.endswith(".toml") and name not in experiment_names():
        near = get_close_matches(name, experiment_names(), n=3, cutoff=0.5)
        guess = f"did you mean {' or '.join(near)}?" if near else "'viewkit experiments' lists them"
        raise ConfigError(f"there is no experiment '{name}'; {guess}")
    content = load_toml(path, f"experiment {path}" if name.endswith(".toml") else f"experiment '{name}'")
    if "base" not in content:
        return content
    named = str(content["base"])
    base = _merged(str(path.parent / named) if named.endswith(".toml") else named, (*heirs, name))
    base.pop("published", None)  # numbers, and the runs they belong to, are each file's own
    if "runs" in content:
        base.pop("runs", None)
    return _overlaid(base, content)


def _overlaid(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merged key by key, anything else replaced. An empty string removes what the base has."""
    result = dict(base)
    for key, value in own.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = _overlaid(dict(result[key]), value)
        elif value == "" and key in result:
            del result[key]
        else:
            result[key] = value
    return result


def _check_about(content: Mapping[str, Any], where: str) -> None:
    kinds = {"notes": list, "published": list, "needs": dict, "runs": dict, "says": dict, "next": list}
    for key in ABOUT:
        kind = kinds.get(key, str)
        if key in content and not isinstance(content[key], kind):
            raise ConfigError(f"{where}: '{key}' is {content[key]!r}; needed a {kind.__name__}")
    if "title" not in content:
        raise ConfigError(f"{where}: it has no title")
    for name, value in content.get("runs", {}).items():
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: runs.{name} is {value!r}; needed a table, written [runs.{name}]")
    sentences = [content.get("notes", []), content.get("needs", {}).values(), content.get("says", {}).values()]
    if not all(isinstance(each, str) for some in [*sentences, content.get("next", [])] for each in some):
        raise ConfigError(f"{where}: notes, needs, says and next hold sentences")


def _published(entry: Any, runs: Mapping[str, Any], where: str) -> Published:
    known = {"run", "metric", "value", "of", "folder"}
    if not isinstance(entry, Mapping) or not {"run", "metric", "value"} <= set(entry) <= known:
        raise ConfigError(f"{where}: [[published]] is {entry!r}; needed run, metric and value")
    if not all(isinstance(value, str) for key, value in entry.items() if key != "value"):
        raise ConfigError(f"{where}: [[published]] is {entry!r}; all but the value are texts")
    if entry["run"] not in runs:
        raise ConfigError(f"{where}: [[published]] names the run '{entry['run']}'; the runs are {', '.join(runs)}")
    if isinstance(entry["value"], bool) or not isinstance(entry["value"], int | float):
        raise ConfigError(f"{where}: [[published]] has the value {entry['value']!r}; needed a number, in percent")
    return Published(**{**entry, "value": float(entry["value"])})


def with_changes(experiment: Experiment, changes: Sequence[str]) -> Experiment:
    """The experiment with ``STAGE.OPTION=VALUE`` and ``runs.NAME.OPTION=VALUE`` set.

    A value is read as TOML has it, and as plain text where that is no TOML. A stage that runs several times gets it
    every time. `ConfigError` for a stage or run that the experiment does not have.
    """
    stages = {name: [dict(table) for table in tables] for name, tables in experiment.stages.items()}
    runs = {name: dict(options) for name, options in experiment.runs.items()}
    for change in changes:
        place, equals, text = change.partition("=")
        *where, option = place.strip().replace("-", "_").split(".")
        if not equals or not option or not where or (where[0] == "runs") != (len(where) == 2) or len(where) > 2:
            raise ConfigError(
                f"--set is '{change}'; needed STAGE.OPTION=VALUE or runs.NAME.OPTION=VALUE, e.g. pretrain.epochs=10"
            )
        tables = runs if where[0] == "runs" else stages
        name = _found(where[-1], tables, change)
        for table in [runs[name]] if where[0] == "runs" else stages[name]:
            table[option] = _value(text.strip())
    return replace(experiment, stages={name: tuple(tables) for name, tables in stages.items()}, runs=runs)


def _found(name: str, tables: Mapping[str, Any], change: str) -> str:
    for known in tables:
        if known.replace("-", "_") == name:
            return known
    raise ConfigError(f"--set is '{change}': the experiment has no '{name}'; it has {', '.join(tables)}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
