"""`viewkit experiments`: the published experiments, listed."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from viewkit.cli.console import print_json
from viewkit.cli.status import table
from viewkit.pipelines.experiments.experiment import (
    PAPERS,
    Experiment,
    experiment_names,
    load_experiment,
)
from viewkit.shards.errors import ConfigError


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
