"""What a pointer is told over a chart, and the table beside it."""

import re
from html import unescape
from itertools import pairwise

import numpy as np
import pytest

from viewkit.pipelines.report.charts import (
    MARKS,
    Interval,
    Series,
    bar_chart,
    between,
    interval_chart,
    line_chart,
    number,
    step_chart,
)

WORDS = {"x_label": "step", "y_label": "loss", "alt": "x"}


def marks(chart):
    """(left, top, width, height) and the text of every mark, in the order of the chart."""
    sides = " ".join(f'{side}="(.*?)"' for side in ("x", "y", "width", "height"))
    found = re.findall(rf'<rect class="mark" {sides}><title>(.*?)</title>', chart.svg, re.DOTALL)
    return [(tuple(map(float, sides)), unescape(text)) for *sides, text in found]


def test_a_curve_tells_every_series_and_its_table_says_the_same():
    first = Series("a", np.array([1.0, 2, 3]), np.array([3, 2.5, 2]))
    lines = [first, Series("b", np.array([2.0, 3]), np.array([1, 0.5]))]
    chart = line_chart("c", "Loss", lines, **WORDS)
    assert chart.columns == ("step", "a", "b")
    assert chart.rows == (("1", "3", "–"), ("2", "2.5", "1"), ("3", "2", "0.5"))
    told = ["step: 1\na: 3\nb: –", "step: 2\na: 2.5\nb: 1", "step: 3\na: 2\nb: 0.5"]
    assert [text for _, text in marks(chart)] == told


def test_marks_lie_side_by_side_inside_the_picture():
    chart = line_chart("c", "Loss", [Series("a", np.arange(5.0), np.arange(5.0))], **WORDS)
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', chart.svg).groups())
    sides = [side for side, _ in marks(chart)]
    for (left, _, wide, _), (following, *_) in pairwise(sides):
        assert left + wide == pytest.approx(following, abs=0.2) and wide > 10
    assert all(left > 0 and left + wide < width and top > 0 and top + high < height for left, top, wide, high in sides)


def test_long_curves_have_a_table_that_can_be_read_with_both_ends():
    x = np.arange(10, 2410, 10.0)
    chart = line_chart("c", "Loss", [Series("a", x, 1 / x)], **WORDS)
    assert len(chart.rows) == len(marks(chart)) == MARKS
    assert chart.rows[0] == ("10", "0.1") and chart.rows[-1] == ("2,400", "0.0004167")


def test_bars_and_bins_have_their_numbers():
    bars = bar_chart("b", "Levels", ["1", "none"], [0.25, 0.75], **WORDS)
    assert bars.rows == (("1", "25.00"), ("none", "75.00"))
    assert [text for _, text in marks(bars)] == ["step: 1\nloss: 25.00", "step: none\nloss: 75.00"]
    steps = step_chart("s", "x", np.array([0, 0.5, 1]), [("pairs", np.array([30.0, 70]))], **WORDS)
    assert steps.columns == ("step", "pairs, loss") and steps.rows == (("0 to 0.5", "30"), ("0.5 to 1", "70"))


def test_intervals_are_marked_row_by_row():
    rows = [Interval("a", 1.0, 0.5, 1.5, (0.9, 1.1)), Interval("b", 2.0, None, None, (2.0,))]
    chart = interval_chart("i", "x", rows, band=0.1, x_label="points", alt="x")
    assert chart.rows[1] == ("b", "2", "–", "–", "2")
    (first, text), (second, _) = marks(chart)
    assert first[1] < second[1] and first[0] == second[0] and text == "a\nmean: 1, 0.5 to 1.5\nvalues: 0.9, 1.1"


def test_a_name_in_a_mark_is_text():
    bad = "<script>alert(1)</script>"
    line = Series(bad, np.array([1.0, 2]), np.array([1.0, 2]))
    chart = line_chart("c", "Loss", [line, Series("b", line.x, line.y)], **WORDS)
    assert "<script" not in chart.svg and bad in marks(chart)[0][1]


def test_stretches_meet_halfway_and_one_point_has_one():
    assert between([1, 3, 4]) == [(0, 2), (2, 3.5), (3.5, 4.5)]
    assert between([2]) == [(1.5, 2.5)]


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (1234.0, "1,234"), (0.123456, "0.1235"), (1e-9, "1e-09")])
def test_numbers_have_four_digits_that_matter(value, text):
    assert number(value) == text
