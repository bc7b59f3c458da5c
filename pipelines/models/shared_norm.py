"""Batch norm over the rows of all processes."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from viewkit.pipelines.distributed import sum_over_processes, world_size
from viewkit.pipelines.models.split_norm import SplitBatchNorm


class SharedBatchNorm(_BatchNorm):
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

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.ndim}")

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
