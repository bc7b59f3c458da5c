"""The top of the page, published numbers, runs side by side, and the way into the pairs."""

import pytest
from small_datasets import CPU

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.published import Published, Record, read_records, write_record
from viewkit.pipelines.report.accuracy import accuracy_tables
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.experiments import show_experiments
from viewkit.pipelines.report.inventory import take_inventory
from viewkit.pipelines.report.runs import logged, runs_table
from viewkit.pipelines.report.stage import ReportStage
from viewkit.pipelines.report.verdicts import find_verdicts
from viewkit.shards.errors import DataError

SMALL = ReportConfig(pairs=1, generated=1, view_px=32)


def report(dataset):
    run_stage(ReportStage(), SMALL, dataset, CPU)
    return dataset.artifact("report").path("index.html").read_text()


def record(name="mine", *published):
    return Record(name, "My <b>title</b>", "HVS", "table 1", "images", published)


def test_runs_against_random_come_first_and_what_speaks_against_them_after(everything):
    lines = ["fine", "warning: AL has no depth"]
    found = find_verdicts(take_inventory(everything), [], accuracy_tables(everything), lines)
    said = {each.what: (each.said, each.word, each.place) for each in found}
    assert said["vs2fi against random, kNN 20, one seed"] == ("higher, +10.0 ± 4.4 points", "higher", "accuracy")
    assert said["generated against random, kNN 20, one seed"][1] == "lower"
    assert list(said)[-1] == "The filters" and said["The filters"] == ("AL has no depth", "", "pairs")


def test_where_nothing_was_measured_the_page_says_that_it_does_not_know(images_only, build):
    def question():
        found = find_verdicts(take_inventory(images_only), [], accuracy_tables(images_only), [])
        return {each.what: each.said for each in found}["Do these pairs help?"]

    assert question() == "not known: nothing has been trained on them"
    build.make_run(images_only, "first")
    assert question() == "not known: no run has been evaluated"
    build.make_eval(images_only, "first", (0.4, 0.4, 0.4))
    assert "no evaluated run has random pairs" in question()


def test_what_is_unfinished_is_said_at_the_top(images_only, build):
    build.make_pairs(images_only)
    (images_only.path / "pairs" / "000001.json").unlink()
    assert find_verdicts(take_inventory(images_only), [], [], [])[-1].said == "pairs"


ENTRIES = [Published(run=run, metric="knn20", value=60) for run in ("base", "late")]


def test_published_numbers_stand_beside_yours(images_only, build):
    build.make_run(images_only, "base")
    build.make_eval(images_only, "base", (0.5, 0.4, 0.4))
    write_record(record("mine", *ENTRIES), images_only)
    (shown,) = show_experiments(images_only)
    assert shown.origin == "HVS, table 1" and shown.table.rows == (
        ("base", "knn20", "60.0", "50.0", "-10.0 ± 3.2"),
        ("late", "knn20", "60.0", "not measured", ""),
        ("late less base", "knn20", "+0.0", "not measured", ""),
    )


@pytest.mark.slow
def test_the_page_shows_the_records_that_are_there_now(images_only):
    write_record(record("mine", *ENTRIES), images_only)
    page = report(images_only)
    assert "My &lt;b&gt;title&lt;/b&gt;" in page and "late less base" in page
    write_record(record("mine", ENTRIES[0]), images_only)
    assert "late less base" not in report(images_only)


def test_records_are_read_back_and_damage_is_found(images_only):
    kept = [record("a", Published(run="x", metric="linear", value=1.5, of="top5")), record("b")]
    for each in kept:
        write_record(each, images_only)
    assert read_records(images_only) == kept
    path = images_only.path / "experiments" / "a.json"
    path.write_text(path.read_text().replace("1.5", "2.5"))
    with pytest.raises(DataError, match=r"a.json.*run the experiment again"):
        read_records(images_only)


def test_the_best_of_a_number_keeps_its_step():
    log = [{"step": 1, "knn_top1": 0.5}, {"step": 2, "knn_top1": None}, {"step": 3, "knn_top1": 0.75}, {"step": 4}]
    assert logged(log, "knn_top1") == [0.5, 0.75] and logged(log, "step", "knn_top1") == [1, 3]


def test_two_runs_are_compared_side_by_side(images_only, build):
    build.make_run(images_only, "one")
    build.make_run(images_only, "two", select="vs2fi")
    runs = [images_only.artifact(f"runs/{name}") for name in ("one", "two")]
    assert runs_table(runs[:1]) is None
    assert runs_table(runs).rows == (
        ("one", "moco_v3, random", "50", "5.000", "1.000", "–", "–"),
        ("two", "moco_v3, vs2fi", "50", "5.000", "1.000", "–", "–"),
    )


@pytest.mark.slow
def test_the_page_leads_to_the_pairs_where_they_can_be_browsed(images_only, build):
    build.make_pairs(images_only)
    assert "<code>viewkit browse DATASET</code>" in report(images_only)
    build.write_artifact(images_only, "browse", "browse", {}, {"index.html": b"x"})
    page = report(images_only)
    assert page.count('href="../browse/index.html"') == 2 and "<code>viewkit browse DATASET</code>" not in page
