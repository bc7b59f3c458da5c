"""`viewkit compare` as a user types it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_datasets import contents
from tiny_chain import photographs
from tiny_experiment import COMPARISON

from viewkit.cli.chain import COMMANDS, Job, chain_of
from viewkit.cli.compare import controls_of
from viewkit.cli.comparison import Comparison, Trainer, named_probes
from viewkit.cli.main import run
from viewkit.pipelines.compare.config import CompareConfig
from viewkit.pipelines.compare.cost import Cost
from viewkit.pipelines.compare.plan import Cell, Control
from viewkit.pipelines.experiments.experiment import load_experiment
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset

OPTIONS = ["framework=simclr", "arch=resnet10_narrow", "steps=3", "batch_size=8", "hidden=16", "dim=8",
           "warmup_epochs=0.0"]  # fmt: skip
SMALL = [word for option in OPTIONS for word in ("--set", f"pretrain.{option}")]
SMALL += ["--set", "evaluate.max_iterations=5", "--device", "cpu"]


def half(folder: Path, keep: int) -> Path:
    """Every other image of `photographs`, without its broken files."""
    source = photographs(folder)
    (source / "class0" / "empty.png").unlink()
    (source / "class1" / "text.jpg").unlink()
    for path in sorted(source.rglob("*.png"))[keep::2]:
        path.unlink()
    return source


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    for name, keep in (("train", 0), ("test", 1)):
        assert run(["pack", str(half(folder / f"{name}-images", keep)), str(folder / name), "--labels", "folders"]) == 0
    return folder


def refused(packed, capsys, *words, code):
    line = ["compare", str(packed / "train"), str(packed / "test"), *SMALL, *words]
    assert run(line) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not (packed / "train" / "runs").exists() and not (packed / "train" / "compare").exists()
    return error


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--arms", "random,joint"], 2, "there is no arm 'joint'; arms are random, stored, vs2fi"),
        (["--arms", "random"], 2, "name two at least"),
        (["--arms", "random,hard", "--seeds", "1"], 2, "give at least 2, and 6 for a verdict"),
        (["--arms", "random,hard", "--reference", "vs2fi"], 2, "which is none of the arms random, hard"),
        (["--arms", "random,stored"], 1, "has no input 'pairs'; make it with 'viewkit score"),
        (["--arms", "random,hard", "--set", "runs.hard.policy=moco_v2"], 2, "follow different specifications"),
        (["--arms", "random,hard", "--set", "runs.hard.view=4"], 2, "unknown option 'view'"),
        (["--arms", "random,hard", "--jobs", "0"], 2, "--jobs is 0"),
        (
            ["--arms", "random,hard", "--set", "runs.hard.precision=auto"],
            2,
            "precision is 'auto' in arm 'hard', and runs",
        ),
        (["--arms", "random,hard", "--name", "a-b"], 2, "name is 'a-b'"),
        (["--arms", "random,hard", "--set", "pretrain.batch_size=64"], 2, "batch_size is 64 and"),
    ],
)
def test_what_is_no_comparison_is_refused_before_anything_is_trained(packed, capsys, words, code, says):
    assert says in refused(packed, capsys, *words, code=code)


def test_test_images_that_are_trained_on_are_refused(packed, tmp_path, capsys):
    again = tmp_path / "again"
    (tmp_path / "images").mkdir()
    for path in sorted((packed / "train-images").rglob("*.png"))[:3]:
        shutil.copytree(path.parent, tmp_path / "images" / path.parent.name, dirs_exist_ok=True)
    photographs(tmp_path / "images" / "more")
    assert run(["pack", str(tmp_path / "images"), str(again), "--labels", "folders", "--max-rejects", "1"]) == 0
    capsys.readouterr()
    assert run(["compare", str(packed / "train"), str(again), "--arms", "random,hard", *SMALL]) == 1
    error = capsys.readouterr().err
    assert "are training images, too (" in error and error.count("\n") == 1


def test_an_experiment_with_a_comparison_has_it_in_place_of_its_runs(tmp_path):
    path = tmp_path / "tiny-one.toml"
    path.write_text(COMPARISON)
    jobs = chain_of(load_experiment(str(path)), "images", tmp_path / "d", tmp_path / "t", "test")
    assert [job.name for job in jobs] == ["pack", "pack test", "compare", "report"]
    (job,) = [job for job in jobs if job.name == "compare"]
    assert job.config.steps_asked() == (2, 3) and job.locations["name"] == "tiny_one"


def test_the_command_takes_the_table_of_an_experiment_and_its_own_options_override_it(tmp_path, monkeypatch):
    path = tmp_path / "tiny.toml"
    path.write_text(COMPARISON)
    jobs = []
    monkeypatch.setattr("viewkit.cli.compare.compare", lambda job, devices, **options: jobs.append((job, options)))
    line = ["compare", str(tmp_path / "d"), str(tmp_path / "t"), "--experiment", str(path)]
    assert run([*line, "--matters", "3"]) == run([*line, "--seeds", "6", "--redo"]) == 0
    (first, _), (second, options) = jobs
    assert (first.config.seeds, first.config.steps_asked(), first.config.matters) == (2, (2, 3), 3.0)
    assert (
        second.config.seeds == 6 == CompareConfig().seeds and options["redo_stale"]
    )  # given, though it is the default


def test_a_wrong_option_of_an_arm_is_named_before_anything_runs(tmp_path, capsys):
    path = tmp_path / "tiny.toml"
    path.write_text(COMPARISON.replace("joint_area = 0.0", "joint_areas = 0.0"))
    line = ["run", str(path), str(half(tmp_path / "images", 0)), str(tmp_path / "data"), "--test", "demo:test"]
    assert run(line) == 2
    assert "unknown option 'joint_areas'" in capsys.readouterr().err and not (tmp_path / "data").exists()


def test_errors_under_corruptions_are_no_accuracies():
    numbers = {
        "encoder knn20": 0.5,
        "encoder linear": 0.6,
        "encoder linear mce_unnormalised": 0.9,
        "untrained knn20": 0.3,
    }
    assert named_probes(numbers, "eval") == {"knn20": 0.5, "linear": 0.6}
    assert named_probes(numbers, "aug") == {"knn20 (aug)": 0.5, "linear (aug)": 0.6}


def test_the_control_pays_the_offline_stages_of_the_reference_once(tmp_path, monkeypatch):
    costs = {"stored": (Cost(flops=10), {"pairs": Cost(flops=30)}), "hard": (Cost(flops=50), {"pairs": Cost(flops=30)})}
    monkeypatch.setattr("viewkit.pipelines.compare.stage.cost_of", lambda _, runs, found: costs[runs[0].split("-")[1]])
    comparison = Comparison("mine", tmp_path, tmp_path, "stored", {}, [], CompareConfig())
    (control,) = controls_of(comparison, [Cell("stored", 100), Cell("hard", 100)], Dataset(tmp_path))
    assert control == Control(Cell("hard", 100), Cell("stored", 500, control=True), 2.0)
    assert 30 + 10 * control.cell.steps / 100 == 50 + 30


@pytest.mark.slow
def test_a_comparison_ends_with_verdicts_and_stands_in_the_report(packed, tmp_path, capsys):
    train = Path(shutil.copytree(packed / "train", tmp_path / "train"))
    line = ["compare", str(train), str(packed / "test"), "--arms", "random,hard", "--seeds", "2", *SMALL]
    assert run([*line, "--dry-run"]) == 0
    assert "hard, 3 steps: 0 of 2 runs are there, " in capsys.readouterr().out and not (train / "runs").exists()
    assert run(line) == 0
    out = capsys.readouterr().out
    assert "2 seeds decide nothing" in out and "[4/4]" in out and "compare: 2 runs" in out
    assert "hard, 3 steps, linear: not decidable at this size (needs about " in out
    assert "hard, 3 steps - random, 5 steps" in out and "rule: fewer than 6 seeds" in out
    found = decode_json((train / "compare" / "default" / "compare.json").read_bytes())
    assert found["controls"] == [
        {"control": "random, 5 steps", "of": "hard, 3 steps", "ratio": pytest.approx(5 / 3, abs=0.02)}
    ]
    costs = decode_json((train / "compare" / "default" / "costs.json").read_bytes())
    assert costs["random, 3 steps"]["training"]["passes"] == 3 * 8 * 2 * 3  # steps, images, views, learnt from
    assert costs["hard, 3 steps"]["training"]["passes"] == 3 * 8 * (4 + 2 * 3)
    for row in found["arms"]:
        for seed, name in enumerate(row["runs"]):
            top1 = decode_json((train / name / "eval" / "eval.json").read_bytes())["probes"]["encoder"][0]["top1"]
            assert row["probes"]["knn20"]["values"][seed] == 100 * top1
    assert run(["report", str(train)]) == 0
    assert "Comparison 'default':" in capsys.readouterr().out
    page = (train / "report" / "index.html").read_text()
    assert 'id="comparisons"' in page
    assert "not decidable at this size" in page and "default-hard-3-0" not in page
    assert "runs of comparisons are not listed" in page
    assert run([*line, "--json"]) == 0
    events = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert [each["seed"] for each in events if each["event"] == "run" and each["arm"] == "hard"] in ([0, 1], [1, 0])
    assert run(["verify", str(train)]) == 0 and run(["status", str(train)]) == 0
    assert "compare/default" in capsys.readouterr().out


def start(train: Path, packed: Path) -> "subprocess.Popen[str]":
    words = ["compare", str(train), str(packed / "test"), "--arms", "random,jointcrop", "--seeds", "2", *SMALL]
    command = [sys.executable, "-m", "viewkit.cli", *words, "--jobs", "1"]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
def test_a_comparison_that_was_killed_goes_on_to_the_same_result(packed, tmp_path):
    whole, killed = (Path(shutil.copytree(packed / "train", tmp_path / name)) for name in ("whole", "killed"))
    undisturbed = start(whole, packed)
    assert undisturbed.wait(120) == 0
    begun = start(killed, packed)
    for line in begun.stdout:
        if "[1/4]" in line:
            break
    begun.send_signal(signal.SIGTERM)
    out, err = begun.communicate(timeout=60)
    assert begun.returncode == 1 and "it goes on with the runs that are left" in err and "[4/4]" not in out
    begun = start(killed, packed)
    for line in begun.stdout:
        if "[2/4]" in line:
            break
    begun.kill()
    begun.wait(60)
    time.sleep(1)  # its workers leave with it
    assert not (killed / "compare" / "default" / "receipt.json").exists()
    again = start(killed, packed)
    assert again.wait(120) == 0
    kept = [name for name in contents(whole / "compare" / "default") if name in ("compare.json", "differences.png")]
    assert kept and all(
        (killed / "compare" / "default" / name).read_bytes() == (whole / "compare" / "default" / name).read_bytes()
        for name in kept
    )


@pytest.mark.slow
def test_an_experiment_packs_trains_and_compares_with_one_command(packed, tmp_path, capsys):
    path = tmp_path / "tiny.toml"
    path.write_text(COMPARISON)
    line = ["run", str(path), str(packed / "train-images"), str(tmp_path / "data"), "--device", "cpu", "--workers", "1"]
    line += ["--test", str(packed / "test-images")]
    assert run([*line, "--dry-run"]) == 0
    assert "waits for the steps before this one" in capsys.readouterr().out
    assert run(line) == 0
    out = capsys.readouterr().out
    assert "joint, 2 steps, knn5: " in out and "joint, 3 steps, knn5: " in out and "[4/4] report" in out
    assert len(Dataset(tmp_path / "data").runs()) == 8
    assert run([*line, "--rehearse"]) == 0
    assert "went through: 4 steps" in capsys.readouterr().out


@pytest.fixture
def compared(packed, tmp_path):
    """A finished comparison of two arms and two seeds, and its command line."""
    train = Path(shutil.copytree(packed / "train", tmp_path / "train"))
    line = ["compare", str(train), str(packed / "test"), "--seeds", "2", "--no-controls", *SMALL]
    assert run([*line, "--arms", "random,jointcrop"]) == 0
    return train, line


@pytest.mark.slow
def test_runs_with_other_settings_are_refused_before_the_old_comparison_is_replaced(compared, capsys):
    train, line = compared
    before = contents(train)
    changed = [*line, "--arms", "random,jointcrop", "--set", "runs.jointcrop.lr=0.5"]
    capsys.readouterr()
    for words in ([], ["--dry-run"]):
        assert run([*changed, *words]) == 3
        error = capsys.readouterr().err
        assert "default-jointcrop-3-0 was written with other settings: " in error and "lr" in error
        assert error.count("\n") == 1
        assert contents(train) == before
    assert run([*changed, "--redo", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "--redo would delete compare/default, runs/default-jointcrop-3-0, runs/default-jointcrop-3-0/eval, " in out
    assert "random, 3 steps: 2 of 2 runs are there" in out and "jointcrop, 3 steps: 0 of 2 runs are there" in out
    assert contents(train) == before
    assert run([*changed, "--redo"]) == 0
    assert "random, 3 steps, seed 0: knn20 " in (out := capsys.readouterr().out) and "(there already)" in out


@pytest.mark.slow
def test_arms_that_would_have_other_images_are_not_compared(compared, packed, tmp_path, capsys):
    train, line = compared
    source = Path(shutil.copytree(packed / "train-images", tmp_path / "grown"))
    new = Image.fromarray(np.full((40, 40, 3), 7, np.uint8))
    new.save(source / "class0" / "new.png")
    kept = (train / "compare" / "default" / "compare.json").read_bytes()
    assert run(["pack", str(source), str(train), "--labels", "folders", "--add"]) == 0
    capsys.readouterr()
    assert run([*line, "--arms", "random,jointcrop,hard"]) == 1
    error = capsys.readouterr().err
    assert "runs and evaluations were made before images were added" in error and error.count("\n") == 1
    assert (train / "compare" / "default" / "compare.json").read_bytes() == kept


def test_want_of_memory_fails_an_arm_and_not_the_comparison(monkeypatch):
    def too_much(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    job = Job("pretrain a", COMMANDS["pretrain"], Path("d"), {}, None)
    monkeypatch.setattr("viewkit.cli.comparison.checked_stages", lambda *_: [(None, None)])
    monkeypatch.setattr("viewkit.pipelines.engine.run.run_stage", too_much)
    assert Trainer([[job]], "cpu")(0, None)["failed"].startswith("not enough memory")
    monkeypatch.setattr("viewkit.pipelines.engine.run.run_stage", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Trainer([[job]], "cpu")(0, None)


@pytest.mark.slow
def test_an_arm_that_fails_ends_with_its_message_and_the_others_are_compared(packed, tmp_path, capsys):
    train = Path(shutil.copytree(packed / "train", tmp_path / "train"))
    line = ["compare", str(train), str(packed / "test"), "--arms", "random,jointcrop,hard", "--seeds", "2", *SMALL]
    assert run([*line, "--set", "runs.hard.lr=1e30", "--no-controls"]) == 1
    captured = capsys.readouterr()
    assert (
        "hard, 3 steps, seed 0: failed: " in captured.out and "jointcrop, 3 steps, knn20: not decidable" in captured.out
    )
    assert "arm 'hard' failed: " in captured.err and "the loss is nan" in captured.err
