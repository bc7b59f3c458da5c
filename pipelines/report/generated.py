"""Generated views beside their sources, and how many rows each noise level has."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.report.charts import Chart, bar_chart
from viewkit.pipelines.report.findings import Findings, FoundTable, found_picture
from viewkit.pipelines.report.pictures import Picture, fit_inside, picture
from viewkit.shards.artifact import Artifact
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.column import Column
from viewkit.shards.files import read_file


@dataclass(frozen=True)
class GeneratedExample:
    """share: of the source that is foreground, in [0, 1]. level: noise level. generator: its name."""

    key: str
    source: Picture
    view: Picture
    share: float | None
    level: int | None
    generator: str


def show_generated(images: Column, genview: Column, *, count: int, side_px: int, sample: int) -> list[GeneratedExample]:
    """Rows of all levels, in their order, of the `sample` rows with the smallest key hashes."""
    examples = []
    for key in spread_over_levels(read_levels(genview, sample), count):
        fields = genview.fields(genview.place_of[key])
        facts = decode_json(fields["json"])
        source = decode_image(images.fields(images.place_of[key]))
        examples.append(
            GeneratedExample(
                key,
                picture(fit_inside(source, side_px), f"image of {key}"),
                picture(fit_inside(decode_image(fields), side_px), f"generated view of {key}"),
                facts.get("foreground_share"),
                facts.get("level"),
                str(facts.get("generator", "")),
            )
        )
    return examples


def spread_over_levels(levels: Mapping[str, int], count: int) -> list[str]:
    """Up to `count` keys, as evenly spread over the levels as they allow, ordered by level, then by key hash.

    levels: noise level by key. Within a level the keys with the smallest hashes are taken.
    """
    waiting: dict[int, list[str]] = defaultdict(list)
    for key in smallest(levels, len(levels)):
        waiting[levels[key]].append(key)
    taken: dict[int, int] = dict.fromkeys(sorted(waiting), 0)
    for _ in range(min(count, len(levels))):
        level = min((each for each in taken if taken[each] < len(waiting[each])), key=lambda each: (taken[each], each))
        taken[level] += 1
    return [key for level, number in taken.items() for key in waiting[level][:number]]


def read_levels(views: Column, sample: int) -> dict[str, int]:
    """Noise level by key, of the (at most `sample`) rows with the smallest key hashes."""
    keys = smallest(views.keys(), sample)
    return {key: int(decode_json(views.fields(views.place_of[key])["json"])["level"]) for key in keys}


def count_levels(genview: Column, sample: int) -> dict[int, float]:
    """Level -> share of the (at most `sample`) rows read."""
    keys = smallest(genview.keys(), sample)
    levels = Counter(decode_json(genview.fields(genview.place_of[key])["json"]).get("level") for key in keys)
    return {level: levels[level] / len(keys) for level in sorted(level for level in levels if level is not None)}


def fidelity_table(artifacts: Mapping[str, Artifact]) -> Findings | None:
    """What `viewkit fidelity` measured, one row per artifact (GenView, tab. 10); None where nothing was measured."""
    measured = {name: decode_json(read_file(each.path("fidelity.json"))) for name, each in artifacts.items()}
    levels = sorted({int(level) for numbers in measured.values() for level in numbers["levels"]})
    judged = {(numbers["encoder"]["encoder"], bool(numbers.get("independent"))) for numbers in measured.values()}
    rows = []
    for name, numbers in measured.items():
        made_by = " ".join(str(numbers[each]) for each in ("generator", "strategy", "level") if each in numbers)
        cells = [numbers["levels"].get(str(level)) for level in levels]
        rows.append(
            (
                made_by or name,
                f"{numbers['images']:,}",
                f"{numbers['cosine']:.3f} ± {numbers['error']:.3f}",
                f"{numbers['chance']:.3f}",
                *("–" if cell is None else f"{cell['cosine']:.3f} ({100 * cell['share']:.0f} %)" for cell in cells),
            )
        )
    if not rows:
        return None
    judges = sorted(name + ("" if independent else " (it made them, too)") for name, independent in judged)
    note = (
        f"Judged by {', '.join(judges)}. Mean cosine of a view's and its image's embedding; chance: of a view and "
        "another image. Share of images in ()."
    )
    columns = ("views", "images", "cosine", "chance", *(f"level {level}" for level in levels))
    nearness = FoundTable("How near the views are to their images", note, columns, tuple(rows))
    by_level = [
        measures_table(f"Views of {name.removeprefix('fidelity_')}, by level", numbers["table"])
        for name, numbers in measured.items()
        if numbers.get("table")
    ]
    return Findings((nearness, *by_level), ())


MEASURES = ("level", "images", "cosine", "chance", "diversity", "Fréchet", "real", "copied", "colour error")
MEASURES_NOTE = (
    "Cosine: of a view and its image, as the judge sees them; chance: of a view and another image. Diversity: 1 - "
    "cosine of two views of one image. Fréchet: distance of views and images; real: of images and images. Copied: "
    "share of views nearer to a known image than 95 % of the images are to another one. Colour error: of the mean "
    "colour, 0 ... 1."
)


def measures_table(title: str, rows: Sequence[Mapping[str, Any]]) -> FoundTable:
    """What views at every level are worth, as `viewkit generator` and `viewkit fidelity` have measured it."""

    def cell(row: Mapping[str, Any], name: str, error: str | None = None, form: str = ".3f") -> str:
        if row[name] is None:
            return "–"
        return f"{row[name]:{form}}" + (f" ± {row[error]:.3f}" if error is not None else "")

    cells = [
        (
            str(row["level"]),
            f"{row['images']:,}",
            cell(row, "cosine", "cosine_error"),
            cell(row, "chance"),
            cell(row, "diversity", "diversity_error"),
            cell(row, "frechet", form=".3g"),
            cell(row, "floor", form=".3g"),
            f"{100 * row['copied']:.0f} %",
            cell(row, "colour", "colour_error"),
        )
        for row in rows
    ]
    return FoundTable(title, MEASURES_NOTE, MEASURES, tuple(cells))


def generator_findings(generator: Artifact) -> Findings:
    """The table of a generator of one's own, and held-out images beside what it makes of them."""
    facts = decode_json(read_file(generator.path("generator.json")))
    judge, held_out = facts["numbers"]["judge"], facts["numbers"]["held_out"]
    title = f"The generator of these images, on {held_out} that it was not trained on, judged by {judge}"
    caption = (
        "Images that the generator was not trained on, and to the right a view of each at levels "
        f"{', '.join(str(row['level']) for row in facts['table'])}"
    )
    shown = (found_picture(generator, "samples.png", caption), caption)
    return Findings((measures_table(title, facts["table"]),), (shown,))


def draw_levels(shares: dict[int, float]) -> Chart:
    words: Sequence[str] = [f"{level}: {100 * share:.1f} %" for level, share in shares.items()]
    return bar_chart(
        "levels",
        "Noise levels",
        [str(level) for level in shares],
        list(shares.values()),
        x_label="noise level",
        y_label="% of rows",
        alt=f"Share of rows at each noise level. {'; '.join(words)}.",
    )
