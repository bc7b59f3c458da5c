"""Exit codes and the one line of every error."""

import json

import pytest
from small_datasets import contents, numbers_dataset

from viewkit.cli.main import run


def ran(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command"),
        (["score"], "Missing argument"),
        (["score", "DATA", "--rounds", "many"], "Invalid value for '--rounds'"),
        (["score", "DATA", "--frobnicate"], "viewkit score: unknown option '--frobnicate'"),
        (["pack", "SOURCE", "DATA", "--labels", "maybe"], "Invalid value for '--labels'"),
        (["score", "DATA", "--num-views", "1"], "num_views is 1"),
        (["pack", "SOURCE", "DATA", "--workers", "0"], "--workers is 0; it must lie in 1 ... "),
        (["histograms", "DATA", "--on", "rya"], "--on is 'rya'; it is here, ray (the cluster it finds) or ray://HOST"),
        (["foreground", "DATA", "--on", "ray", "--workers", "0"], "--workers is 0; with --on ray it is a number of a"),
        (["verify", "hdfs://cluster/data"], "stores are named s3://BUCKET/PREFIX"),
        (["pack", "", "DATA"], "the source is empty"),
        (["pack", "SOURCE", ""], "the path of the dataset is empty"),
        (["score", "DATA", "--gamma", "inf"], "option 'gamma' is inf; it takes a finite number"),
        (["score", "DATA", "--rounds", "10000000000"], "option 'rounds' is 10000000000; it takes at most 1000000000"),
        (["generate", "DATA", "--seed", "-1"], "option 'seed' is -1; it must lie in 0 ... 2^63 - 1"),
        (["rescore", "DATA", "--column", "../x"], "column is '../x'; name a new one"),
        (["rescore", "DATA", "--pairs", "../x"], "pairs is '../x'; it must be the name of a column of pairs"),
        (
            ["rescore", "DATA", "--pairs", "a", "--column", "a"],
            "pairs and column are both 'a'; write to",
        ),
        (["generate", "DATA", "--batch-size", "0"], "--batch-size is 0; it must lie in 1 ... 4096"),
        (["generate", "DATA", "--strategy", "table"], "strategy is 'table' and --levels is not given"),
        (["generate", "DATA", "--generator", "unclip"], "generator 'unclip' needs its weights; add --weights FOLDER"),
        (["views", "DATA", "sheet.jpg"], "give it a name that ends in .png"),
        (["views", "DATA", "sheet.png", "--tile-px", "1000000"], "--tile-px is 1000000; it must lie in 1 ... 1024"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(capsys, arguments, message):
    code, out, err = ran(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    "command",
    [
        ["estimator"],
        ["generate"],
        ["histograms"],
        ["score"],
        ["pretrain"],
        ["report"],
        ["status"],
        ["verify"],
    ],
)
def test_a_dataset_that_is_not_there_is_one_line_and_exit_code_1(capsys, tmp_path, command):
    code, _, err = ran(capsys, *command, tmp_path / "nothing")
    assert code == 1
    assert err.startswith("error: ") and err.count("\n") == 1
    assert "viewkit pack SOURCE" in err
    assert not (tmp_path / "nothing").exists()


def test_another_config_is_refused_with_exit_code_3_and_nothing_changes(capsys, tmp_path):
    assert ran(capsys, "pack", "demo:test", tmp_path / "data")[0] == 0
    before = contents(tmp_path / "data")
    code, _, err = ran(capsys, "pack", "demo:test", tmp_path / "data", "--rows-per-shard", "7")
    assert code == 3
    assert "config.rows_per_shard is 1024 there and 7 now" in err
    assert err.count("\n") == 1
    assert contents(tmp_path / "data") == before


def test_without_a_command_the_help_is_shown(capsys):
    code, out, err = ran(capsys)
    assert (code, err) == (0, "")
    assert "Commands:" in out


def test_status_counts_rows_and_rejects_by_reason(capsys, tmp_path):
    numbers_dataset(tmp_path, rows=30)
    code, out, _ = ran(capsys, "status", tmp_path, "--json")
    assert code == 0
    (column,) = json.loads(out)["columns"]
    assert (column["shards"], column["shards_done"], column["seen"]) == (4, 4, 30)
    assert column["kept"] + sum(column["rejected"].values()) == 30
    assert column["rejected"] == {"unlucky": 3, "unreadable": 1}
    code, out, _ = ran(capsys, "status", tmp_path, "--rejects")
    assert "images  4/4     26    4 (unlucky 3, unreadable 1)" in out
    assert "images: row00007: unlucky: ends in 7" in out


def test_status_of_an_unfinished_column_counts_complete_shards(capsys, tmp_path):
    numbers_dataset(tmp_path, rows=30)
    (tmp_path / "images" / "000001.json").unlink()
    assert "images  3/4     19" in ran(capsys, "status", tmp_path)[1]


def test_verify_says_intact_or_names_what_is_damaged(capsys, tmp_path):
    numbers_dataset(tmp_path, rows=30)
    code, out, _ = ran(capsys, "verify", tmp_path)
    assert code == 0 and out.startswith(f"{tmp_path}: intact: 6 parts, ")
    tar = tmp_path / "images" / "000002.tar"
    raw = bytearray(tar.read_bytes())
    raw[700] ^= 4
    tar.write_bytes(raw)
    code, out, err = ran(capsys, "verify", tmp_path)
    assert code == 1
    assert "000002.tar: damaged at row00016" in out
    assert "delete 000002.json beside it and rerun the stage that writes 'images'" in out
    assert err == f"error: {tmp_path}: 1 of 5 parts are damaged; each line above says what to do\n"
    findings = [json.loads(line) for line in ran(capsys, "verify", tmp_path, "--json")[1].splitlines()]
    assert [finding["subject"] for finding in findings if finding["problem"]] == ["images/000002"]


def test_inspect_shows_a_row_and_a_reject(capsys, tmp_path):
    numbers_dataset(tmp_path, rows=30)
    code, out, _ = ran(capsys, "inspect", tmp_path, "row00003")
    assert code == 0
    assert "txt: row00003" in out
    assert "rejected: unlucky" in ran(capsys, "inspect", tmp_path, "row00007")[1]
    code, _, err = ran(capsys, "inspect", tmp_path, "nobody")
    assert (code, err.count("\n")) == (1, 1)


def test_a_dry_run_writes_nothing(capsys, tmp_path):
    code, out, _ = ran(capsys, "pack", "demo:test", tmp_path / "data", "--dry-run")
    assert code == 0
    assert "rows left: " in out and "estimated s: " in out
    assert not (tmp_path / "data").exists()


def test_json_events_are_one_object_a_line_and_end_with_the_counts(capsys, tmp_path):
    code, out, _ = ran(capsys, "pack", "demo:test", tmp_path / "data", "--json")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [each["event"] for each in (events[0], *events[-2:])] == ["start", "done", "next"]
    assert events[-2]["seen"] == events[-2]["kept"] == events[0]["total"]
    assert sum(1 for event in events if event["event"] == "progress") >= 1


def test_names_with_line_breaks_cannot_make_an_error_two_lines(capsys, tmp_path):
    code, _, err = ran(capsys, "pack", tmp_path / "two\nlines", tmp_path / "data")
    assert code == 1
    assert err.count("\n") == 1
