"""Sources and weights in a store give what the same files give from a disk."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from small_datasets import CPU
from sources import encoded
from tiny_chain import photographs

from viewkit.cli.main import run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.weights.hub import local_folder
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.stores.client import Client
from viewkit.shards.stores.mounts import FOLDERS
from viewkit.shards.stores.url import parse_url


@pytest.fixture
def stored(place):
    """Puts the files of a folder below a prefix."""
    yield lambda folder, prefix: [
        Client(parse_url(f"{place}/{prefix}")).put(path.relative_to(folder).as_posix(), path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    FOLDERS.clear()


def few(folder: Path) -> Path:
    photographs(folder)
    for path in sorted(folder.rglob("*.png"))[6:]:
        path.unlink()
    (folder / "class1").mkdir(exist_ok=True)
    (folder / "class1" / "text.jpg").write_text("not an image")
    (folder / ".hidden.png").write_bytes(b"x")
    return folder


def tars(folder: Path, images: Path) -> Path:
    folder.mkdir()
    paths = sorted(path for path in images.rglob("*.png") if path.stat().st_size > 100)
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for path in paths[number::2]:
                for name, content in ((path.name, path.read_bytes()), (f"{path.stem}.cls", b"1")):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder


def zipped(folder: Path, images: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for path in sorted(images.rglob("*.png")):
            archive.write(path, path.relative_to(images).as_posix())
    return folder


@pytest.mark.parametrize(
    "kind",
    ["folder", "tars", pytest.param("one tar", marks=pytest.mark.slow), pytest.param("zip", marks=pytest.mark.slow)],
)
def test_a_source_in_a_store_is_the_source_on_a_disk(place, stored, tmp_path, kind):
    local = images = few(tmp_path / "images")
    if kind in ("tars", "one tar"):
        local = tars(tmp_path / "tars", images)
    if kind == "zip":
        local = zipped(tmp_path / "zips", images)
    stored(local, "source")
    name = "/0.tar" if kind == "one tar" else ""
    config = PackConfig(labels="none" if "tar" in kind else "folders", rows_per_shard=3)
    here, there = (open_source(f"{root}{name}", config) for root in (local, f"{place}/source"))
    assert (there.digest, there.num_rows, there.notes) == (here.digest, here.num_rows, here.notes)
    assert [list(there.rows(shard)) for shard in range(there.num_shards)] == [
        list(here.rows(shard)) for shard in range(here.num_shards)
    ]


@pytest.mark.parametrize("name", ["source/x.parquet", pytest.param("source", marks=pytest.mark.slow)])
def test_parquet_files_in_a_store_are_packed_with_their_labels(place, stored, tmp_path, name):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    images = [encoded(number) for number in range(6)]
    table = pa.table({"image": [{"bytes": raw, "path": f"{i}.png"} for i, raw in enumerate(images)],
                      "label": ["cat", "dog", "cat", "dog", "dog", "cat"]})  # fmt: skip
    local = tmp_path / "source"
    local.mkdir()
    pq.write_table(table, local / "x.parquet", row_group_size=2)
    stored(local, "source")
    config = PackConfig(rows_per_shard=4)
    for source, dataset in ((tmp_path / name, tmp_path / "here"), (f"{place}/{name}", f"{place}/there")):
        run_stage(PackStage(str(source)), config, Dataset(dataset), CPU)
    client = Client(parse_url(f"{place}/there"))
    for path in (tmp_path / "here" / "images").iterdir():
        assert client.get(f"images/{path.name}")[0] == path.read_bytes()
    column = Dataset(f"{place}/there").column("images")
    rows = [column.fields(number) for number in range(column.num_rows)]
    assert {row["png"]: (row["cls"], decode_json(row["json"])["label"]) for row in rows} == {
        raw: (b"%d" % (i in (1, 3, 4)), "dog" if i in (1, 3, 4) else "cat") for i, raw in enumerate(images)
    }


@pytest.mark.slow
def test_an_archive_right_in_its_bucket_is_packed_by_workers(place, tmp_path):
    tars(tmp_path / "tars", few(tmp_path / "images"))
    bucket, name = "s3://" + parse_url(place).bucket, f"{parse_url(place).prefix.partition('/')[0]}.tar"
    Client(parse_url(f"{bucket}/{name}").holder).put(name, (tmp_path / "tars" / "0.tar").read_bytes())
    two = Execution(device="cpu", workers=2, max_rejects=1.0)
    dataset = Dataset(tmp_path / "set")
    run_stage(PackStage(f"{bucket}/{name}"), PackConfig(rows_per_shard=2), dataset, two)
    assert dataset.column("images").num_rows == 3
    with pytest.raises(DataError, match=f"the source '{bucket}/none.tar' does not exist, or is empty"):
        open_source(f"{bucket}/none.tar", PackConfig())


@pytest.mark.slow
def test_worker_processes_pack_a_source_in_a_store_into_a_dataset_below_it(place, stored, tmp_path):
    images = few(tmp_path / "images")
    stored(images, "images")
    config, two = PackConfig(labels="folders", rows_per_shard=2), Execution(device="cpu", workers=2, max_rejects=1.0)
    run_stage(PackStage(str(images)), config, Dataset(tmp_path / "here"), CPU)
    for _ in range(2):  # the second time the dataset lies in the source, and is left out
        dataset = Dataset(f"{place}/images/dataset")
        run_stage(PackStage(f"{place}/images"), config, dataset, two)
        assert dataset.column("images").num_rows == 5  # this very object knows what its workers wrote
    run_stage(PackStage(f"{place}/images"), config, Dataset(tmp_path / "also here"), two)
    client = Client(parse_url(f"{place}/images/dataset"))
    for path in (tmp_path / "here" / "images").iterdir():
        assert client.get(f"images/{path.name}")[0] == path.read_bytes()
        assert (tmp_path / "also here" / "images" / path.name).read_bytes() == path.read_bytes()


def test_missing_sources_and_archives_without_room_are_one_line(place, stored, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="does not exist, or is empty"):
        open_source(f"{place}/nothing", PackConfig())
    stored(tars(tmp_path / "tars", few(tmp_path / "images")), "tars")
    monkeypatch.setenv("VIEWKIT_CACHE_GB", "0.00001")
    with pytest.raises(ConfigError, match="are read in any order, and VIEWKIT_CACHE_GB allows 10000; allow more"):
        open_source(f"{place}/tars", PackConfig())


def test_weights_in_a_store_are_brought_once_without_pickles(place, stored, tmp_path):
    folder = tmp_path / "weights"
    for name in ("unet/model.safetensors", "unet/config.json", "unet/model.bin", "run.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    stored(folder, "weights")
    found = local_folder(Path(f"{place}/weights"))
    names = {path.relative_to(found).as_posix() for path in found.rglob("*") if path.is_file()}
    assert names == {"unet/model.safetensors", "unet/config.json"}
    Client(parse_url(f"{place}/weights")).put("unet/config.json", b"another")
    assert (local_folder(Path(f"{place}/weights")) / "unet" / "config.json").read_bytes() == b"another"
    with pytest.raises(DataError, match="there are no weights"):
        local_folder(Path(f"{place}/nothing"))


def test_options_that_take_no_url_say_so(capsys):
    assert run(["label", "dataset", "--from", "s3://b/labels.csv"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: viewkit label: --from is s3://b/labels.csv, and a local path is needed; of stores,")
