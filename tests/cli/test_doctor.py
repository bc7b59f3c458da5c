"""The doctor finds what is wrong, says one next step, and does not fall over itself."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from viewkit.cli import doctor, parts
from viewkit.cli.doctor import Finding, exit_code, find_devices, run_probe
from viewkit.pipelines.engine import renderer

SOUND = {
    "torch": "2.15.0",
    "devices": [],
    "float32_s": 2.0,
    "bfloat16_s": 1.0,
    "torchvision": "0.29.2",
}


def named(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the process that imports torch, which takes seconds."""
    monkeypatch.setattr(doctor, "run_probe", lambda: dict(SOUND))


def test_this_machine_is_usable(quick: None) -> None:
    findings = doctor.diagnose()
    assert exit_code(findings) == 0, findings
    assert named(findings, "JPEG").state == "ok"
    assert "bfloat16 products run at 2.0x" in named(findings, "CPU").value


def test_a_torchvision_that_does_not_match_is_a_problem_with_one_next_step() -> None:
    error = "RuntimeError: operator torchvision::nms does not exist"
    facts = {name: value for name, value in SOUND.items() if name != "torchvision"} | {"error": error}
    found = named(list(find_devices(facts)), "torchvision")
    assert found.state == "problem" and error in found.value and "torch 2.15.0" in found.value
    assert "torch torchvision" in found.advice and exit_code([found]) == 1


def test_a_torch_that_cannot_be_imported_is_a_problem() -> None:
    found = named(list(find_devices({"error": "ImportError: libcudart.so.13"})), "torch")
    assert found.state == "problem" and "libcudart" in found.value


def test_devices_are_listed_with_their_memory() -> None:
    facts = SOUND | {"devices": [["cuda:0", "H200", 139 * 2**30, True], ["cuda:1", "GTX", 2**33, False]]}
    found = list(find_devices(facts))
    assert named(found, "cuda:0").value == "H200, 139 GiB, with bfloat16"
    assert named(found, "cuda:1").value == "GTX, 8 GiB, without bfloat16"
    assert not [finding for finding in found if finding.name == "GPU"]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ('print(\'{"torch": "1"}\')', {"torch": "1"}),
        ("print('noise'); raise RuntimeError('first\\nlast')", {"error": "last"}),
        ('print(\'{"torch": "1"}\', flush=True); import os; os.kill(os.getpid(), 9)', "ended by signal 9"),
        ('import time; print(\'{"torch": "1"}\', flush=True); time.sleep(60)', "no answer within"),
    ],
)
def test_a_probe_that_fails_keeps_what_it_said(program: str, expected: object) -> None:
    facts = run_probe(program, timeout_s=60.0 if "sleep" not in program else 1.0)
    if isinstance(expected, dict):
        assert facts == expected
    else:
        assert facts["torch"] == "1" and str(expected) in facts["error"]


def test_missing_and_old_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"timm": None, "pillow": "9.0"}
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: versions[name] if name in versions else real(name))
    found = named(list(doctor.find_versions()), "packages")
    assert found.state == "problem" and "timm is missing" in found.value and "pillow 9.0 is not >=13" in found.value


def test_extras_are_a_note_not_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: None if name == "hypothesis" else real(name))
    (found,) = [each for each in doctor.find_missing() if each.name == "extras"]
    assert found.state == "note" and "dev lacks hypothesis; they would give the tests" in found.value
    assert "'.[dev]'" in found.advice


def test_every_extra_says_what_it_gives() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert set(project["project"]["optional-dependencies"]) <= set(parts.EXTRAS)


def test_what_is_missing_says_what_it_would_give_and_how_it_is_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(parts.shutil, "which", lambda name: None)
    found = {part.name: part for part in parts.missing_parts({"tracking": ["tensorboard"]})}
    assert list(found) == ["extras", "compiler", "completion", "weights"]
    assert "would" in " ".join(part.value for part in found.values()) and all(part.advice for part in found.values())
    assert "unclip, kandinsky, ip-adapter" in found["weights"].value
    (tmp_path / ".zfunc").mkdir()
    (tmp_path / ".zfunc" / "_viewkit").touch()
    monkeypatch.setattr(parts.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert [part.name for part in parts.missing_parts({"tracking": []})] == ["weights"]


def test_no_gpu_is_a_note_with_what_can_be_done(tmp_path: Path) -> None:
    driver = tmp_path / "version"
    assert "takes a machine with an NVIDIA GPU" in parts.gpu_part("2.15", "13.0", driver).advice
    driver.touch()
    assert "built without CUDA" in parts.gpu_part("2.15", None, driver).advice
    assert "nvidia-smi" in parts.gpu_part("2.15", "13.0", driver).advice
    found = named(list(find_devices(SOUND)), "GPU")
    assert found.state == "note" and "would make training at 224 px" in found.value


def test_a_missing_library_is_a_note_and_an_impossible_choice_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer, "find_library", lambda: "not built: no compiler")
    monkeypatch.setenv(renderer.VARIABLE, "auto")
    found = doctor.find_renderer()
    assert found.state == "note" and "not built: no compiler" in found.value and "C compiler" in found.advice
    monkeypatch.setenv(renderer.VARIABLE, "compiled")
    assert doctor.find_renderer().state == "problem"
    monkeypatch.setenv(renderer.VARIABLE, "torch")
    assert "torch's operations" in doctor.find_renderer().value


def test_disk_of_a_folder_that_is_yet_to_be_made_is_its_parents(tmp_path: Path) -> None:
    found = doctor.find_disk(tmp_path / "not" / "yet")
    assert found.state in ("ok", "note") and str(tmp_path) in found.value


def test_a_full_disk_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "FREE_GB", 1e9)
    assert doctor.find_disk(tmp_path).state == "note"


def test_no_temporary_files_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", full)
    assert doctor.find_temporary().state == "problem"


def test_the_screen_shows_every_finding_and_its_advice() -> None:
    console = Console(width=100, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    doctor.show([Finding("a", "fine"), Finding("b", "[red]broken[/red]", "problem", "mend it")], console)
    text = console.export_text()
    assert "fine" in text and "[red]broken[/red]" in text and "-> mend it" in text and len(text.splitlines()) == 3


def test_the_command_prints_json_and_its_exit_code(
    quick: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    for state, code in (("ok", 0), ("note", 0), ("problem", 1)):
        monkeypatch.setattr(doctor, "find_temporary", lambda state=state: Finding("temporary", "x", state))
        with pytest.raises(typer.Exit) as left:
            doctor.doctor(Path("."), as_json=True)
        assert left.value.exit_code == code
        assert json.loads(capsys.readouterr().out)["usable"] == (code == 0)


def test_reading_the_module_does_not_import_torch() -> None:
    program = "import sys, viewkit.cli.doctor; print(sorted({'torch', 'torchvision', 'PIL'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_whole_probe_answers_on_this_machine() -> None:
    assert run_probe().keys() >= {"torch", "devices", "float32_s", "torchvision"}
