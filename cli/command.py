"""What a command is: what it reads from the command line, and which stages it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from viewkit.cli.options import Argument
from viewkit.pipelines.engine.execution import Devices, Execution, Spread
from viewkit.shards.errors import DataError

if TYPE_CHECKING:
    from viewkit.pipelines.engine.contract import Stage
    from viewkit.shards.dataset import Dataset

DATASET = Argument("dataset", "folder of the dataset, or its URL in a store (docs/stores.md)", in_store=True)


@dataclass(frozen=True)
class Step:
    """One stage of a command. stage: ``module:name`` below `viewkit.pipelines`; importing it may import torch.

    takes: names of the command's arguments that its constructor takes. config: method of the command's config that
    gives this stage's config, or None where it is the command's own.
    """

    stage: str
    takes: tuple[str, ...] = ()
    config: str | None = None

    def stage_class(self) -> "Callable[..., Stage[Any]]":
        return _load(self.stage)


@dataclass(frozen=True)
class Closing:
    """Lines to print when a command is done. function: ``module:name`` below `viewkit.pipelines`, of the dataset.

    takes: names of the command's arguments that it takes, too.
    """

    function: str
    takes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageCommand:
    """A command that runs stages in order. config: ``module:name``, imported to list the options, never torch.

    examples: command lines to paste. maps_rows: whether it writes a column, on several workers. in_parts: whether it
    fits something in parts that several workers may do. closing: what gives the lines to print when all is done. page:
    file to open then, below the dataset. presets: function that gives the options of a preset by its name. also:
    switches, each with the command that it runs afterwards with that one's defaults. following: the command that
    usually comes next, with locations and options in braces.
    """

    name: str
    help: str
    config: str
    steps: tuple[Step, ...]
    arguments: tuple[Argument, ...] = (DATASET,)
    examples: tuple[str, ...] = ()
    maps_rows: bool = False
    in_parts: bool = False
    closing: Closing | None = None
    page: str | None = None
    presets: str | None = None
    also: tuple[tuple[str, str], ...] = ()
    following: str | None = None

    def preset_options(self) -> "Callable[[str], dict[str, Any]] | None":
        return None if self.presets is None else _load(self.presets)

    def next_command(self, given: Mapping[str, Any]) -> str | None:
        """The command line that usually comes next. given: locations and options by name."""
        return None if self.following is None else f"viewkit {self.following.format(**given)}"

    def closing_lines(self, dataset: "Dataset", locations: Mapping[str, Any]) -> list[str]:
        """What there is to say of the finished work; what cannot be said is a line, too, as the work is done."""
        if self.closing is None:
            return []
        try:
            found = _load(self.closing.function)(dataset, *(locations[name] for name in self.closing.takes))
        except DataError as error:
            return [f"nothing more to tell of it: {error}"]
        return list(found)

    def config_class(self) -> type:
        return _load(self.config)

    def execution_class(self) -> type[Devices]:
        """The options that say how it runs."""
        return Execution if self.maps_rows else Spread if self.in_parts else Devices


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"viewkit.pipelines.{module}"), name)
