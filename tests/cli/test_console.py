import io
import json

from rich.console import Console

from viewkit.cli.live import LiveProgress
from viewkit.cli.progress import Chain, JsonProgress, PlainProgress, finish_line
from viewkit.cli.sparkline import BARS, bars_for, sparkline
from viewkit.pipelines.engine.contract import Progress, Silent


def test_every_progress_keeps_the_protocol():
    assert all(isinstance(each, Progress) for each in (JsonProgress(), PlainProgress(), Silent()))


def test_plain_progress_prints_whole_lines_with_rate_and_time_left(capsys, monkeypatch):
    clock = iter([0.0, 0.0, 0.0, *[float(second) for second in range(1, 100) for _ in range(3)]])
    monkeypatch.setattr("viewkit.cli.progress.time.monotonic", lambda: next(clock))
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
    assert (events[1]["done"], events[1]["total"], events[1]["numbers"]) == (1, 5, {"loss": 0.5})
    assert events[1]["memory_bytes"] > 10**6 and events[1]["rejects"] is None


def test_json_events_of_many_quick_steps_are_few_and_the_last_one_is_there(capsys):
    progress = JsonProgress()
    progress.start("pretrain", 500, "steps")
    for _ in range(500):
        progress.advance(1)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(events) < 20 and events[-1]["done"] == 500


def test_progress_shows_rejects_memory_and_the_best_knn_so_far():
    progress = PlainProgress()
    progress.start("pretrain", 10, "steps")
    for knn in (0.25, 0.5, 0.4):
        progress.advance(1, loss=1.0, knn_top1=knn, rejects=2)
    said = ", ".join(progress.parts())
    assert "3/10 steps" in said and "2 rejected" in said and "kNN 40.0 % (best 50.0)" in said
    assert said.endswith(("MB", "GB"))


def test_in_a_chain_the_time_of_later_steps_is_that_of_like_ones_before(monkeypatch):
    chain = Chain(["pack", "pretrain", "evaluate", "pretrain", "evaluate"])
    chain.finished(3.0, worked=True)
    chain.place = 1
    chain.finished(100.0, worked=True)
    chain.place = 2
    chain.finished(0.1, worked=False)  # all was there, which says nothing of the next one
    assert chain.later == (100.0, 1) and chain.head == "[3/5] "
    monkeypatch.setattr("viewkit.cli.progress.time.monotonic", lambda: 0.0)
    progress = PlainProgress(chain)
    progress.start("evaluate", 10, "images")
    monkeypatch.setattr("viewkit.cli.progress.time.monotonic", lambda: 5.0)
    progress.advance(5)
    assert (progress.left_s, progress.whole_left_s) == (5.0, 105.0)
    assert "whole 1:45 and 1 steps not timed yet" in ", ".join(progress.parts())


def test_a_sparkline_shows_the_course_of_a_number():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0]) == "▁▁" and sparkline([]) == "" and sparkline([float("nan"), 1]) == "▁"
    falling = sparkline([1000 - place for place in range(1000)], width=8)
    assert falling == "█▇▆▅▄▃▂▁"
    assert sparkline([0, 1], bars=bars_for("ascii")) == "_#" and bars_for("utf-8") == BARS


def test_the_live_display_shows_the_step_a_bar_the_numbers_and_how_the_loss_went():
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    chain = Chain(["pack", "pretrain"])
    chain.place = 1
    progress = LiveProgress(chain, console)
    progress.start("pretrain", 4, "steps")
    for loss in (4.0, 3.0, 2.0):
        progress.advance(1, loss=loss)
    progress.stop()
    paper = Console(file=io.StringIO(), width=200, color_system=None)
    paper.print(progress.shown())
    first, second = paper.file.getvalue().splitlines()
    assert first.startswith("[2/2] pretrain") and "3/4 steps" in first and "loss 2" in first
    assert second.split() == ["loss", sparkline([4.0, 3.0, 2.0], bars=progress.bars), "2"]


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
        "bytes": 0,
    }
    assert finish_line(summary) == "pack: this part has no shards: d"


def test_the_last_line_of_a_map_stage_conserves_counts():
    summary = {
        "stage": "pack",
        "folder": "d/images",
        "shards": 2,
        "written": 2,
        "seen": 9,
        "kept": 7,
        "numbers": {},
        "bytes": 2048,
    }
    line = finish_line({**summary, "rejected": {"truncated": 2}}, 61.0)
    assert line == "pack: done: 2 shards, 9 rows seen = 7 kept + 2 rejected (truncated 2): d/images, 2.0 kB in 1:01"
