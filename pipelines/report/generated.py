"""Generated views beside their sources, and how many rows each noise level has."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from viewkit.pipelines.report.charts import Chart, bar_chart
from viewkit.pipelines.report.pictures import Picture, fit_inside, picture
from viewkit.pipelines.seeds import smallest
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.column import Column


@dataclass(frozen=True)
class GeneratedExample:
    """share: of the source that is foreground, in [0, 1]. level: noise level. generator: its name."""

    key: str
    source: Picture
    view: Picture
    share: float | None
    level: int | None
    generator: str


def show_generated(images: Column, genview: Column, *, count: int, side_px: int) -> list[GeneratedExample]:
    """The rows with the smallest key hashes, ordered by level."""
    examples = []
    for key in smallest(genview.keys(), count):
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
    return sorted(examples, key=lambda example: (example.level is None, example.level or 0))


def count_levels(genview: Column, sample: int) -> dict[int, float]:
    """Level -> share of the (at most `sample`) rows looked at."""
    keys = smallest(genview.keys(), sample)
    levels = Counter(decode_json(genview.fields(genview.place_of[key])["json"]).get("level") for key in keys)
    return {level: levels[level] / len(keys) for level in sorted(level for level in levels if level is not None)}


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
