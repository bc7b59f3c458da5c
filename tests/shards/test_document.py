import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewkit.shards import document
from viewkit.shards.document import read_document, render, write_document
from viewkit.shards.errors import DataError, RefusedError

CONTENT = {"stage": "pack", "numbers": [1, 2.5, "ü"], "nested": {"b": None, "a": True}}


def test_a_document_reads_back_as_it_was_written(tmp_path):
    write_document(tmp_path / "x.json", CONTENT)
    assert read_document(tmp_path / "x.json", "") == CONTENT
    assert json.loads((tmp_path / "x.json").read_bytes())["format"] == 1


def test_every_flipped_bit_of_a_document_is_found(tmp_path):
    path, raw = tmp_path / "x.json", render(CONTENT)
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises((DataError, RefusedError), match=r"damaged|written in format \d"):
            read_document(path, "restore it")


def test_every_cut_of_a_document_is_found(tmp_path):
    path, raw = tmp_path / "x.json", render(CONTENT)
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(DataError, match="damaged"):
            read_document(path, "restore it")


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_other_bytes_are_an_error_and_never_a_crash(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("document") / "x.json"
    path.write_bytes(raw)
    with pytest.raises(DataError):
        read_document(path, "restore it")


def test_a_newer_format_is_refused_and_the_remedy_is_a_newer_viewkit(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "FORMAT", 2)
    write_document(tmp_path / "x.json", CONTENT)
    monkeypatch.setattr(document, "FORMAT", 1)
    with pytest.raises(
        RefusedError, match="written in format 2, and this viewkit reads up to format 1; install a newer"
    ):
        read_document(tmp_path / "x.json", "")
