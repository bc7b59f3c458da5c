"""Options by group, what identities hold, and what is said of an option that does not exist."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest

from viewkit.pipelines.engine.config import (
    MAIN_GROUP,
    OTHER_GROUP,
    RENAMED,
    Group,
    fields_of,
    identity_values,
    in_groups,
    unknown_option,
)


@dataclass(frozen=True, kw_only=True)
class Shared:
    GROUP: ClassVar[str] = "Shared"
    NOT_IN_IDENTITY: ClassVar[tuple[str, ...]] = ("fast",)
    fast: Annotated[bool, "the same, sooner"] = False
    size: Annotated[int, "how large"] = 3


@dataclass(frozen=True, kw_only=True)
class Own(Shared):
    MAIN: ClassVar[tuple[str, ...]] = ("size", "policy")
    policy: Annotated[str, "name or TOML file"] = "plain"
    bins: Annotated[int, "bins", Group("Histograms")] = 20
    seed: Annotated[int, "seed"] = 0


def test_an_option_is_in_the_group_of_its_annotation_else_of_its_class_and_the_main_ones_come_first():
    groups = {name: [field.name for field in fields] for name, fields in in_groups(fields_of(Own)).items()}
    assert list(groups.items()) == [
        (MAIN_GROUP, ["size", "policy"]),
        ("Shared", ["fast"]),
        ("Histograms", ["bins"]),
        (OTHER_GROUP, ["seed"]),
    ]


def test_an_identity_holds_what_changes_the_result_and_no_folder():
    assert identity_values(Own(fast=True, policy="/somewhere/mine.toml")) == {
        "size": 3,
        "policy": "mine.toml",
        "bins": 20,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("viws", ["views", "pairs"], "unknown option 'viws'; did you mean views?"),
        ("--viws", ["--views", "--pairs"], "unknown option '--viws'; did you mean --views?"),
        ("zzz", ["views", "pairs"], "unknown option 'zzz'; the options are pairs, views"),
        ("--zzz", ["--views"], "unknown option '--zzz'"),
        ("num_pairs", ["pairs"], "option '--num-pairs' is now '--pairs'"),
        ("--num-pairs", ["--pairs"], "option '--num-pairs' is now '--pairs'"),
        ("num_pairs", ["views"], "unknown option 'num_pairs'; the options are views"),
    ],
)
def test_an_unknown_option_is_answered_with_its_new_name_or_the_nearest_or_all(name, known, said, monkeypatch):
    monkeypatch.setitem(RENAMED, "num_pairs", "pairs")
    assert unknown_option(name, known) == said
