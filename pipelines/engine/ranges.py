"""Range checks of the options that trainings share; plain Python, so that configs stay cheap to import."""

from viewkit.shards.errors import ConfigError


def check_at_least(low: int | float, **values: int | float | None) -> None:
    """`ConfigError` naming the first option below `low`; None passes."""
    for name, value in values.items():
        if value is not None and not value >= low:
            raise ConfigError(f"{name} is {value}; it must be at least {low:g}")


def check_within(low: int | float, high: int | float, **values: int | float | None) -> None:
    """`ConfigError` naming the first option outside [low, high]; None passes."""
    for name, value in values.items():
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{name} is {value}; it must lie in {low:g} ... {high:g}")


def check_above_zero(**values: int | float | None) -> None:
    """`ConfigError` naming the first option that is not a finite number above 0; None passes."""
    for name, value in values.items():
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"{name} is {value}; it must be a finite number above 0")
