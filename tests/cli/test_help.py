"""Help that people can read: groups, the options that matter first, an example to paste, completion."""

import os
import re
import subprocess
import sys

import pytest

from viewkit.cli.commands import PIPELINE
from viewkit.cli.main import LOOK, app, run
from viewkit.pipelines.engine.config import MAIN_GROUP, fields_of

NAMES = [*(spec.name for spec in PIPELINE), *(name for name, _, _ in LOOK)]


def page(capsys, command):
    assert run([command, "--help"]) == 0
    return capsys.readouterr().out


def sections(text):
    """Heading -> the options below it, of a plain help page."""
    found, heading = {}, ""
    for line in text.splitlines():
        if re.fullmatch(r"\S.*:", line):
            heading = line.rstrip(":")
        if option := re.match(r"  (--[a-z0-9-]+)", line):
            found.setdefault(heading, []).append(option[1])
    return found


@pytest.mark.parametrize("command", NAMES)
def test_every_page_ends_with_an_example_that_fits_a_line_and_is_of_this_command(capsys, command):
    examples = re.split(r"^Examples?:\n", page(capsys, command), flags=re.MULTILINE)[1].splitlines()
    assert examples and all(line.startswith(f"viewkit {command} ") or line == f"viewkit {command}" for line in examples)


@pytest.mark.parametrize("spec", PIPELINE, ids=lambda spec: spec.name)
def test_the_options_of_the_examples_exist(capsys, spec):
    options = {option for group in sections(page(capsys, spec.name)).values() for option in group}
    assert {word for line in spec.examples for word in line.split() if word.startswith("--")} <= options


def test_pretrain_shows_ten_options_first_and_the_others_in_groups(capsys):
    found = sections(page(capsys, "pretrain"))
    assert list(found) == [
        MAIN_GROUP, "Where", "Precision, memory, monitoring", "Framework", "Augmentation", "Views and pairs",
        "Training", "How it runs", "General",
    ]  # fmt: skip
    assert found[MAIN_GROUP][0] == "--preset" and len(found[MAIN_GROUP]) <= 11
    assert found["General"] == ["--config", "--dry-run", "--json", "--help"]


@pytest.mark.parametrize("spec", PIPELINE, ids=lambda spec: spec.name)
def test_what_a_config_calls_most_used_are_options_of_it(spec):
    config = spec.config_class()
    assert set(getattr(config, "MAIN", ())) <= {field.name for field in fields_of(config)}


def test_a_terminal_gets_panels_with_every_word_of_the_plain_page(capsys, monkeypatch):
    plain = page(capsys, "pretrain")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", page(capsys, "pretrain"))
    assert "\u256d\u2500 Most used" in drawn
    assert [option for option in re.findall(r"--[a-z0-9-]+", plain) if option not in drawn] == []
    assert "[moco_v3]" in drawn  # brackets are no markup


def test_an_unknown_option_is_answered_with_the_nearest_one(capsys):
    assert run(["score", "DATA", "--round", "3"]) == 2
    assert capsys.readouterr().err.startswith("error: viewkit score: unknown option '--round'; did you mean --rounds")


def test_the_old_name_of_an_option_is_answered_with_the_new_one(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules["viewkit.pipelines.engine.config"].RENAMED, "cycles", "rounds")
    assert run(["score", "DATA", "--cycles", "3"]) == 2
    assert "viewkit score: option '--cycles' is now '--rounds'" in capsys.readouterr().err


def test_the_shell_completes_commands_and_options():
    def completed(line):
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_VIEWKIT_COMPLETE": "complete_bash"}
        code = "import sys; sys.argv = ['viewkit']; from viewkit.cli.main import main; main()"
        said = subprocess.run([sys.executable, "-c", code], env={**os.environ, **words}, capture_output=True, text=True)
        return said.stdout.split()

    assert completed("viewkit sco") == ["score"]
    assert completed("viewkit score --rou") == ["--rounds"]
    assert completed("viewkit pretrain --select v") == ["vs2fi"]
    assert app._add_completion
