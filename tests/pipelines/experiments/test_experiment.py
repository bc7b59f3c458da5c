import pytest

from viewkit.pipelines.experiments.experiment import (
    experiment_names,
    load_experiment,
    pretrain_options,
    with_changes,
)
from viewkit.pipelines.published import Published
from viewkit.shards.errors import ConfigError

SMALL = """
title = "Two runs"
[pack]
labels = "folders"
[[score]]
rounds = 2
[[score]]
rounds = 3
[pretrain]
framework = "simclr"
epochs = 10
[runs.plain]
[runs.hard]
select = "hard"
views = 4
[[published]]
run = "hard"
metric = "linear"
value = 71
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_file_is_read_with_its_stages_in_order_and_its_numbers(small):
    experiment = load_experiment(str(small))
    assert experiment.name == "small" and list(experiment.stages) == ["pack", "score", "pretrain"]
    assert experiment.stages["score"] == ({"rounds": 2}, {"rounds": 3})
    assert experiment.published == (Published(run="hard", metric="linear", value=71.0),)


def test_a_run_s_options_override_those_that_all_share(small):
    experiment = load_experiment(str(small))
    assert experiment.run_options("hard") == {"framework": "simclr", "epochs": 10, "select": "hard", "views": 4}
    with pytest.raises(ConfigError, match=r"no run 'soft'; its runs are plain, hard"):
        experiment.run_options("soft")


def test_a_base_is_merged_key_by_key_and_an_empty_string_removes(tmp_path, small):
    other = tmp_path / "other.toml"
    other.write_text(f'title = "Other"\nbase = "{small}"\n[pretrain]\nepochs = 20\nframework = ""\n[runs.mine]\n')
    experiment = load_experiment(str(other))
    assert experiment.run_options("mine") == {"epochs": 20}
    assert list(experiment.runs) == ["mine"] and experiment.published == ()
    assert experiment.stages["pack"] == ({"labels": "folders"},)


def test_bases_that_go_round_in_a_circle_are_refused(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(f'title = "A"\nbase = "{second}"\n')
    second.write_text(f'title = "B"\nbase = "{first}"\n')
    with pytest.raises(ConfigError, match="circle"):
        load_experiment(str(first))


def test_an_unknown_experiment_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no experiment 'dmo'; did you mean demo\?"):
        load_experiment("dmo")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 3", "'title' is 3; needed a str"),
        ("data = 'x'", "it has no title"),
        ("title = 'x'\npack = 3", "'pack' is no table of options"),
        ("title = 'x'\n[[pretrain]]\n[[pretrain]]\n[runs.a]", r"\[pretrain\] is a list"),
        ("title = 'x'\n[[pretrain]]\n[[pretrain]]", r"\[pretrain\] is a list"),
        ("title = 'x'\n[runs.a]\n[[published]]\nrun = 'a'\nmetric = 1\nvalue = 1", "all but the value are texts"),
        ("title = 'x'\n[runs]\na = 3", r"runs.a is 3; needed a table"),
        ("title = 'x'\nnotes = [3]", "notes, needs, says and next hold sentences"),
        ("title = 'x'\n[runs.a]\n[[published]]\nrun = 'b'\nmetric = 'linear'\nvalue = 1", "names the run 'b'"),
        ("title = 'x'\n[runs.a]\n[[published]]\nrun = 'a'\nmetric = 'linear'", "needed run, metric and value"),
        ("title = 'x'\n[runs.a]\n[[published]]\nrun = 'a'\nmetric = 'linear'\nvalue = true", "needed a number"),
        ("title = ", "not a TOML file"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused_in_one_sentence(tmp_path, text, says):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_experiment(str(path))


def test_values_are_set_for_a_stage_for_a_run_and_for_every_time_a_stage_runs(small):
    changed = with_changes(
        load_experiment(str(small)), ["score.rounds=9", "runs.hard.views=6", "pretrain.framework=byol"]
    )
    assert changed.stages["score"] == ({"rounds": 9}, {"rounds": 9})
    assert changed.run_options("hard") == {"framework": "byol", "epochs": 10, "select": "hard", "views": 6}


@pytest.mark.parametrize("change", ["rounds=3", "score.rounds", "runs.hard=3", "a.b.c=3", "=", "runs.a.b.c=1"])
def test_what_set_cannot_read_is_refused_with_an_example(small, change):
    with pytest.raises(ConfigError, match=r"needed STAGE.OPTION=VALUE"):
        with_changes(load_experiment(str(small)), [change])


def test_set_names_the_stages_there_are(small):
    with pytest.raises(ConfigError, match="the experiment has no 'scroe'; it has pack, score, pretrain"):
        with_changes(load_experiment(str(small)), ["scroe.rounds=3"])


def test_one_run_s_options_serve_pretrain_alone():
    assert pretrain_options("demo/vs2fi")["select"] == "vs2fi"
    with pytest.raises(ConfigError, match="choose one of demo/stored, demo/vs2fi, demo/combined"):
        pretrain_options("demo")


@pytest.mark.parametrize("name", experiment_names())
def test_every_file_says_what_it_is(name):
    experiment = load_experiment(name)
    assert (
        experiment.title
        and experiment.data
        and (experiment.runs or {"audit", "fidelity", "difficulty"} & experiment.stages.keys())
    )
    if experiment.paper:
        assert experiment.table and experiment.source.startswith(experiment.paper)
        assert experiment.published or experiment.notes
