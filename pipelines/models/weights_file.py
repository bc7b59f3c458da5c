"""Weights of other libraries' networks, from a file the user names: safetensors only, since a pickle may run code."""

from pathlib import Path

from torch import nn

from viewkit.shards.errors import DataError


def load_file_weights(model: nn.Module, file: Path, prefix: str = "") -> None:
    """Fill all of `model` from the tensors of a safetensors file whose names begin with `prefix`; others are left.

    `DataError` when the file is no safetensors file, or lacks a tensor, or has one of another shape.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if file.suffix != ".safetensors":
        raise DataError(f"{file}: weights are read from .safetensors only, other files may run code; convert it first")
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{file}: cannot be read ({error}); download it anew") from error
    tensors = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    own = model.state_dict()
    wrong = [name for name in own if name not in tensors or tensors[name].shape != own[name].shape]
    if wrong:
        raise DataError(
            f"{file}: weights of another network: it lacks {len(wrong)} of {len(own)} tensors, or has them in another "
            f"shape (first: {prefix}{wrong[0]})"
        )
    model.load_state_dict({name: tensors[name] for name in own})
