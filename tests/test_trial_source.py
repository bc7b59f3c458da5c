"""A pack source is its file and one line: the one of docs/extend.md, added from outside and packed end to end."""

import sys
from types import ModuleType

import pytest
from pages import code_after
from small_datasets import contents

from viewkit.cli.main import run
from viewkit.pipelines.pack import source
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.verify import verify


@pytest.fixture
def gradients(monkeypatch):
    module = ModuleType("viewkit.pipelines.pack.gradients")
    exec(compile(code_after("here `pipelines/pack/gradients.py`"), "gradients.py", "exec"), module.__dict__)  # noqa: S102
    monkeypatch.setitem(sys.modules, module.__name__, module)
    line = eval(code_after("The line in `SCHEMES`"))  # noqa: S307
    monkeypatch.setattr(source, "SCHEMES", {**source.SCHEMES, **line})


def test_a_source_from_outside_is_packed_resumed_and_verified(gradients, tmp_path, capsys):
    command = ["pack", "gradients:10", str(tmp_path / "data"), "--rows-per-shard", "4", "--workers", "1"]
    assert run([*command, "--dry-run"]) == 0 and "rows left: 10" in capsys.readouterr().out
    assert run(command) == 0
    column = Dataset(tmp_path / "data").column("images")
    assert (column.num_rows, column.num_shards) == (10, 3)
    assert decode_image(column.fields(0)).max() == 255
    assert decode_json(column.fields(9)["json"])["source"] == "9.png"
    assert [finding.problem for finding in verify(Dataset(tmp_path / "data")) if finding.problem] == []
    before = contents(tmp_path / "data")
    (tmp_path / "data" / "images" / "000001.json").unlink()
    assert run(command) == 0
    assert contents(tmp_path / "data") == before


def test_its_own_error_reaches_the_command_line(gradients, tmp_path, capsys):
    assert run(["pack", "gradients:many", str(tmp_path / "data")]) == 2
    assert capsys.readouterr().err == ("error: pack: the source 'gradients:many' needs a count, e.g. gradients:100\n")


def test_a_path_that_looks_like_an_unknown_scheme_stays_a_path(tmp_path, capsys):
    assert run(["pack", "clouds:10", str(tmp_path / "data")]) == 1
    assert "the source 'clouds:10' does not exist" in capsys.readouterr().err
