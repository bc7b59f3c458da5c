"""The deprecation rule (docs/api.md): a public name that goes away is a warning first, with the version of its end."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def warn_renamed(former: str, now: str, removed_in: str) -> None:
    """`DeprecationWarning` at the line that used the former name. removed_in: first version without it."""
    warnings.warn(f"{former} is now {now}; version {removed_in} no longer knows it", DeprecationWarning, stacklevel=3)


def renamed_arguments(removed_in: str, names: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a public function that takes some arguments under former names, too, with a warning.

    names: former name -> name now. `TypeError` where both are given.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **given: P.kwargs) -> R:
            options: dict[str, Any] = dict(given)
            for former in [name for name in options if name in names]:
                now = names[former]
                if now in options:
                    raise TypeError(f"{function.__name__}: '{former}' is the former name of '{now}'; give one of them")
                warn_renamed(f"{function.__name__}({former}=)", f"{now}=", removed_in)
                options[now] = options.pop(former)
            return function(*args, **options)

        return wrapper

    return decorate
