"""How long a training is: from epochs or steps to steps; plain Python, so that configs stay cheap to import."""

from viewkit.pipelines.training.ranges import check_at_least
from viewkit.shards.errors import ConfigError


def check_duration(*, epochs: int, steps: int | None, warmup_epochs: float, batch_size: int) -> None:
    """Durations that can be judged before the number of rows is known."""
    check_at_least(1, epochs=epochs, steps=steps)
    check_at_least(0, warmup_epochs=warmup_epochs)
    if batch_size < 2:
        raise ConfigError(f"batch_size is {batch_size}; batch norm and negatives need at least 2 rows in a batch")
    if steps is None and warmup_epochs >= epochs:
        raise ConfigError(f"warmup_epochs is {warmup_epochs:g} and epochs is {epochs}; the warm-up must be shorter")


def count_steps(*, epochs: int, steps: int | None, warmup_epochs: float, steps_per_epoch: int) -> tuple[int, int]:
    """Steps of the whole training and of its warm-up. `ConfigError` when nothing is left after the warm-up."""
    total = epochs * steps_per_epoch if steps is None else steps
    warmup = round(warmup_epochs * steps_per_epoch)
    if warmup >= total:
        raise ConfigError(
            f"warmup_epochs is {warmup_epochs:g} ({warmup} steps of {steps_per_epoch} an epoch) and the training has "
            f"{total} steps; lower --warmup-epochs or train longer"
        )
    return total, warmup
