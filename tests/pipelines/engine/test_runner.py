"""The runner with toy stages: the same bytes however a job is cut up, and clear words when it cannot go on."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from small_datasets import CPU, contents, numbers_dataset
from toy_stages import LengthsConfig, LengthsStage, NumbersConfig, NumbersStage, TotalConfig, TotalStage

from viewkit.pipelines.engine.contract import Silent, Stage
from viewkit.pipelines.engine.execution import Devices, Execution
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.files import PART
from viewkit.shards.lock import writer_lock
from viewkit.shards.row import Row
from viewkit.shards.writer import ShardWriter

CONFIG = NumbersConfig(rows=60)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return contents(numbers_dataset(tmp_path_factory.mktemp("undisturbed"), rows=60).path)


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_writes_the_same_bytes(workers, undisturbed, tmp_path):
    run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), replace(CPU, workers=workers))
    assert contents(tmp_path) == undisturbed


def test_parts_together_write_the_same_bytes(undisturbed, tmp_path):
    for index in (2, 0, 1):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), replace(CPU, part=f"{index}/3"))
    assert contents(tmp_path) == undisturbed


def test_a_second_run_writes_nothing(tmp_path):
    dataset = numbers_dataset(tmp_path, rows=60)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "images").iterdir()}
    summary = run_stage(NumbersStage(), CONFIG, dataset, CPU)
    assert summary.written == 0
    assert summary.seen == summary.kept + summary.rejected.total() == 60
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "images").iterdir()} == before


def test_a_receipt_that_was_deleted_is_written_again_with_the_same_bytes(undisturbed, tmp_path):
    numbers_dataset(tmp_path, rows=60)
    (tmp_path / "images" / "000003.json").unlink()
    assert run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU).written == 1
    assert contents(tmp_path) == undisturbed


def test_part_files_of_a_complete_shard_are_deleted_too(tmp_path):
    numbers_dataset(tmp_path, rows=60)
    left = tmp_path / "images" / f"000003.json.0123abcd{PART}"  # killed between the receipt's link and the clean-up
    left.write_bytes(b"half")
    run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU)
    assert not left.exists()


JOB = """
import sys
from toy_stages import NumbersConfig, NumbersStage
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.contract import Silent, Stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ViewkitError
if __name__ == "__main__":
    stage = NumbersStage(pause_s=0.02)
    execution = Execution(device="cpu", workers=int(sys.argv[2]), max_rejects=1.0)
    try:
        run_stage(stage, NumbersConfig(rows=60), Dataset(sys.argv[1]), execution)
    except ViewkitError as error:
        print(error)
        sys.exit(error.exit_code)
