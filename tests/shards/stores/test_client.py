"""Requests to a store: what they do, and what their failures say."""

import sys

import pytest
from stores import ENVIRONMENT, SECRETS

from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.stores.client import AT_ONCE, Client, NotThere, unquoted
from viewkit.shards.stores.environment import open_store
from viewkit.shards.stores.url import parse_url


def test_a_store_s_objects_are_read_written_once_copied_and_deleted(place):
    client = Client(parse_url(place))
    assert client.create("a", b"first")[0] == b"first" == client.create("a", b"second")[0]
    client.copy("a", "b")
    client.delete(["a", "a"])
    assert set(client.list()) == {"b"} and client.head("b").size == 5 and client.get_range("b", 1, 3) == b"irs"
    with pytest.raises(NotThere):
        client.get("a")


def test_an_object_has_one_etag_in_all_answers(place):
    client = Client(parse_url(place))
    etag = client.put("a", b"1")
    assert etag and {client.head("a").etag, client.list()["a"].etag, client.get("a")[1]} == {etag}
    assert [unquoted(each) for each in ('"0x25"', "0x25", None)] == ["0x25", "0x25", ""]


def test_large_objects_come_back_whole_from_several_ranges(place, monkeypatch, tmp_path):
    client, content = Client(parse_url(place)), bytes(range(256)) * 20
    client.put("a", content)
    monkeypatch.setattr("viewkit.shards.stores.client.RANGE_BYTES", 1000)
    client.fetch("a", len(content), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == content


def test_after_a_range_that_fails_no_more_are_asked_for(place, monkeypatch, tmp_path):
    client, asked = Client(parse_url(place)), []

    def get_range(key: str, start: int, size: int) -> bytes:
        asked.append(start)
        if start >= 3:
            raise NotThere(key)
        return b"1"

    monkeypatch.setattr("viewkit.shards.stores.client.RANGE_BYTES", 1)
    monkeypatch.setattr(client, "get_range", get_range)
    with pytest.raises(NotThere):
        client.fetch("a", 1000, tmp_path / "a")
    assert len(asked) <= 3 + AT_ONCE


def test_errors_are_one_line_without_a_word_of_the_server_or_the_credentials(moto, place, monkeypatch):
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "0.3")
    with pytest.raises(DataError) as caught:
        Dataset("s3://nobodys/set")
    assert str(caught.value) == "s3://nobodys/set: there is no bucket 'nobodys'; create it, or correct the name"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(DataError) as caught:
        Dataset(place)
    said = str(caught.value)
    assert said.startswith(
        f"{place}: the store does not answer, for 0.3 s (VIEWKIT_STORE_PATIENCE_S); check the network"
    )
    assert "\n" not in said and not any(secret in said for secret in SECRETS)
    assert caught.value.__suppress_context__


def test_without_credentials_or_obstore_the_line_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("VIEWKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("VIEWKIT_STORE_PATIENCE_S", "0.2")
    for name in (*ENVIRONMENT, "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"s3://b/x: no credentials in the environment.*set AWS_ACCESS_KEY_ID"):
        Dataset("s3://b/x")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"s3://b/x: stores take the package obstore; pip install '.\[cloud\]'"):
        open_store(parse_url("s3://b/x"))


@pytest.mark.parametrize(("name", "value"), [("VIEWKIT_CACHE_GB", "0"), ("VIEWKIT_STORE_PATIENCE_S", "soon")])
def test_limits_that_are_no_numbers_are_refused(place, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        Dataset(place)


def test_a_forked_process_is_told_to_be_spawned(place, monkeypatch):
    client = Client(parse_url(place))
    client.list()
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(ConfigError, match="connections do not survive that; start worker processes with 'spawn'"):
        client.list()
