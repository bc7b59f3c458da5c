"""DINO's loss: a student's distribution over outputs should be the teacher's, sharpened and centred."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def crop_cross_entropy(
    teachers: Sequence[Float[Tensor, "n d"]],
    students: Sequence[Float[Tensor, "n d"]],
    centre: Float[Tensor, " d"],
    *,
    teacher_tau: float,
    tau: float,
) -> Float[Tensor, "n t s"]:
    """H(P_t, P_s) of every teacher view against every student view, per row (Caron et al. 2021, eq. 1 to 3, alg. 1).

    P_t = softmax((t - centre) / teacher_tau), without gradient; P_s = softmax(s / tau). As P_t sums to 1, the cross
    entropy is log sum exp(s / tau) - P_t . s / tau. Computed in fp32, inside autocast too.
    """
    with torch.autocast(students[0].device.type, enabled=False):
        targets = torch.stack([torch.softmax((t.detach().float() - centre) / teacher_tau, dim=1) for t in teachers], 1)
        columns = []
        for student in students:
            logits = student.float() / tau
            columns.append(torch.logsumexp(logits, dim=1)[:, None] - torch.einsum("ntd,nd->nt", targets, logits))
        return torch.stack(columns, dim=2)
