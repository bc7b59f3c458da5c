"""Every kind of source on two processes: the same bytes as on one."""

import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torchvision_layouts as layouts
from small_datasets import CPU, contents
from sources import encoded

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.dataset import Dataset

COUNT = 30


def folder(root: Path) -> str:
    for i in range(COUNT):
        layouts.put(root / f"class{i % 3}" / f"{i}.png", encoded(i))
    return str(root)


def zipped(root: Path) -> str:
    with zipfile.ZipFile(root / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(COUNT):
            archive.writestr(f"{i}.png", encoded(i))
    return str(root / "a.zip")


def compressed(root: Path) -> str:
    for number in range(2):
        with tarfile.open(root / f"{number}.tar.xz", "w:xz") as tar:
            for i in range(COUNT // 2):
                data = encoded(100 * number + i)
                info = tarfile.TarInfo(f"{i}.png")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return str(root)


def parquet(root: Path) -> str:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"image": [encoded(i) for i in range(COUNT)], "label": [f"c{i % 3}" for i in range(COUNT)]})
    pq.write_table(table, root / "a.parquet", row_group_size=7)
    return str(root)


def arrays(root: Path) -> str:
    layouts.stl(root, count=10)
    return f"torchvision:stl10:train+unlabeled:{root}"


@pytest.mark.slow
@pytest.mark.parametrize("make", [folder, zipped, compressed, parquet, arrays])
def test_two_processes_pack_the_same_bytes(make, tmp_path):
    (tmp_path / "in").mkdir()
    source, config = make(tmp_path / "in"), PackConfig(rows_per_shard=4)
    for workers in (1, 2):
        run_stage(PackStage(source), config, Dataset(tmp_path / str(workers)), replace(CPU, workers=workers))
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert Dataset(tmp_path / "2").column("images").num_shards >= 5
