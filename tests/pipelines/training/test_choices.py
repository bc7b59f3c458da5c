from dataclasses import fields

import pytest

from viewkit.pipelines.engine.config import fields_of
from viewkit.pipelines.frameworks.table import cards
from viewkit.pipelines.training.choices import Option, options_class, own_values
from viewkit.pipelines.training.multi_view import MULTI_VIEW, multi_view_option_names, resolve_multi_view
from viewkit.pipelines.training.traits import TRAITS, Traits
from viewkit.shards.errors import ConfigError

TAU = Option("tau", float, "temperature", positive=True)
STUDENT = Option("tau", float, "the student's temperature", positive=True)
ROUNDS = Option("rounds", int, "iterations", 1, 9)


def test_help_says_whose_an_option_is_what_it_means_there_and_its_default():
    entries = {"a": ({TAU: 0.1},), "b": ({TAU: 0.1, ROUNDS: 3},), "c": ({STUDENT: 0.1},)}
    made = {field.name: field for field in fields_of(options_class("Made", entries, owner="method", group="Method"))}
    assert made["tau"].help == "a, b: temperature; c: the student's temperature (default: 0.1)"
    assert made["rounds"].help == "b: iterations (default: 3)"
    assert made["tau"].default is None and made["tau"].optional and made["tau"].kind is float
    differing = {"a": ({TAU: 0.1}, {TAU: 1.0}), "b": ({TAU: 0.2},), "c": ({TAU: 0.2},), "d": ({},)}
    (field,) = fields_of(options_class("Made", differing, owner="method", group="Method"))
    assert field.help == "all but d: temperature (default: the method's)"


def test_values_are_those_given_else_the_defaults_and_within_the_range():
    assert own_values({TAU: 0.1, ROUNDS: 3}, {"tau": None, "rounds": 4, "other": 1}) == {"tau": 0.1, "rounds": 4}
    with pytest.raises(ConfigError, match=r"rounds is 10; it must lie in 1 ... 9"):
        own_values({ROUNDS: 3}, {"rounds": 10})
    with pytest.raises(ConfigError, match="tau is 0; it must be a finite number above 0"):
        own_values({TAU: 0.1}, {"tau": 0})


def test_an_option_of_another_loss_is_refused_with_the_loss_that_has_it():
    assert resolve_multi_view("dsf", {"dsf_exact": True}) == {
        "dsf_shrink": 0.95,
        "dsf_exact": True,
        "dsf_tau": 1.0,
        "dsf_plain_kappa": False,
    }
    with pytest.raises(ConfigError, match=r"dsf_shrink is 0\.9 and multi_view is 'fea_avg': it needs --multi-view dsf"):
        resolve_multi_view("fea_avg", {"dsf_shrink": 0.9})


def test_every_need_is_a_trait_that_some_framework_has():
    assert TRAITS.keys() <= {field.name for field in fields(Traits)}
    for loss in MULTI_VIEW.values():
        assert set(loss.needs) <= TRAITS.keys()
        assert all(any(getattr(card.traits, trait) for card in cards().values()) for trait in loss.needs)
    assert multi_view_option_names() == ["multi_view", "dsf_shrink", "dsf_plain_kappa", "dsf_tau", "dsf_exact"]
