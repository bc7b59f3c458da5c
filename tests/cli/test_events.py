"""Events of real commands are what docs/events.md and its schema say."""

import json
from dataclasses import asdict

import pytest
from PIL import Image
from tiny_chain import photographs
from tiny_experiment import EXPERIMENT

from viewkit.cli.events import EVENTS, StartEvent, problem_of, schema
from viewkit.cli.main import run

TINY = EXPERIMENT.replace("dim = 8\n", "dim = 8\nknn_epochs = 1\n")


def events_of(capsys, *arguments):
    """The events of a command that ends well; every one as documented."""
    assert run([*map(str, arguments), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [problem_of(event) for event in found if problem_of(event)] == []
    return found


def kinds(events):
    return list(dict.fromkeys(event["event"] for event in events))


def test_events_of_a_column_are_as_documented(tmp_path, capsys):
    for number in range(6):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number}.png")
    pack = ("pack", tmp_path, tmp_path / "data", "--workers", "1")
    assert kinds(events_of(capsys, *pack, "--dry-run")) == ["plan"]
    assert kinds(events_of(capsys, *pack)) == ["start", "progress", "done", "next"]
    assert kinds(events_of(capsys, *pack, "--rows-per-shard", "4", "--redo", "--dry-run")) == ["removed"]
    again = events_of(capsys, *pack)
    assert [event["written"] for event in again if event["event"] == "done"] == [0]


@pytest.mark.slow
def test_events_of_an_experiment_are_as_documented(tmp_path, capsys):
    (tmp_path / "tiny.toml").write_text(TINY)
    source, test = photographs(tmp_path / "images"), photographs(tmp_path / "other")
    (source / "class1" / "text.jpg").unlink()
    (source / "class0" / "empty.png").unlink()
    for path in sorted(test.rglob("*.png"))[::2]:
        path.unlink()
    line = ["run", tmp_path / "tiny.toml", source, tmp_path / "data", "--test", test, "--max-rejects", "1"]
    line += ["--device", "cpu", "--workers", "1"]
    assert {"plan", "total"} <= set(kinds(events_of(capsys, *line, "--dry-run")))
    found = events_of(capsys, *line)
    assert {"step", "start", "progress", "message", "done", "result"} <= set(kinds(found))
    steps = [(event["place"], event["of"], event["name"]) for event in found if event["event"] == "step"]
    assert steps[0] == (1, 6, "pack") and steps[-1] == (6, 6, "evaluate two")
    trained = [event for event in found if event["event"] == "progress" and event["stage"] == "pretrain"]
    assert "loss" in trained[-1]["numbers"] and trained[-1]["whole_left_s"] is not None
    assert trained[-1]["whole_unknown"] == 0  # both kinds of later steps had one before
    assert kinds(events_of(capsys, *line, "--rehearse"))[-1] == "rehearsed"


def test_what_is_not_documented_is_told():
    good = {"event": "start", **asdict(StartEvent(stage="pack", unit="rows", total=3, done=0))}
    assert problem_of(good) is None
    assert problem_of({**good, "event": "begin"}).startswith("event is 'begin'; the kinds are step, start")
    assert problem_of({**good, "total": "3"}) == "start: total is '3'; documented: integer"
    assert problem_of({**good, "total": None}) == "start: total is None; documented: integer"
    assert "its fields are done, event, more" in problem_of({**good, "more": 1})


def test_the_schema_has_every_event_once_and_every_field_has_words():
    parts = schema()["oneOf"]
    assert [part["title"] for part in parts] == [kind.EVENT for kind in EVENTS]
    assert len({part["title"] for part in parts}) == len(EVENTS)
    for part in parts:
        assert part["description"] and part["required"] == list(part["properties"])
        assert all("description" in each for name, each in part["properties"].items() if name != "event")
