"""`viewkit` from Python: stable names, all in one place, and examples that run as they stand."""

import doctest
import importlib
import inspect
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_chain import photographs

import viewkit
from viewkit.cli import python
from viewkit.cli.commands import PIPELINE
from viewkit.shards.deprecation import renamed_arguments
from viewkit.shards.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there_documented_and_the_very_object_of_its_module():
    page = (ROOT / "docs" / "api.md").read_text()
    assert set(viewkit.PLACES) == set(viewkit.__all__) and dir(viewkit) == sorted([*viewkit.__all__, "__version__"])
    for name, place in viewkit.PLACES.items():
        thing = getattr(viewkit, name)
        assert thing is getattr(importlib.import_module(place), name) and inspect.getdoc(thing)
        assert f"`viewkit.{name}" in page, f"docs/api.md does not tell of {name}"
    assert set(re.findall(r"`viewkit\.(\w+)", page)) <= {*dir(viewkit), *viewkit.RENAMED}


def test_no_public_name_vanishes_without_a_warning_first():
    """The names that 0.1 promised; one that goes must stand in RENAMED for the versions that docs/api.md says."""
    promised = {
        "ConfigError", "DataError", "Dataset", "MissingError", "RefusedError", "ViewkitError", "export_pairs",
        "load_encoder", "load_pairs", "run", "webdataset",
    }  # fmt: skip
    assert promised <= {*viewkit.__all__, *viewkit.RENAMED}


def test_importing_viewkit_imports_nothing_slow():
    code = "import sys, viewkit; viewkit.__version__; viewkit.DataError; print(sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"torch", "numpy", "webdataset", "typer"} & set(re.findall(r"'(\w+)'", said)) == set()


def test_an_unknown_name_is_refused_in_a_line():
    with pytest.raises(AttributeError, match=r"no public name 'load_pears'; docs/api\.md lists them"):
        viewkit.load_pears  # noqa: B018
    assert not hasattr(viewkit, "__wrapped__")


def test_a_former_name_works_and_warns_with_the_version_of_its_end(monkeypatch):
    monkeypatch.setitem(viewkit.RENAMED, "open_pairs", ("load_pairs", "0.4"))
    with pytest.warns(DeprecationWarning, match=r"viewkit\.open_pairs is now viewkit\.load_pairs; version 0\.4 no"):
        assert viewkit.open_pairs is viewkit.load_pairs


def test_a_former_argument_works_and_warns_and_both_are_refused():
    @renamed_arguments("0.4", {"size": "side_px"})
    def crop(*, side_px: int = 1) -> int:
        return side_px

    with pytest.warns(DeprecationWarning, match=r"crop\(size=\) is now side_px=; version 0\.4"):
        assert crop(size=3) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert crop(side_px=2) == 2
    with pytest.raises(TypeError, match="'size' is the former name of 'side_px'"):
        crop(size=3, side_px=3)


def test_the_warning_points_to_the_line_that_used_the_former_name():
    code = """import viewkit
from viewkit.shards.deprecation import renamed_arguments
viewkit.RENAMED["open_pairs"] = ("Dataset", "0.4")
double = renamed_arguments("0.4", {"size": "side"})(lambda side: 2 * side)
viewkit.open_pairs
double(size=3)
"""
    said = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    ).stderr
    assert "<string>:5: DeprecationWarning: viewkit.open_pairs is now" in said
    assert "<string>:6: DeprecationWarning: <lambda>(size=) is now side=" in said


@pytest.mark.slow
def test_the_examples_of_the_docstring_run_as_they_stand(tmp_path, monkeypatch, capfd):
    source = photographs(tmp_path / "photographs")
    for broken in ("class0/empty.png", "class1/text.jpg"):
        (source / broken).unlink()
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(viewkit), {}, "viewkit", viewkit.__file__, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    result = runner.run(test)
    assert result.attempted >= 10 and result.failed == 0, capfd.readouterr().out


def test_run_makes_the_command_line_that_a_person_would_type(monkeypatch):
    calls = []
    monkeypatch.setattr(python, "app", lambda args, standalone_mode: calls.append(args))
    monkeypatch.setattr(python.typer.main, "get_command", lambda _: GROUP)
    python.run("score", "dataset", rounds=8, dry_run=True, quality=False, column=None)
    python.run("pretrain", Path("dataset"), cosine=False, joint=["a", "b"], lr=0.5)
    assert calls == [
        ["score", "dataset", "--rounds", "8", "--dry-run"],
        ["pretrain", "dataset", "--no-cosine", "--joint", "a", "--joint", "b", "--lr", "0.5"],
    ]


class Switch:
    def __init__(self, on, off=None):
        self.opts, self.secondary_opts = [on], [off] if off else []


class Command:
    params = (Switch("--quality"), Switch("--cosine", "--no-cosine"))


GROUP = SimpleNamespace(commands={"score": Command, "pretrain": Command})


def test_run_refuses_what_the_command_line_refuses_as_an_exception(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no command 'scores'; there are init, run, "):
        viewkit.run("scores", tmp_path)
    with pytest.raises(ConfigError, match=r"viewkit score: unknown option '--round'; did you mean --rounds"):
        viewkit.run("score", tmp_path, round=3)
    with pytest.raises(DataError, match=r"there is no such dataset|has no column 'images'"):
        viewkit.run("score", tmp_path / "none")
    assert {spec.name for spec in PIPELINE} <= set(python.typer.main.get_command(python.app).commands)
