"""Poisson deviance: the loss of counts and rates, with the log link inside."""

import math
from typing import Any

from array_api_compat import array_namespace

from dask_nlis.losses import protocol
from dask_nlis.nouns import noun

Array = Any

#: Largest u for which 2 exp(u) is a float64.
_LARGEST = 709.08

#: Coefficients 1/(k + 2)! of (exp(x) - 1 - x) / x^2, enough for |x| <= 1.
_SERIES = tuple(1 / math.factorial(k + 2) for k in range(19))


@noun
class PoissonDeviance:
    """Poisson deviance 2 (y log(y / mu) - y + mu) of the linear predictor u = log mu, for y >= 0.

    The link is inside, so the model must give u itself: `Linear()` or another model with `Identity()`. The root is
    the signed deviance residual, sqrt(2 mu) at y = 0. y need not be an integer (rates and amounts).

    Notes
    -----
    With d = u - log y the loss is 2 y (exp(d) - 1 - d): zero at d = 0, where the difference of the textbook form has
    no digit left (McCullagh & Nelder 1989, section 2.3). Beyond u = 709.08 the loss itself is infinite in float64; its root is finite up to u = 1418.

    Examples
    --------
    >>> import numpy as np
    >>> PoissonDeviance().value(np.log([3.0, 2.0]), np.array([3.0, 0.0])).round(12)
    array([0., 4.])
    """

    takes = "linear predictor"
    may_be_singular = False
    singular = protocol.never_singular

    def check_labels(self, y: Array) -> tuple[Array, str, str] | None:
        """Negative labels."""
        return y < 0, "below 0", "give counts or rates >= 0"

    def value(self, prediction: Array, y: Array) -> Array:
        """Square of the signed deviance residual, infinite where mu is."""
        xp = array_namespace(prediction)
        finite = prediction <= _LARGEST
        root = self.root(xp.where(finite, prediction, xp.zeros_like(prediction)), y)
        return xp.where(finite, root * root, math.inf * xp.ones_like(prediction))

    def derivative(self, prediction: Array, y: Array) -> Array:
        """2 (mu - y)."""
        return 2 * (self.response(prediction) - y)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """2 mu."""
        return 2 * self.response(prediction)

    def root(self, prediction: Array, y: Array) -> Array:
        """Signed deviance residual, of the sign of mu - y."""
        xp = array_namespace(prediction)
        some, d = _distance(prediction, y)
        # Three pieces, each on its own stretch of d: near 0, below -1, above 1.
        near = xp.clip(d, -1.0, 1.0)
        below = xp.clip(d, None, -1.0)
        middle = near * xp.sqrt(2 * _second(near))
        left = -xp.sqrt(2 * (xp.expm1(below) - below))
        counted = xp.sqrt(some) * xp.where(d < -1, left, middle)
        above = _half_exp(prediction) * xp.where(y > 0, _lifted(d), math.sqrt(2) * xp.ones_like(d))
        return xp.where((y > 0) & (d <= 1), counted, above)

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Divided difference of the deviance residual; positive everywhere.

        Roots of opposite sign, or a factor 2 apart, are subtracted. Closer ones r, s > 0 go through their squares:
        (r^2 - s^2) / (r + s), where r^2 - s^2 = 2 y (exp(d_r) - exp(d_s) - (d_r - d_s)) is a sum of two terms of one
        sign when expanded around the smaller of |d_r| and |d_s|.
        """
        xp = array_namespace(a)
        high, low = xp.maximum(a, b), xp.minimum(a, b)
        some, d_high = _distance(high, y)
        _, d_low = _distance(low, y)
        r_high, r_low = self.root(high, y), self.root(low, y)
        positive = r_low > 0
        inner, outer = xp.where(positive, r_low, r_high), xp.where(positive, r_high, r_low)
        same = xp.sign(r_high) * xp.sign(r_low) > 0
        close = (y > 0) & same & (xp.abs(outer) < 2 * xp.abs(inner))
        still = (d_high == 0) & (d_low == 0)
        # Roots below d = 1 are formed from d, with its rounding; those above from u.
        step = xp.where(d_low > 1, high - low, d_high - d_low)
        apart = (y > 0) & ~close & (step != 0)
        by_difference = (xp.where(apart, r_high, xp.zeros_like(a)) - xp.where(apart, r_low, xp.zeros_like(a))) / (
            xp.where(apart, step, xp.ones_like(a))
        )
        by_squares = _close_slope(
            xp.where(close, xp.where(positive, d_low, d_high), xp.ones_like(a)),
            xp.where(close, xp.where(positive, step, -step), xp.zeros_like(a)),
            xp.where(positive, low, high),
            some,
        )
        slope = xp.where(close, by_squares, by_difference)
        slope = xp.where(still, xp.sqrt(some), slope)
        # y = 0: sqrt 2 (exp(a/2) - exp(b/2)) / (a - b).
        return xp.where(y > 0, slope, _half_exp(high) / math.sqrt(2) * _mean_exp((low - high) / 2))

    def response(self, prediction: Array) -> Array:
        """Mean mu = exp(u), infinite beyond u = 709.08."""
        xp = array_namespace(prediction)
        finite = prediction <= _LARGEST
        mu = xp.exp(xp.where(finite, prediction, xp.zeros_like(prediction)))
        return xp.where(finite, mu, math.inf * xp.ones_like(mu))


def _distance(u: Array, y: Array) -> tuple[Array, Array]:
    """y with 1 in place of labels that are not positive, and d = u - log of it."""
    xp = array_namespace(u)
    some = xp.where(y > 0, y, xp.ones_like(y))
    return some, u - xp.log(some)


def _second(x: Array) -> Array:
    """(exp(x) - 1 - x) / x^2 for |x| <= 1, by its series; 1/2 at 0."""
    total = _SERIES[-1] * array_namespace(x).ones_like(x)
    for coefficient in reversed(_SERIES[:-1]):
        total = total * x + coefficient
    return total


def _lifted(d: Array) -> Array:
    """sqrt(2 (1 - (1 + d) exp(-d))): the root over exp(u/2), for d >= 1 (smaller ones count as 1)."""
    xp = array_namespace(d)
    d = xp.clip(d, 1.0, None)
    small = xp.exp(-d)
    return xp.sqrt(2 * (-xp.expm1(-d) - d * small))


def _half_exp(u: Array) -> Array:
    """exp(u/2), infinite where it leaves float64."""
    xp = array_namespace(u)
    finite = u <= 2 * _LARGEST
    root = xp.exp(xp.where(finite, u, xp.zeros_like(u)) / 2)
    return xp.where(finite, root, math.inf * xp.ones_like(u))


def _mean_exp(x: Array) -> Array:
    """(exp(x) - 1) / x, and 1 at x = 0."""
    xp = array_namespace(x)
    still = x == 0
    safe = xp.where(still, xp.ones_like(x), x)
    return xp.where(still, xp.ones_like(x), xp.expm1(safe) / safe)


def _close_slope(inner: Array, step: Array, u: Array, some: Array) -> Array:
    """Slope between two roots of one sign within a factor 2, at distances inner and inner + step from log y.

    inner and step have one sign; u belongs to `inner`. Above inner = 1 everything is divided by exp(inner), so that nothing overflows.
    """
    xp = array_namespace(inner)
    small = xp.clip(step, -1.0, 1.0)
    low = xp.where(step < -1, step, -xp.ones_like(step))
    high = xp.where(step > 1, step, xp.ones_like(step))
    bend = xp.where(step < -1, _bend(low), xp.where(step > 1, _bend(high), small * _second(small)))
    growth = _mean_exp(step)
    below, above = xp.clip(inner, None, 1.0), xp.clip(inner, 1.0, None)
    counted = (
        xp.sqrt(some) * 2 * xp.abs(xp.expm1(below) * growth + bend) / (_unit_root(below) + _unit_root(below + step))
    )
    rest = -xp.expm1(-above) * growth + bend * xp.exp(-above)
    lifted = _half_exp(u) * 2 * rest / (_lifted(above) + _lifted(above + step) * xp.exp(step / 2))
    return xp.where(inner > 1, lifted, counted)


def _bend(x: Array) -> Array:
    """(exp(x) - 1 - x) / x for |x| >= 1."""
    return (array_namespace(x).expm1(x) - x) / x


def _unit_root(d: Array) -> Array:
    """|root| over sqrt(y): sqrt(2 (exp(d) - 1 - d)), for d <= 3."""
    xp = array_namespace(d)
    near = xp.clip(d, -1.0, 1.0)
    d = xp.clip(d, None, 3.0)
    far = xp.where(xp.abs(d) > 1, d, xp.ones_like(d))
    return xp.where(xp.abs(d) > 1, xp.sqrt(2 * (xp.expm1(far) - far)), xp.abs(near) * xp.sqrt(2 * _second(near)))
