"""Results of the benchmarks as files, and the page made of them: fresh, complete, stale rows marked."""

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_the_path():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture
def results():
    return importlib.import_module("results")


@pytest.fixture
def harness(monkeypatch):
    module = importlib.import_module("harness")
    monkeypatch.setattr(module, "_smoke", False)
    return module


def result_of(results, program, rows, **changes):
    found = {**results.provenance(program), "commit": "abc1234", "date": "2026-11-22", "machine": "a machine"}
    return {**found, "versions": {"torch": "2.15.0"}, "rows": rows, "left_out": [], **changes}


def ratio(what, value, **changes):
    return {"what": what, "ours_s": 0.002, "peer_s": 0.01, "ratio": value, "lowest": 4.0, "highest": 6.0, "rounds": 7,
            "at_most": False, "others_cores": 0.0, **changes}  # fmt: skip


def line_of(page, what):
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {what} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_is_what_the_generator_prints(results):
    assert results.PAGE.read_text() == results.page(), "docs/benchmarks.md is not fresh; run make docs"


def test_every_program_has_its_section_and_its_code_is_there(results):
    programs = results.load_goals()
    own = {
        path.stem for path in FOLDER.glob("*.py") if "harness" in path.read_text() and "__main__" in path.read_text()
    }
    assert set(programs) == own
    for program in programs.values():
        assert [name for name in program.code if not (ROOT / name).exists()] == []
        names = [goal.what for goal in program.goals]
        assert len(names) == len(set(names)) and not [name for name in names if "|" in name]


