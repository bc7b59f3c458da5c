"""The page: one template, one style sheet, both beside this file; every value is escaped unless it is our own SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from viewkit.pipelines.report.accuracy import (
    AccuracyTable,
    cell,
    headline,
    percent,
    probe_name,
    row_verdict,
    used,
)
from viewkit.pipelines.report.charts import Chart
from viewkit.pipelines.report.comparisons import ShownComparison
from viewkit.pipelines.report.experiments import ShownExperiment
from viewkit.pipelines.report.findings import Findings, FoundTable
from viewkit.pipelines.report.generated import GeneratedExample
from viewkit.pipelines.report.inventory import Inventory, command_of
from viewkit.pipelines.report.pairs import Gallery
from viewkit.pipelines.report.pictures import Picture
from viewkit.pipelines.report.verdicts import Verdict
from viewkit.shards.spans import spanned

TEMPLATE, STYLE = "report.html", "report.css"


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything on the page. Sequences are empty where the dataset has nothing to show.

    inventory: without the runs that comparisons speak for; everything: with them. num_rows_read: rows whose scores the
    galleries were chosen from. num_exits: of the estimator that scored them. browse: address of the page in which pairs
    are browsed, None where it is not there.
    """

    inventory: Inventory
    everything: Inventory
    comparisons: Sequence[ShownComparison]
    verdicts: Sequence[Verdict]
    experiments: Sequence[ShownExperiment]
    browse: str | None
    tables: Sequence[AccuracyTable]
    images: Sequence[Picture]
    galleries: Sequence[Gallery]
    num_rows_read: int
    num_exits: int
    score_charts: Sequence[Chart]
    filter_lines: Sequence[str]
    generated: Sequence[GeneratedExample]
    fidelity: Findings | None
    generator: Findings | None
    level_charts: Sequence[Chart]
    masks: Picture | None
    masks_sign: str
    audit: Findings | None
    histogram_charts: Sequence[Chart]
    hard_views: Findings | None
    curves: Sequence[Chart]
    runs: FoundTable | None
    version: str


@spanned("page")
def render_page(content: Content) -> str:
    """One HTML document without scripts, links to other files, or anything from a network."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    own = files("viewkit.pipelines.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": percent, "toml": toml}
    template = environment.from_string((own / TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        content=content,
        style=Markup((own / STYLE).read_text(encoding="utf-8")),
        svg=Markup,  # for charts, which hold no text of a user's
        headline=headline,
        probe_name=probe_name,
        row_verdict=row_verdict,
        cell=cell,
        used=used,
        command_of=command_of,
    )


def toml(config: Mapping[str, Any]) -> str:
    """A config as TOML, for ``--config FILE.toml``; options that were not set are left out."""
    return "\n".join(f"{name} = {toml_value(value)}" for name, value in config.items() if value is not None)


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(toml_letter(letter) for letter in value) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    raise TypeError(f"a config holds {type(value).__name__}")


def toml_letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return (
        letter
        if letter.isprintable()
        else f"\\u{ord(letter):04x}"
        if ord(letter) < 0x10000
        else f"\\U{ord(letter):08x}"
    )
