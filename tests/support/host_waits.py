"""Counts where a host would wait for its device, without one: steps run on the device "meta", whose tensors have no
values, and a dispatch mode sees every operation that asks for one, or copies without `non_blocking`.

A copy to a GPU that is not `non_blocking` ends with a wait for the whole stream; one that is, from pinned memory, does
not. Values that are asked for are made up, so that one run finds them all.
"""

import traceback
from collections import Counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ASKING = {
    "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "nonzero_numpy", "masked_select", "unique_dim",
    "_unique2", "unique_consecutive", "bincount", "histc", "_linalg_check_errors",
}  # fmt: skip
"""Operations whose result, or its size, depends on values."""


class AnyAutocast(torch.autocast):
    """`torch.autocast`, which refuses the device "meta"; it is off in these tests."""

    def __init__(self, device_type, *args, **kwargs):
        super().__init__("cpu" if device_type == "meta" else device_type, *args, **kwargs)


class HostWaits(TorchDispatchMode):
    """`found`: (operation, place in viewkit) -> how often."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        first = args[0] if args else None
        on_device = any(isinstance(each, Tensor) and each.is_meta for each in _flat((args, kwargs)))
        if name in ASKING and on_device:
            self._note(name)
            if name == "_local_scalar_dense":
                return {torch.bool: True, torch.float32: 1.0, torch.float64: 1.0}.get(first.dtype, 1)
            if name in ("is_nonzero", "equal"):
                return True
            if name == "_linalg_check_errors":
                return None
            if name == "nonzero":
                return torch.zeros(1, first.ndim, dtype=torch.int64, device="meta")
        if name == "_to_copy" and isinstance(first, Tensor):
            to = torch.device(kwargs.get("device") or first.device)
            if first.is_meta and to.type == "cpu":
                self._note("copy to the host")
                return torch.zeros(first.shape, dtype=kwargs.get("dtype") or first.dtype)
            if not first.is_meta and to.type == "meta" and not kwargs.get("non_blocking"):
                self._note("blocking copy to the device")
        if name in ("copy_", "lift_fresh") and isinstance(first, Tensor):
            other = args[1] if name == "copy_" else first
            if name == "copy_" and first.is_meta != other.is_meta and not (args[2:] or kwargs.get("non_blocking")):
                self._note("blocking copy")
            if name == "lift_fresh" and first.is_meta:
                self._note("tensor of a list")
        if name in ("index", "index_put", "index_put_") and first.is_meta:
            if any(isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in args[1]):
                self._note("index by a mask")
                return first
            if any(isinstance(each, Tensor) and not each.is_meta for each in args[1]):
                self._note("index from the host")
        return function(*args, **kwargs)

    def _note(self, what: str) -> None:
        own = [frame for frame in traceback.extract_stack() if "/pipelines/" in frame.filename]
        own = [frame for frame in own if "/tests/" not in frame.filename]
        place = f"{own[-1].filename.rpartition('/pipelines/')[2]}:{own[-1].lineno}" if own else "outside"
        self.found[what, place] += 1


def _flat(values):
    if isinstance(values, (list, tuple)):
        for each in values:
            yield from _flat(each)
    elif isinstance(values, dict):
        yield from _flat(list(values.values()))
    else:
        yield values