def test_make_bench_runs_every_program_but_that_of_the_gpu(results):
    listed = re.search(r"^BENCHMARKS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed is not None and {*listed[1].split()} == set(results.load_goals()) - {"gpu"}


def test_work_may_count_its_own_seconds(harness):
    assert harness.seconds(lambda: harness.Took(5.0)) == 5.0
    assert harness.seconds(lambda: 5.0) < 1.0


def test_rows_are_shown_with_goal_spread_and_verdict(results, tmp_path):
    program = results.load_goals()["shards"]
    written, size, read = (goal.what for goal in program.goals[:3])
    rows = [ratio(written, 0.8, others_cores=0.4), {"what": size, "value": 0.999}]
    results.save(tmp_path, "shards", result_of(results, program, rows))
    page = results.page(tmp_path)
    assert line_of(page, written) == [written, "2 ms", "10 ms", "0.80 [4.00-6.00], 7 rounds", ">= 0.9",
                                      "**missed**, others used 0.4 cores"]  # fmt: skip
    assert line_of(page, size) == [size, "0.999", "", "", "<= 1", ""]
    assert line_of(page, read) == [read, "", "", "not measured", ">= 10", ""]
    assert "Commit abc1234, 2026-11-22: a machine; torch 2.15.0." in page


def test_rows_are_stale_once_their_code_has_changed(results, tmp_path):
    program = results.load_goals()["shards"]
    row = ratio(program.goals[0].what, 1.0)
    results.save(tmp_path, "shards", result_of(results, program, [row]))
    assert "stale" not in line_of(results.page(tmp_path), row["what"])[-1]
    results.save(tmp_path, "shards", result_of(results, program, [row], code="another"))
    assert line_of(results.page(tmp_path), row["what"])[-1] == "stale"


def test_the_digest_of_code_follows_its_bytes(results, tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "part").mkdir()
    (tmp_path / "benchmarks" / "mine.py").write_text("a = 1\n")
    (tmp_path / "part" / "kernels.c").write_text("int a;\n")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    program = replace(results.load_goals_of("[mine]\ntitle = ''\ncommand = ''\ncode = ['part']\nrows = []")["mine"])
    before = program.code_digest()
    (tmp_path / "elsewhere.py").write_text("b = 2\n")
    assert program.code_digest() == before
    (tmp_path / "part" / "kernels.c").write_text("int b;\n")
    changed = program.code_digest()
    (tmp_path / "benchmarks" / "mine.py").write_text("a = 2\n")
    assert len({before, changed, program.code_digest()}) == 3


def test_a_row_that_the_goals_do_not_know_ends_the_program(results):
    with pytest.raises(SystemExit, match=r"goals.toml: \[shards\] has no row 'read 5 kB'; add it, with its goal"):
        results.load_goals()["shards"].goal("read 5 kB")


def test_a_goal_on_the_wrong_side_ends_the_program(results, harness):
    goals = "[a]\ntitle = ''\ncommand = ''\ncode = []\nrows = [{ what = 'x', least = 2.0 }]"
    row = harness.compare("x", lambda: None, lambda: None, 1, at_most=True, least_s=0.0)
    with pytest.raises(SystemExit, match=r"\[a\] 'x' is a ratio of times; its goal is on the wrong side"):
        harness.check_direction(row, results.load_goals_of(goals)["a"])


def test_the_programs_write_what_the_page_reads(results, harness, tmp_path, monkeypatch, capsys):
    known, size = (results.load_goals()["shards"].goals[place].what for place in (2, 1))

    def run(rounds):
        assert rounds == 3
        row = harness.compare(known, lambda: None, lambda: sum(range(2000)), rounds, units=4, least_s=0.0)
        return [row, harness.Fact(size, 2.0)], ["a peer: not installed"]

    monkeypatch.setattr(sys, "argv", ["shards", "--rounds", "3", "--out", str(tmp_path), "--check"])
    with pytest.raises(SystemExit) as left:  # 2.0 is above the goal of 1
        harness.main("shards", run)
    assert left.value.code == 1 and "MISSED" in capsys.readouterr().out
    found = json.loads((tmp_path / "shards.json").read_text())
    assert found["rows"][0]["rounds"] == 3 and found["rows"][0]["lowest"] <= found["rows"][0]["ratio"]
    assert {"program", "commit", "code", "machine", "versions", "date", "rows", "left_out"} == set(found)
    page = results.page(tmp_path)
    assert line_of(page, size)[-1] == "**missed**" and line_of(page, known)[3].endswith("3 rounds")
    assert "Not compared there: a peer: not installed." in page


def test_a_smoke_run_cannot_become_the_published_result(harness, results, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["shards", "--smoke", "--out", str(results.RESULTS)])
    with pytest.raises(SystemExit) as left:
        harness.main("shards", lambda rounds: ([], []))
    assert left.value.code == 2 and "--smoke measures nothing" in capsys.readouterr().err


def test_a_part_for_a_gpu_is_refused_in_one_line_without_one(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu = importlib.import_module("gpu")
    assert gpu.main(["--part", "3"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == ("error: gpu: part 3 needs a CUDA device, and torch sees none here; 'viewkit doctor' says why\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--part", "6"), "--part is 6; the parts are 1 ... 5"),
        (("--part", "1", "--device", "cpu"), "--device and --tiny are for trials"),
        (("--part", "1", "--device", "cpu", "--tiny", "--check"), "--device and --tiny are for trials"),
    ],
)
def test_wrong_options_of_the_program_for_a_gpu_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module("gpu").main(list(arguments))
    assert message in capsys.readouterr().err


def test_what_a_part_has_measured_is_kept_only_for_the_same_code_machine_and_day(results, tmp_path):
    gpu = importlib.import_module("gpu")
    new = {**results.provenance(results.load_goals()["gpu"]), "rows": [], "left_out": [], "done": []}
    assert gpu.begun(2, tmp_path, new) is new
    results.save(tmp_path, "gpu-2", {**new, "done": ["rendering"]})
    assert gpu.begun(2, tmp_path, new)["done"] == ["rendering"]
    for key in ("commit", "code", "machine", "date"):
        results.save(tmp_path, "gpu-2", {**new, key: "another", "done": ["rendering"]})
        assert gpu.begun(2, tmp_path, new) is new


def test_every_part_for_a_gpu_names_checks_that_there_are():
    gpu = importlib.import_module("gpu")
    text = (FOLDER / "gpu_checks.py").read_text()
    names = [name for part in gpu.PARTS.values() for name in part]
    assert len(names) == len(set(names))
    assert [name for name in names if f"\ndef {name}(setup: Setup) -> list[Row | Fact]:" not in text] == []
