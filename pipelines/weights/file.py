"""Weights of other libraries' networks from a file of the user's: safetensors only, since a pickle may run code."""

from pathlib import Path
from typing import Any

from viewkit.shards.errors import DataError


def load_file_weights(model: Any, file: Path, prefix: str = "") -> None:
    """Fill a torch module from the tensors of a safetensors file whose names start with `prefix`; others are ignored.

    `DataError` when it is no safetensors file, lacks one of the module's tensors, or holds one of another shape.
    """
    found = read_file_tensors(file)
    tensors = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    own = model.state_dict()
    wrong = [name for name in own if name not in tensors or tensors[name].shape != own[name].shape]
    if wrong:
        raise DataError(
            f"{file}: weights of another network: it lacks {len(wrong)} of {len(own)} tensors, or has them in another "
            f"shape (first: {prefix}{wrong[0]})"
        )
    model.load_state_dict({name: tensors[name] for name in own})


def read_file_tensors(file: Path) -> dict[str, Any]:
    """All tensors of a safetensors file by name. `DataError` when it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if file.suffix != ".safetensors":
        raise DataError(
            f"{file}: weights are read from .safetensors only, since other formats may run code; convert it first"
        )
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{file}: cannot be read ({error}); download it again") from error
