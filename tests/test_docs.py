"""The pages say what is: generated ones are fresh, commands and links exist, README's Python runs."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from pages import code_after

from viewkit.cli.commands import PIPELINE
from viewkit.cli.main import app
from viewkit.cli.options import option_name
from viewkit.cli.reference import main as reference
from viewkit.pipelines.engine.config import fields_of
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.views.policies import POLICIES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_generated_pages_are_fresh(capsys):
    assert reference(["--check", str(ROOT / "docs")]) == 0


def test_a_stale_page_is_found_and_named(tmp_path, capsys):
    reference([str(tmp_path)])
    (tmp_path / "cli.md").write_text("old")
    assert reference(["--check", str(tmp_path)]) == 1
    assert "cli.md in " in capsys.readouterr().err


def test_every_command_and_option_in_the_pages_exists():
    known = {spec.name: {option_name(field.name) for field in fields_of(spec.config_class())} for spec in PIPELINE}
    execution = {option_name(field.name) for field in fields_of(Execution)}
    general = {"--config", "--dry-run", "--json", "--help", *execution}
    named = {spec.name: {option_name(argument.name) for argument in spec.arguments} for spec in PIPELINE}
    others = {str(command.name) for command in app.registered_commands} - set(known)
    wrong = []
    for page in PAGES:
        for line in re.findall(r"^\s*(viewkit [a-z].*)$", page.read_text(), re.MULTILINE):
            words = line.split("#")[0].split()
            if words[1] not in {*known, *others}:
                wrong.append(f"{page.name}: {line}")
            if words[1] in known:
                options = {word for word in words if word.startswith("--")}
                if options - known[words[1]] - general - named[words[1]]:
                    wrong.append(f"{page.name}: {line}")
    assert wrong == []


def test_the_page_of_views_names_every_policy():
    policies = (ROOT / "docs" / "views.md").read_text().partition("## 2. Policies")[2].partition("\n## ")[0]
    assert set(POLICIES) <= set(re.findall(r"`(\w+)`", policies))


def test_pairs_are_trained_on_with_the_policy_that_they_were_sampled_by():
    """In a block of commands, `pretrain --select` follows `draw` or `score` with the same policy."""
    wrong, looked = [], 0
    for page in PAGES:
        for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            sampled = ""
            for command, options in re.findall(r"^viewkit (draw|score|pretrain) ([^#\n]*)", block, re.MULTILINE):
                default = {"draw": "genview_resnet", "score": "strengthened"}.get(command, "")
                policy = dict(re.findall(r"--(policy) (\S+)", options)).get("policy", default)
                if command != "pretrain":
                    sampled = policy
                elif sampled and "--select" in options and policy:
                    looked += 1
                    wrong += [f"{page.name}: {options}"] if policy != sampled else []
    assert looked >= 2
    assert wrong == []


def test_every_function_on_the_image_s_way_exists():
    walk = (ROOT / "docs" / "pipeline.md").read_text().partition("## One image")[2].partition("\n## ")[0]
    places = re.findall(r"`((?:pipelines|shards)\.[\w.]+):([\w.]+)`", walk)
    assert len(places) >= 15
    for module, name in places:
        thing = import_module(f"viewkit.{module}")
        for part in name.split("."):
            assert hasattr(thing, part), f"docs/pipeline.md names {module}:{name}"
            thing = getattr(thing, part)
    stations = {"pack", "estimator", "generate", "histograms", "score", "pretrain"}
    assert stations <= {module.split(".")[1] for module, _ in places}


def test_the_tree_of_the_readme_has_every_package_once():
    tree = (ROOT / "README.md").read_text().partition("room by room")[2].split("```")[1]
    found, folders = [], []
    for indent, name in re.findall(r"^( *)([a-z0-9_]+)/", tree, re.MULTILINE):
        folders = [*folders[: len(indent) // 2], name]
        found.append("/".join(folders))
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("cli", "pipelines", "shards")
        for path in ROOT.glob(f"{top}/**/__init__.py")
    }
    assert sorted(found) == sorted(packages)


def test_every_link_between_the_pages_leads_somewhere():
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_make_help_lists_every_target_that_the_readme_names():
    said = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"^make ([a-z-]+)", said, re.MULTILINE))
    assert set(re.findall(r"`?\bmake ([a-z-]+)\b(?=[ `\n])", (ROOT / "README.md").read_text())) <= targets
    assert {"setup", "demo", "test", "check", "pipeline", "bench", "clean"} <= targets


@pytest.mark.slow
def test_the_python_of_the_readme_runs_as_it_stands(chain, tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    shutil.copytree(chain.dataset.path, tmp_path / "dataset")
    small = re.sub(r"batch_size=\d+", "batch_size=8", block)
    said = subprocess.run([sys.executable, "-c", small], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "torch.Size([8, 3, 32, 32])" in said.stdout


@pytest.mark.parametrize(
    ("section", "file"),
    [
        ("## A selection of stored pairs", "toy_selection.py"),
        ("## A framework", "toy_framework.py"),
        ("## A generator with weights of its own", "toy_generator.py"),
        ("## A frozen encoder", "toy_encoder.py"),
    ],
)
def test_the_page_on_extending_shows_the_very_files_that_the_trials_add(section, file):
    assert code_after(section) == (ROOT / "tests" / "support" / file).read_text()