"""


def start_job(tmp_path, workers):
    script = tmp_path / "job.py"
    script.write_text(JOB)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(sys.modules["toy_stages"].__file__)}
    command = [sys.executable, str(script), str(tmp_path / "data"), str(workers)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def hear():  # a shell's background jobs ignore SIGINT, and so would all that they start
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return subprocess.Popen(command, env=environment, text=True, start_new_session=True, preexec_fn=hear, **pipes)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_killed_at_random_moments_and_restarted_writes_the_same_bytes(workers, undisturbed, tmp_path):
    generator = random.Random(workers)
    kills = 0
    while kills < 30:
        job = start_job(tmp_path, workers)
        time.sleep(generator.uniform(0.3, 1.5))
        kills += job.poll() is None
        job.send_signal(signal.SIGKILL)
        job.communicate()
        for path in (tmp_path / "data" / "images").glob("0*.json"):
            if generator.random() < 0.5:  # so that there is always something left to be killed at
                path.unlink()
    wait_until_unlocked(tmp_path / "data")
    job = start_job(tmp_path, workers)
    assert job.wait() == 0, job.stdout.read()
    assert contents(tmp_path / "data") == undisturbed


def wait_until_unlocked(path):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with writer_lock(path, "images"):
                return
        except RefusedError:
            time.sleep(0.1)
    raise AssertionError("an orphan still holds the lock")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_whole_shards_and_says_how_to_go_on(number, tmp_path):
    job = start_job(tmp_path, 1)
    images = tmp_path / "data" / "images"
    deadline = time.monotonic() + 60
    while not list(images.glob("*.tar")) and time.monotonic() < deadline:
        time.sleep(0.01)
    job.send_signal(number)
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 1
    assert said == f"stopped by {number.name}; run the same command again, it goes on with the shards that are left\n"
    assert not list(images.glob(f"*{PART}"))
    assert images.joinpath("column.json").exists()


@pytest.mark.parametrize("after_s", [0.3, 0.8])
def test_ctrl_c_to_all_processes_of_a_job_is_one_line(after_s, tmp_path):
    job = start_job(tmp_path, 2)
    deadline = time.monotonic() + 60
    while not (tmp_path / "data" / "images" / "column.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after_s)  # while the workers import, and while they work
    os.killpg(job.pid, signal.SIGINT)
    said, errors = job.communicate(timeout=60)
    assert (job.returncode, errors) == (1, "")
    assert said.startswith("stopped by SIGINT; ") and said.count("\n") == 1


def test_a_worker_that_dies_once_costs_time_and_nothing_else(undisturbed, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    stage = NumbersStage(die_at="row00025", deaths=deaths, times=1)
    run_stage(stage, CONFIG, Dataset(tmp_path / "data"), replace(CPU, workers=2))
    assert len(list(deaths.iterdir())) == 1
    assert contents(tmp_path / "data") == undisturbed


def test_a_shard_whose_worker_dies_twice_is_named(tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    stage = NumbersStage(die_at="row00025", deaths=deaths, times=9)
    with pytest.raises(DataError, match=r"shard 000003: its worker process died 2 times \(last exit code -9\)"):
        run_stage(stage, CONFIG, Dataset(tmp_path / "data"), replace(CPU, workers=2))
    assert len(list((tmp_path / "data" / "images").glob("*.json"))) > 1


class Crooked(LengthsStage):
    """Breaks the contract in one way."""

    def __init__(self, how):
        self.how = how

    def prepare(self, config, run):
        def transform(rows):
            kept = list(rows)
            if self.how == "loses":
                kept = kept[1:]
            elif self.how == "adds":
                kept = [*kept, Row("more", {})]
            elif self.how == "reorders":
                kept = kept[::-1]
            yield from (Row(row.key, {"txt": b""}) for row in kept)

        return transform


@pytest.mark.parametrize("how", ["loses", "adds", "reorders"])
def test_a_stage_that_breaks_conservation_cannot_write_a_shard(how, tmp_path):
    dataset = numbers_dataset(tmp_path)
    with pytest.raises(AssertionError, match=r"a stage gave more rows|one row or reject for every key"):
        run_stage(Crooked(how), LengthsConfig(), dataset, CPU)
    assert not list((tmp_path / "lengths").glob("*.tar*"))


def test_too_many_rejects_fail_the_stage_and_say_which(tmp_path):
    with pytest.raises(
        DataError, match=r"numbers: \d+ of 60 rows rejected \(.*unlucky \d+.*more than --max-rejects 0.05"
    ):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), replace(CPU, max_rejects=0.05))
    run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU)
    with pytest.raises(DataError, match="7 of 60 rows rejected"):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), replace(CPU, max_rejects=0.05))


def test_another_config_is_refused_and_the_column_stays(tmp_path):
    dataset = numbers_dataset(tmp_path, rows=60)
    before = contents(tmp_path)
    with pytest.raises(RefusedError, match=r"config\.seed is 0 there and 5 now"):
        run_stage(NumbersStage(), replace(CONFIG, seed=5), dataset, CPU)
    assert contents(tmp_path) == before


def test_an_input_that_has_changed_is_noticed(tmp_path):
    dataset = numbers_dataset(tmp_path)
    run_stage(LengthsStage(), LengthsConfig(), dataset, CPU)
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    other = numbers_dataset(tmp_path, rows=31)
    with pytest.raises(
        RefusedError, match="it was made from another 'images' than there is now; it has 26 rows and would have 27 now"
    ):
        run_stage(LengthsStage(), LengthsConfig(), other, CPU)


def test_an_unfinished_input_is_refused_with_the_command_that_finishes_it(tmp_path):
    dataset = numbers_dataset(tmp_path)
    (tmp_path / "images" / "000001.json").unlink()
    with pytest.raises(DataError, match="1 of 4 shards are not written yet"):
        run_stage(LengthsStage(), LengthsConfig(), Dataset(dataset.path), CPU)
    assert not (tmp_path / "lengths").exists()


def test_two_runs_at_the_same_time_are_refused(tmp_path):
    with writer_lock(tmp_path, "images"), pytest.raises(RefusedError, match="another process is writing 'images'"):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU)


def test_a_full_disk_is_one_line_and_keeps_what_is_whole(tmp_path, monkeypatch):
    real = ShardWriter.write

    def full(self, outcome):
        if self.shard == 3 and not self.rows:
            self._file.close()
            self._file = open("/dev/full", "wb")  # noqa: SIM115 buffered, so it fails at the end and again when closed
        real(self, outcome)

    monkeypatch.setattr(ShardWriter, "write", full)
    with pytest.raises(
        DataError, match=r"000003.tar: the disk is full; free some space and run the same command again"
    ):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU)
    assert [path.name for path in sorted((tmp_path / "images").glob("*.tar*"))] == [
        "000000.tar",
        "000001.tar",
        "000002.tar",
    ]
    monkeypatch.undo()
    assert run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU).written == 5


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="a file is in the place of a"):
        run_stage(NumbersStage(), CONFIG, Dataset(tmp_path / "file" / "data"), CPU)


def test_a_dry_run_counts_what_is_left_and_writes_nothing(tmp_path):
    plan = plan_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU)
    assert plan["rows_left"] == 60
    assert plan["shards_left"] == 8
    assert plan["estimated_bytes"] > 60 * 1024
    assert list(tmp_path.iterdir()) == []
    numbers_dataset(tmp_path, rows=60)
    (tmp_path / "images" / "000003.json").unlink()
    assert plan_stage(NumbersStage(), CONFIG, Dataset(tmp_path), CPU)["rows_left"] == 8


def test_a_fit_stage_runs_once_and_its_files_are_checked(tmp_path):
    dataset = numbers_dataset(tmp_path)
    first = run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    assert first.written == 1
    digest = dataset.artifact("total").digest
    assert run_stage(TotalStage(), TotalConfig(), dataset, CPU).written == 0
    (tmp_path / "total" / "receipt.json").unlink()
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    assert dataset.artifact("total").digest == digest  # metrics.jsonl holds times and does not count
    (tmp_path / "total" / "total.txt").write_text("0")
    with pytest.raises(DataError, match=r"total.txt: damaged"):
        dataset.artifact("total").path("total.txt")


def test_the_other_processes_are_told_to_leave_when_the_main_one_refuses(tmp_path, monkeypatch):
    dataset = numbers_dataset(tmp_path)
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    words = []
    monkeypatch.setattr(
        "viewkit.pipelines.distributed.broadcast_from_main", lambda word: bool(words.append(word) or word)
    )
    with pytest.raises(RefusedError, match="was written with other settings"):
        run_stage(TotalStage(), TotalConfig(seed=1), dataset, CPU)
    assert words == [False]
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    assert words == [False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "--workers is 0; it must lie in 1 ... "),
        ({"max_rejects": 1.5}, "--max-rejects is 1.5; it is a share, from 0 to 1"),
        ({"part": "3/3"}, "--part is '3/3'; it must be I/N with 0 <= I < N"),
        ({"part": "x"}, "--part is 'x'; it must be I/N"),
    ],
)
def test_impossible_execution_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        Execution(**options)


class NeitherStage(Stage):
    name = writes = "neither"

    def reads(self, config):
        return ()


@pytest.mark.parametrize("start", [run_stage, plan_stage])
def test_a_python_caller_who_gives_the_wrong_kind_of_thing_is_told(start, tmp_path):
    with pytest.raises(ConfigError, match=r"^numbers: it writes a column and was given Devices\(\.\.\.\) as"):
        start(NumbersStage(), CONFIG, Dataset(tmp_path), Devices(device="cpu"))
    with pytest.raises(ConfigError, match="is neither a MapStage nor a FitStage"):
        start(NeitherStage(), CONFIG, Dataset(tmp_path), CPU)
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"--device is 'cuda:77', and this machine has cpu"):
        Execution(device="cuda:77").devices()


def test_a_finished_artifact_with_a_damaged_file_is_not_already_there(tmp_path):
    dataset = numbers_dataset(tmp_path)
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    (tmp_path / "total" / "total.txt").write_text("0")
    with pytest.raises(DataError, match=r"total\.txt: damaged"):
        run_stage(TotalStage(), TotalConfig(), dataset, CPU)


class FailingStage(TotalStage):
    """Fails before or after it has written something."""

    def __init__(self, write):
        self.write = write

    def fit(self, config, run):
        if self.write:
            (run.folder / "total.txt").write_text("half")
        raise ConfigError("the batch is larger than the dataset")


@pytest.mark.parametrize("write", [False, True])
def test_a_fit_that_failed_does_not_stand_in_the_way_of_the_corrected_command(write, tmp_path):
    dataset = numbers_dataset(tmp_path)
    with pytest.raises(ConfigError):
        run_stage(FailingStage(write), TotalConfig(), dataset, CPU)
    assert (tmp_path / "total").exists() == write
    assert run_stage(TotalStage(), TotalConfig(seed=3), dataset, CPU).written == 1


class LongStage(FailingStage):
    resumes = True


def test_unfinished_work_that_can_be_resumed_is_never_thrown_away(tmp_path):
    dataset = numbers_dataset(tmp_path)
    with pytest.raises(ConfigError):
        run_stage(LongStage(write=True), TotalConfig(), dataset, CPU)
    with pytest.raises(RefusedError, match=r"config\.seed is 0 there and 3 now"):
        run_stage(LongStage(write=True), TotalConfig(seed=3), dataset, CPU)
    assert (tmp_path / "total" / "total.txt").read_text() == "half"


class Listening(Silent):
    def __init__(self):
        self.done, self.numbers = 0, []

    def advance(self, count, **numbers):
        self.done += count
        self.numbers += [numbers] if numbers else []


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_counts_every_row_once_and_tells_shards_and_rejects(workers, tmp_path):
    progress = Listening()
    run_stage(NumbersStage(), CONFIG, Dataset(tmp_path), replace(CPU, workers=workers), progress)
    assert progress.done == 60
    assert [numbers["shards"] for numbers in progress.numbers] == [f"{shard}/8" for shard in range(1, 9)]
    assert progress.numbers[-1]["rejects"] == 7
