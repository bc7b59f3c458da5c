import json

from viewkit.cli.console import JsonProgress, PlainProgress, finish_line
from viewkit.pipelines.engine.contract import Progress, Silent


def test_every_progress_keeps_the_protocol():
    assert all(isinstance(each, Progress) for each in (JsonProgress(), PlainProgress(), Silent()))


def test_plain_progress_prints_whole_lines_with_rate_and_time_left(capsys, monkeypatch):
    clock = iter([0.0, 0.0, 0.0, *[float(second) for second in range(1, 100) for _ in range(3)]])
    monkeypatch.setattr("viewkit.cli.console.time.monotonic", lambda: next(clock))
    progress = PlainProgress()
    progress.start("score", 100, "rows", 10)
    for _ in range(30):
        progress.advance(1, loss=0.123456)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "score: 100 rows, 10 already done"
    assert len(lines) > 1
    assert all(
        line.startswith("score: ") and "/100 rows, " in line and "left, loss 0.1235" in line for line in lines[1:]
    )


def test_json_progress_carries_numbers(capsys):
    progress = JsonProgress()
    progress.start("pretrain", 5, "steps")
    progress.advance(1, loss=0.5)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[1] == {"done": 1, "event": "progress", "loss": 0.5, "stage": "pretrain", "total": 5}


def test_an_empty_part_says_so_and_not_that_all_is_there():
    summary = {
        "stage": "pack",
        "folder": "d",
        "shards": 0,
        "written": 0,
        "seen": 0,
        "kept": 0,
        "rejected": {},
        "numbers": {},
    }
    assert finish_line(summary) == "pack: this part has no shards: d"


def test_the_last_line_of_a_map_stage_conserves_counts():
    summary = {"stage": "pack", "folder": "d/images", "shards": 2, "written": 2, "seen": 9, "kept": 7, "numbers": {}}
    line = finish_line({**summary, "rejected": {"truncated": 2}})
    assert line == "pack: done: 2 shards, 9 rows seen = 7 kept + 2 rejected (truncated 2): d/images"
