"""GenView's foreground in plain numpy, from the paper: a slow reference, and small worlds to try it on."""

import math

import numpy as np


def first_component(tokens):
    """Direction of largest variance of all tokens [m k], by a singular value decomposition."""
    _, _, v = np.linalg.svd(tokens - tokens.mean(axis=0), full_matrices=False)
    return v[0]


def squared_cosine(num_levels=1000):
    """abar by a plain loop (Nichol & Dhariwal 2021, eq. 17)."""

    def f(t):
        return math.cos((t / num_levels + 0.008) / 1.008 * math.pi / 2) ** 2

    abar, product = [], 1.0
    for t in range(num_levels):
        product *= 1 - min(1 - f(t + 1) / f(t), 0.999)
        abar.append(product)
    return abar


def nearest_other(queries, index, own):
    """Row of largest dot product that is neither the own one nor zero, one query at a time."""
    found = []
    for query, row in zip(queries, own, strict=True):
        best, where = -math.inf, -1
        for i, candidate in enumerate(index):
            if i != row and candidate.any() and float(query @ candidate) > best:
                best, where = float(query @ candidate), i
        found.append(where)
    return found


def discs(rng, images=64, side=16, width=8, shift=4, sign=1):
    """Tokens [n t k] of images with one disc near the centre, and its masks [n side side].

    Foreground tokens differ from background along one random direction, background varies more than foreground.
    """
    direction = rng.standard_normal(width)
    direction /= np.linalg.norm(direction)
    offset = rng.standard_normal(width)
    y, x = np.mgrid[:side, :side]
    tokens, masks = [], []
    for _ in range(images):
        cy, cx = side / 2 + rng.uniform(-shift, shift, 2)
        mask = (y - cy) ** 2 + (x - cx) ** 2 < (rng.uniform(0.2, 0.45) * side) ** 2
        score = sign * 4.0 * mask + rng.standard_normal((side, side))
        noise = 0.3 * rng.standard_normal((side, side, width))
        tokens.append((offset + score[..., None] * direction + noise).reshape(-1, width))
        masks.append(mask)
    return np.stack(tokens).astype(np.float32), np.stack(masks)
