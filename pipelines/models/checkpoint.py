"""Weights and training states on disk: safetensors, whole or absent, never a pickle."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.files import explained, make_folder, read_file, write_atomic
from viewkit.shards.tensors import HEADER


def save_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any] | None = None) -> None:
    """Write `tensors`, and JSON values and a checksum beside them in the header, replacing `path` atomically."""
    make_folder(path.parent)
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(state or {}, sort_keys=True)
    header = json.dumps({"check": checksum(content, text), "state": text}, sort_keys=True)
    write_atomic(path, save(content, {HEADER: header}))  # one entry: safetensors writes several in a random order


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """XXH3-64 over names, types, shapes and bytes of the tensors, and `text`: safetensors itself has none."""
    hashed = xxhash.xxh3_64(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (on the CPU) and JSON values of a file that `save_tensors` wrote; `DataError` when a bit has changed."""
    with explained(path):
        if not path.is_file():
            raise DataError(f"{path}: missing; rerun the stage that writes it")
    try:
        header, tensors = _read_safetensors(path)
        text, check = header["state"], header["check"]
        state = json.loads(text)
    except RecursionError as error:  # before RuntimeError, whose kind it is
        raise DataError(f"{path}: damaged, or not written by viewkit; delete it and rerun the stage") from error
    except RuntimeError as error:  # torch's word for what the operating system refused, e.g. to map the file
        first = str(error).splitlines()[0]
        raise DataError(f"{path}: cannot be read ({first}); run the same command again") from error
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: damaged, or not written by viewkit; delete it and rerun the stage") from error
    if checksum(tensors, text) != check:
        raise DataError(f"{path}: damaged, its tensors do not match its checksum; delete it and rerun the stage")
    return tensors, state


def _read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Our entry of the metadata, and the tensors. safetensors opens paths that are UTF-8 only; the others are read."""
    try:
        name = os.fspath(path).encode("utf-8").decode()
    except UnicodeEncodeError:
        raw = read_file(path)
        size = int.from_bytes(raw[:8], "little")
        return json.loads(json.loads(raw[8 : 8 + size])["__metadata__"][HEADER]), load(raw)
    with explained(path), safe_open(name, framework="pt", device="cpu") as file:
        metadata = json.loads((file.metadata() or {})[HEADER])
        return metadata, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Copy `weights` into `module`; every name and shape must agree, else `DataError` names what differs."""
    own = module.state_dict()
    lacking, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = sorted(name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape)
    if lacking or extra or shapes:
        found = [
            f"{what} {len(names)} (first: {names[0]})"
            for what, names in (("lacks", lacking), ("does not know", extra), ("has another shape for", shapes))
            if names
        ]
        raise DataError(f"{source}: weights of another network: it {', '.join(found)}; rerun the stage that wrote it")
    module.load_state_dict(weights)


def save_training(
    path: Path,
    module: nn.Module,
    optimiser: Optimizer,
    *,
    step: int,
    owner: Mapping[str, Any],
    numbers: Mapping[str, float | int],
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Everything needed to go on after `step` steps.

    owner: what the state belongs to, compared by `load_training`. numbers: the last metrics, given back by it.
    scaler: of the loss, where fp16 is trained.
    """
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    optimiser_state = optimiser.state_dict()
    for index, slots in optimiser_state["state"].items():
        for name, tensor in slots.items():
            tensors[f"optimiser.{index}.{name}"] = tensor
    scale = {} if scaler is None else scaler.state_dict()
    save_tensors(path, tensors, {"step": step, "owner": owner, "numbers": dict(numbers), "scaler": scale})


def load_training(
    path: Path,
    module: nn.Module,
    optimiser: Optimizer,
    owner: Mapping[str, Any],
    scaler: torch.amp.GradScaler | None = None,
) -> tuple[int, dict[str, float | int]]:
    """Bring `module`, `optimiser` and `scaler` to where `save_training` left them; return its step and numbers.

    Learning rates are not stored: the loop sets them before every step. Raises `RefusedError` when the state belongs
    to something else and names what differs.
    """
    tensors, state = load_tensors(path)
    found = state.get("owner", {})
    differing = sorted(key for key in found.keys() | owner.keys() if found.get(key) != owner.get(key))
    if differing:
        names = ", ".join(f"{key} was {found.get(key)}, is {owner.get(key)}" for key in differing)
        raise RefusedError(f"{path}: a checkpoint of another training ({names}); delete its folder to start over")
    weights = {name.removeprefix("module."): tensor for name, tensor in tensors.items() if name.startswith("module.")}
    load_weights(module, weights, path)
    _load_optimiser(optimiser, tensors)
    if scaler is not None and state["scaler"]:
        scaler.load_state_dict(state["scaler"])
    return int(state["step"]), dict(state["numbers"])


def _load_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put stored moments back, in the memory layout of their parameters."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, index, slot = name.split(".", 2)
            shaped = tensor.shape == parameters[int(index)].shape and tensor.ndim > 0
            value = torch.empty_like(parameters[int(index)]).copy_(tensor) if shaped else tensor
            slots.setdefault(int(index), {})[slot] = value
    optimiser.load_state_dict({"state": slots, "param_groups": optimiser.state_dict()["param_groups"]})
