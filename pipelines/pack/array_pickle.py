"""Reads a pickle of arrays, lists, numbers and texts, as CIFAR's batches are, without running anything of it.

A pickle is a program: it may import and call whatever it names. Here it can name three functions of numpy and one of
``codecs``, in whose place stand records of what they were given; every other name is an error. So is an instruction
that no batch holds and that would only fill the memory.
"""

import codecs
import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import UInt8

RECONSTRUCT = frozenset({("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")})
DAMAGED = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError, OverflowError,
    MemoryError, RecursionError, ImportError, UnicodeDecodeError,
)  # fmt: skip
"""What the standard reader raises for bytes that are no pickle, or one that asks for more than it may."""


MEASURES = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "FRAME"))
"""Instructions that take memory in proportion to their argument; a true one is never above the pickle's size."""
NEVER = frozenset(("BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER", "EXT1", "EXT2", "EXT4"))


class ArrayRecord:
    """Stands for an array while the pickle is read. state: as numpy wrote it: version, shape, dtype, order, bytes."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_in_order(self) -> UInt8[np.ndarray, "..."]:
        """The array of bytes; `ValueError` where it is of another type, or its numbers do not agree."""
        match self.state:
            case (int(), tuple(shape), TypeRecord(name="u1"), False, bytes(raw)) if all(
                type(each) is int and each >= 0 for each in shape
            ):
                return np.frombuffer(raw, dtype=np.uint8).reshape(shape)
        raise ValueError("it holds an array that is not of bytes in rows")


class TypeRecord:
    """Stands for a numpy dtype."""

    def __init__(self, name: Any = "", *_: object) -> None:
        self.name = name.decode("latin-1") if isinstance(name, bytes) else name

    def __setstate__(self, _: Any) -> None:
        """Byte order and such, which bytes do not have."""


class ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Callable[..., Any]] = {
            **dict.fromkeys(RECONSTRUCT, ArrayRecord),
            ("numpy", "ndarray"): ArrayRecord,
            ("numpy", "dtype"): TypeRecord,
            ("_codecs", "encode"): _encoded,  # how Python 3 writes bytes in an old protocol
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of images needs")
        return known[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside of it")


def _encoded(text: Any, encoding: Any = "utf-8") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise pickle.UnpicklingError("it holds bytes in an unknown coding")
    return codecs.encode(text, encoding)


def read_arrays(data: bytes) -> dict[str, Any]:
    """The dictionary in a pickle: names as text; arrays stay `ArrayRecord`. Raises one of `DAMAGED`."""
    for instruction, argument, _ in pickletools.genops(data):
        is_large = instruction.name in MEASURES and isinstance(argument, int) and argument > len(data)
        if is_large or instruction.name in NEVER:
            raise pickle.UnpicklingError(f"it holds the instruction {instruction.name}, as no batch of images does")
    found = ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    if not isinstance(found, dict):
        raise ValueError("it is no dictionary of names and values")
    return {key.decode("latin-1") if isinstance(key, bytes) else str(key): value for key, value in found.items()}


def texts_of(values: Any) -> list[str]:
    """A list of texts, which Python 2 wrote as bytes; `ValueError` for anything else."""
    if not isinstance(values, list) or not all(isinstance(each, bytes | str) for each in values):
        raise ValueError("a list of texts is needed")
    return [each.decode("latin-1") if isinstance(each, bytes) else each for each in values]
