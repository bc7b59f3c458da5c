"""Which renderer is used: the library where it is, never one built from another source, and the one asked for."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from viewkit.pipelines.engine import renderer
from viewkit.pipelines.engine.renderer import FOLDER, VARIABLE, chosen_library, find_library, renderer_name
from viewkit.shards.errors import ConfigError

ROOT = Path(__file__).parents[3]


def test_torch_can_be_asked_for(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    assert chosen_library() is None and renderer_name() == "torch"


def test_an_unknown_renderer_is_named(monkeypatch):
    monkeypatch.setenv(VARIABLE, "cuda")
    with pytest.raises(ConfigError, match="VIEWKIT_RENDERER is 'cuda'; needed one of auto, torch, compiled"):
        chosen_library()


def test_without_the_library_auto_takes_torch_and_compiled_says_the_next_step(monkeypatch, tmp_path):
    (tmp_path / "kernels.c").write_text("int x;")
    monkeypatch.setattr(renderer, "find_library", lambda: find_library(tmp_path))
    monkeypatch.setenv(VARIABLE, "auto")
    assert chosen_library() is None
    monkeypatch.setenv(VARIABLE, "compiled")
    with pytest.raises(ConfigError, match=r"'compiled', but the library is not built.*install a C compiler"):
        chosen_library()


def test_a_library_of_another_source_is_not_used(monkeypatch, tmp_path):
    if isinstance(library := find_library(), str):
        pytest.skip(library)
    assert isinstance(library, ctypes.CDLL)
    built = next(FOLDER.glob("_kernels*"))
    shutil.copy(built, tmp_path)
    (tmp_path / "kernels.c").write_text("int another;")
    assert find_library(tmp_path) == f"{built.name} was built from another kernels.c"
    monkeypatch.setenv(VARIABLE, "compiled")
    assert renderer_name() == f"compiled from {renderer.source_digest()}"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["/bin/false", None])
def test_an_installation_builds_the_library_where_there_is_a_compiler_and_goes_on_where_there_is_none(
    tmp_path, compiler
):
    if compiler is None and not shutil.which("cc"):
        pytest.skip("no C compiler")
    target = tmp_path / "site"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tmp_path)
    for top in ("cli", "pipelines", "shards"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = os.environ | ({"CC": compiler} if compiler else {})
    subprocess.run([*command, "--target", str(target), str(tmp_path)], check=True, env=environment)
    installed = target / "viewkit" / "pipelines" / "views" / "render"
    assert (installed / "kernels.c").exists()
    assert isinstance(find_library(installed), str if compiler else ctypes.CDLL)
