"""The InfoNCE of every early exit at once (VS-2FI, eq. 4)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewkit.pipelines.distributed import first_row, gather


def exit_info_nce(
    q: Float[Tensor, "n e d"], k: Float[Tensor, "n e d"], tau: float, *, scaled: bool = True
) -> Float[Tensor, "n e"]:
    """-log P_l of every row and exit l: `info_nce` of q[:, l] and k[:, l] in one batched product."""
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=2), gather(F.normalize(k.float(), dim=2))
        logits = torch.einsum("ned,med->enm", q, k) / tau
        positives = (torch.arange(q.shape[0], device=q.device) + first_row(q.shape[0])).expand(q.shape[1], -1)
        losses = F.cross_entropy(logits.flatten(0, 1), positives.flatten(), reduction="none")  # (e n)
        losses = losses.view(q.shape[1], -1).T  # n e
        return 2 * tau * losses if scaled else losses
