"""Options that several frameworks share; those of a single one stand in its file."""

from collections.abc import Mapping
from typing import Any

from viewkit.pipelines.training.choices import Option
from viewkit.shards.errors import ConfigError

TAU = Option("tau", float, "temperature", positive=True)
MOMENTUM = Option(
    "momentum",
    float,
    "momentum of the momentum encoder, which rises to 1; lower in a short training where not given",
    0,
    1,
)
HIDDEN = Option("hidden", int, "hidden width of the heads", 1, 65_536)
DIM = Option("dim", int, "width of the outputs", 1, 2**20)
DECOUPLED = Option("decoupled", bool, "leave the positive out of the denominator (DCL)")
NUM_GLOBALS = Option("num_globals", int, "number of large views, which come first", 1, 1000)


def check_queue(own: Mapping[str, Any], batch_size: int) -> None:
    """`ConfigError` for a queue that a batch does not fit into."""
    length = own["queue_length"]
    if length and length < batch_size:
        raise ConfigError(f"queue_length is {length} and batch_size {batch_size}; it must hold a batch")
