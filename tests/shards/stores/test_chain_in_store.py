"""Whole chains on a store: bytes equal to local ones, whatever is killed on the way."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import webdataset
from small_datasets import CPU
from stored_column import differing
from stores import FAULTS, Moto, Proxy, environment_of
from tiny_chain import Execution, jobs, photographs

from viewkit.cli.main import run
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.pairs.stream import webdataset as rows_of
from viewkit.shards.dataset import Dataset
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url
from viewkit.shards.verify import verify

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SUPPORT = Path(__file__).parents[2] / "support"
COLUMNS = ("images", "genview", "pairs", "pairs_drawn", "quality")
TIMES = ("metrics.jsonl", "receipt.json")
"""Files of trainings that hold how long something took, and the digests of these."""


@pytest.fixture(scope="module")
def shelved(chain, tmp_path_factory):
    """(URL, port): the chain, made in a store while one request in ten fails, and the server is killed during pack and
    score and started again."""
    moto, kills = Moto(), []
    moto.start()
    moto.ask("PUT", "/shelf")
    with pytest.MonkeyPatch.context() as patch:
        proxy = Proxy(moto.port, one_in=10)
        patch.setenv("VIEWKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        with proxy.serving() as port:
            for name, value in environment_of(port).items():
                patch.setenv(name, value)
            place = "s3://shelf/chain/set"
            for name, job in jobs(chain.source).items():
                if name in ("images", "pairs"):
                    proxy.at[proxy.counted["requests"] + 20] = lambda name=name: (kills.append(name), moto.kill(2.0))
                workers = 2 if name == "pairs" else 1
                run_stage(
                    job.stage, job.config, Dataset(place), Execution(device="cpu", workers=workers, max_rejects=0.5)
                )
        assert kills == ["images", "pairs"] and all(proxy.counted[fault] for fault in FAULTS)
        MOUNTED.clear()
        for name, value in environment_of(moto.port).items():
            patch.setenv(name, value)
        yield place, moto.port
        MOUNTED.clear()
    moto.stop()


@pytest.fixture
def another_machine(monkeypatch, tmp_path):
    """A cache of its own, empty."""
    MOUNTED.clear()
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "cache"))
    yield
    MOUNTED.clear()


def test_failing_requests_and_a_killed_server_change_no_byte(shelved, chain, another_machine):
    place, _ = shelved
    assert differing(place, chain.dataset.path, TIMES) == []
    findings = list(verify(Dataset(place)))
    assert len(findings) > 40 and [each.problem for each in findings if each.problem] == []


def test_batches_are_those_of_the_local_dataset(shelved, chain, another_machine):
    options = {"policy": "strengthened", "side_px": 32, "batch_size": 6, "select": "vs2fi"}
    here, there = (load_pairs(dataset, **options) for dataset in (chain.dataset, Dataset(shelved[0])))
    for ours, theirs in zip(here.epoch(1), there.epoch(1), strict=True):
        assert bool((ours.views1 == theirs.views1).all()) and bool((ours.views2 == theirs.views2).all())
    rows = [
        [row["__key__"] for row in rows_of(dataset, ["images", "pairs"], shuffle=0)]
        for dataset in (chain.dataset, shelved[0])
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 24


def test_plain_webdataset_reads_the_published_list(shelved, chain):
    place, port = shelved
    listed = Client(parse_url(place)).get("urls/images.txt")[0].decode().split()
    assert listed == [f"{place}/images/{shard:06d}.tar" for shard in range(4)]
    signed = "Authorization: AWS4-HMAC-SHA256 Credential=k/20200101/us-east-1/s3/aws4_request"
    pipes = [f"pipe:curl -sf -H '{signed}' {url.replace('s3://', f'http://127.0.0.1:{port}/')}" for url in listed]
    rows = webdataset.WebDataset(pipes, shardshuffle=False).decode("rgb8")
    found = {row["__key__"]: np.asarray(row["png"]) for row in rows}
    assert list(found) == list(chain.dataset.column("images").keys())
    assert all(each.shape == (40, 40, 3) for each in found.values())


def test_the_examples_train_from_a_store(shelved, another_machine, capsys):
    spec = importlib.util.spec_from_file_location("example_plain_pytorch", EXAMPLES / "plain_pytorch.py")
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    plain.train(shelved[0], "vs2fi", epochs=1, batch_size=12)
    assert "epoch 0: loss" in capsys.readouterr().out


def test_a_run_is_trained_evaluated_and_exported_from_urls(shelved, another_machine, tmp_path, capsys):
    place, _ = shelved
    photographs(tmp_path / "test")
    for path in sorted((tmp_path / "test").rglob("*.png"))[::2]:
        path.unlink()
    packing = ["--labels", "folders", "--max-rejects", "0.5", "--workers", "1"]
    assert run(["pack", str(tmp_path / "test"), f"{place}-test", *packing]) == 0
    training = ["--arch", "resnet18", "--side-px", "32", "--batch-size", "8", "--steps", "2", "--warmup-epochs", "0"]
    assert run(["pretrain", place, "--name", "a", "--policy", "simclr", "--device", "cpu", *training]) == 0
    assert (
        run(["evaluate", f"{place}/runs/a", f"{place}-test", "--probes", "knn", "--no-baselines", "--device", "cpu"])
        == 0
    )
    assert run(["export", f"{place}/runs/a", "--to", str(tmp_path / "a.safetensors")]) == 0
    assert run(["export", place, "--to", str(tmp_path / "pairs.csv")]) == 0
    assert (tmp_path / "a.json").is_file() and len((tmp_path / "pairs.csv").read_text().splitlines()) > 24
    capsys.readouterr()
    assert run(["status", place, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dataset"] == place
    assert {each["name"] for each in found["artifacts"] if each["complete"]} >= {"runs/a", "runs/a/eval"}
    assert "unfinished.tar" not in {key.rpartition("/")[2] for key in Client(parse_url(place)).list("runs")}


PACKS = """
import sys
from pathlib import Path
from tiny_chain import jobs
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.execution import Execution
from viewkit.shards.dataset import Dataset
job = jobs(Path(sys.argv[1]))["images"]
run_stage(job.stage, job.config, Dataset(sys.argv[2]), Execution(device="cpu", workers=1, max_rejects=0.5))
"""
TRAINS = """
import sys, time
from dataclasses import replace
import killed_training
import torch
from viewkit.pipelines.training import loop
from viewkit.shards.stores.client import Client
torch.set_num_threads(1)
killed_training.CONFIG = replace(killed_training.CONFIG, steps=20)
load = loop.load_training
loop.load_training = lambda *given: print("resumed", flush=True) or load(*given)
if "wait" in sys.argv:  # to be killed, once its unfinished work is in the store
    put = Client.put

    def waits(self, key, content):
        etag = put(self, key, content)
        if key.endswith("unfinished.tar"):
            time.sleep(600)
        return etag

    Client.put = waits
