"""Losses of candidate views, computed as in training but without side effects: the first half of hard view selection.

Every candidate makes one forward pass, in a batch with the same candidate of the other rows, so batch norms see what
they would see in training; pairs are then compared from the heads' outputs.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from viewkit.pipelines.models.backbone import Encoded
from viewkit.pipelines.models.norms import untracked_norms
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.step import Stepper


def roles_of_candidates(framework: Framework, num_views: int) -> tuple[list[int], list[int]]:
    """Which candidates may be needed from the learning network, and which from the target network.

    The lower index of a selected pair becomes view 1. So with MoCo's query and key the last candidate is never a query
    and the first never a key.
    """
    first, second = range(num_views - 1), range(1, num_views)
    return tuple(  # type: ignore[return-value]
        sorted({*(first if 0 in roles else ()), *(second if 1 in roles else ())}) for roles in framework.roles(2)
    )


@dataclass(frozen=True)
class CandidateOutputs:
    """Of every candidate the outputs of the heads and of the target backbone, None where it cannot have that role."""

    outputs: list[Outputs]
    targets: list[Encoded | None]


def forward_candidates(
    framework: Framework,
    views: Sequence[Float[Tensor, "n 3 _s _s"]],
    learning: Collection[int],
    targets: Collection[int],
    stepper: Stepper,
) -> CandidateOutputs:
    """A forward pass of every candidate in the trainer's precision, without gradient; no buffer changes."""
    found = CandidateOutputs([], [])
    with torch.no_grad(), untracked_norms(framework), stepper.autocast():
        for j, view in enumerate(views):
            encoded = _in_parts(framework.encode, view, stepper.micro_batch) if j in learning else None
            target = _in_parts(framework.encode_target, view, stepper.micro_batch) if j in targets else None
            found.outputs.append(framework.project(encoded, target))
            found.targets.append(target)
    return found


def _in_parts(
    encode: Callable[[Tensor], Encoded | None], view: Float[Tensor, "n 3 s s"], rows: int | None
) -> Encoded | None:
    parts = [encode(part) for part in view.split(rows or len(view))]
    if len(parts) == 1:
        return parts[0]
    whole = [part for part in parts if part is not None]
    return tuple(torch.cat(pieces) for pieces in zip(*whole, strict=True)) if whole else None


def forward_pairs(
    framework: Framework, views: Sequence[Float[Tensor, "n 3 s s"]], stepper: Stepper
) -> CandidateOutputs:
    """`forward_candidates` for pairs: each candidate in the roles that it can have."""
    return forward_candidates(framework, views, *roles_of_candidates(framework, len(views)), stepper)


@torch.no_grad()
def losses_of_pairs(framework: Framework, outputs: Sequence[Outputs], stepper: Stepper) -> Float[Tensor, "n c"]:
    """The loss that every pair of candidates would have in training; pairs as in `pair_index`."""
    with stepper.autocast():
        losses = [framework.pair_losses(outputs[j], outputs[k]) for j, k in pair_index(len(outputs)).tolist()]
    return torch.stack(losses, dim=1).float()


def is_row_independent(backbone: nn.Module) -> bool:
    """Whether its output for a row depends on that row alone in train mode: no batch norm, no dropout, no drop path."""
    return not any(
        isinstance(module, _BatchNorm)
        or (isinstance(module, _DropoutNd) and module.p > 0)
        or float(getattr(module, "drop_prob", 0) or 0) > 0
        for module in backbone.modules()
    )
