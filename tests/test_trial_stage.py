"""A stage is its package and one line: the one of docs/extend.md, added from outside and run by the command line."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from pages import code_after
from PIL import Image
from small_datasets import contents

PROGRAM = """
import json, os, signal, sys
import viewkit.pipelines
viewkit.pipelines.__path__.append(sys.argv[1])
from viewkit.cli import commands
from viewkit.cli.command import StageCommand, Step
commands.PIPELINE = (*commands.PIPELINE, @@)
from viewkit.cli.main import run
from viewkit.shards import writer
if sys.argv[2] == "die":
    real = writer.ShardWriter.finish
    def finish(self):
        if self.folder.name == "brightness" and self.shard == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self)
    writer.ShardWriter.finish = finish
sys.exit(run(sys.argv[3:]))
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder with the package, and the program that starts viewkit with one line more in its table."""
    folder = tmp_path_factory.mktemp("outside")
    package = folder / "packages" / "brightness"
    package.mkdir(parents=True)
    for name in ("__init__.py", "config.py", "stage.py"):
        (package / name).write_text(code_after(f"`pipelines/brightness/{name}`"))
    line = code_after("The line in `cli/commands.py`:")
    (folder / "program.py").write_text(PROGRAM.replace("@@", line.strip()))
    return folder


@pytest.fixture(scope="module")
def started(outside):
    def start(*arguments, die=False):
        mode = "die" if die else "live"
        command = [sys.executable, str(outside / "program.py"), str(outside / "packages"), mode, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    return start


@pytest.fixture(scope="module")
def data(started, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trial")
    (folder / "in").mkdir()
    for place in range(14):
        pixels = np.full((20, 20, 3), 10 * place, np.uint8)
        Image.fromarray(pixels).save(folder / "in" / f"{place}.png")
    assert started("pack", folder / "in", folder / "data", "--rows-per-shard", 4, "--workers", 1).returncode == 0
    return folder / "data"


@pytest.mark.slow
def test_the_stage_of_the_page_runs_resumes_and_shows_itself_everywhere(started, data):
    options = ("brightness", data, "--workers", "1")
    asked = started("brightness", "--help").stdout
    assert "--digits" in asked and "digits after the point [4]" in " ".join(asked.split())
    assert asked.endswith("viewkit brightness dataset --digits 2\n")

    planned = started(*options, "--dry-run")
    assert planned.returncode == 0 and "rows left: 14" in planned.stdout
    assert not (data / "brightness").exists()

    killed = started(*options, die=True)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(path.name for path in (data / "brightness").glob("0*.json")) == ["000000.json", "000001.json"]

    ran = started(*options)
    assert ran.returncode == 0 and "14 rows seen = 14 kept + 0 rejected" in ran.stderr
    events = [json.loads(line) for line in started(*options, "--json").stdout.splitlines()]
    assert (events[-1]["event"], events[-1]["written"], events[-1]["kept"]) == ("done", 0, 14)

    shown = started("status", data).stdout
    assert any(line.split()[:3] == ["brightness", "4/4", "14"] for line in shown.splitlines())
    assert started("verify", data).returncode == 0
    looked = started("inspect", data, next(iter(_values(data)))).stdout
    assert "brightness: \n  json: " in looked

    assert sorted(_values(data).values()) == [10.0 * place for place in range(14)]
    before = contents(data / "brightness")
    for path in (data / "brightness").iterdir():
        path.unlink()
    (data / "brightness").rmdir()
    assert started(*options).returncode == 0
    assert contents(data / "brightness") == before  # killed and resumed, or undisturbed: the same bytes


def test_its_mistakes_are_one_line(started, data, tmp_path):
    assert started("brightness", data, "--digits", "10").stderr == (
        "error: brightness: digits is 10; it must lie in 0 ... 9\n"
    )
    assert "viewkit brightness: unknown option '--digit'; did you mean --digits?" in (
        started("brightness", data, "--digit", "1").stderr
    )
    assert "no such dataset; make it with 'viewkit pack SOURCE" in started("brightness", tmp_path / "none").stderr


def _values(data):
    from viewkit.shards.codecs import decode_json
    from viewkit.shards.dataset import Dataset

    column = Dataset(data).column("brightness")
    return {key: decode_json(column.fields(place)["json"]) for place, key in enumerate(column.keys())}
