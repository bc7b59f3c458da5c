import math

import pytest

from viewkit.pipelines.published import Published, compare, measured_in, of_share, table_lines

NUMBERS = [
    Published(run=run, metric="linear", value=value) for run, value in [("base", 70), ("method", 73), ("late", 74)]
]


@pytest.fixture
def lines():
    """Three runs, of which the last was not measured."""
    return compare(NUMBERS, dict(zip(NUMBERS, [of_share(0.5, 400), of_share(0.6, 400), None], strict=True)))


def test_differences_and_doubts_are_those_of_a_share_of_the_test_images(lines):
    base, method = lines[0], lines[1]
    assert (base.yours.value, base.difference) == (50.0, -20.0)
    assert base.doubt == pytest.approx(2 * 100 * math.sqrt(0.25 / 400))
    assert method.difference == pytest.approx(-13.0)


def test_the_gain_over_the_first_run_has_the_doubt_of_both(lines):
    (gain,) = [line for line in lines if line.name == "method less base"]
    assert gain.published == 3.0 and gain.difference == pytest.approx(7.0)
    assert gain.doubt == pytest.approx(200 * math.sqrt((0.25 + 0.24) / 400))


def test_the_table_is_aligned_and_says_what_was_not_measured(lines):
    head, *rows, note = table_lines(lines)
    assert [row.split()[:2] for row in rows[:3]] == [["base", "linear"], ["method", "linear"], ["late", "linear"]]
    assert sum("not measured" in row for row in rows) == 2
    ends = [
        row.index("yours" if row is head else value)
        for row, value in zip([head, rows[0]], ["yours", " 50.0"], strict=True)
    ]
    assert ends[0] == ends[1] and "another seed" in note


def test_two_metrics_of_a_run_are_compared_each_with_its_own():
    entries = [Published(run=run, metric=metric, value=60) for run in ("a", "b") for metric in ("knn20", "linear")]
    lines = compare(entries, dict.fromkeys(entries, of_share(0.6, 100)))
    assert [(line.name, line.metric) for line in lines[4:]] == [("b less a", "knn20"), ("b less a", "linear")]


def test_errors_under_corruption_are_read_from_where_the_evaluation_has_them():
    summed = {"linear": {"mce_unnormalised": 0.25, "mce_alexnet": None}}
    result = {
        "data": {"num_test": 400}, "corruptions": {"probes": {"encoder": summed}},
        "probes": {"encoder": [{"name": "linear", "top1": 0.8}]},
    }  # fmt: skip
    entries = [
        Published(run="a", metric=metric, value=20, of=of)
        for metric, of in (("linear", "mce_unnormalised"), ("linear", "mce_alexnet"), ("knn20", "mce_unnormalised"))
    ]
    found = [measured_in(entry, result) for entry in entries]
    assert found == [of_share(0.25, 400), None, None]
    assert measured_in(Published(run="a", metric="linear", value=20), result) == of_share(0.8, 400)
