"""The index of a column's rows: it says what the receipts say, and is made anew when they change."""

import io
import json
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
import xxhash
from jaxtyping import TypeCheckError
from small_datasets import CPU, numbers_dataset
from toy_stages import NumbersConfig, NumbersStage

from viewkit.pipelines.engine.redo import replaced_by
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards import index as index_module
from viewkit.shards import index_builder, index_file
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.index import MAGIC, TAIL, RowIndex
from viewkit.shards.index_builder import IndexBuilder
from viewkit.shards.index_file import index_path
from viewkit.shards.receipt import Receipt, RowPlace
from viewkit.shards.removal import remove
from viewkit.shards.row import Reject
from viewkit.shards.verify import verify


@pytest.fixture
def kept(monkeypatch):
    """Every column gets an index, however small and new it is."""
    monkeypatch.setattr(index_file, "LEAST_BYTES", 0)
    monkeypatch.setattr(index_file, "SETTLED_NS", 0)


def path_of(dataset: Dataset) -> Path:
    return index_path(dataset.path / "images")


def said(column: Column) -> tuple:
    """Everything that an index is used for."""
    keys = list(column.keys())
    rows = [(key, column.fields(place), column.place_of[key]) for place, key in enumerate(keys)]
    facts = list(column.facts(range(column.num_shards)))
    return rows, column.digest, column.rejects, facts, column.index.has(("bin",)).tolist()


def test_a_column_says_the_same_with_an_index_in_a_file_and_without(tmp_path, kept, monkeypatch):
    dataset = numbers_dataset(tmp_path / "data")
    first = said(Column(dataset.path / "images"))
    assert path_of(dataset).is_file()
    parsed = []
    monkeypatch.setattr(Column, "receipt", lambda self, shard: parsed.append(shard))
    assert said(Column(dataset.path / "images")) == first and not parsed
    monkeypatch.undo()
    path_of(dataset).unlink()
    assert said(Column(dataset.path / "images")) == first and not path_of(dataset).exists()
    receipts = [Column(dataset.path / "images").receipt(shard) for shard in range(4)]
    assert [key for key, _, _ in first[0]] == [row.key for receipt in receipts for row in receipt.rows]
    assert [(each.seen, each.kept, each.bytes) for each in first[3]] == [
        (receipt.seen, len(receipt.rows), receipt.bytes) for receipt in receipts
    ]


def test_small_or_new_receipts_are_parsed_and_leave_no_file(tmp_path, monkeypatch):
    dataset = numbers_dataset(tmp_path / "data")
    Column(dataset.path / "images").digest  # noqa: B018
    monkeypatch.setattr(index_file, "LEAST_BYTES", 0)  # large enough now, and too new
    Column(dataset.path / "images").digest  # noqa: B018
    assert not path_of(dataset).exists()
    for path in (dataset.path / "images").glob("0*.json"):
        os.utime(path, (1e9, 1e9))
    Column(dataset.path / "images").digest  # noqa: B018
    assert path_of(dataset).exists()


