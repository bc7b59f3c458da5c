"""``--profile FILE`` on the command line: around all that a command does, and a line that says where it is."""

from collections.abc import Iterator
from contextlib import contextmanager

from viewkit.cli.console import say
from viewkit.cli.events import MessageEvent, emit
from viewkit.pipelines.engine.profile import checked_path, profiled
from viewkit.shards.errors import ConfigError

VIEWER = "https://ui.perfetto.dev"


def refuse_profile(file: str | None) -> None:
    """`ConfigError` where one is asked for beside ``--dry-run``."""
    if file is not None:
        raise ConfigError("--profile writes a file, and --dry-run writes nothing; leave one of them out")


@contextmanager
def shown_profile(file: str | None, kernels: int, as_json: bool) -> Iterator[None]:
    """`profiled`, and a line when it is written."""
    with profiled(file, kernels):
        yield
    if file is not None:
        line = f"the profile: {checked_path(file)}, which {VIEWER} opens"
        emit(MessageEvent(text=line)) if as_json else say(line)
