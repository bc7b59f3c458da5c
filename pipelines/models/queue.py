"""A first-in first-out memory of the last rows that a training has seen."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewkit.pipelines.distributed import gather


class Queue(nn.Module):
    """`rows` [length d], in no particular order: random unit vectors at first, sampled from `seed` (He et al. 2020).

    Rows and the place of the oldest are buffers, so a resumed training finds them; they are the same in all processes.
    """

    rows: Tensor
    oldest: Tensor

    def __init__(self, length: int, dim: int, seed: int) -> None:
        super().__init__()
        sampled = torch.randn(length, dim, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("rows", F.normalize(sampled, dim=1))
        self.register_buffer("oldest", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def push(self, rows: Float[Tensor, "n d"]) -> None:
        """Replace the oldest rows by those of every process. Of more rows than fit, the last stay."""
        length = len(self.rows)
        new = gather(rows.detach().to(self.rows.dtype))[-length:]
        places = (self.oldest + torch.arange(len(new), device=new.device)) % length
        self.rows[places] = new
        self.oldest.copy_((self.oldest + len(new)) % length)
