"""Packaging: the traps of installing three top-level folders as viewkit.cli, viewkit.pipelines and viewkit.shards."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOPS = ("cli", "pipelines", "shards")


def packages_in_the_tree():
    return sorted(
        "viewkit." + ".".join(path.parent.relative_to(ROOT).parts)
        for top in TOPS
        for path in ROOT.glob(f"{top}/**/__init__.py")
    )


def test_every_package_of_the_tree_is_in_the_package_list():
    assert PROJECT["tool"]["setuptools"]["packages"] == packages_in_the_tree()


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for top in TOPS for path in ROOT.glob(f"{top}/**/*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.slow
def test_a_wheel_holds_every_module_and_data_file(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    wanted = {
        "viewkit/" + path.relative_to(ROOT).as_posix()
        for top in TOPS
        for ending in ("py", "c", "toml", "html", "css", "typed")
        for path in ROOT.glob(f"{top}/**/*.{ending}")
    }
    assert wanted - names == set()


def test_no_module_imports_a_second_copy_of_the_packages():
    bare = re.compile(rf"^\s*(from|import)\s+({'|'.join(TOPS)})\b", re.MULTILINE)
    sources = [path for folder in (*TOPS, "tests", "benchmarks", "docs") for path in ROOT.glob(f"{folder}/**/*.py")]
    assert [str(path) for path in sources if bare.search(path.read_text())] == []
    assert not {*TOPS} & {name for name, module in sys.modules.items() if getattr(module, "__file__", None)}


def test_the_version_is_the_one_of_the_installed_package():
    said = subprocess.run(
        [sys.executable, "-m", "viewkit.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout == f"viewkit {metadata.version('viewkit')}\n"
    assert metadata.version("viewkit") == PROJECT["project"]["version"]


def test_imports_point_down():
    """cli -> pipelines -> shards, and a stage never imports another stage."""
    stages = {
        "pack",
        "generate",
        "estimator",
        "histograms",
        "score",
        "quality",
        "audit",
        "pretrain",
        "evaluate",
        "report",
    }
    found = []
    for top in TOPS:
        for path in ROOT.glob(f"{top}/**/*.py"):
            for package, sub in re.findall(
                r"^\s*(?:from|import) viewkit\.(\w+)(?:\.(\w+))?", path.read_text(), re.MULTILINE
            ):
                upward = TOPS.index(package) < TOPS.index(top)
                parts = path.relative_to(ROOT).parts
                sideways = top == package == "pipelines" and parts[1] in stages and sub in stages - {parts[1]}
                if upward or sideways:
                    found.append(f"{path.relative_to(ROOT)} imports viewkit.{package}.{sub}")
    assert found == []


def test_help_imports_neither_torch_nor_anything_else_that_is_slow():
    code = "import sys; import viewkit.cli.main as m; m.run(['--help']); print(sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "torch",
        "torchvision",
        "timm",
        "diffusers",
        "transformers",
        "webdataset",
        "sklearn",
        "skimage",
        "matplotlib",
        "scipy",
    }
    assert heavy & set(re.findall(r"'([a-z_]+)'", said.splitlines()[-1])) == set()


def test_what_the_constraints_pin_satisfies_the_project():
    from packaging.requirements import Requirement

    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pins = {Requirement(line).name.lower().replace("_", "-"): Requirement(line) for line in lines}
    extras = PROJECT["project"]["optional-dependencies"].values()
    for text in [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]:
        wanted = Requirement(text)
        pin = pins[wanted.name.lower().replace("_", "-")]
        assert wanted.specifier.contains(next(iter(pin.specifier)).version), text
