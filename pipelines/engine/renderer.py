"""Which renderer makes the views on a CPU: the compiled library, or torch's operations. Imports no torch.

`kernels.c` is compiled when viewkit is installed, where there is a C compiler, and its library lies beside it. The
environment variable VIEWKIT_RENDERER chooses: `auto` (the library where it is installed, the default), `torch`, or
`compiled` (an error where it is not installed). Results differ by less than `views.render.kernels.TOLERANCE`.
"""

import ctypes
import os
from functools import cache
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from viewkit.shards.errors import ConfigError

VARIABLE = "VIEWKIT_RENDERER"
CHOICES = ("auto", "torch", "compiled")
DEFAULT = "auto"
FOLDER = Path(__file__).parents[1] / "views" / "render"
NO_MEMORY = ("cannot allocate memory", "failed to map segment")
"""What the loader says where memory is short: no reason to render by other code, and with other bits."""
REMEDY = "install a C compiler (gcc or clang) and then viewkit again, with pip's option --force-reinstall"


@cache
def find_library(folder: Path = FOLDER) -> ctypes.CDLL | str:
    """The compiled library of `kernels.c`, or why it cannot be used. `MemoryError` where only memory is lacking."""
    paths = [path for suffix in EXTENSION_SUFFIXES if (path := folder / f"_kernels{suffix}").exists()]
    if not paths:
        return "not built: there was no C compiler when viewkit was installed"
    try:
        library = ctypes.CDLL(str(paths[0]))
        library.viewkit_source.restype = ctypes.c_char_p
        built_from = library.viewkit_source().decode()
    except (OSError, AttributeError) as error:
        if any(sign in str(error).lower() for sign in NO_MEMORY):
            raise MemoryError(f"no memory to load {paths[0].name}") from error
        return f"{paths[0].name} cannot be loaded ({error})"
    if built_from != source_digest(folder):
        return f"{paths[0].name} was built from another kernels.c"
    return library


def source_digest(folder: Path = FOLDER) -> str:
    """The first 16 digits of the SHA-256 of `kernels.c`, which setup.py compiles into the library."""
    return sha256((folder / "kernels.c").read_bytes()).hexdigest()[:16]


def chosen_library() -> ctypes.CDLL | None:
    """The library that views on a CPU are rendered with; None for torch's operations.

    Raises `ConfigError` where VIEWKIT_RENDERER is unknown, or asks for a library that is not there.
    """
    choice = os.environ.get(VARIABLE) or DEFAULT
    if choice not in CHOICES:
        raise ConfigError(f"{VARIABLE} is {choice!r}; needed one of {', '.join(CHOICES)}")
    if choice == "torch":
        return None
    library = find_library()
    if not isinstance(library, str):
        return library
    if choice == "compiled":
        raise ConfigError(f"{VARIABLE} is 'compiled', but the library is {library}; {REMEDY}")
    return None


def renderer_name() -> str:
    """What is noted beside identities: the digest of the compiled source, or `torch`."""
    return "torch" if chosen_library() is None else f"compiled from {source_digest()}"
