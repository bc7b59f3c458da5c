"""More archives than files may be open: those that were used last stay open, and a full table is no damage."""

import io
import os
import resource
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest
from sources import encoded, everything

from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.source import open_source
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row

ARCHIVES, ROOM = 60, 40


@contextmanager
def allowed(files: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def archives(root: Path, kind: str, number_of: int) -> Path:
    """Two images in each."""
    for number in range(number_of):
        path = root / f"{number}.{kind}"
        images = {f"{i}.png": encoded(2 * number + i) for i in range(2)}
        if kind == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in images.items():
                    archive.writestr(name, data)
        else:
            with tarfile.open(path, "w") as tar:
                for name, data in images.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return root


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_more_archives_than_may_be_open_are_read(kind, tmp_path):
    root = archives(tmp_path, kind, ARCHIVES)
    used = set(map(int, os.listdir("/proc/self/fd")))
    with allowed(next(islice((number for number in count() if number not in used), ROOM, None))):
        found = [row.fields["png"] for row in everything(open_source(str(root), PackConfig())) if isinstance(row, Row)]
    assert sorted(found) == sorted(encoded(i) for i in range(2 * ARCHIVES))


@pytest.mark.parametrize("kind", ["zip", "tar", "parquet"])
def test_a_full_table_of_open_files_is_said_as_such(kind, tmp_path):
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"image": [encoded(0)]}), tmp_path / "0.parquet")
    else:
        archives(tmp_path, kind, 1)
    source = open_source(str(tmp_path), PackConfig())
    with allowed(1), pytest.raises(DataError, match=r"too many open files; raise the limit with 'ulimit -n'") as found:
        everything(source)
    assert "damaged" not in str(found.value)
