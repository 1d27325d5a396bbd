"""Where polynomials change their sign within an interval: many of them at a time, each with an interval of its own.

A polynomial of degree 1 or 2 has a formula. Above, the roots of the derivative cut the interval into pieces on which the
polynomial is monotone, and where its ends differ in sign a piece is halved until no float64 lies between.
"""

from typing import Any

from array_api_compat import array_namespace

Array = Any

#: Halvings of an interval within [0, 1] until its ends are neighbours, up to the last bits.
_HALVINGS = 60


def value(coefficients: Array, t: Array) -> Array:
    """Polynomials (..., degree + 1), lowest power first, at t (...), or one coefficient axis less: Horner's rule."""
    degree = coefficients.shape[-1] - 1
    total = coefficients[..., degree]
    for k in range(degree - 1, -1, -1):
        total = total * t + coefficients[..., k]
    return total


def crossings(coefficients: Array, low: Array, high: Array) -> Array:
    """Roots of odd order in low < t < high, (B, degree + 1) and (B,) -> (B, degree); `high` where there are fewer.

    In ascending order. Roots of even order are no change of sign, and are left out; a polynomial that is 0 has none.
    """
    xp = array_namespace(coefficients)
    degree = coefficients.shape[-1] - 1
    if degree == 0:
        return xp.zeros((*coefficients.shape[:-1], 0), dtype=coefficients.dtype)
    roots = [_linear, _quadratic][degree - 1](coefficients) if degree <= 2 else _bracketed(coefficients, low, high)
    inside = (roots > low[..., None]) & (roots < high[..., None])
    return xp.sort(xp.where(inside, roots, xp.broadcast_to(high[..., None], roots.shape)), axis=-1)


def _ratio(above: Array, below: Array) -> Array:
    """Quotients, and infinity where there is none."""
    xp = array_namespace(above)
    there = below != 0
    return xp.where(there, above / xp.where(there, below, xp.ones_like(below)), xp.inf * xp.ones_like(above))


def _linear(coefficients: Array) -> Array:
    return _ratio(-coefficients[..., 0], coefficients[..., 1])[..., None]


def _quadratic(coefficients: Array) -> Array:
    """Both roots without cancellation: the larger one by the formula, the other by their product."""
    xp = array_namespace(coefficients)
    # In units of the largest coefficient, so that squares neither vanish nor overflow.
    size = xp.max(xp.abs(coefficients), axis=-1)
    scaled = coefficients / xp.where(size > 0, size, xp.ones_like(size))[..., None]
    c, b, a = scaled[..., 0], scaled[..., 1] / 2, scaled[..., 2]
    discriminant = b * b - a * c
    real = discriminant > 0
    root = xp.sqrt(xp.where(real, discriminant, xp.zeros_like(discriminant)))
    q = -(b + xp.where(b < 0, -root, root))
    none = xp.inf * xp.ones_like(a)
    return xp.stack([xp.where(real, _ratio(q, a), none), xp.where(real, _ratio(c, q), none)], axis=-1)


def _bracketed(coefficients: Array, low: Array, high: Array) -> Array:
    xp = array_namespace(coefficients)
    degree = coefficients.shape[-1] - 1
    powers = xp.astype(xp.arange(1, degree + 1), coefficients.dtype)
    turns = crossings(coefficients[..., 1:] * powers, low, high)
    edges = xp.concat([low[..., None], turns, high[..., None]], axis=-1)
    left, right = edges[..., :-1], edges[..., 1:]
    each = coefficients[..., None, :]
    at_left = value(each, left)
    changes = (at_left > 0) != (value(each, right) > 0)
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        same = (value(each, middle) > 0) == (at_left > 0)
        left, right = xp.where(same, middle, left), xp.where(same, right, middle)
    return xp.where(changes, right, xp.inf * xp.ones_like(right))
