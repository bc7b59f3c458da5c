"""The table of commands agrees with the stages it names."""

from viewkit.cli.commands import PIPELINE
from viewkit.shards.commands import command_for, writers

NAMES_OF_USERS = {"pairs_rescored", "pairs_drawn"}


def test_every_part_of_a_dataset_has_the_command_that_runs_its_stage():
    commands = {spec.name for spec in PIPELINE}
    assert {command.split()[1] for command in writers().values()} <= commands
    for spec in PIPELINE:
        for step in spec.steps:
            shown = step.stage_class().shown_as
            assert shown in writers() or shown in NAMES_OF_USERS, f"no package declares '{shown}' in WRITES"


def test_the_last_step_of_a_command_writes_what_the_command_is_said_to_write():
    for spec in PIPELINE:
        shown = spec.steps[-1].stage_class().shown_as
        assert shown in NAMES_OF_USERS or writers()[shown].split()[1] == spec.name


def test_names_that_users_choose_are_found_by_their_stage():
    assert command_for("runs/mine") == "viewkit pretrain"
    assert command_for("pairs_strict", "rescore") == "viewkit rescore"
    assert command_for("images", "numbers") == "viewkit pack SOURCE"
    assert command_for("nothing") is None
