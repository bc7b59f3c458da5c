"""Packaging: the traps of installing three top-level folders as viewkit.cli, viewkit.pipelines and viewkit.shards."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOPS = ("cli", "pipelines", "shards")


def test_setup_finds_every_package_of_the_tree():
    spec = importlib.util.spec_from_file_location("viewkit_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folders = {path.parent.relative_to(ROOT) for top in TOPS for path in ROOT.glob(f"{top}/**/*.py")}
    inside = {"viewkit." + ".".join(folder.parts) for folder in folders - {Path("cli/api")}}
    assert module.packages() == sorted({"viewkit", *inside})
    assert "packages" not in PROJECT["tool"]["setuptools"]  # one list, and it is computed


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for top in TOPS for path in ROOT.glob(f"{top}/**/*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """(sdist, wheel built from it), of the tracked files alone."""
    if not (ROOT / ".git").exists():
        pytest.skip("the tracked files are known in a checkout only")
    said = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in filter(None, said.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(tree)]
    subprocess.run(command, check=True, cwd=dist, capture_output=True)
    return next(dist.glob("*.tar.gz")), next(dist.glob("*.whl")), {name for name in said.split("\0") if name}


@pytest.mark.slow
def test_the_sdist_holds_every_tracked_file(distributions):
    sdist, _, tracked = distributions
    with tarfile.open(sdist) as tar:
        held = {member.name.partition("/")[2]: member for member in tar.getmembers() if member.isfile()}
    assert tracked - set(held) == set()
    assert all(held[f".ci/{name}"].mode & 0o100 for name in ("run", "setup-scale"))
    assert not [name for name in held if name.endswith((".so", ".pyc"))]


@pytest.mark.slow
def test_the_wheel_installs_and_its_command_works_away_from_the_tree(distributions, tmp_path):
    _, wheel, _ = distributions
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = tmp_path.glob("venv/lib/*/site-packages")
    others = [
        path for path in sys.path if path.endswith("site-packages")
    ]  # the dependencies; editable installs stay out
    (packages / "others.pth").write_text("\n".join(others))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, cwd=tmp_path)

    def says(*command):
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    viewkit = str(python.with_name("viewkit"))
    assert str(packages) in says(str(python), "-c", "import viewkit.cli; print(viewkit.cli.__file__)")
    assert says(viewkit, "--version") == f"viewkit {PROJECT['project']['version']}\n"
    assert "Pretrain an encoder" in says(viewkit, "--help")
    assert len(says(viewkit, "experiments", "--json").splitlines()) == len(
        list(ROOT.glob("pipelines/experiments/files/*.toml"))
    )
    assert "16 classes" in says(viewkit, "init", "demo:train", "mine.toml", "--device", "cpu")
    says(viewkit, "pack", "demo:test", "data")
    assert "480" in says(viewkit, "status", "data")


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
        "viewkit/" + path.relative_to(ROOT).as_posix().removeprefix("cli/api/")
        for top in TOPS
        for ending in ("py", "c", "toml", "html", "css", "js", "typed")
        for path in ROOT.glob(f"{top}/**/*.{ending}")
    }
    assert wanted - names == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_the_public_names_are_those_of_an_installed_package(tmp_path, kind):
    build = (
        "import sys, setuptools.build_meta as b; "
        "made = (b.build_wheel if sys.argv[2] == 'wheel' else b.build_editable)(sys.argv[1]); print(made)"
    )
    copy = tmp_path / "project"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", *TOPS):
        place = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy.mkdir(exist_ok=True)
        place(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-c", build, str(tmp_path), kind], check=True, cwd=copy, capture_output=True)
    site = tmp_path / "site"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    libraries = sysconfig.get_path("purelib")
    shared = Path(pytest.__file__).parents[1]
    code = (
        f"import site, sys; sys.path[:0] = [{str(site)!r}]; sys.path += [{str(libraries)!r}, {str(shared)!r}]; "
        f"site.addsitedir({str(site)!r}); "
        "import viewkit, viewkit.cli.main, viewkit.shards.dataset; print(viewkit.__file__, viewkit.Dataset.__module__, "
        "viewkit.cli.__file__, 'torch' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    top = site / "viewkit" if kind == "wheel" else copy / "cli" / "api"
    cli = site / "viewkit" / "cli" if kind == "wheel" else copy / "cli"
    assert said.stdout.split() == [
        str(top / "__init__.py"),
        "viewkit.shards.dataset",
        str(cli / "__init__.py"),
        "False",
    ]


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


def imports_of(path):
    """Modules of viewkit that a file imports anywhere but below TYPE_CHECKING, named without ``viewkit.``"""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: imports are absolute")
        if isinstance(node, ast.ImportFrom) and node.module == "viewkit":
            found |= {alias.name for alias in node.names}  # the public names are for others: TOPS knows none of them
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("viewkit."):
            module = node.module.removeprefix("viewkit.")
            found |= {f"{module}.{each.name}" if f"{module}.{each.name}" in MODULES else module for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name.removeprefix("viewkit.") for each in node.names if each.name.startswith("viewkit.")}
    return found


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for top in TOPS for path in ROOT.glob(f"{top}/**/*.py")}
IMPORTS = {name: imports_of(path) for name, path in MODULES.items()}

SHARED = {"foreground"}
"""Rooms with a stage that other stages build on: what is foreground concerns generation and quality alike."""

ABOVE = {"pipelines.experiments"}
"""Rooms that stand above the stages: whole chains of them."""


def package_of(module):
    """``pipelines.score.stage`` -> ``pipelines.score``; what lies at the top of a folder is a package of its own."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "pipelines" and len(parts) > 1 else parts[0]


