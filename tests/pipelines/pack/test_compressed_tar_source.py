"""Compressed tars: the rows of the plain one, decompressed once by whoever reads shard after shard."""

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest
from small_datasets import CPU
from sources import encoded, everything

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack import archive_stream, tars
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Row
from viewkit.shards.verify import verify

CONFIG = PackConfig(rows_per_shard=3)


def tar_bytes(samples: int = 8, long: bool = False) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for i in range(samples):
            stem = f"{'n' * 150 if long else ''}{i:04d}"
            for name, data in ((f"{stem}.png", encoded(i)), (f"{stem}.cls", b"%d" % (i % 2))):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def by_pyarrow(codec: str):
    def compress(data: bytes) -> bytes:
        pyarrow = pytest.importorskip("pyarrow")
        sink = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()

    return compress


COMPRESS = {
    "tar.gz": gzip.compress,
    "tgz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
    "TAR.ZST": by_pyarrow("zstd"),
    "tar.lz4": by_pyarrow("lz4"),
}


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(COMPRESS[path.name.partition(".")[2]](data))
    return path


@pytest.mark.parametrize("end", COMPRESS)
def test_the_samples_are_those_of_the_plain_tar_in_its_order(end, tmp_path):
    data = tar_bytes(long=True)
    (tmp_path / "a.tar").write_bytes(data)
    plain = {row.fields["png"]: row.fields["cls"] for row in everything(open_source(str(tmp_path / "a.tar"), CONFIG))}
    rows = everything(open_source(str(write(tmp_path / f"a.{end}", data)), CONFIG))
    assert [row.fields["png"] for row in rows if isinstance(row, Row)] == [encoded(i) for i in range(8)]
    assert {row.fields["png"]: row.fields["cls"] for row in rows if isinstance(row, Row)} == plain


def test_it_packs_and_goes_on_from_any_shard(tmp_path):
    source, dataset = write(tmp_path / "a.tgz", tar_bytes()), Dataset(tmp_path / "data")
    run_stage(PackStage(str(source)), CONFIG, dataset, CPU)
    before = {path.name: path.read_bytes() for path in (dataset.path / "images").iterdir()}
    (dataset.path / "images" / "000001.json").unlink()
    run_stage(PackStage(str(source)), CONFIG, Dataset(dataset.path), CPU)
    assert {path.name: path.read_bytes() for path in (dataset.path / "images").iterdir()} == before
    assert not [each for each in verify(Dataset(dataset.path)) if each.problem]


def test_reading_shard_after_shard_decompresses_once(tmp_path, monkeypatch):
    source = open_source(str(write(tmp_path / "a.tar.gz", tar_bytes())), CONFIG)
    opened = []
    monkeypatch.setattr(tars, "open_archive", lambda *args: opened.append(args) or archive_stream.open_archive(*args))
    first, *others = (list(source.rows(shard)) for shard in range(source.num_shards))
    assert len(opened) == 1 and sum(map(len, others)) == 5
    assert list(source.rows(0)) == first  # and back again


@pytest.mark.parametrize("end", ["tar.gz", "tar.xz", "tar.bz2", "TAR.ZST"])
def test_every_cut_is_one_line_that_names_the_tar(end, tmp_path):
    whole = write(tmp_path / f"a.{end}", tar_bytes(2)).read_bytes()
    for length in [*range(0, len(whole), max(1, len(whole) // 12)), len(whole) - 1]:
        (tmp_path / f"a.{end}").write_bytes(whole[:length])
        with pytest.raises(DataError, match="is cut or damaged") as caught:
            open_source(str(tmp_path / f"a.{end}"), CONFIG)
        assert f"'a.{end}'" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tar_bytes(2)[: 6 * 512], "no end mark at byte"),
        (tar_bytes(1) + tar_bytes(1), "goes on after its end mark"),
        (b"a text", "or not a tar"),
    ],
)
def test_what_is_compressed_must_be_a_whole_tar(data, message, tmp_path):
    with pytest.raises(DataError, match=message):
        open_source(str(write(tmp_path / "a.tar.gz", data)), CONFIG)


def test_a_plain_name_is_read_as_plain(tmp_path):
    write(tmp_path / "a.tar.gz", tar_bytes(1)).rename(tmp_path / "a.tar")
    with pytest.raises(DataError, match="plain or compressed as its name says"):
        open_source(str(tmp_path / "a.tar"), CONFIG)


def test_a_tar_that_is_damaged_after_it_was_listed_is_one_line(tmp_path):
    path = write(tmp_path / "a.tar.xz", tar_bytes())
    source = open_source(str(path), CONFIG)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=r"'a.tar.xz' can no longer be read|has become shorter"):
        everything(source)


def test_class_folders_and_mosaics_need_other_sources(tmp_path):
    write(tmp_path / "a.tar.gz", tar_bytes())
    with pytest.raises(ConfigError, match="labels 'folders' needs a folder"):
        open_source(str(tmp_path / "a.tar.gz"), PackConfig(labels="folders"))
    with pytest.raises(ConfigError, match="cannot be read one by one, as mosaics need; pack them first"):
        open_source(f"mosaic:{tmp_path / 'a.tar.gz'}", PackConfig())


def test_without_pyarrow_zstandard_is_refused_by_name(tmp_path, monkeypatch):
    write(tmp_path / "a.TAR.ZST", tar_bytes(1))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"takes pyarrow; pip install '.\[parquet\]'"):
        open_source(str(tmp_path / "a.TAR.ZST"), CONFIG)
