"""What stands around the code: pages of the site, licences, citation, container, workflow, each true of this tree."""

import importlib.util
import os
import re
import stat
import tomllib
from email.message import Message
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def program(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(name):
    return (ROOT / name).read_text()


def test_every_page_stands_in_the_contents_of_the_site_once():
    blocks = re.findall(r"```{toctree}\n(.*?)```", text("docs/index.md"), re.DOTALL)
    listed = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    assert sorted(listed) == sorted(path.stem for path in ROOT.glob("docs/*.md") if path.stem != "index")


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["`ViewBatch`es of n * 2 | 3 rows_"], ["\\ ``ViewBatch``\\ es of n \\* 2 \\| 3 rows\\_"]),
        (
            ["A line.", "", "a: one", "    and more", "b, c: two"],
            ["A line.", "", "a: one", "and more", "", "b, c: two"],
        ),
        (["see ``KEY.*``", "and `a", "b`"], ["see \\ ``KEY.*``\\ ", "and \\ ``a b``\\ "]),
    ],
)
def test_docstrings_reach_the_site_as_the_paragraphs_they_are(lines, shown):
    program(ROOT / "docs" / "conf.py").as_plain_text(None, "", "", None, None, lines)
    assert lines == shown


def test_the_api_names_modules_that_exist():
    named = re.findall(r"automodule:: (\S+)", text("docs/python.md"))
    assert len(named) >= 15 and [name for name in named if importlib.util.find_spec(name) is None] == []


def test_the_page_of_licences_has_every_package_with_what_its_metadata_say():
    licences = program(ROOT / "docs" / "licences.py")
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([^|]+) \|$", licences.table(), re.MULTILINE))
    assert licences.runtime_packages() == [name for name in rows if name != "package"]
    assert licences.page() == text("docs/licences.md"), "run 'python docs/licences.py'"
    assert "see its distribution" not in rows.values()


def test_a_licence_is_an_expression_or_a_name_and_never_a_whole_text(monkeypatch):
    licences = program(ROOT / "docs" / "licences.py")
    for fields, found in (
        ({"License-Expression": "MIT", "License": "x"}, "MIT"),
        ({"License": "Apache-2.0"}, "Apache-2.0"),
        (
            {"License": "Copyright ...\nPermission", "Classifier": "License :: OSI Approved :: MIT License"},
            "MIT License",
        ),
        ({"License": "Copyright\n"}, "Copyright"),
        ({}, "see its distribution"),
    ):
        about = Message()
        for name, value in fields.items():
            about[name] = value
        monkeypatch.setattr(licences.metadata, "metadata", lambda name, about=about: about)
        assert licences.licence_of("x") == found


def test_every_generator_with_weights_has_a_line_in_the_models():
    from viewkit.pipelines.weights.cards import GENERATORS

    needed = [name for name, card in GENERATORS.items() if card.needs_weights]
    page = text("docs/licences.md").partition("## Models")[2]
    assert [name for name in needed if f"`--generator {name}`" not in page] == []


def test_version_and_licence_are_the_same_everywhere():
    citation = yaml.safe_load(text("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert all(each["type"] and each["title"] and each["authors"] for each in citation["references"])
    assert re.search(r"^## (\S+?),", text("CHANGELOG.md"), re.MULTILINE)[1] == PROJECT["version"]


def test_the_workflow_runs_the_one_script_and_may_write_nothing():
    workflow = yaml.safe_load(text(".github/workflows/ci.yml"))
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert workflow["permissions"] == {"contents": "read"} and job["timeout-minutes"] <= 360
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR
    versions = [step["with"]["python-version"] for step in job["steps"] if "with" in step]
    assert versions == [PROJECT["requires-python"].removeprefix(">=")]


def test_ci_runs_trials_checks_and_the_site():
    script = text(".ci/run")
    assert [
        line for line in ("make test", "make check", "make site", "tests/faults/run.py") if line not in script
    ] == []


def test_the_hooks_are_commands_of_the_virtual_environment():
    hooks = [hook for repo in yaml.safe_load(text(".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    assert {"ruff-check", "ruff-format", "reference"} == {hook["id"] for hook in hooks}
    assert all(hook["entry"].startswith(".venv/bin/") and hook["language"] == "system" for hook in hooks)


def test_the_container_copies_what_is_there_pins_versions_and_has_no_rights():
    lines = text("Dockerfile").splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(copied) == {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}
    installs = [line for line in lines if "pip install" in line]
    assert installs and all("--constraint constraints.txt" in line for line in installs)
    last = lines[max(place for place, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert any(line.startswith("USER ") and line.split()[1] not in ("root", "0") for line in last)
    assert 'ENTRYPOINT ["viewkit"]' in last
    python = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert python == {f"python:{PROJECT['requires-python'].removeprefix('>=')}-slim"}


@pytest.mark.parametrize("page", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md"])
def test_links_and_targets_of_the_pages_at_the_root_exist(page):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text(page))
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []
    made = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text(page))) <= made
    programs = re.findall(r"`(?:python |\.venv/bin/python )?((?:benchmarks|tests|docs)/[\w/]+\.py)`?", text(page))
    assert [name for name in programs if not os.path.exists(ROOT / name)] == []
