"""The divergence-based similarity in 40 digits, from its paper (Jeon et al. 2026, eq. 3-12), element by element."""

import mpmath as mp

mp.mp.dps = 40


def estimate(mean, shrink, p):
    """Mean direction, scaled mean length R, and Banerjee's kappa divided by p."""
    length = mp.sqrt(mp.fsum(mp.mpf(x) ** 2 for x in mean))
    r = mp.mpf(shrink) * length
    return [mp.mpf(x) / length for x in mean], r, r * (p - r**2) / (1 - r**2) / p


def divergence(one, other, p, exact):
    """Eq. 10; exact: A_p of kappa, else R."""
    (mu, r, kappa), (nu, _, other_kappa) = one, other
    v = mp.mpf(p) / 2 - 1
    length = mp.besseli(v + 1, kappa) / mp.besseli(v, kappa) if exact else r
    cosine = mp.fsum(a * b for a, b in zip(mu, nu, strict=True))
    return (
        v * mp.log(kappa / other_kappa)
        + mp.log(mp.besseli(v, other_kappa))
        - mp.log(mp.besseli(v, kappa))
        + length * (kappa - other_kappa * cosine)
    )


def losses(queries, keys, queue, shrink, exact):
    """Eq. 12 of every row. queries, keys: means of unit vectors; queue: unit vectors or None."""
    p = len(queries[0])
    ours, theirs = [[estimate(mean, shrink, p) for mean in means] for means in (queries, keys)]
    if queue is not None:
        kappa = mp.fsum(k for _, _, k in [*ours, *theirs]) / (2 * len(ours))
        stored = [([mp.mpf(x) for x in row], None, kappa) for row in queue]
    found = []
    for i, one in enumerate(ours):
        others = theirs if queue is None else [theirs[i], *stored]
        scores = [-divergence(one, other, p, exact) for other in others]
        positive = scores[i if queue is None else 0]
        found.append(float(mp.log(mp.fsum(mp.exp(score) for score in scores)) - positive))
    return found
