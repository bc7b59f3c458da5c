"""Commands are made from config dataclasses; a TOML file gives values and options override them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from viewkit.cli.options import Argument, command, flag
from viewkit.pipelines.engine.config import RENAMED, config_values, fields_of, make_config
from viewkit.shards.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SomeConfig:
    """Some options."""

    bins: Annotated[int, "bins of each histogram"] = 20
    tau: Annotated[float, "temperature"] = 0.2
    labels: Annotated[Literal["none", "folders"], "where classes come from"] = "none"
    side_px: Annotated[int | None, "side of the views"] = None
    linear: Annotated[bool, "also a linear probe"] = True
    seed: Annotated[int, "seed of every draw"] = 0

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ConfigError(f"bins is {self.bins}; it must be at least 1")


def run(*arguments):
    """(exception or None, locations, config, flags) of one command line."""
    seen = []
    app = typer.Typer(rich_markup_mode=None)
    dataset = Argument("dataset", "the dataset")
    name = Argument("name", "a name", option=True, default="default")
    function = command(
        "some",
        "Does something.",
        [dataset, name],
        [SomeConfig],
        [flag("dry_run", "Only say.")],
        ["some", "other"],
        lambda *args: seen.append(args),
    )
    app.command()(function)
    result = CliRunner().invoke(app, list(arguments))
    return result, seen[0] if seen else None


def test_without_options_the_config_is_the_dataclass():
    _, (locations, configs, flags) = run("data")
    assert locations == {"dataset": "data", "name": "default"}
    assert configs == [SomeConfig()]
    assert flags == {"dry_run": False}


def test_options_reach_the_config_with_their_types():
    given = [
        "--bins",
        "7",
        "--tau",
        "1",
        "--labels",
        "folders",
        "--side-px",
        "32",
        "--no-linear",
        "--dry-run",
        "--name",
        "x",
    ]
    _, (locations, configs, flags) = run("data", *given)
    assert configs == [SomeConfig(bins=7, tau=1.0, labels="folders", side_px=32, linear=False)]
    assert (locations["name"], flags["dry_run"]) == ("x", True)


@pytest.mark.parametrize(
    "text", ["bins = 3\ntau = 0.5\nside-px = 8", "[some]\nbins = 3\ntau = 0.5\nside_px = 8\n[other]\nx = 1"]
)
def test_a_toml_file_gives_defaults_and_options_override_them(tmp_path, text):
    path = tmp_path / "some.toml"
    path.write_text(text)
    _, (_, configs, _) = run("data", "--config", str(path), "--tau", "0.9")
    assert configs == [SomeConfig(bins=3, tau=0.9, side_px=8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bin = 3", "unknown option 'bin'; did you mean bins?"),
        ("xyz = 3", "unknown option 'xyz'; the options are bins, labels, linear, seed, side_px, tau"),
        ("bins = 'x'", "option 'bins' is 'x', and it takes a value of type int"),
        ("bins = true", "option 'bins' is True, and it takes a value of type int"),
        ("labels = 'maybe'", "option 'labels' is 'maybe'; choose one of none, folders"),
        ("bins = 0", "bins is 0; it must be at least 1"),
        ("bins = 3\n[some]\ntau = 1.0", "'bins' stands outside the tables; move it into one, e.g. [some]"),
        ("bins = = 3", "not a TOML file"),
        ("tau = nan", "option 'tau' is nan; it takes a finite number"),
        ("seed = -1", "option 'seed' is -1; it must lie in 0 ... 2^63 - 1"),
        ("[sone]\nbins = 3", "there is no command [sone]; the tables are some, other"),
    ],
)
def test_a_wrong_toml_file_is_an_error_that_names_the_option(tmp_path, text, message):
    path = tmp_path / "some.toml"
    path.write_text(text)
    result, seen = run("data", "--config", str(path))
    assert seen is None
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_a_missing_toml_file_is_an_error(tmp_path):
    result, _ = run("data", "--config", str(tmp_path / "none.toml"))
    assert "cannot be read" in str(result.exception)


def test_help_shows_every_option_with_its_help_and_default():
    text = " ".join(run("--help")[0].output.split())
    for field in fields_of(SomeConfig):
        assert f"--{field.name.replace('_', '-')}" in text
        assert field.help in text
    assert "[20]" in text


def test_config_values_and_make_config_are_inverse():
    config = SomeConfig(bins=9, side_px=16)
    assert make_config(SomeConfig, config_values(config), "test") == config


def test_a_preset_gives_values_that_file_and_options_override(tmp_path):
    seen = []
    app = typer.Typer(rich_markup_mode=None)
    function = command(
        "some",
        "Does something.",
        [],
        [SomeConfig],
        [],
        ["some"],
        lambda *args: seen.append(args[1][0]),
        lambda name: {"bins": 7, "tau": 0.5, "seed": len(name)},
    )
    app.command()(function)
    file = tmp_path / "some.toml"
    file.write_text("tau = 0.25\n")
    CliRunner().invoke(app, ["--preset", "four", "--config", str(file), "--seed", "9"])
    file.write_text('preset = "three"\n')
    CliRunner().invoke(app, ["--config", str(file)])
    assert seen == [SomeConfig(bins=7, tau=0.25, seed=9), SomeConfig(bins=7, tau=0.5, seed=5)]


def test_an_option_of_a_preset_is_checked_and_may_be_a_location():
    seen, tables = [], {"good": {"side-px": 16, "weights": "a.bin"}, "bad": {"bin": 3}, "odd": {"weights": 3}}
    arguments = [Argument("weights", "a file", Path, option=True)]
    app = typer.Typer(rich_markup_mode=None)
    body = seen.append
    app.command()(
        command(
            "some", "Does.", arguments, [SomeConfig], [], ["some"], lambda *args: body(args[:2]), tables.__getitem__
        )
    )
    for given in (["--preset", "good"], ["--preset", "good", "--weights", "b.bin"]):
        assert CliRunner().invoke(app, given).exit_code == 0
    assert [(places, made[0].side_px) for places, made in seen] == [
        ({"weights": Path("a.bin")}, 16),
        ({"weights": Path("b.bin")}, 16),
    ]
    for name, says in (("bad", "--preset bad: unknown option 'bin'; did you mean bins"), ("odd", "needed a Path")):
        assert says in str(CliRunner().invoke(app, ["--preset", name]).exception)


def test_the_old_name_of_an_option_is_refused_with_the_new_one(tmp_path, monkeypatch):
    monkeypatch.setitem(RENAMED, "num_bins", "bins")
    with pytest.raises(ConfigError, match=r"^here: option '--num-bins' is now '--bins'$"):
        make_config(SomeConfig, {"num_bins": 3}, "here")
    path = tmp_path / "some.toml"
    path.write_text("num-bins = 3\n")
    result, _ = run("data", "--config", str(path))
    assert str(result.exception) == f"--config {path}: option '--num-bins' is now '--bins'"
