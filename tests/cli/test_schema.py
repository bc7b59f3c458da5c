"""The JSON Schemas: every experiment is valid, and a schema and the command agree on names, types and choices."""

import json
import tomllib

import pytest
from jsonschema import Draft202012Validator

from viewkit.cli.chain import chain_of
from viewkit.cli.main import run
from viewkit.cli.options import read_toml
from viewkit.cli.schema import CONFIG, EXPERIMENT, STAGES, schema_of
from viewkit.pipelines.engine.config import fields_of, make_config
from viewkit.pipelines.engine.schema import config_schema
from viewkit.pipelines.experiments.experiment import ABOUT, FOLDER, experiment_names, load_experiment
from viewkit.shards.errors import ConfigError

VALUES = ("", "x", "none", True, 0, 1, -1, 10**9, 10**9 + 1, 2**63 - 1, 2**63, 0.5, -0.25, "moco_v3", "auto", "+")
"""Values TOML can hold; 1.0 is left out, which is an integer to JSON Schema and none to TOML."""
FOR_FLOATS = tuple(value for value in VALUES if isinstance(value, str) or value <= 10**9)
"""The bound on integers holds for those that stand for a float, too; a schema's would hold for floats."""


@pytest.fixture(scope="module")
def experiment():
    return Draft202012Validator(schema_of(EXPERIMENT))


def problems(validator, text):
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


@pytest.mark.parametrize("what", [EXPERIMENT, CONFIG, *STAGES])
def test_every_schema_is_one(what):
    Draft202012Validator.check_schema(schema_of(what))


def test_every_published_experiment_is_valid(experiment):
    wrong = {name: problems(experiment, (FOLDER / f"{name}.toml").read_text()) for name in experiment_names()}
    assert len(wrong) >= 100 and {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('title = "x"\n[pretrain]\nepoch = 3', "'epoch' was unexpected"),
        ('title = "x"\n[pretrain]\nepochs = "many"', "not valid under any"),
        ('title = "x"\n[runs.a]\nframework = "moco"', "not valid under any"),
        ('title = "x"\n[[score]]\nrounds = 2\n[[score]]\nround = 3', "'round' was unexpected"),
        ('title = "x"\n[scroe]', "'scroe' was unexpected"),
        ("[pack]", "'title' is a required property"),
        ('title = "x"\nneeds = ["weights"]', "is not of type 'object'"),
        ('title = "x"\n[runs.a]\n[[published]]\nrun = "a"\nvalue = 3', "'metric' is a required property"),
        ('title = "x"\n[[pack]]\nlabels = "none"\n[[pack]]', "is too long"),
        ('title = "x"\n[pretrain]\nepochs = ""', "should not be valid under"),
    ],
)
def test_a_slip_in_an_experiment_is_found_by_the_schema_and_by_the_command(experiment, text, says, tmp_path):
    assert any(says in message for message in problems(experiment, text))
    (tmp_path / "slip.toml").write_text(text)
    with pytest.raises(ConfigError):
        chain_of(load_experiment(str(tmp_path / "slip.toml")), "images", tmp_path / "d", tmp_path / "t", None)


def test_an_empty_text_takes_an_option_away_where_there_is_a_base(experiment):
    assert problems(experiment, 'base = "demo"\n[pretrain]\nsteps = ""\nframework = ""') == []


def test_the_places_of_a_stage_are_options_of_an_experiment_and_of_no_config_file(experiment):
    assert problems(experiment, 'title = "x"\n[score]\ncolumn = "pairs_two"') == []
    assert problems(experiment, 'title = "x"\n[generate]\nbatch_size = "two"') != []
    file = Draft202012Validator(schema_of("score"))
    assert not file.is_valid({"column": "pairs_two"}) and file.is_valid({"rounds": 2, "workers": 2, "device": "cpu"})


@pytest.mark.parametrize("name", STAGES)
def test_a_schema_and_make_config_agree_on_every_kind_of_option(name):
    config = STAGES[name].config_class()
    made = config_schema(name, fields_of(config))
    kinds = {(field.kind, field.choices, field.name == "seed"): field for field in fields_of(config)}
    assert set(made["properties"]) == {field.name for field in fields_of(config)}
    for field in kinds.values():
        validator = Draft202012Validator(made["properties"][field.name])
        for value in VALUES if field.kind is not float else FOR_FLOATS:
            assert validator.is_valid(value) == taken(config, field.name, value), (field.name, value)
    assert not Draft202012Validator(made).is_valid({"no_such_option": 1})


def taken(config, name, value):
    """Whether `make_config` finds no fault with the name, type and choice; what the config itself refuses is taken."""
    try:
        make_config(config, {name: value}, "here")
    except ConfigError as error:
        return not str(error).startswith(f"here: option '{name}'")
    return True


def test_a_default_of_the_schema_is_one_that_it_takes():
    for name in STAGES:
        for option, each in schema_of(name)["properties"].items():
            assert "default" not in each or Draft202012Validator(each).is_valid(each["default"]), (name, option)
            assert each["description"]


def test_a_config_file_of_several_commands_is_valid_and_read(tmp_path):
    text = "[score]\nrounds = 4\n[histograms]\nbins = 10\n"
    assert problems(Draft202012Validator(schema_of(CONFIG)), text) == []
    (tmp_path / "all.toml").write_text(text)
    assert read_toml(tmp_path / "all.toml", "score", {"rounds"}, list(STAGES)) == {"rounds": 4}


def test_the_schema_knows_all_that_an_experiment_may_say_of_itself():
    assert set(ABOUT) <= set(schema_of(EXPERIMENT)["properties"])


def test_the_command_prints_a_schema_and_refuses_what_has_none(capsys):
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of(EXPERIMENT)
    assert run(["schema", "scor"]) == 2
    error = capsys.readouterr().err
    assert "WHAT is 'scor'; choose one of experiment, config, pack" in error and error.count("\n") == 1
