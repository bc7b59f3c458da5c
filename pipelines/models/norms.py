"""Batch norms that see other rows than their own batch's: parts of it (MoCo's shuffling), those of all processes, or
all of it without a trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from viewkit.pipelines.distributed import mean_over_processes, sum_over_processes, world_size
from viewkit.shards.errors import ConfigError


class AnyBatchNorm(_BatchNorm):
    """A batch norm for inputs of any number of axes, channels second."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.ndim}")


class SplitBatchNorm(AnyBatchNorm):
    """In training every one of `splits` equal, consecutive parts of the rows is normalised by its own statistics.

    Running statistics are the mean over the parts, of all processes. Without splitting, the key of a MoCo query would
    be the only one in sight that shares its batch's statistics, which gives it away (He et al. 2020, sec. 3.3).
    """

    splits = 1

    @classmethod
    def of(cls, norm: _BatchNorm, splits: int) -> "SplitBatchNorm":
        """One with the weights, statistics and settings of `norm`."""
        split = cls(norm.num_features, eps=norm.eps, momentum=norm.momentum, affine=norm.affine)
        split.weight, split.bias, split.splits = norm.weight, norm.bias, splits
        for name, statistic in norm.named_buffers():
            split.register_buffer(name, statistic)
        return split.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        means, variances, parts = [], [], []
        for part in input.chunk(self.splits):
            mean, variance = self.running_mean.clone(), self.running_var.clone()
            parts.append(F.batch_norm(part, mean, variance, self.weight, self.bias, True, self.momentum, self.eps))
            means.append(mean)
            variances.append(variance)
        statistics = torch.stack([torch.stack(means).mean(dim=0), torch.stack(variances).mean(dim=0)])
        mean, variance = mean_over_processes(statistics)
        self.running_mean.copy_(mean)
        self.running_var.copy_(variance)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return torch.cat(parts)


def split_norms(module: nn.Module, splits: int) -> None:
    """Turn every batch norm inside `module` into a split one; the names of its weights stay.

    splits: parts of the batch of all processes. Raises `ConfigError` where there is no batch norm, or where the
    processes cannot share the parts evenly.
    """
    if splits % world_size():
        raise ConfigError(f"bn_splits is {splits} on {world_size()} processes; it must be a multiple of their number")
    norms = [(parent, name) for parent in module.modules() for name, child in parent.named_children()
             if isinstance(child, _BatchNorm)]  # fmt: skip
    if not norms:
        raise ConfigError(f"bn_splits is {splits} and the backbone has no batch norm; leave it out")
    for parent, name in norms:
        setattr(parent, name, SplitBatchNorm.of(getattr(parent, name), splits // world_size()))


class SharedBatchNorm(AnyBatchNorm):
    """`nn.SyncBatchNorm` for processes on CPUs, which that one refuses; the same mathematics in plain torch."""

    @classmethod
    def of(cls, norm: _BatchNorm) -> "SharedBatchNorm":
        """One with the weights, statistics and settings of `norm`."""
        shared = cls(
            norm.num_features,
            eps=norm.eps,
            momentum=norm.momentum,
            affine=norm.affine,
            track_running_stats=norm.track_running_stats,
        )
        shared.weight, shared.bias = norm.weight, norm.bias
        for name, statistic in norm.named_buffers():
            shared.register_buffer(name, statistic)
        return shared.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(input)
        x = input.float()
        axes = [axis for axis in range(x.ndim) if axis != 1]
        count = x.numel() // x.shape[1] * world_size()
        mean = sum_over_processes(x.sum(axes)) / count
        shape = [1, -1] + [1] * (x.ndim - 2)
        centred = x - mean.view(shape)
        variance = sum_over_processes(centred.square().sum(axes)) / count
        self._track(mean.detach(), variance.detach() * count / (count - 1))
        y = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.momentum is None:
            return
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(unbiased, self.momentum)


def share_norms(module: nn.Module, device: str) -> nn.Module:
    """`module` with every batch norm turned into one over all processes; the names of its weights stay.

    Split batch norms (MoCo) are left as they are: that their parts are kept apart is what they are for.
    """
    if world_size() == 1 or isinstance(module, SplitBatchNorm):
        return module
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        cuda = device.startswith("cuda")
        return nn.SyncBatchNorm.convert_sync_batchnorm(module) if cuda else SharedBatchNorm.of(module)
    for name, child in module.named_children():
        setattr(module, name, share_norms(child, device))
    return module


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
