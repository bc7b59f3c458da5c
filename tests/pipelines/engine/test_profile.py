"""`--profile`: a trace that is valid, covers the time, has the workers' spans, and costs nothing when it is off."""

import gc
import gzip
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_datasets import CPU, numbers_dataset
from tiny_chain import jobs, photographs
from toy_stages import NumbersConfig, NumbersStage, TotalConfig, TotalStage

from viewkit.cli.main import run as viewkit
from viewkit.pipelines.engine.contract import MapStage
from viewkit.pipelines.engine.execution import Devices
from viewkit.pipelines.engine.profile import checked_path, profiled
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pretrain.config import PretrainConfig
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.shards import spans
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.spans import Recorded, Recorder, span, spanned, spans_of, unit

CONTAINERS = {"fit", "shard", "rows", "step"}
"""Spans that hold others; what they are spent on must be said, too."""


def events_in(path, category="viewkit"):
    """The spans of a trace, after a look at whether it is one."""
    trace = json.loads(path.read_bytes())
    assert {each["ph"] for each in trace["traceEvents"]} <= {"X", "M", "i", "s", "f", "e", "b"}
    for each in trace["traceEvents"]:
        assert isinstance(each["pid"], int) and isinstance(each["name"], str)
        if each["ph"] == "X":
            assert each["ts"] >= 0 and each["dur"] >= 0 and isinstance(each["tid"], int)
    return [each for each in trace["traceEvents"] if each["ph"] == "X" and each["cat"] == category]


