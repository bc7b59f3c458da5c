"""Servers that ignore the condition If-None-Match are refused before anything is written."""

import pytest
from servers import rclone, s3rver
from stores import BUCKET

from viewkit.cli.main import run
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mounts import MOUNTED
from viewkit.shards.stores.url import parse_url

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("server", [s3rver, rclone])
def test_a_server_that_ignores_the_condition_is_refused(server, monkeypatch, tmp_path, capsys):
    with server(tmp_path / "server") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path / "cache"))
        place = f"s3://{BUCKET}/set"
        assert run(["pack", "demo:train", place, "--workers", "1"]) == 2
        client, said = Client(parse_url(place)), capsys.readouterr().err
        assert said.startswith(f"error: {place}: the store ignores the condition If-None-Match")
        assert said.count("\n") == 1
        assert client.list() == {}
        assert [client.create("a", each)[0] for each in (b"first", b"second")] == [b"first", b"second"]  # it does
    MOUNTED.clear()
