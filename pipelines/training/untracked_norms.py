"""Forward passes that leave no trace: batch norms normalise by the batch, as in training, and remember nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def untracked_norms(module: nn.Module) -> Iterator[None]:
    """Inside it batch norms in train mode write their running statistics into scratch tensors.

    `track_running_stats = False` would do for float32, but in half precision torch's CPU kernel then computes a norm
    without weights in other numbers: scores would not be those of training.
    """
    norms = [norm for norm in module.modules() if isinstance(norm, _BatchNorm) and norm.training]
    kept = [(norm, dict(norm._buffers)) for norm in norms]
    try:
        for norm, buffers in kept:
            scratch = {name: None if own is None else torch.zeros_like(own) for name, own in buffers.items()}
            norm._buffers.update(scratch)
        yield
    finally:
        for norm, buffers in kept:
            norm._buffers.update(buffers)
