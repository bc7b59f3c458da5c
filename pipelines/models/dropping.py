"""Stochastic depth: blocks that a backbone leaves out at random while it trains, and where these draws come from.

timm's `DropPath` draws from torch's global state. So that a resumed run drops what the unbroken one would have, that
state is set before every step.
"""

from typing import Any

import torch
from torch import nn

from viewkit.pipelines.distributed import rank
from viewkit.pipelines.engine.seeds import stream


def drop_paths(module: nn.Module) -> list[Any]:
    """The modules inside that leave out rows' branches with a probability above 0."""
    return [each for each in module.modules() if float(getattr(each, "drop_prob", 0) or 0) > 0]


def seed_drops(module: nn.Module, seed: int, step: int) -> None:
    """Set torch's global state by (seed, step, process), where `module` drops anything at all."""
    if drop_paths(module):
        torch.manual_seed(int(stream(seed, "drop path", step, rank()).integers(2**63)))