def circles(graph):
    """Who is in a circle or between two, found by taking away, again and again, what no circle can go through."""
    left = {name: set(needs) - {name} for name, needs in graph.items()}
    while True:
        needed = set().union(*left.values()) if left else set()
        loose = {name for name, needs in left.items() if not needs & left.keys() or name not in needed}
        if not loose:
            return sorted(left)
        left = {name: needs for name, needs in left.items() if name not in loose}


def stage_packages():
    """Packages in which a stage is defined; the engine defines what a stage is, and none."""
    defines = re.compile(r"^class \w+\((?:Map|Fit)Stage\b", re.MULTILINE)
    return {package_of(name) for name, path in MODULES.items() if defines.search(path.read_text())}


def test_imports_point_down_from_cli_over_pipelines_to_shards():
    upward = [
        f"{name} imports {other}"
        for name, found in IMPORTS.items()
        for other in found
        if TOPS.index(other.split(".")[0]) < TOPS.index(name.split(".")[0])
    ]
    assert upward == []


def test_a_stage_never_imports_another_stage():
    stages = stage_packages() - {f"pipelines.{name}" for name in SHARED}
    assert {"pipelines.pack", "pipelines.score", "pipelines.pretrain"} <= stages
    sideways = [
        f"{name} imports {other}"
        for name, found in IMPORTS.items()
        for other in found
        if package_of(name) != package_of(other) and {package_of(name), package_of(other)} <= stages
    ]
    assert sideways == []


def test_what_many_build_on_imports_no_stage():
    stages = stage_packages()
    upward = [
        f"{name} imports {other}"
        for name, found in IMPORTS.items()
        for other in found
        if package_of(name).startswith("pipelines.")
        and package_of(name) not in stages | ABOVE
        and package_of(other) in stages
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle():
    assert circles(IMPORTS) == []


def test_no_packages_import_each_other_in_a_circle():
    graph = {}
    for name, found in IMPORTS.items():
        graph.setdefault(package_of(name), set()).update(package_of(other) for other in found)
    assert circles(graph) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]


def test_help_imports_neither_torch_nor_anything_else_that_is_slow():
    code = "import sys; import viewkit.cli.main as m; m.run(['--help']); print(sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "obstore",
        "numpy",
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
        "ray",
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
