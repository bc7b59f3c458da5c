"""One training on several processes (torchrun): ranks, and what processes gather, sum and broadcast.

Gradients are averaged here and not by `DistributedDataParallel`: its hooks fire once for every backward pass, and
accumulation runs several, while the loss of a batch needs the rows of all processes at once. Outside torchrun every
function is that of a world of one, at no cost.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from viewkit.shards.errors import ConfigError

BUCKET_BYTES = 64 * 2**20
"""Gradients are averaged in flat pieces of about this size."""
PATIENCE = timedelta(hours=12)
"""How long a process waits for another: while the main one runs the kNN probe on a large data set, say, which takes
longer than NCCL's ten minutes. torchrun ends the others when one has died."""


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Whether this process writes files and reports progress."""
    return rank() == 0


@contextmanager
def world(device: str, job: str, *, allowed: bool) -> Iterator[str]:
    """Enter, and leave again, the world that torchrun's variables describe; gives this process's device.

    Outside torchrun nothing happens. Raises `ConfigError` when the job does not run on several processes, or when
    there are more of them than GPUs.
    """
    processes, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    if processes == 1:
        yield device
        return
    if not allowed:
        raise ConfigError(f"torchrun started {processes} processes, and 'viewkit {job}' runs on one; start it plainly")
    if device.startswith("cuda"):
        if local >= torch.cuda.device_count():
            raise ConfigError(
                f"torchrun started process {local} on a machine with {torch.cuda.device_count()} GPUs; start at most "
                "one process a GPU (--nproc-per-node)"
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def broadcast_from_main(value: bool | None) -> bool:
    """The main process's value, in all of them; the others pass None."""
    if world_size() == 1:
        return bool(value)
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return bool(values[0])


def barrier() -> None:
    """Wait for the others."""
    if world_size() > 1:
        dist.barrier()


def share_of_batch(batch_size: int) -> int:
    """Rows of a batch that fall to this process; `ConfigError` when they cannot be dealt out evenly."""
    if batch_size % world_size():
        raise ConfigError(
            f"batch_size is {batch_size} on {world_size()} processes; it is the whole batch and must be divisible by "
            "their number"
        )
    return batch_size // world_size()


class _Gather(torch.autograd.Function):
    """Rows of all processes, in the order of ranks; a row's gradient is the sum of what every process has for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        ctx.num_rows = len(x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient[rank() * ctx.num_rows :][: ctx.num_rows]


def gather(x: Tensor) -> Tensor:
    """[n ...] of every process -> [w n ...] on each. Gradients flow back to the process a row came from."""
    return x if world_size() == 1 else _Gather.apply(x)


def first_row(num_rows: int) -> int:
    """Where this process's rows begin among gathered ones."""
    return rank() * num_rows


class _Sum(torch.autograd.Function):
    """The sum over processes, of which each process then uses its own copy: the gradient is summed too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def sum_over_processes(x: Tensor) -> Tensor:
    """x summed over all processes; differentiable."""
    return x if world_size() == 1 else _Sum.apply(x)


@torch.no_grad()
def mean_over_processes(x: Tensor) -> Tensor:
    """x averaged over all processes, for numbers to show; no gradient."""
    if world_size() == 1:
        return x
    total = x.detach().clone()
    dist.all_reduce(total)
    return total / world_size()


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the processes: the gradient of the loss of the whole batch."""
    if world_size() == 1:
        return
    bucket: list[Tensor] = []
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
        if sum(gradient.nbytes for gradient in bucket) >= BUCKET_BYTES:
            _average(bucket)
            bucket = []
    if bucket:
        _average(bucket)


def _average(gradients: list[Tensor]) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= world_size()
    for gradient, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
