"""`viewkit slurm`: what the scripts say, and that they do what `viewkit run` does."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_datasets import contents
from tiny_chain import photographs
from tiny_experiment import TRAININGS

from viewkit.cli.chain import chain_of
from viewkit.cli.main import run
from viewkit.cli.sbatch import Queue, Task, render
from viewkit.cli.slurm import WITHOUT_MODELS, tasks_of
from viewkit.pipelines.experiments.experiment import load_experiment
from viewkit.shards.dataset import Dataset

SUPPORT = Path(__file__).parents[1] / "support"
CHAIN = f"""
title = "Drawn pairs on small blobs"
[pack]
labels = "folders"
rows_per_shard = 5
[draw]
rounds = 2
candidates = "original"
{TRAININGS}"""


def needs(tasks):
    """Name -> names of the tasks it waits for."""
    return {task.name: [tasks[each].name for each in task.after] for task in tasks}


def tasks(name, tmp_path, parts=4):
    jobs = chain_of(load_experiment(name), "images", tmp_path / "d", tmp_path / "t", "test")
    return tasks_of(jobs, parts)


def test_steps_follow_each_other_and_runs_are_side_by_side(tmp_path):
    path = tmp_path / "chain.toml"
    path.write_text(CHAIN + "[report]\n")
    found = tasks(str(path), tmp_path)
    assert needs(found) == {
        "pack": [],
        "pack test": ["pack"],
        "draw": ["pack test"],
        "pretrain one": ["draw"],
        "evaluate one": ["pretrain one"],
        "pretrain two": ["draw"],
        "evaluate two": ["pretrain two"],
        "report": ["pretrain one", "evaluate one", "pretrain two", "evaluate two"],
    }
    assert [task.parts for task in found] == [4, 4, 4, 1, 1, 1, 1, 1]
    assert [task.number for task in found] == list(range(1, 9))


def test_what_is_fitted_for_a_column_is_a_task_before_its_array(tmp_path):
    found = tasks("pipeline", tmp_path)
    assert needs(found)["generate"] == ["generate fit"] and needs(found)["generate fit"] == ["estimator"]
    fit, array = (next(task for task in found if task.name == name) for name in ("generate fit", "generate"))
    assert (fit.number, fit.parts, fit.options) == (array.number, 1, ("--fits-only",)) and array.parts == 4
    assert needs(tasks("pipeline", tmp_path, parts=1))["generate"] == ["estimator"]  # one task does both


def test_a_run_that_reads_another_run_waits_for_it(tmp_path):
    found = needs(tasks("jointcrop-in1k-mocov1-100", tmp_path))
    first, *others = [name for name in found if name.startswith("pretrain ")]
    readers = [name for name in others if first in found[name]]
    assert first == "pretrain baseline" and readers


@pytest.mark.parametrize("name", ["demo", "evidence-rounds", "genview-table4", "jointcrop-difficulty", "vs2fi-table1"])
def test_an_experiment_is_a_queue_in_which_each_task_waits_for_earlier_ones(name, tmp_path):
    found = tasks(name, tmp_path)
    assert all(each < place for place, task in enumerate(found) for each in task.after)
    reached = {0}
    for place, task in enumerate(found):
        reached |= {place} if reached & set(task.after) else set()
    assert reached == set(range(len(found)))  # nothing starts on its own but the first
    assert {task.number for task in found} == set(range(1, max(task.number for task in found) + 1))


QUEUE = Queue(
    experiment="x", program="/opt/a b/viewkit", arguments=["x", "my images", "data"], folder="/home/me/it's here",
    partition="gpu", gpus="a100:1", cpus=4, time="2:00:00", setup=["module load cuda"],
)  # fmt: skip


def test_a_script_says_what_slurm_and_the_shell_need(tmp_path):
    files = render([Task(number=1, name="pack", gpu=False), Task(number=2, name="score 2", parts=8, after=(0,))], QUEUE)
    assert list(files) == ["01-pack.sbatch", "02-score-2.sbatch", "submit.sh"]
    lines = files["02-score-2.sbatch"].splitlines()
    options = [line for line in lines if line.startswith("#SBATCH")]
    assert options == [
        "#SBATCH --job-name=viewkit-score-2", "#SBATCH --output=log/%x-%A_%a.out", "#SBATCH --open-mode=append",
        "#SBATCH --array=0-7", "#SBATCH --partition=gpu", "#SBATCH --gpus=a100:1", "#SBATCH --cpus-per-task=4",
        "#SBATCH --time=2:00:00", "#SBATCH --signal=B:USR1@120", "#SBATCH --requeue",
    ]  # fmt: skip
    in_order = ["cd '/home/me/it'\"'\"'s here' || exit 1", "module load cuda", "set -euo pipefail"]
    assert [line for line in lines if line in in_order] == in_order
    (command,) = [line for line in lines if " run " in line]
    words = shlex.split(command.replace("${SLURM_ARRAY_TASK_ID}", "3"))
    assert words == [
        "/opt/a b/viewkit", "run", "x", "my images", "data", "--only", "2", "--part", "3/8", "&"
    ]  # fmt: skip
    assert "--gpus" not in files["01-pack.sbatch"] and "--array" not in files["01-pack.sbatch"]
    assert 'job2=$(submit --dependency="afterok:$job1" "$@" 02-score-2.sbatch)' in files["submit.sh"]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        assert subprocess.run(["bash", "-n", str(tmp_path / name)], check=False).returncode == 0


def test_near_the_end_of_its_time_a_task_stops_and_queues_itself_again(tmp_path):
    """The script itself, with a program that sleeps and a `scontrol` that tells what it was asked for."""
    program, scontrol = tmp_path / "viewkit", tmp_path / "scontrol"
    program.write_text(
        "#!/usr/bin/env bash\ntrap 'echo stopped; exit 1' TERM\necho $*\nfor i in $(seq 200); do sleep 0.05; done\n"
    )
    scontrol.write_text('#!/usr/bin/env bash\necho "scontrol $*"\n')
    for path in (program, scontrol):
        path.chmod(0o755)
    queue = Queue(experiment="x", program=str(program), arguments=["x"], folder=str(tmp_path))
    script = tmp_path / "task.sbatch"
    script.write_text(render([Task(number=1, name="score", parts=4)], queue)["01-score.sbatch"])
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "2"}
    for restarts, said in (("0", "scontrol requeue 77\n"), ("100", "")):
        own = {**environment, "SLURM_RESTART_COUNT": restarts}
        job = subprocess.Popen(["bash", str(script)], env=own, stdout=subprocess.PIPE, text=True)
        assert job.stdout.readline() == "run x --only 1 --part 2/4\n"
        job.send_signal(10)  # SIGUSR1
        assert job.stdout.read() == f"stopped\n{said}" and job.wait(10) == (1 if restarts == "100" else 0)


@pytest.fixture
def images(tmp_path):
    source = photographs(tmp_path / "images")
    (source / "class1" / "text.jpg").unlink()
    (source / "class0" / "empty.png").unlink()
    (tmp_path / "chain.toml").write_text(CHAIN)
    return source


def test_the_command_writes_the_scripts_of_a_chain_and_says_how_to_submit_them(images, tmp_path, capsys):
    command = ["slurm", str(tmp_path / "chain.toml"), str(images), str(tmp_path / "data"), "--test", str(images)]
    command += ["--to", str(tmp_path / "to")]
    assert run([*command, "--array", "3", "--set", "draw.rounds=4"]) == 0
    said = capsys.readouterr().out
    assert (
        said == f"7 scripts in {tmp_path}/to; submit them, and go on where they were, with: {tmp_path}/to/submit.sh\n"
    )
    assert os.access(tmp_path / "to" / "submit.sh", os.X_OK)
    script = (tmp_path / "to" / "03-draw.sbatch").read_text()
    assert "--array=0-2" in script and "--set draw.rounds=4 --max-rejects 0.01 --only 3" in script
    assert not (tmp_path / "data").exists()
    (tmp_path / "to" / "mine.sbatch").write_text("#!/bin/bash\n")
    assert run(command) == 3 and (tmp_path / "to" / "mine.sbatch").exists()
    assert "mine.sbatch, which 'viewkit slurm' did not write" in capsys.readouterr().err
    (tmp_path / "to" / "mine.sbatch").unlink()
    assert run([*command, "--array", "3"]) == 0
    capsys.readouterr()
    assert run([*command[:-1], str(images)]) == 3
    assert "did not write; name a folder for its scripts alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--array", "1001"], "--array is 1001; it must lie in 1 ... 1000"),
        (["--partition", ""], "--partition, --gpus, --time and --setup are one line each"),
        ([], "lacks labelled test images: --test SOURCE"),
        (["--set", "pack.labls=none"], "labls"),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(options, said, images, tmp_path, capsys):
    command = ["slurm", str(tmp_path / "chain.toml"), str(images), str(tmp_path / "data"), "--to", str(tmp_path / "to")]
    assert run([*command, *options]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "to").exists()


def test_only_steps_that_map_rows_and_those_of_pages_do_without_models():
    from viewkit.cli.commands import PIPELINE
    from viewkit.pipelines.engine.contract import MapStage

    for spec in PIPELINE:
        stages = [step.stage_class() for step in spec.steps]
        if all(issubclass(stage, MapStage) for stage in stages):
            assert (spec.name in WITHOUT_MODELS) != any(stage.uses_torch for stage in stages), spec.name


def experiment_without_times(folder):
    """Bytes of all files, apart from those that hold times."""
    kept = contents(folder)
    times = ("metrics.jsonl", "receipt.json", "checkpoint")
    return {name: content for name, content in kept.items() if not any(word in name for word in times)}


def submitted(tmp_path, environment):
    said = subprocess.run(
        [str(tmp_path / "to" / "submit.sh"), "--account=lab"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout.splitlines()


def both_ways(tmp_path, images, chain, *, array):
    """The same chain by `viewkit run` in ``plain``, and its scripts for ``data``; every third image tests."""
    path, test = tmp_path / "chain.toml", tmp_path / "test"
    path.write_text(chain)
    for image in sorted(images.rglob("*.png"))[::3]:
        (test / image.parent.name).mkdir(parents=True, exist_ok=True)
        image.rename(test / image.parent.name / image.name)
    tested = ["--test", str(test)] if "[evaluate]" in chain else []
    assert run(["run", str(path), str(images), str(tmp_path / "plain"), *tested, "--workers", "1"]) == 0
    scripts = ["--array", str(array), "--to", str(tmp_path / "to")]
    assert run(["slurm", str(path), str(images), str(tmp_path / "data"), *tested, *scripts]) == 0


@pytest.mark.slow
def test_what_is_fitted_first_is_all_that_fits_only_does(images, tmp_path):
    path = tmp_path / "chain.toml"
    generate = ['generator = "retrieval"', 'encoder = "timm:test_vit/random"', 'sign = "+"']
    path.write_text("\n".join(['title = "x"', "[pack]", "rows_per_shard = 8", "[generate]", *generate]))
    chain = ["run", str(path), str(images), str(tmp_path / "data"), "--device", "cpu", "--workers", "1"]
    assert run([*chain, "--only", "1", "--fits-only"]) == 0 and not (tmp_path / "data").exists()
    assert run([*chain, "--only", "1"]) == 0
    assert run([*chain, "--only", "2", "--fits-only"]) == 0
    dataset = Dataset(tmp_path / "data")
    assert dataset.artifacts() == ["foreground"] and dataset.columns() == ["images"]
    for part in ("1/2", "0/2"):
        assert run([*chain, "--only", "2", "--part", part]) == 0
    assert len(dataset.column("genview").complete_shards()) == 3


@pytest.mark.slow
def test_the_scripts_run_in_order_give_what_viewkit_run_gives(images, tmp_path):
    both_ways(tmp_path, images, CHAIN.replace("[runs.two]\nseed = 1\n", ""), array=2)
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "sbatch"
    fake.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} {SUPPORT / "fake_slurm.py"} "$@"\n')
    fake.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "FAKE_SLURM": str(tmp_path / "bin"),
    }
    lines = submitted(tmp_path, environment)
    ran = [json.loads(line) for line in (tmp_path / "bin" / "jobs.jsonl").read_text().splitlines()]
    assert [(each["script"], each["rc"]) for each in ran if each["rc"]] == []
    assert [(each["script"], each["task"]) for each in ran[:4]] == [
        ("01-pack.sbatch", 1), ("01-pack.sbatch", 0), ("02-pack-test.sbatch", 1), ("02-pack-test.sbatch", 0)
    ]  # fmt: skip
    assert lines[2] == "03-draw.sbatch: job 102 after $job2".replace("$job2", "101")
    for name in ("data", "data-test"):
        plain = experiment_without_times(tmp_path / name.replace("data", "plain"))
        assert experiment_without_times(tmp_path / name) == plain and plain


SLURM = ("slurmctld", "slurmd", "munged", "sbatch")


@pytest.fixture
def real_slurm(tmp_path):
    """A controller, a node and munge, all of them on this machine and stopped afterwards; its environment."""
    missing = [name for name in SLURM if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        pytest.skip(f"Slurm is not installed here ({missing[0]}): apt-get install slurmctld slurmd slurm-client munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd starts jobs as their users, which takes root")
    from own_slurm import started

    with started(tmp_path / "slurm") as environment:
        yield environment


@pytest.mark.slow
def test_a_real_slurm_runs_columns_as_arrays_one_after_the_other(real_slurm, images, tmp_path):
    both_ways(tmp_path, images, CHAIN.partition("[pretrain]")[0], array=2)
    environment = {**os.environ, **real_slurm}
    submitted(tmp_path, environment)
    until = time.monotonic() + 100
    while (queue := squeue(environment)) and time.monotonic() < until:
        time.sleep(0.2)
    logs = {path.name: path.read_text() for path in sorted((tmp_path / "to" / "log").iterdir())}
    assert not queue, (queue, logs)
    assert [re.sub(r"-\d+_", "-N_", name) for name in logs] == [
        "viewkit-draw-N_0.out", "viewkit-draw-N_1.out", "viewkit-pack-N_0.out", "viewkit-pack-N_1.out"
    ], logs  # fmt: skip
    assert experiment_without_times(tmp_path / "data") == experiment_without_times(tmp_path / "plain")


def squeue(environment):
    return subprocess.run(
        ["squeue", "--noheader"], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
