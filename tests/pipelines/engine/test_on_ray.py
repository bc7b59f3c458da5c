"""Shards on a Ray cluster of several nodelets on this machine, which lose processes and nodes.

One cluster for all tests, on the loopback interface: a head without processors, and nodes with one each.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from dealt_crew import DyingForeground, DyingHistograms
from small_datasets import CPU, contents, numbers_dataset
from toy_stages import CountsConfig, CountsStage, NumbersConfig, NumbersStage, TotalConfig, TotalStage
from toy_work import Doubles, Sees

from viewkit.pipelines.engine import on_ray, ray_cluster
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.execution import Execution, Spread
from viewkit.pipelines.engine.on_ray import Pace, _Rows, run_on_ray
from viewkit.pipelines.engine.ray_cluster import connected, device_on_ray, offered, seats, why_lost
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.engine.schedule import Limits
from viewkit.pipelines.foreground import samples
from viewkit.pipelines.foreground.config import ForegroundConfig
from viewkit.pipelines.foreground.stage import ForegroundStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

ON_RAY = replace(CPU, on="ray", workers=None)
CONFIG = NumbersConfig(rows=96, rows_per_shard=8)
SUPPORT = Path(__file__).parents[2] / "support"


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match=r"^--on ray needs Ray; pip install '.\[ray\]' where its source is, here and on every node"
    ):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), ON_RAY)
    assert not list(tmp_path.iterdir())


def test_without_ray_a_fit_in_parts_is_refused_too_and_one_without_goes_on(monkeypatch, tmp_path):
    dataset = numbers_dataset(tmp_path / "data")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"^--on ray needs Ray"):
        run_stage(CountsStage(), CountsConfig(), dataset, Spread(on="ray"))
    assert not (dataset.path / "counts").exists()
    assert run_stage(TotalStage(), TotalConfig(), dataset, ON_RAY).written == 1


def test_seats_are_whole_devices_of_nodes_that_are_alive(monkeypatch):
    there = {"a": {"CPU": 8.0, "GPU": 2.0}, "head": {"memory": 1.0}, "b": {"CPU": 0.5}, "c": {"CPU": 2.0, "GPU": 0.0}}
    monkeypatch.setattr(ray_cluster, "_nodes", lambda: there)
    assert seats("cuda:0") == {"a": 2} and seats("cpu") == {"a": 8, "c": 2}
    assert offered() == "4 nodes, 10 CPUs, 2 GPUs"


def test_rows_of_a_shard_in_two_hands_count_once():
    rows = _Rows()
    for worker in (0, 1):
        rows.begin(worker)
    assert [rows.new(0, 7, 3), rows.new(1, 7, 2), rows.new(1, 7, 4), rows.new(0, 7, 5)] == [3, 0, 3, 2]
    rows.begin(1)
    assert rows.new(1, 8, 8) == 8 and rows.new(0, 7, 0) == 0


def test_why_a_worker_was_lost_is_a_few_words_of_what_ray_says():
    died = "The actor died unexpectedly before finishing this task.\n\tpid: 7\nThe actor is dead because its worker "
    died += "process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits"
    assert why_lost(OSError(died)) == "The actor is dead because its worker process has died"
    task = "The actor died because of an error raised in its creation task, ray::A.__init__()\n  File a.py\n"
    assert why_lost(OSError(task + "ImportError: no module viewkit")) == "ImportError: no module viewkit"
    assert why_lost(OSError("")) == "OSError" and why_lost(OSError("one line.")) == "one line"


@pytest.mark.slow
@pytest.mark.parametrize("on", ["ray", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_one_line_at_once(on, tmp_path):
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install '.[ray]'")
    command = [sys.executable, "-m", "viewkit.cli", "pack", str(tmp_path), "data", "--on", on]
    environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert said.stderr.startswith(f"error: --on {on}: there is no cluster at 127.0.0.1:1 (Connection refused); start")


@pytest.fixture(scope="module")
def cluster():
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install '.[ray]'")
    environment = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # so that nodes keep to 127.0.0.1; read when Ray is imported
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "3",
        "RAY_worker_niceness": "0",  # workers are niced by 15, and tests share their processors with others
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        made = Nodes()
        patch.setenv("RAY_ADDRESS", made.cluster.address)
        try:
            yield made
        finally:
            made.cluster.shutdown()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Nodes:
    """The cluster, and what tests do to it. here: nodes with a processor. client: where others may connect to it."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.memory = {"object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.1"}
        port = free_port()
        head = {"num_cpus": 0, "include_dashboard": False, "ray_client_server_port": port, **self.memory}
        self.cluster, self.client = Cluster(True, head_node_args=head), f"ray://127.0.0.1:{port}"
        self.here = [self.add(), self.add()]

    def add(self, **offers):
        with suppress(Exception):  # Ray gives a node 30 s to start, and others may keep the processors busy
            return self.cluster.add_node(**{"num_cpus": 1, **offers}, **self.memory)
        return self.cluster.add_node(**{"num_cpus": 1, **offers}, **self.memory)

    def kill(self):
        """SIGKILL to all processes of one node."""
        self.cluster.remove_node(self.here.pop(0), allow_graceful=False)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return contents(numbers_dataset(tmp_path_factory.mktemp("undisturbed"), rows=96).path)


