"""What a page says to type: options that train on such pairs again."""

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from viewkit.pipelines.browse.shown import Shown
from viewkit.pipelines.pairs.options import ViewOptions
from viewkit.pipelines.views.policies import POLICIES


def policy_word(shown: Shown) -> str:
    """What ``--policy`` takes, quoted: the name or file that sampled the pairs, as their config has it.

    A policy from a file that the config does not name is ``STEM.toml``: the file has to be given by who has it.
    """
    name = str(shown.config.get("policy") or shown.policy.name)
    return shlex.quote(name if name in POLICIES or name.endswith(".toml") else f"{name}.toml")


def run_command(shown: Shown) -> str | None:
    """The run's framework, side, policy and whatever its views have that is not the default; None of several runs."""
    if shown.run is None or "," in shown.run:
        return None
    config = shown.config
    first = {"framework": config.get("framework"), "side_px": shown.side_px}
    words = ["viewkit pretrain DATASET --name NAME", *option_words(first), f"--policy {policy_word(shown)}"]
    defaults = {field.name: field.default for field in fields(ViewOptions)}
    return " ".join(
        [*words, *option_words({n: config[n] for n in defaults if config.get(n, defaults[n]) != defaults[n]})]
    )


def option_words(values: Mapping[str, Any]) -> list[str]:
    """``--option value``, quoted, of every value that is known; a switch has none."""
    found = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif value is not None and value is not False:
            found.append(f"{option} {shlex.quote(str(value))}")
    return found
