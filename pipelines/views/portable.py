"""exp, log, erf and the normal quantile from additions, products, quotients and roots alone.

Recipes must be the same numbers on every machine. IEEE 754 fixes those four operations; the exp and log of numpy and
of the C library differ in the last place between processors and versions.
"""

import numpy as np
from jaxtyping import Float64

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; the high one has 21 zero bits at its end, so small multiples of it are exact."""
EXP_TERMS = 14
LOG_TERMS = 12
SQRT_PI = 1.7724538509055160273
# Wichura 1988, algorithm AS 241 (PPND16): numerators and denominators, constant term first.
CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
MIDDLE = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
TAIL = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], x: Float64[np.ndarray, "*any"]) -> Float64[np.ndarray, "*any"]:
    value = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def exp(x: Float64[np.ndarray, "*any"]) -> Float64[np.ndarray, "*any"]:
    """e^x to about 1e-15 of the value, for |x| up to 700."""
    power = np.floor(x / (LN2_HIGH + LN2_LOW) + 0.5)
    rest = (x - power * LN2_HIGH) - power * LN2_LOW  # within half of ln 2
    value = np.ones_like(x)
    for term in range(EXP_TERMS, 0, -1):
        value = 1.0 + rest * value / term
    return np.asarray(np.ldexp(value, power.astype(np.int32)))


def log(x: Float64[np.ndarray, "*any"]) -> Float64[np.ndarray, "*any"]:
    """Natural logarithm to about 1e-15 of max(1, |log x|), for x > 0."""
    mantissa, power = np.frexp(x)
    small = mantissa < 0.70710678118654752440
    mantissa = np.where(small, 2 * mantissa, mantissa)
    power = np.where(small, power - 1, power).astype(np.float64)
    s = (mantissa - 1) / (mantissa + 1)
    square = s * s
    series = np.zeros_like(s)
    for term in range(LOG_TERMS, -1, -1):
        series = series * square + 1.0 / (2 * term + 1)
    return np.asarray(power * LN2_HIGH + (2 * s * series + power * LN2_LOW))


def erf(x: float) -> float:
    """The error function: Abramowitz & Stegun 7.1.6, all terms of one sign."""
    if abs(x) > 6:
        return 1.0 if x > 0 else -1.0
    term, total, n = x, x, 0
    while abs(term) > 1e-18 * abs(total):
        n += 1
        term *= 2 * x * x / (2 * n + 1)
        total += term
    return 2 / SQRT_PI * float(exp(np.array([-x * x]))[0]) * total


def normal_quantile(q: Float64[np.ndarray, "*any"]) -> Float64[np.ndarray, "*any"]:
    """z with Phi(z) = q + 1/2, for q in (-1/2, 1/2); exact to about 1e-15. q keeps its digits near the median."""
    centre = q * _ratio(CENTRE, 0.180625 - q * q)
    tail = np.sqrt(-log(np.maximum(0.5 - np.abs(q), 1e-300)))
    outer = np.where(tail <= 5, _ratio(MIDDLE, tail - 1.6), _ratio(TAIL, tail - 5))
    return np.where(np.abs(q) <= 0.425, centre, np.copysign(outer, q))


def _ratio(
    parts: tuple[tuple[float, ...], tuple[float, ...]], x: Float64[np.ndarray, "*any"]
) -> Float64[np.ndarray, "*any"]:
    return _polynomial(parts[0], x) / _polynomial(parts[1], x)