JOB = """
import sys, time
from toy_stages import NumbersConfig, NumbersStage
from viewkit.pipelines.engine import on_ray
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ViewkitError

class Told(Silent):
    def message(self, text):
        print(text, flush=True)

on_ray.PACE = on_ray.Pace(look_s=1.0, news_s=0.2)
try:
    stage, config = NumbersStage(pause_s=float(sys.argv[2])), NumbersConfig(rows=96)
    run_stage(stage, config, Dataset(sys.argv[1]), Execution(on="ray", max_rejects=1.0), Told())
except ViewkitError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def start_job(tmp_path, pause_s):
    """A process that does 12 shards of 8 rows; its standard output has its messages, and nothing of Ray's."""
    script = tmp_path / "job.py"
    script.write_text(JOB)
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "data"), str(pause_s)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def wait_for_shards(job, tmp_path, count):
    until = time.monotonic() + 90
    while len(list((tmp_path / "data" / "images").glob("0*.json"))) < count:
        assert job.poll() is None and time.monotonic() < until, job.communicate()
        time.sleep(0.02)


def run_work(make_work, shards, tmp_path, limits=None, device="cpu"):
    claim, news = tmp_path / "column.json", []
    claim.write_text("claim")
    with connected("ray"):
        found = list(run_on_ray(make_work, shards, claim, device, news.append, limits or Limits()))
    return found, news


@pytest.mark.slow
def test_a_node_killed_mid_shard_and_another_one_added_give_the_bytes_of_one_process(cluster, undisturbed, tmp_path):
    job = start_job(tmp_path, 0.4)
    wait_for_shards(job, tmp_path, 1)
    cluster.kill()
    cluster.here.append(cluster.add())
    said, errors = job.communicate(timeout=100)
    assert (job.returncode, errors) == (0, "")
    assert contents(tmp_path / "data") == undisturbed
    lines = said.splitlines()
    assert any("is handed out again" in line for line in lines)
    assert all(line.startswith(("a worker was lost (", "1 more worker")) for line in lines)


@pytest.mark.slow
def test_a_process_that_dies_costs_time_and_nothing_else(cluster, undisturbed, tmp_path):
    deaths, heard = tmp_path / "deaths", Heard()
    deaths.mkdir()
    run_stage(
        NumbersStage(die_at="row00025", deaths=deaths, times=1), CONFIG, Dataset(tmp_path / "data"), ON_RAY, heard
    )
    assert contents(tmp_path / "data") == undisturbed and len(list(deaths.iterdir())) == 1
    (said,) = heard.said
    assert said.endswith("because its worker process has died); shard 000003 is handed out again")
    assert heard.rows == 96


