"""Batch norms that see parts of a batch alone, as on several processors: what MoCo's shuffling needs on one."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from viewkit.pipelines.distributed import mean_over_processes, world_size
from viewkit.shards.errors import ConfigError


class SplitBatchNorm(_BatchNorm):
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

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.ndim}")

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