def test_a_receipt_that_changed_is_read_again(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data")
    before = said(Column(dataset.path / "images"))
    receipt = dataset.path / "images" / "000001.json"
    content = receipt.read_bytes()
    receipt.write_bytes(content.replace(b"row00009", b"row00099"))
    with pytest.raises(DataError, match=r"000001.json: damaged"):
        said(Column(dataset.path / "images"))
    receipt.write_bytes(content)
    os.utime(receipt, ns=(0, 0))
    assert said(Column(dataset.path / "images")) == before
    receipt.unlink()
    with pytest.raises(DataError, match="1 of 4 shards are not written yet"):
        said(Column(dataset.path / "images"))


def test_a_tar_that_is_missing_or_cut_is_found_before_any_row_is_read(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data")
    said(Column(dataset.path / "images"))
    tar = dataset.path / "images" / "000002.tar"
    tar.write_bytes(tar.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"000002.tar: has \d+ bytes and its receipt says"):
        Column(dataset.path / "images").digest  # noqa: B018
    tar.unlink()
    with pytest.raises(DataError, match=r"000002.tar: is missing"):
        Column(dataset.path / "images").digest  # noqa: B018


@pytest.mark.slow
def test_of_another_identity_it_is_not_used_and_it_goes_with_its_column(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data")
    said(Column(dataset.path / "images"))
    config = NumbersConfig(rows=30, rows_per_shard=8, seed=1)
    old = path_of(dataset).read_bytes()
    remove(dataset, replaced_by(NumbersStage(), config, dataset, CPU), lambda _: ())
    assert not path_of(dataset).exists()
    run_stage(NumbersStage(), config, dataset, CPU)
    wanted = said(Column(dataset.path / "images"))
    path_of(dataset).write_bytes(old)
    assert said(Column(dataset.path / "images")) == wanted


def says_damaged(error):
    """Whether it is the index's `DataError`; a check of types that met it hands it on as its cause."""
    found = error if isinstance(error, DataError) else error.__cause__ or error.__context__
    return isinstance(found, DataError) and "images.index: damaged; delete it" in str(found)


@pytest.mark.slow
def test_no_flipped_byte_gives_another_row(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data", rows=12)
    wanted = said(Column(dataset.path / "images"))
    whole = path_of(dataset).read_bytes()
    for at in range(0, len(whole), 5):
        path_of(dataset).write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        try:
            assert said(Column(dataset.path / "images")) == wanted
        except (DataError, TypeCheckError) as error:
            assert says_damaged(error)
    for length in range(0, len(whole), 61):
        path_of(dataset).write_bytes(whole[:length])
        assert said(Column(dataset.path / "images")) == wanted


def resealed(raw: bytes, change) -> bytes:
    """An index in which `change` altered block 0 and the table, with checksums that fit."""
    data = bytearray(raw)
    offset, size, _, _ = TAIL.unpack(data[-TAIL.size :])
    about = json.loads(data[offset : offset + size])
    at, length, _ = about["table"]
    table = np.frombuffer(bytes(data[at : at + length]), index_module.SHARD).copy()
    block = bytearray(data[int(table[0]["offset"]) : int(table[0]["offset"]) + int(table[0]["size"])])
    change(block, table, about)
    data[int(table[0]["offset"]) : int(table[0]["offset"]) + len(block)] = block
    table[0]["check"] = xxhash.xxh3_64_intdigest(bytes(block))
    data[at : at + length] = table.tobytes()
    about["table"] = [at, length, xxhash.xxh3_64_intdigest(table.tobytes())]
    described = json.dumps(about).encode()
    return (
        bytes(data[:offset]) + described + TAIL.pack(offset, len(described), xxhash.xxh3_64_intdigest(described), MAGIC)
    )


def number_at(place: int, value: int):
    def change(block, table, about):
        block[place : place + 8] = struct.pack("<q", value)

    return change


def entry(name: str, value: int):
    def change(block, table, about):
        table[0][name] = value

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [number_at(0, -1), number_at(0, 2**62), number_at(64, 2**62), entry("members", 2**40), entry("key_bytes", 2**40)],
)
def test_a_forged_index_never_leads_out_of_a_tar(change, tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data", rows=30)
    said(Column(dataset.path / "images"))
    path_of(dataset).write_bytes(resealed(path_of(dataset).read_bytes(), change))
    with pytest.raises((DataError, TypeCheckError)) as raised:
        said(Column(dataset.path / "images"))
    assert says_damaged(raised.value)


def test_verify_reads_it_and_says_where_it_disagrees(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data", rows=30)
    said(Column(dataset.path / "images"))
    assert any("index agrees" in each.subject for each in verify(dataset))
    assert not [each for each in verify(dataset) if each.problem]
    path_of(dataset).write_bytes(resealed(path_of(dataset).read_bytes(), number_at(0, 512)))
    problems = [each.problem for each in verify(Dataset(dataset.path)) if each.problem]
    assert "says something else about shard 000000 than its receipt" in problems[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_dataset_that_cannot_be_written_to_is_read_all_the_same(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data")
    dataset.path.chmod(0o555)
    try:
        assert len(said(Column(dataset.path / "images"))[0]) == 25
    finally:
        dataset.path.chmod(0o755)


@pytest.mark.slow
def test_a_file_in_its_folders_place_is_no_obstacle(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data")
    (dataset.path / ".index").write_text("x")
    assert said(Column(dataset.path / "images"))[0] and not list(dataset.path.glob("*.part"))


def test_a_link_in_its_place_is_not_followed(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data")
    (dataset.path / ".index").mkdir()
    (tmp_path / "outside").write_text("keep me")
    path_of(dataset).symlink_to(tmp_path / "outside")
    said(Column(dataset.path / "images"))
    assert (tmp_path / "outside").read_text() == "keep me" and not path_of(dataset).is_symlink()


def receipt(shard: int, keys: list[str]) -> Receipt:
    rows = [RowPlace(key, 1024 * i, 1024, f"{i:016x}", {"a": (1024 * i + 512, 5)}) for i, key in enumerate(keys)]
    return Receipt("images", shard, "", 1024 * len(keys) + 1024, "", rows, [(0, Reject(f"r{shard}", "empty"))])


def built(*shards: list[str]) -> RowIndex:
    stream = io.BytesIO()
    builder = IndexBuilder(stream)
    for number, keys in enumerate(shards):
        builder.add(receipt(number, keys), (1, 2))
    builder.finish(digest="", earlier={})
    return RowIndex(memoryview(stream.getvalue()))


def test_every_key_is_found_also_where_all_hashes_collide(monkeypatch):
    shards = [["a", "é", "\ud800"], [], ["row one", "z" * 300]]
    for _ in range(2):
        index = built(*shards)
        keys = [key for shard in shards for key in shard]
        assert list(index.keys) == keys == index.keys[:] and len(index) == 5
        assert [index.place_of[key] for key in keys] == list(range(5))
        assert index.place_of.get("b") is None and "é" in index.place_of and index.keys[-1] == keys[-1]
        assert [index.shard_of(row) for row in range(5)] == [0, 0, 0, 2, 2]
        assert list(index.member_sizes(("a",))) == [(key, 5) for key in keys]
        for module in (index_module, index_builder):
            monkeypatch.setattr(module, "key_hash", lambda key: 7)
    with pytest.raises(IndexError):
        index.keys[5]


@pytest.mark.slow
def test_threads_read_one_index(tmp_path, kept):
    dataset = numbers_dataset(tmp_path / "data", rows=200)
    column = dataset.column("images")
    wanted = [column.fields(place) for place in range(column.num_rows)]
    again, wrong = Column(dataset.path / "images"), []

    def read() -> None:
        wrong.extend(place for place in range(again.num_rows) if again.fields(place) != wanted[place])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
