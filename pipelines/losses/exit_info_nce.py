"""The InfoNCE of every early exit at once (VS-2FI, eq. 4)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def exit_info_nce(
    q: Float[Tensor, "n e d"], k: Float[Tensor, "m e d"], tau: float, *, scaled: bool = True, first_key: int = 0
) -> Float[Tensor, " e"]:
    """L_l = mean over rows of -log P_l, for each exit l: `info_nce` of q[:, l] and k[:, l] in one batched product."""
    with torch.autocast(q.device.type, enabled=False):
        q, k = F.normalize(q.float(), dim=2), F.normalize(k.float(), dim=2)
        logits = torch.einsum("ned,med->enm", q, k) / tau
        positives = torch.arange(first_key, first_key + q.shape[0], device=q.device).expand(q.shape[1], -1)
        losses = F.cross_entropy(logits.flatten(0, 1), positives.flatten(), reduction="none")  # (e n)
        loss = losses.view(q.shape[1], -1).mean(dim=1)
        return 2 * tau * loss if scaled else loss
