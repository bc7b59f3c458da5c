"""One moto server for all tests of stores; every test has a prefix and a cache of its own."""

import secrets

import pytest
from stores import BUCKET, Moto, environment_of

from viewkit.shards.stores import mounts


@pytest.fixture(scope="session")
def moto():
    server = Moto()
    server.start()
    server.ask("PUT", f"/{BUCKET}")
    yield server
    server.stop()


@pytest.fixture
def place(moto, monkeypatch, tmp_path):
    """URL of a place where nothing is."""
    for name, value in environment_of(moto.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "20")
    monkeypatch.setattr(mounts, "MOUNTED", mounts.MOUNTED)
    yield f"s3://{BUCKET}/{secrets.token_hex(4)}/set"
    mounts.MOUNTED.clear()