@pytest.mark.slow
def test_a_stage_that_always_dies_ends_after_three_workers(cluster, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    stage = NumbersStage(die_at="row00001", deaths=deaths, times=99)
    with pytest.raises(DataError, match=r"shard 000000: its worker died 3 times \(the last: The actor is dead because"):
        run_stage(stage, CONFIG, Dataset(tmp_path / "data"), replace(ON_RAY, workers=1))
    assert len(list(deaths.iterdir())) == 3 and not list((tmp_path / "data").rglob("*.part"))


class Heard(Silent):
    def __init__(self):
        self.said, self.rows = [], 0

    def advance(self, count, **numbers):
        self.rows += count

    def message(self, text):
        self.said.append(text)


@pytest.mark.slow
def test_errors_come_as_they_are_on_one_machine(cluster, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"^shard 3 is damaged; delete it$"):
        run_work(Doubles({3: "data"}), range(5), tmp_path)
    with pytest.raises(RuntimeError, match=r"in a worker on node (.*\n)+.*ZeroDivisionError: a bug"):
        run_work(Doubles({3: "bug"}), range(5), tmp_path)
    found, news = run_work(Doubles(), range(5), tmp_path, Limits(workers=1))
    assert sorted(found) == [(shard, 2 * shard) for shard in range(5)]
    assert [text for text in news if isinstance(text, str)] == ["threads 1"] * 5
    assert sum(count for count in news if isinstance(count, int)) == 25
    with pytest.raises(ConfigError, match=r"is 'cuda', and no node of the cluster has a GPU \(3 nodes, 2 CPUs"):
        device_on_ray(Execution(on="ray", device="cuda"))
    monkeypatch.setattr(on_ray, "read_file", lambda path: b"what the driver sees")
    monkeypatch.setattr(on_ray, "PACE", Pace(seen_s=0.0))
    with pytest.raises(
        DataError, match=r"no worker is left, and 5 shards .*has another .*column.json; the dataset must lie"
    ):
        run_work(Doubles(), range(5), tmp_path)


@pytest.mark.slow
def test_gpus_are_used_one_by_an_actor_wherever_the_cluster_counts_them(cluster, tmp_path):
    node = cluster.add(num_cpus=0, num_gpus=2)  # declared; nothing here computes on one
    try:
        assert device_on_ray(Execution(on="ray")) == "cuda:0"
        assert device_on_ray(Execution(on="ray", device="cpu")) == "cpu"
        found, _ = run_work(Sees(), range(6), tmp_path, device="cuda:0")
    finally:
        cluster.cluster.remove_node(node)
    assert sorted(shard for shard, _ in found) == list(range(6))
    assert {seen for _, seen in found} == {"0", "1"}


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_what_is_finished_stays(cluster, tmp_path):
    job = start_job(tmp_path, 0.5)
    wait_for_shards(job, tmp_path, 1)
    os.killpg(job.pid, signal.SIGINT)
    said, errors = job.communicate(timeout=60)
    assert (job.returncode, errors) == (1, "")
    assert said == "stopped by SIGINT; run the same command again, it goes on with the shards that are left\n"
    assert not list((tmp_path / "data" / "images").glob("*.part"))


@pytest.mark.slow
def test_a_stage_with_a_model_gives_the_bytes_of_one_process_and_its_events_alone_on_stdout(cluster, chain, tmp_path):
    copy = tmp_path / "data"
    subprocess.run(["cp", "-r", str(chain.dataset.path), str(copy)], check=True)
    subprocess.run(["rm", "-r", *(str(copy / name) for name in ("pairs", "quality", "foreground_views"))], check=True)
    command = [sys.executable, "-m", "viewkit.cli", "score", "data", "--rounds", "2", "--on", cluster.client, "--json"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    events = [json.loads(line) for line in said.stdout.splitlines()]
    assert [each["event"] for each in events][-2:] == ["done", "next"] and events[-2]["written"] == 4
    assert contents(copy / "pairs") == contents(chain.dataset.path / "pairs")


def twin(dataset, path, *without):
    """A copy of the dataset without some of its folders."""
    return Dataset(shutil.copytree(dataset.path, path, ignore=shutil.ignore_patterns(".locks", *without)))


FITS = {
    "histograms": (DyingHistograms, {}, HistogramsConfig(images=24, negatives=7)),
    "foreground": (DyingForeground, {"batch_size": 4}, ForegroundConfig(sample=16)),
    "foreground_views": (DyingForeground, {"of": "views"}, ForegroundConfig(sample=20, sign="+")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_a_fit_whose_actor_is_killed_in_the_middle_has_the_bytes_of_one_process(
    cluster, chain, tmp_path, monkeypatch, name
):
    kind, options, config = FITS[name]
    deaths, heard = tmp_path / "deaths", Heard()
    deaths.mkdir()
    monkeypatch.setattr(samples, "IMAGES_PER_PART", 4)
    alone, spread = (twin(chain.dataset, tmp_path / where, name) for where in ("alone", "spread"))
    run_stage(kind.__mro__[2](**options), config, alone, CPU)
    run_stage(kind(deaths, **options), config, spread, ON_RAY, heard)
    assert contents(spread.path / name) == contents(alone.path / name) and len(list(deaths.iterdir())) == 1
    (said,) = [text for text in heard.said if "worker" in text]
    assert re.fullmatch(r"a worker was lost \(.*process has died\); part \d of the fit is handed out again", said)


@pytest.mark.slow
def test_quality_fits_and_rates_on_the_cluster_by_one_command(cluster, chain, tmp_path):
    copy = twin(chain.dataset, tmp_path / "data", "quality", "foreground_views")
    command = [sys.executable, "-m", "viewkit.cli", "quality", "data", "--sign", "+", "--sample", "20", "--on",
               cluster.client, "--json"]  # fmt: skip
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    done = [event for event in map(json.loads, said.stdout.splitlines()) if event["event"] == "done"]
    assert [event["written"] for event in done] == [1, 4]
    for name in ("foreground_views", "quality"):
        assert contents(copy.path / name) == contents(chain.dataset.path / name)


@pytest.mark.slow
def test_a_dry_run_of_a_fit_says_how_many_actors_would_share_it(cluster, chain, tmp_path):
    data = twin(chain.dataset, tmp_path / "data", "foreground")
    plan = plan_stage(ForegroundStage(), ForegroundConfig(sample=16), data, ON_RAY)
    assert plan["workers"] == 2 and plan["device"] == "cpu" and plan["estimated_s"] >= 0
    assert not (data.path / "foreground").exists()
