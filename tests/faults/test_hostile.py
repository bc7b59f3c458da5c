"""Hostile data and surroundings: nothing runs, nothing outside is touched, nothing of the user's is deleted."""

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch
from small_datasets import CPU, numbers_dataset
from toy_stages import NumbersConfig, NumbersStage, TotalConfig, TotalStage
from world import photographs

from viewkit.cli.console import printable
from viewkit.cli.main import run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.memory import is_out_of_memory
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.workers import PATIENCE_S, run_shards
from viewkit.pipelines.models.compiling import VARIABLE, compile_privately
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.pipelines.training.monitoring import MetricsLog
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.lock import claim_lock, writer_lock
from viewkit.shards.spool import Spool

EVIL = "import os; open(os.environ['WITNESS'], 'a').write(__name__)\n"


@pytest.fixture
def images(tmp_path):
    """Images with modules of the standard library among them."""
    folder = tmp_path / "images"
    photographs(folder)
    for name in ("pickle", "json", "random", "torch", "site", "sitecustomize"):
        (folder / f"{name}.py").write_text(EVIL)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("pack", ".", "../data", "--rows-per-shard", "8", "--workers", "2"),
        pytest.param(("doctor",), marks=pytest.mark.slow),
    ],
)
def test_modules_among_the_images_are_not_run(images, tmp_path, command):
    witness = tmp_path / "witness"
    start = "import sys; sys.path.pop(0); from viewkit.cli.main import main; sys.argv[0] = 'viewkit'; main()"
    said = subprocess.run(
        [sys.executable, "-P", "-c", start, *command],
        cwd=images, capture_output=True, text=True, env={**os.environ, "WITNESS": str(witness)},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert not witness.exists()


@pytest.mark.parametrize("take", [lambda path: claim_lock(path, "pairs"), lambda path: writer_lock(path, "pairs")])
def test_a_link_in_the_place_of_a_lock_is_refused_and_what_it_names_stays(tmp_path, take):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "data" / ".locks").mkdir(parents=True)
    for name in ("pairs", "pairs%claim"):
        (tmp_path / "data" / ".locks" / name).symlink_to(victim)
    with pytest.raises(DataError, match="a symbolic link is in its place"), take(tmp_path / "data"):
        pass
    assert victim.read_text() == "precious"


def test_a_link_in_the_place_of_a_spool_is_refused(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "000000.spool").symlink_to(victim)
    with pytest.raises(DataError, match="a symbolic link is in its place"):
        Spool(tmp_path, 0, "identity")
    assert victim.read_text() == "precious"


def test_a_folder_that_is_written_anew_keeps_a_stranger_s_files(tmp_path):
    class Replaced(TotalStage):
        replaces = True

    dataset = numbers_dataset(tmp_path)
    run_stage(Replaced(), TotalConfig(), dataset, CPU)
    notes = tmp_path / "total" / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(RefusedError, match=r"notes.txt was not written by this stage.*move the file away"):
        run_stage(Replaced(), TotalConfig(seed=5), dataset, CPU)
    assert notes.read_text() == "mine"
    notes.unlink()
    assert run_stage(Replaced(), TotalConfig(seed=5), dataset, CPU).written == 1


def test_a_user_s_part_file_in_an_unfinished_folder_stays(tmp_path):
    dataset = numbers_dataset(tmp_path)
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    (tmp_path / "total" / "receipt.json").unlink()
    mine, ours = tmp_path / "total" / "thesis.part", tmp_path / "total" / "total.txt.0123abcd.part"
    mine.write_text("mine")
    ours.write_text("half")
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    assert mine.read_text() == "mine" and not ours.exists()


def test_a_sheet_is_not_written_over_a_stage_s_file(tmp_path, capsys):
    dataset = numbers_dataset(tmp_path / "data")
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    packed = tmp_path / "packed"
    photographs(tmp_path / "images")
    assert run(["pack", str(tmp_path / "images"), str(packed), "--workers", "1"]) == 0
    assert run(["views", str(packed), str(tmp_path / "data" / "total" / "sheet.png"), "--images", "1"]) == 3
    assert "which a stage wrote; choose a place outside of it" in capsys.readouterr().err


class Enough(Exception):
    """The parent has had enough."""


def stops_itself(number):
    def work(shard, report):
        report(1)
        os.kill(os.getpid(), signal.SIGSTOP)

    return work


@pytest.mark.slow
def test_a_stopped_worker_does_not_hold_up_the_parent():
    def tell(news):
        time.sleep(1)  # by now it has stopped itself, and will not see that it is told to end
        raise Enough

    started = time.monotonic()
    with pytest.raises(Enough):
        list(run_shards(stops_itself, [0], 1, tell))
    assert time.monotonic() - started < 60 + 2 * PATIENCE_S  # most of it is the worker's start


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\x07", "\u202ereversed", "\x9b31m"])
def test_control_characters_are_written_out(text):
    shown = printable(text)
    assert all(each.isprintable() for each in shown) and "\\" in shown
    assert printable("plain, also ä 中\n") == "plain, also ä 中\n"


