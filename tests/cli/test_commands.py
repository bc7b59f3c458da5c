"""The table of commands agrees with the stages it names."""

from viewkit.cli.commands import COMPARE, PIPELINE
from viewkit.pipelines.engine.contract import MapStage
from viewkit.pipelines.pairs import filter
from viewkit.shards.commands import command_for, writers
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError

NAMES_OF_USERS = {"pairs_rescored", "pairs_drawn"}


def test_every_part_of_a_dataset_has_the_command_that_runs_its_stage():
    commands = {spec.name for spec in (*PIPELINE, COMPARE)}
    assert {command.split()[1] for command in writers().values()} <= commands
    for spec in (*PIPELINE, COMPARE):
        for step in spec.steps:
            shown = step.stage_class().shown_as
            assert shown in writers() or shown in NAMES_OF_USERS, f"no package declares '{shown}' in WRITES"


def test_the_last_step_of_a_command_writes_what_the_command_is_said_to_write():
    for spec in (*PIPELINE, COMPARE):
        shown = spec.steps[-1].stage_class().shown_as
        assert shown in NAMES_OF_USERS or writers()[shown].split()[1] == spec.name


def test_commands_offer_workers_and_clusters_where_their_stages_use_them():
    for spec in (*PIPELINE, COMPARE):
        kinds = [step.stage_class() for step in spec.steps]
        assert spec.maps_rows == issubclass(kinds[-1], MapStage), spec.name
        assert spec.in_parts == getattr(kinds[-1], "in_parts", False), spec.name
    assert {spec.name for spec in PIPELINE if spec.in_parts} == {"foreground", "histograms"}


def test_names_that_users_choose_are_found_by_their_stage():
    assert command_for("runs/mine") == "viewkit pretrain"
    assert command_for("compare/mine") == "viewkit compare"
    assert command_for("pairs_strict", "rescore") == "viewkit rescore"
    assert command_for("images", "numbers") == "viewkit pack SOURCE"
    assert command_for("nothing") is None


def test_a_closing_concerns_the_column_that_was_written_and_its_failure_is_a_line(tmp_path, monkeypatch):
    def summary_lines(dataset, pairs):
        if pairs == "broken":
            raise DataError("the histograms are others")
        return [pairs]

    monkeypatch.setattr(filter, "summary_lines", summary_lines)
    (score,) = (spec for spec in PIPELINE if spec.name == "score")
    assert score.closing_lines(Dataset(tmp_path), {"column": "pairs_mine"}) == ["pairs_mine"]
    (line,) = score.closing_lines(Dataset(tmp_path), {"column": "broken"})
    assert line.endswith("the histograms are others")


def test_a_closing_takes_arguments_that_its_command_has():
    for spec in PIPELINE:
        if spec.closing is not None:
            assert set(spec.closing.takes) <= {argument.name for argument in spec.arguments}
