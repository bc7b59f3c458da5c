"""`viewkit run` and `viewkit experiments` as a user types them."""

import json
from pathlib import Path

import pytest
from tiny_chain import photographs
from tiny_experiment import EXPERIMENT

from viewkit.cli.chain import chain_of, chosen
from viewkit.cli.main import run
from viewkit.pipelines.experiments.experiment import experiment_names, load_experiment
from viewkit.pipelines.published import read_records
from viewkit.pipelines.report.experiments import show_experiments
from viewkit.shards.dataset import Dataset


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT)
    return str(path)


def test_the_list_has_every_experiment_and_json_one_object_a_line(capsys):
    assert run(["experiments"]) == 0
    listed = capsys.readouterr().out
    assert run(["experiments", "--json"]) == 0
    names = [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(names) == sorted(experiment_names()) and all(name in listed for name in names)


def test_a_chain_runs_its_stages_in_order_then_run_by_run(tiny, tmp_path):
    jobs = chain_of(load_experiment(tiny), "images", tmp_path / "d", tmp_path / "t", "test")
    names = ["pack", "pack test", "pretrain one", "evaluate one", "pretrain two", "evaluate two"]
    assert [job.name for job in jobs] == names
    assert [job.name for job in chosen(jobs, None, "evaluate one")] == names[3:]
    assert [job.name for job in chosen(jobs, "pretrain,pack test", None)] == [names[1], names[2], names[4]]
    assert [job.config.baselines for job in jobs if job.spec.name == "evaluate"] == [True, False]


def test_an_experiment_ends_with_the_table_and_is_there_at_once_when_repeated(tiny, tmp_path, capsys):
    source, broken = photographs(tmp_path / "images"), tmp_path / "images" / "class1" / "text.jpg"
    broken.unlink()
    (tmp_path / "images" / "class0" / "empty.png").unlink()
    test = photographs(tmp_path / "other")
    for path in sorted(test.rglob("*.png"))[::2]:
        path.unlink()
    command = ["run", tiny, str(source), str(tmp_path / "data"), "--test", str(test), "--max-rejects", "1"]
    command += ["--device", "cpu", "--workers", "1"]
    assert run([*command, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "waits for" in out and "in all, of what can be measured now" in out and not (tmp_path / "data").exists()
    assert run(command) == 0
    first = capsys.readouterr()
    assert "[6/6] evaluate two" in first.out and "published" in first.out and "one  knn20" in first.out
    assert run(command) == 0
    again = capsys.readouterr()
    assert again.err.count("already there") == 6 and again.out == first.out
    assert read_records(Dataset(tmp_path / "data")) == [load_experiment(tiny).record()]
    (shown,) = show_experiments(Dataset(tmp_path / "data"))
    (row,) = shown.table.rows
    assert row[:3] == ("one", "knn20", "50.0") and f"{row[3]}  {row[4]}" in first.out
    assert run(["pretrain", str(tmp_path / "data"), "--name", "one", "--preset", f"{tiny}/one", "--device", "cpu"]) == 0


def test_what_is_missing_is_all_named_before_anything_runs(tiny, tmp_path, capsys):
    assert run(["run", tiny, str(tmp_path / "nowhere"), str(tmp_path / "data")]) == 2
    error = capsys.readouterr().err
    assert "SOURCE" in error and "small images in class folders" in error and "--test SOURCE" in error
    assert "--rehearse" in error and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["demmo"], "did you mean demo?"),
        (["TINY", "--set", "pretrain.epoch=3"], "unknown option 'epoch'; did you mean epochs"),
        (["TINY", "--set", "pretrain.epochs=many"], "it takes a value of type int"),
        (["TINY", "--only", "pretran"], "no step 'pretran'; did you mean pretrain"),
        (["TINY", "--from", "nothing-like-it"], "its steps are pack"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_name_and_nothing_is_written(tiny, tmp_path, capsys, words, says):
    source = photographs(tmp_path / "images")
    name, *more = words
    line = ["run", tiny if name == "TINY" else name, str(source), str(tmp_path / "data"), "--test", str(source), *more]
    assert run(line) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "change", ["pretrain.hidden=abc", "pretrain.framework=foo", "evaluate.epochs=x", "pack.labels=3"]
)
def test_a_wrong_value_is_one_line_in_a_rehearsal_too(tiny, tmp_path, capsys, change):
    source = photographs(tmp_path / "images")
    assert run(["run", tiny, str(source), str(tmp_path / "data"), "--rehearse", "--set", change]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


def test_only_what_the_chosen_steps_need_is_asked_for(tiny, tmp_path):
    source = photographs(tmp_path / "images")
    line = ["run", tiny, str(source), str(tmp_path / "data"), "--max-rejects", "1", "--device", "cpu"]
    assert run([*line, "--only", "pack"]) == 0


def test_a_labelled_dataset_without_labels_is_refused_before_anything_is_trained(tiny, tmp_path, capsys):
    source = photographs(tmp_path / "images")
    assert run(["pack", str(source), str(tmp_path / "plain"), "--max-rejects", "1"]) == 0
    line = ["run", tiny, str(source), str(tmp_path / "data"), "--device", "cpu", "--test"]
    assert run([*line, str(tmp_path / "plain")]) == 1
    assert "the test dataset" in capsys.readouterr().err
    line += [str(source), "--set", f"evaluate.train={tmp_path / 'plain'}"]
    assert run(line) == 1
    assert "the train dataset" in capsys.readouterr().err and not (tmp_path / "data").exists()


def test_the_test_images_are_packed_with_labels_where_the_images_have_none(tiny, tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text(f'title = "x"\nbase = "{tiny}"\n[pack]\nlabels = "none"\n')
    jobs = chain_of(load_experiment(str(path)), "images", tmp_path / "d", tmp_path / "t", "test")
    assert [job.config.labels for job in jobs if job.spec.name == "pack"] == ["none", "folders"]


def test_an_unknown_stage_of_a_file_is_named(tmp_path, capsys):
    path = tmp_path / "odd.toml"
    path.write_text('title = "x"\n[scroe]\nrounds = 3\n')
    source = photographs(tmp_path / "images")
    assert run(["run", str(path), str(source), str(tmp_path / "data")]) == 2
    assert "there is no stage [scroe]; did you mean [score]" in capsys.readouterr().err


def test_a_rehearsal_leaves_nothing_behind(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    source = photographs(tmp_path / "images")
    assert run(["run", tiny, str(source), str(tmp_path / "data"), "--rehearse", "--device", "cpu"]) == 0
    assert "went through: 6 steps" in capsys.readouterr().out
    left = [path.name for path in (tmp_path / "scratch").iterdir() if path.name.startswith("viewkit")]
    assert not (tmp_path / "data").exists() and left == []  # torch keeps a cache there


def test_a_rehearsal_says_at_which_experiment_it_stopped(tiny, tmp_path, capsys):
    source = tmp_path / "empty"
    source.mkdir()
    assert run(["run", tiny, str(source), str(tmp_path / "data"), "--rehearse"]) == 1
    assert "is empty" in capsys.readouterr().err


def test_a_finished_dataset_serves_as_the_test_set(tiny, tmp_path):
    source, test = photographs(tmp_path / "images"), photographs(tmp_path / "other")
    for path in sorted(test.rglob("*.png"))[::2]:
        path.unlink()
    assert run(["pack", str(test), str(tmp_path / "test"), "--labels", "folders", "--max-rejects", "1"]) == 0
    line = ["run", tiny, str(source), str(tmp_path / "data"), "--test", str(tmp_path / "test"), "--max-rejects", "1"]
    assert run([*line, "--only", "pack", "--device", "cpu"]) == 0
    assert Dataset(tmp_path / "data").columns() == ["images"] and not (tmp_path / "data-test").exists()


def test_the_experiment_of_the_docs_is_one(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "extend.md").read_text().partition("\n## An experiment\n")[2]
    path = tmp_path / "mine.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    jobs = chain_of(load_experiment(str(path)), "images", tmp_path / "d", tmp_path / "t", None)
    assert [job.config.epochs for job in jobs if job.spec.name == "pretrain"] == [50, 50]
    assert {job.name for job in jobs} >= {"estimator", "score", "evaluate vs2fi"}
