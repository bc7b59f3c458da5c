"""A comparison on the page and in the terminal, from numbers whose answer is known."""

import numpy as np
import pytest

from viewkit.pipelines.compare.plan import Cell
from viewkit.pipelines.compare.summary import Evaluated, summarise_cell, summarise_difference
from viewkit.pipelines.compare.verdict import Rules
from viewkit.pipelines.published import Record, write_record
from viewkit.pipelines.report.accuracy import summary_lines
from viewkit.pipelines.report.comparisons import (
    ShownComparison,
    ShownVerdict,
    compared_runs,
    show_comparison,
    text_lines,
)
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.stage import ReportStage
from viewkit.pipelines.report.verdicts import Verdict, comparison_verdicts
from viewkit.shards.codecs import encode_json

BAD = "<img src=x onerror=alert(1)>"
"""An arm that would run a script if it were not escaped."""
COST = {"seconds": 61.0, "passes": 1200.0, "flops": 3.2e12}


def measured(values):
    right = {"knn20": np.array([[True, False, True, True]])}
    return [Evaluated({"knn20": value}, right) for value in values]


@pytest.fixture(scope="module")
def compared(build, tmp_path_factory):
    dataset = build.make_images(tmp_path_factory.mktemp("compared") / "d")
    random, other, longer = Cell("random", 100), Cell(BAD, 100), Cell("random", 250, control=True)
    runs = {
        random: measured([50, 52, 51, 50.5, 51.5, 52.5]),
        other: measured([53.0, 55.2, 54.1, 53.4, 54.6, 55.3]),
        longer: measured([53.1, 55.0, 54.2, 53.3, 54.8, 55.1]),
    }
    names = {cell: [f"runs/{place}-{seed}" for seed in range(6)] for place, cell in enumerate(runs)}
    rules = Rules()
    content = {
        "name": "mine",
        "reference": "random",
        "seeds": 6,
        "rules": rules.sentences(),
        "matters": 1.0,
        "notes": ["arm 'other' also differs from 'random' in lr"],
        "data": {"num_test": 4, "num_classes": 2},
        "baselines": {"untrained": {"knn20": 40.0}, "pixels": {}},
        "arms": [{**summarise_cell(cell, own), "runs": names[cell]} for cell, own in runs.items()],
        "differences": [
            summarise_difference(other, random, runs, rules),
            summarise_difference(other, longer, runs, rules, of_cost=True),
        ],
        "controls": [],
        "curves": {cell.label: {"loss": {"step": [10.0, 20.0], "mean": [4.0, 3.0], "sd": [0.1, 0.1]}} for cell in runs},
    }
    costs = {
        cell.label: {"training": COST, "offline": {"pairs": {**COST, "uncounted": ["genview"]}}, "total": COST,
                     "ratio": 2.5}
        for cell in runs
    }  # fmt: skip
    files = {"compare.json": encode_json(content), "costs.json": encode_json(costs)}
    build.write_artifact(dataset, "compare/mine", "compare", {"seeds": 6}, files)
    return dataset


def test_arms_of_one_verdict_share_a_line_and_probes_that_disagree_are_named():
    said = [("a", "knn", "helps"), ("a", "linear", "helps"), ("b", "knn", "helps"), ("b", "linear", "hurts")]
    verdicts = tuple(ShownVerdict(label, probe, None, word, word) for label, probe, word in said)
    found = comparison_verdicts(ShownComparison("mine", "", verdicts, (), (), (), ()))
    assert [(each.what, each.said) for each in found] == [("mine: a; b (knn)", "helps"), ("mine: b (linear)", "hurts")]


def test_verdicts_stand_first_and_the_numbers_below(compared):
    shown = show_comparison(compared, "mine")
    assert [(each.said, each.colour) for each in shown.verdicts] == [("helps", "helps"), ("not worth its cost", "")]
    arm = shown.verdicts[0].label
    paid = Verdict(f"mine: {arm} against random, 250 steps", "not worth its cost", "comparisons")
    assert comparison_verdicts(shown) == [Verdict(f"mine: {arm}", "helps", "comparisons", "helps"), paid]
    arms, cost, differences, images = shown.tables
    assert arms.rows[0][:2] == ("raw pixels", "") and arms.rows[1] == ("untrained, seed 0", "40.0", "", "", "")
    assert arms.rows[2] == ("random, 100 steps", "51.2 ± 0.9", "3.2 T", "3.2 T", "2.50")
    assert cost.rows[1] == ("random, 100 steps", "pairs", "3.2 T", "1,200", "61", "genview")
    assert differences.rows[0][2:4] == ("+3.02", "+2.9 ... +3.2") and differences.rows[0][7] == "100 %"
    assert images.columns[2:] == tuple(f"seed {seed}" for seed in range(6)) and images.rows[0][2] == "+0 -0, p 1.000"
    assert len(shown.charts) == 2 and shown.charts[0].legend[0][0].startswith("1: ")


def test_the_page_escapes_names_and_speaks_for_the_runs(compared, build, tmp_path):
    from small_datasets import CPU

    from viewkit.pipelines.engine.run import run_stage

    assert "runs/0-3" in compared_runs(compared) and len(compared_runs(compared)) == 18
    run_stage(ReportStage(), ReportConfig(view_px=32), compared, CPU)
    html = (compared.path / "report" / "index.html").read_text()
    assert BAD not in html and "&lt;img src=x" in html and 'href="#comparisons"' in html
    assert '<b class="helps">helps</b>' in html and "not worth its cost" in html and "1 comparison." in html


def test_the_terminal_says_the_same(compared):
    lines = text_lines(compared, "mine")
    assert lines[1].endswith("knn20: helps") and "not worth its cost (against random, 250 steps)" in lines[2]
    assert any(line.startswith("rule: fewer than 6 seeds") for line in lines)
    assert "Comparison 'mine':" in summary_lines(compared)


def test_a_dataset_that_was_only_compared_says_so_and_lists_no_run_apart(compared, build):
    from small_datasets import CPU

    from viewkit.pipelines.engine.run import run_stage

    for place in range(3):
        for seed in range(6):
            build.make_run(compared, f"{place}-{seed}", seed=seed)
    write_record(Record("mine", "Mine", "", "", "images", ()), compared)
    run_stage(ReportStage(), ReportConfig(view_px=32), compared, CPU)
    html = (compared.path / "report" / "index.html").read_text()
    assert "18 finished runs,\n    1 comparison." in html
    assert 'Every run that was evaluated belongs to a comparison: see <a href="#comparisons">' in html
    assert "Nothing is published for it; its runs are compared above." in html
    assert "There is no finished run yet" not in html and "Nothing has been trained" not in html
    assert "The 18 runs of comparisons are not listed" in html and "--name 2-5 --config" not in html
    assert "18 more are runs of comparisons" in html
