"""`viewkit status`: what is stale, how unfinished trainings stand, and looking again and again."""

import json
import shutil

import pytest
from small_datasets import numbers_dataset
from toy_stages import LengthsConfig, LengthsStage, NumbersConfig, NumbersStage, TotalConfig, TotalStage

from viewkit.cli import status
from viewkit.cli.main import run
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.removal import remove

ONE = Execution(workers=1, max_rejects=1.0)


@pytest.fixture
def dataset(tmp_path):
    made = numbers_dataset(tmp_path, rows=12)
    run_stage(LengthsStage(), LengthsConfig(), made, ONE)
    run_stage(TotalStage(), TotalConfig(), made, ONE)
    return made


def shown(capsys, *arguments):
    assert run(["status", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_columns_and_artifacts_made_from_other_images_are_called_stale(capsys, dataset):
    assert "stale" not in shown(capsys, dataset.path)
    remove(dataset, ["images"], lambda stage: [])
    run_stage(NumbersStage(), NumbersConfig(rows=13), dataset, ONE)
    text = shown(capsys, dataset.path)
    assert "stale: made from another 'images'" in next(line for line in text.splitlines() if "lengths" in line)
    assert "complete, stale: made from another 'images'" in text
    assert text.endswith("stale: lengths, total; repeat the commands that write them, each with --redo\n")
    found = json.loads(shown(capsys, dataset.path, "--json"))
    stale = {each["name"]: each["stale"] for each in (*found["columns"], *found["artifacts"])}
    assert stale == {"images": None, "lengths": "made from another 'images'", "total": "made from another 'images'"}


def test_a_training_that_runs_shows_its_step_and_how_its_loss_and_knn_went(capsys, dataset):
    (dataset.path / "total" / "receipt.json").unlink()
    lines = [{"step": 10 * place, "loss": 9.0 - place, "knn_top1": 0.1 * place} for place in range(1, 9)]
    (dataset.path / "total" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = shown(capsys, dataset.path)
    row = next(line for line in text.splitlines() if line.startswith("total"))
    assert "unfinished" in row and "step 80  loss " in row
    assert row.endswith(("1  kNN ▁▂▃▄▅▆▇█ 0.8, best 0.8", "1  kNN _.-~=+*# 0.8, best 0.8"))


def test_watching_repeats_the_lines_where_there_is_no_terminal(capsys, dataset):
    once = shown(capsys, dataset.path)
    twice = shown(capsys, dataset.path, "--watch", "--every", "0.1", "--looks", "2")
    assert twice == f"{once}\n" * 2
    objects = shown(capsys, dataset.path, "--watch", "--every", "0.1", "--looks", "3", "--json").splitlines()
    assert len(objects) == 3 and all(json.loads(line)["columns"] for line in objects)


def test_what_is_deleted_while_it_is_looked_at_is_looked_at_again(capsys, dataset, monkeypatch):
    read, looks = status.artifact_status, []

    def late(dataset, name):
        looks.append(name)
        if len(looks) == 1:
            shutil.rmtree(dataset.path / name)
        return read(dataset, name)

    monkeypatch.setattr(status, "artifact_status", late)
    objects = shown(capsys, dataset.path, "--watch", "--every", "0.1", "--looks", "2", "--json").splitlines()
    assert looks == ["total"] and [json.loads(line)["artifacts"] for line in objects] == [[], []]
    shutil.rmtree(dataset.path)
    assert run(["status", str(dataset.path), "--watch", "--looks", "1"]) == 1


def test_ctrl_c_ends_watching_with_exit_code_0(capsys, dataset, monkeypatch):
    def stop(seconds):
        assert seconds == 5.0
        raise KeyboardInterrupt

    monkeypatch.setattr(status.time, "sleep", stop)
    assert "images" in shown(capsys, dataset.path, "--watch")


@pytest.mark.parametrize("options", [["--every", "0"], ["--looks", "0"]])
def test_intervals_that_cannot_be_are_refused(capsys, dataset, options):
    assert run(["status", str(dataset.path), "--watch", *options]) == 2
    assert "needed at least 0.1 s and 1 look" in capsys.readouterr().err


def test_on_a_terminal_the_lines_are_rewritten_in_place(dataset, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    text = shown(capsys, dataset.path, "--watch", "--every", "0.1", "--looks", "2")
    assert "Ctrl-C ends" in text and "images" in text