def test_two_cuts_of_one_column_exclude_each_other(tmp_path):
    with writer_lock(tmp_path, "pairs", (0, 2)):
        with writer_lock(tmp_path, "pairs", (1, 2)):
            pass
        with (
            pytest.raises(RefusedError, match="is being written in 2 parts right now, and --part says 3"),
            writer_lock(tmp_path, "pairs", (0, 3)),
        ):
            pass
    with writer_lock(tmp_path, "pairs", (0, 3)):
        pass


def test_parts_of_a_column_still_run_side_by_side(tmp_path):
    dataset = Dataset(tmp_path)
    for part in ("0/2", "1/2"):
        execution = Execution(device="cpu", workers=1, max_rejects=1.0, part=part)
        run_stage(NumbersStage(), NumbersConfig(rows=20, rows_per_shard=4), dataset, execution)
    assert len(dataset.column("images").complete_shards()) == 5


def test_a_torn_line_of_metrics_ends_the_log_and_a_resumed_run_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 10, "loss": 1.0}\n{"step": 2\n{"step": 30, "loss": 0.5}\n')
    assert [line["step"] for line in read_metrics(path)] == [10]
    log = MetricsLog(path, resume_at=20)
    log.append({"step": 30, "loss": 0.25})
    assert [line["step"] for line in read_metrics(path)] == [10, 30]


def test_permission_denied_is_one_line(tmp_path, capsys, monkeypatch):
    def denied(self):
        raise PermissionError(13, "Permission denied", str(self))

    numbers_dataset(tmp_path)
    monkeypatch.setattr("pathlib.Path.is_file", denied)
    assert run(["status", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "permission denied; check the owner and mode" in said


START = "import sys; from viewkit.cli.main import main; sys.argv[0] = 'viewkit'; main()"
HUNG_UP = """
import os, signal, sys
sys.argv = ["viewkit", "status", sys.argv[1]]
from viewkit.cli import main
from viewkit.pipelines.engine.interrupts import interruptible
signal.signal(signal.SIGHUP, signal.SIG_DFL)
main.stop_on_signals()
def look(**_):
    WHERE
    os.kill(os.getpid(), signal.SIGHUP)
    raise AssertionError("it went on")
main.app = look
sys.exit(main.run())
"""


@pytest.mark.parametrize("where", ["", "context = interruptible('run the same command again'); context.__enter__()"])
def test_a_closed_terminal_is_said_in_one_line(tmp_path, where):
    script = HUNG_UP.replace("WHERE", where or "pass")
    said = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert said.returncode == 1 and said.stderr.count("\n") == 1
    assert said.stderr.startswith("error: stopped") and "run the same command again" in said.stderr


def test_under_nohup_a_closed_terminal_stops_nothing():
    script = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from viewkit.cli.main import stop_on_signals\n"
        "from viewkit.pipelines.engine.interrupts import interruptible\n"
        "stop_on_signals()\n"
        "with interruptible(''):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print('went on')"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "went on\n"


@pytest.mark.slow
@pytest.mark.parametrize("memory_mib", [400, 1500, 2500])
@pytest.mark.parametrize("command", [("estimator",), ("score", "--workers", "2")])
def test_too_little_memory_is_one_line(tmp_path, memory_mib, command):
    photographs(tmp_path / "images")
    assert run(["pack", str(tmp_path / "images"), str(tmp_path / "data"), "--rows-per-shard", "16"]) == 0
    said = subprocess.run(
        [sys.executable, "-c", START, command[0], str(tmp_path / "data"), *command[1:]],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20)),
    )
    assert said.returncode == 1 and "Traceback" not in said.stderr
    assert len([line for line in said.stderr.splitlines() if line.startswith("error: ")]) == 1, said.stderr


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: 12 bytes"),
            True,
        ),
        (RuntimeError("can't start new thread"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (ImportError("No module named 'x'"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (SystemError("error return without exception set"), False),
    ],
)
def test_want_of_memory_is_known_by_what_libraries_say(error, short):
    assert is_out_of_memory(error) is short


def test_a_worker_s_want_of_memory_is_one_line():
    with pytest.raises(DataError, match=r"^in a worker process: not enough memory"):
        list(run_shards(wants_memory, [0], 1, lambda news: None))


def wants_memory(number):
    raise MemoryError


def test_the_cache_of_compiled_code_is_the_user_s_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("torch.compile", lambda function, **options: function)
    compile_privately(len)
    folder = tmp_path / "viewkit" / "compiled"
    assert os.environ[VARIABLE] == str(folder) and folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv(VARIABLE)
    folder.chmod(0o770)
    with pytest.raises(DataError, match=f"others may write to it.*set {VARIABLE}"):
        compile_privately(len)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(DataError, match="others may write to it"):
        compile_privately(len)
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    compile_privately(len)
    assert os.environ[VARIABLE] == "/elsewhere"
