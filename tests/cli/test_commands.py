"""The table of commands agrees with the stages it names."""

from viewkit.cli.commands import COMPARE, PIPELINE
from viewkit.cli.main import run
from viewkit.cli.options import fields_of
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
    assert command_for("pairs", "draw") == "viewkit draw" and command_for("pairs", "rescore") == "viewkit rescore"
    assert command_for("pairs") == command_for("pairs", "score") == "viewkit score"
    assert command_for("foreground_views", "foreground") == "viewkit quality"
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


def test_the_next_command_of_score_names_the_policy_that_was_scored(capsys, tmp_path):
    from viewkit.pipelines.score.config import ScoreConfig

    (score,) = (spec for spec in PIPELINE if spec.name == "score")
    following = score.next_command({**vars(ScoreConfig(policy="cifar")), "dataset": tmp_path})
    assert following == f"viewkit pretrain {tmp_path} --name vs2fi --select vs2fi --policy cifar"


def test_every_next_command_is_made_of_what_its_command_has():
    for spec in PIPELINE:
        given = dict.fromkeys([argument.name for argument in spec.arguments], "x")
        options = dict.fromkeys([field.name for field in fields_of(spec.config_class())], "y")
        assert spec.following is None or "viewkit " in spec.next_command({"dataset": "d", **options, **given})


def test_quality_after_score_rates_the_pairs_that_were_scored(monkeypatch, tmp_path):
    rated = []
    monkeypatch.setattr(
        "viewkit.cli.run.checked_stages", lambda spec, config, places: rated.append((spec.name, places)) or []
    )
    assert run(["score", str(tmp_path), "--column", "pairs_b", "--quality"]) == 0
    assert [(name, places.get("pairs")) for name, places in rated] == [("score", None), ("quality", "pairs_b")]
