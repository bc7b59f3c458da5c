"""Writers that run at once without seeing each other's locks, and ones that wake up after their replacement."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_datasets import CPU
from toy_stages import NumbersConfig, UnlikeStage

from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.verify import verify

CONFIG = NumbersConfig(rows=48)
JOB = """
import sys
from contextlib import nullcontext
from toy_stages import NumbersConfig, UnlikeStage
from viewkit.pipelines.engine import map
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ViewkitError
if __name__ == "__main__":
    path, part, workers, locks = sys.argv[1:]
    if locks == "none":  # as on a file system whose locks other machines do not see
        map.writer_lock = map.claim_lock = lambda *_: nullcontext()
    execution = Execution(device="cpu", workers=int(workers), max_rejects=1.0, part=part)
    try:
        run_stage(UnlikeStage(pause_s=0.02), NumbersConfig(rows=48), Dataset(path), execution)
    except ViewkitError as error:
        print(error)
        sys.exit(error.exit_code)
"""


def start(path: Path, part: str = "0/1", workers: int = 1, locks: str = "none") -> subprocess.Popen[str]:
    script = path.parent / "job.py"
    script.write_text(JOB)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    argv = [sys.executable, str(script), str(path), part, str(workers), locks]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True)


def wait_for(condition, patience_s: float = 60.0):
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return found


def receipts(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (path / "images").glob("0*.json")}


def problems(path: Path) -> list[str]:
    return [each.problem for each in verify(Dataset(path)) if each.problem]


def finish(path: Path) -> None:
    run_stage(UnlikeStage(), CONFIG, Dataset(path), CPU)


@pytest.mark.slow
def test_a_writer_that_wakes_up_after_its_replacement_finished_changes_nothing(tmp_path):
    path = tmp_path / "data"
    job = start(path)
    wait_for(lambda: len(receipts(path)) >= 1)
    os.kill(job.pid, signal.SIGSTOP)
    finish(path)
    done = receipts(path)
    os.kill(job.pid, signal.SIGCONT)
    said, _ = job.communicate(timeout=60)
    assert job.returncode in (0, 1) and said.count("\n") == job.returncode
    assert receipts(path) == done and len(done) == 6
    finish(path)
    assert receipts(path) == done and not problems(path)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [("0/1", "0/1"), ("0/2", "0/2"), ("0/2", "1/2"), ("0/2", "0/3"), ("1/3", "0/1")])
def test_writers_without_common_locks_lose_nothing_whatever_their_parts(parts, tmp_path):
    path = tmp_path / "data"
    jobs = [start(path, part) for part in parts]
    seen: dict[str, bytes] = {}
    while any(job.poll() is None for job in jobs):
        seen = {**receipts(path), **seen} if (path / "images").is_dir() else seen
        time.sleep(0.01)
    assert all(job.returncode in (0, 1) for job in jobs), [job.communicate()[0] for job in jobs]
    assert {**receipts(path), **seen} == receipts(path)  # a receipt that was once there is there, unchanged
    finish(path)
    assert {**receipts(path), **seen} == receipts(path) and not problems(path)


def children(pid: int) -> list[int]:
    """Worker processes of a job: its children that run `spawn_main`."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.slow
def test_a_stopped_worker_whose_parent_was_killed_wakes_up_and_changes_nothing(tmp_path):
    path = tmp_path / "data"
    job = start(path, workers=2, locks="own")
    wait_for(lambda: len(receipts(path)) >= 1)
    worker, *others = children(job.pid)
    os.kill(worker, signal.SIGSTOP)
    job.kill()
    job.wait()
    wait_for(lambda: not any(Path(f"/proc/{other}").exists() for other in others))  # they leave with their parent
    finish(path)
    done = receipts(path)
    os.kill(worker, signal.SIGCONT)
    wait_for(
        lambda: not Path(f"/proc/{worker}").exists() or b"Z" in Path(f"/proc/{worker}/stat").read_bytes().split()[2]
    )
    assert receipts(path) == done and len(done) == 6
    finish(path)
    assert not problems(path)
