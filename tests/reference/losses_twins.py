"""Losses as plain loops from their papers."""

import math


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def info_nce(q, k, tau, positives=None):
    """He et al. 2020, eq. 1, row by row; VS-2FI eq. 1 and 4 are the same with sim = cosine."""
    losses = []
    for i, query in enumerate(q):
        scores = [math.exp(cosine(query, key) / tau) for key in k]
        positive = i if positives is None else positives[i]
        losses.append(-math.log(scores[positive] / sum(scores)))
    return losses


def moco_v3(q1, q2, k1, k2, tau):
    """VS-2FI Alg. 2: ctr(q1, k2) + ctr(q2, k1), ctr = 2 tau * mean cross entropy."""
    n = len(q1)
    return 2 * tau * (sum(info_nce(q1, k2, tau)) + sum(info_nce(q2, k1, tau))) / n


def simsiam(p1, p2, z1, z2):
    """Chen & He 2021, eq. 1 and 2."""
    n = len(p1)
    return -sum(cosine(p1[i], z2[i]) / 2 + cosine(p2[i], z1[i]) / 2 for i in range(n)) / n
