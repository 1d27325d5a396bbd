"""Means of linear, count and positive regression: Identity, Exp, Softplus. Convex, so their secants rise."""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import bounds
from dask_nlis.activations.protocol import LINE
from dask_nlis.kernels.special import expit, quotient
from dask_nlis.nouns import noun

Array = Any


@noun
class Identity:
    """phi(t) = t.

    Notes
    -----
    The identity link (McCullagh & Nelder 1989, section 2.2): `SingleIndex(Identity())` is `Linear()`.

    Examples
    --------
    >>> import numpy as np
    >>> Identity().secant(np.array([0.0, 3.0]))
    array([1., 1.])
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """Return t."""
        return t

    def derivative(self, t: Array) -> Array:
        """1 everywhere."""
        return array_namespace(t).ones_like(t)

    def second_derivative(self, t: Array) -> Array:
        """0 everywhere."""
        return array_namespace(t).zeros_like(t)

    def secant(self, t: Array) -> Array:
        """1 everywhere."""
        return array_namespace(t).ones_like(t)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(1, 1)."""
        return bounds.monotone(self.secant, lower, upper, 1.0, 1.0)


@noun
class Exp:
    """phi(t) = exp(t), the mean of a Poisson regression with log link.

    Notes
    -----
    The inverse of the log link (McCullagh & Nelder 1989, chapter 6).

    Condition |t|. Above t = 709.78 value, derivatives and secant are infinite, without a warning; the check of
    rows for finite numbers reports them.

    Examples
    --------
    >>> import numpy as np
    >>> Exp().secant(np.array([0.0, 1e-300]))
    array([1., 1.])
    >>> Exp().secant_bounds(upper=0.0)
    (0.0, 1.0)
    """

    at_zero = 1.0
    domain = (-math.inf, math.log(np.finfo(np.float64).max))

    @np.errstate(over="ignore")
    def value(self, t: Array) -> Array:
        """exp(t)."""
        return array_namespace(t).exp(t)

    def derivative(self, t: Array) -> Array:
        """exp(t)."""
        return self.value(t)

    def second_derivative(self, t: Array) -> Array:
        """exp(t)."""
        return self.value(t)

    @np.errstate(over="ignore")
    def secant(self, t: Array) -> Array:
        """expm1(t) / t."""
        return quotient(array_namespace(t).expm1, t, 1.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, inf) on the line; rising."""
        return bounds.monotone(self.secant, lower, upper, 0.0, math.inf)


@noun
class Softplus:
    """phi(t) = log(1 + exp(t)), a smooth max(t, 0).

    Notes
    -----
    Dugas et al. (2001).

    Condition |t| for t < 0, where phi is close to exp(t); about 1 elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> Softplus().secant(np.array([-1e300, 0.0, 1e300]))
    array([6.93147181e-301, 5.00000000e-001, 1.00000000e+000])
    """

    at_zero = math.log(2.0)
    domain = LINE

    def value(self, t: Array) -> Array:
        """max(t, 0) + log1p(exp(-|t|))."""
        xp = array_namespace(t)
        return xp.where(t > 0, t, xp.zeros_like(t)) + xp.log1p(xp.exp(-xp.abs(t)))

    def derivative(self, t: Array) -> Array:
        """1 / (1 + exp(-t))."""
        return expit(t)

    def second_derivative(self, t: Array) -> Array:
        """s (1 - s), s the logistic function of t."""
        return expit(t) * expit(-t)

    def secant(self, t: Array) -> Array:
        """log1p(expm1(t) / 2) / t for t <= 0; the secant at -t is 1 minus that at t, by phi(t) = t + phi(-t)."""
        xp = array_namespace(t)
        left = quotient(lambda s: xp.log1p(xp.expm1(s) / 2), -xp.abs(t), 0.5)
        return xp.where(t > 0, 1 - left, left)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1) on the line; rising."""
        return bounds.monotone(self.secant, lower, upper, 0.0, 1.0)
