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


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def nt_xent(z1, z2, tau, decoupled=False):
    """Chen et al. 2020a, eq. 1: rows' losses, mean of both directions; decoupled: Yeh et al. 2022, eq. 6."""
    n, z = len(z1), [*z1, *z2]
    losses = []
    for i in range(2 * n):
        partner = (i + n) % (2 * n)
        left_out = {i, partner} if decoupled else {i}
        denominator = sum(math.exp(cosine(z[i], z[j]) / tau) for j in range(2 * n) if j not in left_out)
        losses.append(math.log(denominator) - cosine(z[i], z[partner]) / tau)
    return [(losses[i] + losses[i + n]) / 2 for i in range(n)]


def queue_info_nce(q, k, queue, tau, decoupled=False):
    """He et al. 2020, alg. 1."""
    losses = []
    for query, key in zip(q, k, strict=True):
        positive = math.exp(cosine(query, key) / tau)
        negatives = sum(math.exp(cosine(query, old) / tau) for old in queue)
        losses.append(-math.log(positive / (negatives + (0 if decoupled else positive))))
    return losses


def moments(x):
    """Means and unbiased covariances of the columns of x."""
    n, d = len(x), len(x[0])
    mean = [sum(row[i] for row in x) / n for i in range(d)]
    c = [[sum((r[i] - mean[i]) * (r[j] - mean[j]) for r in x) / (n - 1) for j in range(d)] for i in range(d)]
    return mean, c


def vicreg_terms(x, y):
    """Bardes et al. 2022, eq. 1 to 5, with the mean of the two hinges."""
    n, d = len(x), len(x[0])
    invariance = sum((a - b) ** 2 for r, s in zip(x, y, strict=True) for a, b in zip(r, s, strict=True)) / (n * d)
    hinges, covariances = [], []
    for z in (x, y):
        _, c = moments(z)
        hinges.append(sum(max(0, 1 - math.sqrt(c[i][i] + 1e-4)) for i in range(d)) / d)
        covariances.append(sum(c[i][j] ** 2 for i in range(d) for j in range(d) if i != j) / d)
    return invariance, sum(hinges) / 2, sum(covariances)


def barlow_twins(x, y, redundancy):
    """Zbontar et al. 2021, eq. 1 and alg. 1, with the variance of a batch norm."""
    n, d = len(x), len(x[0])

    def standard(z):
        mean, c = moments(z)
        return [[(row[i] - mean[i]) / math.sqrt(c[i][i] * (n - 1) / n + 1e-5) for i in range(d)] for row in z]

    x, y = standard(x), standard(y)
    loss = 0.0
    for i in range(d):
        for j in range(d):
            c = sum(x[r][i] * y[r][j] for r in range(n)) / n
            loss += (1 - c) ** 2 if i == j else redundancy * c**2
    return loss


def softmax(values):
    powers = [math.exp(v) for v in values]
    return [p / sum(powers) for p in powers]


def cross_entropy(teacher, student, centre, teacher_tau, tau):
    """Caron et al. 2021, eq. 1 and alg. 1, of one row."""
    target = softmax([(t - c) / teacher_tau for t, c in zip(teacher, centre, strict=True)])
    return -sum(p * math.log(q) for p, q in zip(target, softmax([s / tau for s in student]), strict=True))


def sinkhorn(scores, epsilon, rounds):
    """Caron et al. 2020, sec. 3.1 and listing: prototypes weigh 1 / k, then rows 1 / n, again and again."""
    q = [[math.exp(s / epsilon) for s in row] for row in scores]
    n, k = len(q), len(q[0])
    for _ in range(rounds):
        weights = [sum(row[j] for row in q) * k for j in range(k)]
        q = [[row[j] / weights[j] for j in range(k)] for row in q]
        q = [[value / sum(row) / n for value in row] for row in q]
    return [[value * n for value in row] for row in q]
