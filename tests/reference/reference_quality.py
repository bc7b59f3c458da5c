"""GenView's quality, eq. 10 to 13: a slow reference implementation, plain loops over positions, views and pairs."""

import math


def soft_mask(grid, direction):
    """grid: h lists of w lists of k numbers. Min-max scaled projection of every position."""
    scores = [[sum(f * d for f, d in zip(cell, direction, strict=True)) for cell in line] for line in grid]
    low, high = min(map(min, scores)), max(map(max, scores))
    return [[(score - low) / (high - low) for score in line] for line in scores]


def aggregate(mask, grid):
    """Weighted mean of the positions' features, with the mask divided by its sum as the release does."""
    total = sum(map(sum, mask))
    z = [0.0] * len(grid[0][0])
    for weights, line in zip(mask, grid, strict=True):
        for weight, cell in zip(weights, line, strict=True):
            for i, value in enumerate(cell):
                z[i] += weight / total * value
    return z


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def quality(one, other, direction):
    """q = s^f - s^b of two maps."""
    features = []
    for grid in (one, other):
        foreground = soft_mask(grid, direction)
        background = [[1 - value for value in line] for line in foreground]
        features.append((aggregate(foreground, grid), aggregate(background, grid)))
    (f1, b1), (f2, b2) = features
    return cosine(f1, f2) - cosine(b1, b2)


def weights(q):
    """Eq. 13 times n, as the release has it."""
    total = sum(math.exp(value) for value in q)
    return [len(q) * math.exp(value) / total for value in q]
