"""Slow reference implementations of VS-2FI: plain loops, equation by equation from the paper, in Python floats."""

import math
from itertools import pairwise


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def pairs(num_views):
    """Algorithm 1, `pair`: all unique pairs."""
    found = []
    for i in range(num_views):
        for j in range(i + 1, num_views):
            found.append((i, j))
    return found


def histogram(values, edges):
    """Counts between edges; a bin holds its lower edge, the last also its upper one."""
    counts = [0] * (len(edges) - 1)
    for value in values:
        for b in range(len(counts)):
            last = b == len(counts) - 1
            if edges[b] <= value < edges[b + 1] or (last and value == edges[-1]):
                counts[b] += 1
    return counts


def posterior(positive, negative, prior_positive):
    """Eq. 2 in every bin; None where neither kind of pair was seen."""
    curve = []
    for h_pos, h_neg in zip(positive, negative, strict=True):
        p_s_pos, p_s_neg = h_pos / sum(positive), h_neg / sum(negative)
        evidence = p_s_pos * prior_positive + p_s_neg * (1 - prior_positive)
        curve.append(p_s_pos * prior_positive / evidence if evidence > 0 else None)
    return curve


def semantic_consistency(s, edges, curve):
    """Appendix B: values between bins interpolated linearly; flat outside; unknown bins are skipped."""
    knots = [((edges[b] + edges[b + 1]) / 2, p) for b, p in enumerate(curve) if p is not None]
    if s <= knots[0][0]:
        return knots[0][1]
    for (x0, p0), (x1, p1) in pairwise(knots):
        if s <= x1:
            return p0 + (p1 - p0) * (s - x0) / (x1 - x0)
    return knots[-1][1]


def log_sum(anchor, negatives, tau):
    """Appendix B: log of the sum of Q(anchor, x-) over the negatives, Q = exp(sim / tau) (eq. 4)."""
    return math.log(sum(math.exp(cosine(anchor, x) / tau) for x in negatives))


def alignment_score(s, counts, edges, tau):
    """Eq. 6: mean over the histogram's bins of Q / (Q + sum)."""
    q = math.exp(s / tau)
    expectation = 0.0
    for b, count in enumerate(counts):
        total = math.exp((edges[b] + edges[b + 1]) / 2)
        expectation += count / sum(counts) * q / (q + total)
    return expectation


def alignment_level(scores, gamma):
    """Eq. 5: min of {l | P_l > gamma} and {L + 1}."""
    levels = [level for level, p in enumerate(scores, start=1) if p > gamma]
    return min([*levels, len(scores) + 1])


def keep(consistency, level, k_sc, k_al):
    """Algorithm 1 with the maximum of the levels over what Semantic Consistency left; the surviving pairs' numbers."""
    left = [c for c in range(len(level)) if not consistency[c] < min(k_sc, max(consistency))]
    highest = max(level[c] for c in left)
    return [c for c in left if not level[c] < min(k_al, highest)]