def check_nesting(events):
    """Slices of one track lie inside each other or apart; else Perfetto drops them."""
    tracks = {}
    for each in events:
        tracks.setdefault((each["pid"], each["tid"]), []).append((each["ts"], each["ts"] + each["dur"]))
    for track in tracks.values():
        open_until = []
        for start, end in sorted(track, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= start + 1e-6:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-6
            open_until.append(end)


def coverage(events, stage, without=CONTAINERS):
    """Share of the stage's time in the main thread that lies in spans of it that hold no others."""
    whole = max((each for each in events if each["name"] == stage), key=lambda each: each["dur"])
    own = [each for each in events if (each["pid"], each["tid"]) == (whole["pid"], whole["tid"])]
    covered, end = 0.0, whole["ts"]
    for start, stop in sorted((each["ts"], each["ts"] + each["dur"]) for each in own
                              if each["name"] not in {*without, stage}):  # fmt: skip
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered / whole["dur"]


@pytest.fixture
def own_time(monkeypatch):
    """Spans take processor time: what others do on the machine, and to its disk, does not count."""
    monkeypatch.setattr(time, "perf_counter_ns", time.process_time_ns)
    gc.collect()
    gc.disable()  # of the whole session's objects, in the middle of one stage
    yield
    gc.enable()


@pytest.fixture
def least(request):
    """The smallest share of a quick stage's time that its spans may cover; checks of types are in no span."""
    return 0.5 if request.config.getoption("jaxtyping_packages") else 0.75


@pytest.mark.usefixtures("own_time")
def test_the_spans_of_a_stage_cover_its_time(tmp_path, least):
    (job, *_) = jobs(photographs(tmp_path / "photographs")).values()
    execution = replace(CPU, profile=str(tmp_path / "trace.json"))
    run_stage(job.stage, job.config, Dataset(tmp_path / "data"), execution)
    events = events_in(tmp_path / "trace.json")
    check_nesting(events)
    assert coverage(events, "pack") >= least
    assert {"open", "prepare", "shard", "read", "ingest", "write", "finish"} <= {each["name"] for each in events}
    assert [each["args"]["shard"] for each in events if each["name"] == "shard"] == [0, 1, 2, 3]


def test_the_spans_of_worker_processes_are_in_the_trace(tmp_path):
    execution = replace(CPU, workers=2, profile=str(tmp_path / "trace.json"))
    run_stage(NumbersStage(), NumbersConfig(rows=60), Dataset(tmp_path / "data"), execution)
    events = events_in(tmp_path / "trace.json")
    check_nesting(events)
    (main,) = {each["pid"] for each in events if each["name"] == "numbers"}
    workers = {each["pid"] for each in events} - {main}
    assert 1 <= len(workers) <= 2
    shards = [each["args"]["shard"] for each in events if each["name"] == "shard" and each["pid"] in workers]
    assert sorted(shards) == list(range(8))
    assert coverage(events, "numbers") >= 0.9  # waiting for them


@pytest.mark.slow
@pytest.mark.usefixtures("own_time")
def test_the_spans_of_every_stage_of_the_chain_cover_its_time(tmp_path, least):
    dataset = Dataset(tmp_path / "data")
    for name, job in jobs(photographs(tmp_path / "photographs")).items():
        path = tmp_path / f"{name}.json"
        run_on = CPU if isinstance(job.stage, MapStage) else Devices(device="cpu")
        run_stage(job.stage, job.config, dataset, replace(run_on, profile=str(path)))
        events = events_in(path)
        check_nesting(events)
        assert coverage(events, job.stage.name, without={"fit", "shard"}) >= (least if name == "images" else 0.88), name


@pytest.mark.slow
def test_the_spans_of_a_training_cover_its_time(tmp_path):
    dataset = Dataset(tmp_path / "data")
    (job, *_) = jobs(photographs(tmp_path / "photographs")).values()
    run_stage(job.stage, job.config, dataset, CPU)
    config = PretrainConfig(framework="simclr", arch="resnet18_cifar", side_px=32, batch_size=8, steps=6)
    path = tmp_path / "pretrain.json.gz"
    run_stage(PretrainStage("mine"), config, dataset, Devices(device="cpu", profile=str(path), profile_kernels=2))
    (tmp_path / "pretrain.json").write_bytes(gzip.decompress(path.read_bytes()))
    events = events_in(tmp_path / "pretrain.json")
    assert coverage(events, "pretrain") >= 0.9
    steps = [each for each in events if each["name"] == "step"]
    assert [each["args"]["step"] for each in steps[:6]] == [0, 1, 2, 3, 4, 5]
    inside = {"data", "wait", "plan", "to device", "render", "select", "forward", "backward", "update"}
    first = [each for each in events if steps[0]["ts"] <= each["ts"] < steps[0]["ts"] + steps[0]["dur"]]
    assert inside <= {each["name"] for each in first}
    operators = [each["ts"] for each in events_in(tmp_path / "pretrain.json", "cpu_op")]
    assert len(operators) > 100
    assert steps[1]["ts"] - 100 <= min(operators) and max(operators) <= steps[2]["ts"] + steps[2]["dur"] + 100


def test_off_no_span_object_is_made(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("a span was made, and nothing records")

    monkeypatch.setattr(spans.Span, "__init__", refuse)
    monkeypatch.setattr(spans, "_each", refuse)
    numbers_dataset(tmp_path / "data")
    assert span("a") is span("b", number=1) is unit("c") is spans.NOTHING
    items = [1, 2]
    assert list(spans_of("read", items)) == items and spanned("d")(len)(items) == 2


@pytest.mark.slow
def test_operators_are_those_of_the_second_unit_on(tmp_path):
    with profiled(str(tmp_path / "trace.json"), kernels=1):
        for number in range(4):
            with unit("step", number=number):
                torch.full((3,), 2.0).add(1)
                with unit("batch"):  # inside another unit: none of its own
                    torch.full((3,), 2.0).mul(1)
    steps = [each for each in events_in(tmp_path / "trace.json") if each["name"] == "step"]
    added = [
        each for each in events_in(tmp_path / "trace.json", "cpu_op") if each["name"] in ("aten::add", "aten::mul")
    ]
    assert [each["name"] for each in added] == ["aten::add", "aten::mul"]
    second = steps[1]["ts"], steps[1]["ts"] + steps[1]["dur"]
    assert all(second[0] - 100 <= each["ts"] <= second[1] + 100 for each in added)


def test_a_stage_that_fails_leaves_its_profile(tmp_path):
    dataset = numbers_dataset(tmp_path / "data")
    (tmp_path / "data" / "images" / "000001.tar").write_bytes(b"damaged")
    with pytest.raises(DataError):
        run_stage(TotalStage(), TotalConfig(), dataset, Devices(device="cpu", profile=str(tmp_path / "trace.json")))
    assert "open" in {each["name"] for each in events_in(tmp_path / "trace.json")}
    assert spans.recorder() is None


def test_beyond_its_room_spans_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "MAX_EVENTS", 5)
    with profiled(str(tmp_path / "trace.json")):
        for _ in range(7):
            with span("a"):
                pass
        other = Recorder()
        other.add("b", 0, {})
        spans.recorder().recorded.merge(other.take())
    trace = json.loads((tmp_path / "trace.json").read_bytes())
    assert trace["otherData"]["spans_left_out"] == 3
    assert sum(each["ph"] == "X" for each in trace["traceEvents"]) == 5
    assert Recorded().events == []


def test_every_process_of_torchrun_writes_its_own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    assert checked_path(str(tmp_path / "a.json.gz")).name == "a.rank3.json.gz"
    monkeypatch.setenv("RANK", "0")
    assert checked_path(str(tmp_path / "a.json")).name == "a.json"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "trace.txt"}, "a profile is JSON, give it a name that ends in .json or .json.gz"),
        ({"profile": "nowhere/trace.json"}, "there is no folder nowhere, make it first"),
        ({"profile": "trace.json", "profile_kernels": -1}, "--profile-kernels is -1"),
        ({"profile_kernels": 3}, "--profile-kernels is given without --profile FILE"),
    ],
)
def test_wrong_options_are_refused_before_any_work(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        run_stage(NumbersStage(), NumbersConfig(), Dataset(tmp_path / "data"), replace(CPU, **options))
    assert not (tmp_path / "data").exists()


def test_a_profile_is_not_written_into_a_column(tmp_path):
    dataset = numbers_dataset(tmp_path / "data")
    inside = dataset.path / "images" / "column.json"
    before = inside.read_bytes()
    with pytest.raises(RefusedError, match="which a stage wrote; choose a place outside of it"):
        run_stage(NumbersStage(), NumbersConfig(rows=30), dataset, replace(CPU, profile=str(inside)))
    assert inside.read_bytes() == before


def test_the_command_says_where_its_profile_is(tmp_path, capsys):
    source, path = photographs(tmp_path / "photographs"), tmp_path / "trace.json"
    options = ("--workers", "1", "--max-rejects", "0.2", "--profile", str(path))
    assert viewkit(["pack", str(source), str(tmp_path / "data"), *options]) == 0
    assert f"the profile: {path}, which https://ui.perfetto.dev opens" in capsys.readouterr().out
    assert Path(path).is_file()
    assert viewkit(["pack", str(source), str(tmp_path / "data"), *options, "--dry-run"]) == 2
    assert "--profile writes a file, and --dry-run writes nothing" in capsys.readouterr().err