killed_training.train(sys.argv[1])
"""


def program(text: str, *arguments: str, cache: Path) -> subprocess.Popen:
    environment = {**os.environ, "VIEWKIT_CACHE": str(cache), "PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_a_machine_that_dies_during_pack_is_followed_by_another(place, chain, tmp_path):
    client, tries = Client(parse_url(place)), 0
    wanted = {f"images/{path.name}" for path in (chain.dataset.path / "images").iterdir()}
    for shards in (1, 3):
        first = program(PACKS, str(chain.source), place, cache=tmp_path / f"machine{shards}")
        while first.poll() is None and sum(key.endswith((".ready", "0.json")) for key in client.list()) < shards:
            time.sleep(0.01)
        tries += first.poll() is None
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert tries > 0
    assert program(PACKS, str(chain.source), place, cache=tmp_path / "last").wait() == 0
    assert {key for key in client.list() if key.startswith("images/")} == wanted
    assert not any(client.get(key)[0] != (chain.dataset.path / key).read_bytes() for key in wanted)


def test_a_training_goes_on_where_a_dead_machine_saved_it_and_ends_as_if_it_had_not_died(place, chain, tmp_path):
    local = tmp_path / "local"
    job = jobs(chain.source)["images"]
    for path in (local, place):
        run_stage(job.stage, job.config, Dataset(path), CPU)
    assert program(TRAINS, str(local), cache=tmp_path / "unused").wait() == 0
    client, key = Client(parse_url(place)), "estimator/unfinished.tar"
    first = program(TRAINS, place, "wait", cache=tmp_path / "first")
    while first.poll() is None and key not in client.list("estimator"):
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert "estimator/receipt.json" not in client.list("estimator")
    second = program(TRAINS, place, cache=tmp_path / "second")
    assert (second.communicate()[0], second.returncode) == ("resumed\n", 0)
    assert differing(place, local, TIMES) == []
    lines = [
        [json.loads(line)["loss"] for line in raw.splitlines()]
        for raw in (client.get("estimator/metrics.jsonl")[0], (local / "estimator" / "metrics.jsonl").read_bytes())
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 2
