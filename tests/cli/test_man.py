"""The man pages: one a command, with every option of its help, in roff that the formatter takes without a complaint."""

import re
import shutil
import subprocess

import pytest

from viewkit.cli.main import app, run
from viewkit.cli.man import main, pages, roff

NAMES = [str(command.name) for command in app.registered_commands]


@pytest.fixture(scope="module")
def made():
    return pages()


def plain(page):
    """The words of a page, roff's escapes undone."""
    return page.replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "").replace("\\e", "\\")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("--dry-run", "\\-\\-dry\\-run"), (".TH", "\\&.TH"), ("it's a \\ b", "it\\(aqs a \\e b"), ("'x", "\\(aqx")],
)
def test_what_roff_would_read_as_its_own_is_escaped(text, escaped):
    assert roff(text) == escaped


def test_there_is_a_page_for_the_program_and_for_every_command(made):
    assert set(made) == {"viewkit.1", *(f"viewkit-{name}.1" for name in NAMES)}
    listed = re.findall(r"^\.BR viewkit-(\S+) \(1\)", plain(made["viewkit.1"]), re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_parts_and_every_line_of_the_help(made, capsys, name):
    page = plain(made[f"viewkit-{name}.1"])
    assert page.startswith(f'.TH "VIEWKIT-{name.upper()}" "1"')
    headings = re.findall(r"^\.SH (.*)$", page, re.MULTILINE)
    assert headings[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"] and headings[-1] == "SEE ALSO"
    assert headings[-2] in ("EXAMPLE", "EXAMPLES")
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    listed = re.findall(r"^\.B (--[a-z0-9-]+)", page, re.MULTILINE)
    assert listed == re.findall(r"^  (--[a-z0-9-]+)", shown, re.MULTILINE)
    examples = [line for line in shown.splitlines() if line.startswith("viewkit ")]
    assert [line for line in examples if line not in page.splitlines()] == []


def test_the_pages_are_written_and_the_formatter_finds_no_fault(tmp_path, made):
    assert main([str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(made)
    formatter = next((tool for tool in ("mandoc", "groff") if shutil.which(tool)), None)
    if formatter is None:
        pytest.skip("neither mandoc nor groff is here")
    options = ["-T", "lint", "-W", "warning"] if formatter == "mandoc" else ["-man", "-k", "-Tutf8", "-ww", "-z"]
    pages_of = sorted(map(str, tmp_path.glob("*.1")))
    said = subprocess.run([formatter, *options, *pages_of], capture_output=True, text=True, check=False)
    assert said.stderr + said.stdout == ""


def test_without_a_folder_there_is_one_line(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
