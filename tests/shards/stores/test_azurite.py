"""A server of Azure's API: everything works there as on S3, and other environments reach it."""

import os
import secrets

import pytest
from servers import azure_environment, azurite, emulator_environment
from small_datasets import CPU
from stored_column import differing, race, upload
from stores import BUCKET, SECRETS
from tiny_chain import jobs

from viewkit.cli.main import run
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.stores.client import Client, NotThere
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url
from viewkit.shards.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with azurite(tmp_path_factory.mktemp("azurite")) as port:
        yield port


@pytest.fixture
def azure(port, monkeypatch, tmp_path):
    """URL of a place where nothing is."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in azure_environment(port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "30")
    yield f"az://{BUCKET}/{secrets.token_hex(4)}/set"
    MOUNTED.clear()


def test_a_dataset_is_packed_scored_verified_and_trained_on(azure, chain, monkeypatch, tmp_path):
    work, local = jobs(chain.source), chain.dataset.path
    run_stage(work["images"].stage, work["images"].config, Dataset(azure), CPU)
    upload(local, azure, leave_out=("images", "pairs"))
    MOUNTED.clear()
    run_stage(work["pairs"].stage, work["pairs"].config, Dataset(azure), CPU)
    assert differing(azure, local) == []
    MOUNTED.clear()
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "elsewhere"))
    findings = list(verify(Dataset(azure)))
    assert len(findings) > 40 and [each.problem for each in findings if each.problem] == []
    options = {"policy": "strengthened", "side_px": 32, "batch_size": 6, "select": "vs2fi"}
    here, there = (load_pairs(dataset, **options) for dataset in (chain.dataset, Dataset(azure)))
    for ours, theirs in zip(here.epoch(1), there.epoch(1), strict=True):
        assert bool((ours.views1 == theirs.views1).all()) and bool((ours.views2 == theirs.views2).all())
    network = ["--arch", "resnet10_narrow", "--side-px", "32", "--batch-size", "8", "--device", "cpu"]
    training = ["--steps", "2", "--warmup-epochs", "0", "--policy", "strengthened", "--select", "vs2fi"]
    assert run(["pretrain", azure, "--name", "a", *network, *training]) == 0
    assert Dataset(azure).artifact("runs/a").is_complete
    assert "runs/a/unfinished.tar" not in Client(parse_url(azure)).list("runs")


def test_of_16_writers_with_unlike_bytes_one_is_first_and_all_read_it(azure):
    assert len(race(azure)) == 1
    names = ("column.json", "000000.json", "000000.tar")
    assert set(Client(parse_url(azure)).list()) == {f"images/{name}" for name in names}


def test_objects_are_created_once_sent_in_parts_copied_and_deleted(azure, monkeypatch, tmp_path):
    client = Client(parse_url(azure))
    assert [client.create("a", each)[0] for each in (b"first", b"second")] == [b"first", b"first"]
    assert client.list() == {"a": client.head("a")}  # also their ETags, by which the cache knows documents
    monkeypatch.setattr("viewkit.shards.stores.client.RANGE_BYTES", 1 << 20)
    content = os.urandom((3 << 20) + 5)
    (tmp_path / "large").write_bytes(content)
    client.put("large", tmp_path / "large")
    client.copy("large", "b")
    client.fetch("b", len(content), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    assert client.get_range("b", 1 << 20, 7) == content[1 << 20 : (1 << 20) + 7]
    client.delete(["a", "b", "b", "large"])
    assert client.list() == {}
    with pytest.raises(NotThere):
        client.get("a")


def test_it_is_reached_as_the_emulator(azure, port, monkeypatch):
    for name in azure_environment(port):
        monkeypatch.delenv(name)
    for name, value in emulator_environment(port).items():
        monkeypatch.setenv(name, value)
    Dataset(azure).begin_writing()
    assert Client(parse_url(azure)).list() == {}


def test_errors_are_one_line_without_the_key(azure, monkeypatch):
    with pytest.raises(DataError) as caught:
        Dataset("az://nobodys/set")
    assert str(caught.value) == "az://nobodys/set: there is no container 'nobodys'; create it, or correct the name"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    with pytest.raises(DataError) as caught:
        Dataset(azure)
    said = str(caught.value)
    assert said.startswith(f"{azure}: the store refuses it (403 Authorization") and "\n" not in said
    assert not any(secret in said for secret in (*SECRETS, "d3Jvbmc="))
