"""The top of the page, published numbers, runs side by side, and the way into the pairs."""

import pytest
from small_datasets import CPU

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.published import Published, Record, read_records, write_record
from viewkit.pipelines.report.accuracy import accuracy_tables
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.inventory import take_inventory
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
    assert said["vs2fi against random, kNN 20, one seed"] == ("helps, +10.0 ± 4.4 points", "helps", "accuracy")
    assert said["generated against random, kNN 20, one seed"][1] == "hurts"
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


def test_published_numbers_stand_beside_yours(images_only, build):
    build.make_run(images_only, "base")
    build.make_eval(images_only, "base", (0.5, 0.4, 0.4))
    entries = [Published(run=run, metric="knn20", value=60) for run in ("base", "late")]
    write_record(record("mine", *entries), images_only)
    page = report(images_only)
    for text in ("My &lt;b&gt;title&lt;/b&gt;", "HVS, table 1", "-10.0 ± 3.2", "not measured", "late less base"):
        assert text in page
    write_record(record("mine", entries[0]), images_only)
    assert "late less base" not in report(images_only)  # the page is of the record that is there now


def test_records_are_read_back_and_damage_is_found(images_only):
    kept = [record("a", Published(run="x", metric="linear", value=1.5, of="top5")), record("b")]
    for each in kept:
        write_record(each, images_only)
    assert read_records(images_only) == kept
    path = images_only.path / "experiments" / "a.json"
    path.write_text(path.read_text().replace("1.5", "2.5"))
    with pytest.raises(DataError, match=r"a.json.*run the experiment again"):
        read_records(images_only)


def test_two_runs_are_compared_side_by_side(images_only, build):
    build.make_run(images_only, "one")
    assert "Runs side by side" not in report(images_only)
    build.make_run(images_only, "two", select="vs2fi")
    page = report(images_only)
    assert "Runs side by side" in page and "moco_v3, vs2fi" in page and "5.000" in page


def test_the_page_leads_to_the_pairs_where_they_can_be_browsed(images_only, build):
    build.make_pairs(images_only)
    assert "<code>viewkit browse DATASET</code>" in report(images_only)
    build.write_artifact(images_only, "browse", "browse", {}, {"index.html": b"x"})
    page = report(images_only)
    assert page.count('href="../browse/index.html"') == 2 and "<code>viewkit browse DATASET</code>" not in page
