"""From the name of a generator to its class."""

from importlib import import_module

from viewkit.pipelines.generate.config import GENERATORS
from viewkit.pipelines.generate.generators.face import Generator


def generator_class(name: str) -> type[Generator]:
    """The class that `config.GENERATORS` names; only its own module is imported."""
    module, _, kind = GENERATORS[name].made_by.partition(":")
    found: type[Generator] = getattr(import_module(f"{__package__}.{module}"), kind)
    return found
