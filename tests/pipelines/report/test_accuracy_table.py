import math

import pytest

from viewkit.pipelines.experiments.experiment import load_experiment
from viewkit.pipelines.report.accuracy import accuracy_tables, summary_lines


def rows_of(dataset):
    (table,) = accuracy_tables(dataset)
    return table, {row.name: row for row in table.rows}


def test_every_run_stands_below_the_baselines_with_random_pairs_first(everything):
    _, rows = rows_of(everything)
    assert list(rows) == ["raw pixels", "untrained encoder", "random", "generated", "longer", "vs2fi"]
    assert rows["random"].top1 == {"knn20": 0.400, "knn200": 0.38, "linear": 0.45}
    assert rows["raw pixels"].top1["knn20"] == 0.252


def test_a_difference_counts_when_it_exceeds_two_standard_errors(everything):
    _, rows = rows_of(everything)
    row = rows["vs2fi"]
    assert row.reference == "random" and row.change["knn20"] == pytest.approx(0.1)
    assert row.doubt["knn20"] == pytest.approx(2 * math.sqrt((0.4 * 0.6 + 0.5 * 0.5) / 1000))
    assert [row.verdict(probe) for probe in ("knn20", "knn200", "linear")] == ["higher", "no clear difference", "lower"]


def test_a_run_is_compared_only_with_random_pairs_and_otherwise_the_same_settings(everything):
    table, rows = rows_of(everything)
    assert rows["longer"].reference is None and rows["longer"].verdict("knn20") == ""
    assert any(note.startswith("longer: there is no evaluated run with random pairs") for note in table.notes())


def test_pairs_of_bounded_overlap_are_no_reference_and_the_baseline_is(images_only, build):
    """The runs of hvs-table4-simsiam: of six the baseline alone has random pairs."""
    experiment = load_experiment("hvs-table4-simsiam")
    for name, options in experiment.runs.items():
        build.make_run(images_only, name, framework="simsiam", **options)
        build.make_eval(images_only, name, (0.4, 0.4, 0.4))
    _, rows = rows_of(images_only)
    assert len(experiment.runs) >= 6
    assert {rows[name].reference for name in experiment.runs} == {"baseline"}


def test_of_several_references_the_one_with_the_same_crops_is_taken_and_others_are_named(images_only, build):
    runs = {"a": {}, "b": {"crop": "torchvision"}, "c": {"select": "vs2fi"}, "d": {"joint_area": 0.0, "crop": "exact"}}
    for name, options in runs.items():
        build.make_run(images_only, name, **options)
        build.make_eval(images_only, name, (0.4, 0.4, 0.4))
    table, rows = rows_of(images_only)
    assert {name: rows[name].reference for name in runs} == {"a": "a", "b": "b", "c": "a", "d": "a"}
    assert rows["c"].other_references == () and rows["d"].other_references == ("b",)
    said = [note for note in table.notes() if "the first by name of several runs" in note]
    assert len(said) == 1 and said[0].startswith("d is compared with a, ") and said[0].endswith("; others: b.")


def test_the_notes_say_when_a_method_does_not_help(everything):
    notes = "\n".join(rows_of(everything)[0].notes())
    assert (
        "generated against random, in points: kNN 20 -15.0 ± 4.1 (lower), kNN 200 -1.0 ± 4.3 (no clear difference)"
        in notes
    )
    assert "Not above raw pixels: generated (kNN 20), vs2fi (linear)." in notes


def test_evaluations_on_other_test_images_stand_in_another_table(images_only, build):
    for name, test in (("a", "1" * 64), ("b", "1" * 64), ("c", "2" * 64)):
        build.make_run(images_only, name)
        build.make_eval(images_only, name, (0.4, 0.4, 0.4), test=test)
    tables = accuracy_tables(images_only)
    assert [[row.name for row in table.rows if row.baseline is None] for table in tables] == [["a", "b"], ["c"]]


def test_a_run_evaluated_without_baselines_stands_in_the_table_of_one_with_them(images_only, build):
    for name in ("a", "b"):
        build.make_run(images_only, name, select="random" if name == "a" else "vs2fi")
        build.make_eval(images_only, name, (0.4, 0.4, 0.4), baselines=name == "b")
    (table,) = accuracy_tables(images_only)
    assert [row.name for row in table.rows] == ["raw pixels", "untrained encoder", "a", "b"]


def test_the_terminal_shows_the_rows_and_the_notes_of_the_table(everything):
    table, _ = rows_of(everything)
    lines = summary_lines(everything)
    assert lines[0].startswith("Accuracy in % on 1000 test images of 10 classes")
    line = next(line for line in lines if line.startswith("vs2fi"))
    assert line.split()[-5:] == ["50.0", "39.0", "30.0", "+10.0", "higher"]
    assert all(len(line) <= 110 for line in lines)
    assert " ".join(lines).replace("   ", " ").endswith(" ".join(f"- {note}" for note in table.notes()))
    head = next(line for line in lines if "kNN 20 " in line)
    assert line.index("50.0") + 4 == head.index("kNN 20 ") + 6 and line.index("+10.0") == head.index("against")


def test_without_an_evaluation_the_terminal_says_what_to_run(images_only):
    assert "viewkit evaluate DATASET/runs/NAME TEST_DATASET" in summary_lines(images_only)[0]


def test_a_name_cannot_move_the_cursor(images_only, build):
    build.make_run(images_only, "a\x1b[2Jb")
    build.make_eval(images_only, "a\x1b[2Jb", (0.4, 0.4, 0.4))
    assert not any("\x1b" in line for line in summary_lines(images_only))
