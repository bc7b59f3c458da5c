"""A worker of a cluster, without a cluster: what it sees, says and computes on."""

import os
import subprocess
import sys
import time
from hashlib import sha256
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
from toy_work import Doubles, cannot_load

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.memory import OUT_OF_MEMORY
from viewkit.pipelines.engine.shard_actor import News, Orders, ShardActor
from viewkit.pipelines.engine.units import Unit
from viewkit.pipelines.engine.workers import THREAD_VARIABLES
from viewkit.shards.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def same_surroundings(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "4")
    monkeypatch.chdir(Path.cwd())


def actor(tmp_path, make_work=None, content=b"claim", **changes):
    claim = tmp_path / "column.json"
    claim.write_bytes(b"claim")
    orders = {
        "made": bytes(ForkingPickler.dumps(make_work or Doubles())), "number": 0, "claim": str(claim),
        "sha256": sha256(content).hexdigest(), "folder": str(tmp_path), "uses_torch": True, "seen_s": 0.0,
    }  # fmt: skip
    return ShardActor(Orders(**{**orders, **changes}))


def all_news(made, shard):
    """What one shard gives, over as many questions as it takes."""
    found, until = [made.news(Unit(shard, shard), 0.05)], time.monotonic() + 20
    while found[-1].done is None and found[-1].error is None and time.monotonic() < until:
        found.append(made.news(None, 0.05))
    return News(
        sum(each.rows for each in found), sum((each.messages for each in found), ()), found[-1].done, found[-1].error
    )


def test_a_shard_gives_its_rows_its_messages_and_its_result(tmp_path):
    made = actor(tmp_path, Doubles(pause_s=0.12))
    assert all_news(made, 21) == (5, ("threads 1",), (21, 42), None)
    assert all_news(made, 4).done == (4, 8)


@pytest.mark.slow
def test_models_compute_on_one_thread_whatever_the_process_has(tmp_path):
    program = (
        "import sys, torch, pathlib, test_shard_actor as t\n"
        "torch.set_num_threads(3)\n"
        "print(t.all_news(t.actor(pathlib.Path(sys.argv[1]), uses_torch=True), 1).messages[0])\n"
    )
    folders = [Path(__file__).parent, *(Path(__file__).parents[2] / name for name in ("support", ""))]
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-c", program, str(tmp_path)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said == "threads 1\n"


def test_a_question_without_news_is_answered_after_its_time(tmp_path):
    begin = time.monotonic()
    assert actor(tmp_path).news(None, 0.1) == News()
    assert 0.09 < time.monotonic() - begin < 5


def test_an_error_for_people_comes_as_itself_and_any_other_with_its_traceback(tmp_path):
    error = all_news(actor(tmp_path, Doubles({3: "data"})), 3).error
    assert type(error) is DataError and str(error) == "shard 3 is damaged; delete it"
    error = all_news(actor(tmp_path, Doubles({3: "bug"})), 3).error
    assert type(error) is RuntimeError and "in a worker on node" in str(error)
    assert "toy_work.py" in str(error) and str(error).rstrip().endswith("ZeroDivisionError: a bug")
    assert OUT_OF_MEMORY in str(all_news(actor(tmp_path, Doubles({3: "memory"})), 3).error)


def test_a_model_that_does_not_load_is_an_error_of_the_first_shard(tmp_path):
    assert str(all_news(actor(tmp_path, cannot_load), 0).error) == "the weights are not there; fetch them"


def test_it_sees_the_driver_s_folder_or_says_what_it_sees(tmp_path):
    assert actor(tmp_path).look() is None
    assert Path.cwd() == tmp_path  # relative paths mean the same there
    assert "has another " in actor(tmp_path, content=b"of another dataset").look()
    said = actor(tmp_path, claim=str(tmp_path / "nowhere" / "column.json")).look()
    assert "cannot read" in said and said.endswith("must lie in a file system that all nodes share, at the same place")


def test_a_folder_that_appears_late_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("viewkit.pipelines.engine.shard_actor.LOOK_EVERY_S", 0.01)
    made, looks = actor(tmp_path, seen_s=10.0), []
    reads = made._wrong_with

    def late(path):
        looks.append(path)
        return "not yet" if len(looks) < 4 else reads(path)

    monkeypatch.setattr(made, "_wrong_with", late)
    assert made.look() is None and len(looks) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "rya"}, "--on is 'rya'; it is here, ray (the cluster it finds) or ray://HOST:PORT"),
        ({"on": "ray://head"}, "--on is 'ray://head'; it is here"),
        ({"on": "ray", "workers": 0}, "--workers is 0; with --on ray it is a number of actors, at least 1"),
        ({"on": "ray", "device": "cuda:0,cuda:1"}, "with --on ray it is auto, cpu or cuda: Ray says which GPU is free"),
        ({"on": "ray", "profile": "p.json"}, "--profile and --on ray do not go together"),
    ],
)
def test_options_that_make_no_sense_on_a_cluster_are_refused(options, said):
    with pytest.raises(ConfigError) as refused:
        Execution(**options)
    assert said in str(refused.value)


def test_more_actors_than_this_machine_has_cores_may_be_asked_for():
    assert Execution(on="ray://head:10001", workers=5000).workers == 5000
