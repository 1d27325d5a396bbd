"""Functions t times a gate, whose secant is the gate itself: Swish, Gelu."""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import bounds
from dask_nlis.activations.protocol import LINE
from dask_nlis.errors import InputError
from dask_nlis.kernels.numbers import as_float, is_number
from dask_nlis.kernels.special import NORMAL_LIMIT, expit, normal_cdf, normal_density
from dask_nlis.nouns import noun

Array = Any

#: Beyond this |z| the derivative of the logistic function is below the smallest subnormal.
_LOGISTIC_LIMIT = 750.0


@noun
class Swish:
    """phi(t) = t (sqrt c1 + (sqrt c2 - sqrt c1) / (1 + exp(-zeta t))).

    The secant lies between sqrt c1 and sqrt c2, so phi(t)^2 / t^2 lies in [c1, c2] (the paper's text
    takes square roots here). `Swish(0, 1, 1)` is the usual swish.

    Parameters
    ----------
    c1, c2 : float
        Bounds of phi(t)^2 / t^2, with 0 <= c1 <= c2.
    zeta : float
        Steepness of the transition at t = 0.

    Raises
    ------
    InputError
        If 0 <= c1 <= c2 or finiteness of zeta does not hold.

    Notes
    -----
    Ramachandran, Zoph & Le (2017) with c1 = 0, c2 = 1; of this kind is the example of Rajmohan & Roosta (ICML 2025).

    Condition |zeta t| in the tail where the gate closes (c1 = 0) or a derivative vanishes, about 1 elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> Swish(c1=1, c2=4).secant(np.array([0.0, 800.0, -800.0]))
    array([1.5, 2. , 1. ])
    >>> Swish(c1=1, c2=4).secant_bounds(lower=0.0)
    (1.5, 2.0)
    """

    c1: float
    c2: float
    zeta: float = 1.0

    at_zero = 0.0
    domain = LINE

    def __post_init__(self) -> None:
        for name in ("c1", "c2", "zeta"):
            value = getattr(self, name)
            if not is_number(value) or not math.isfinite(as_float(value)):
                raise InputError(f"Swish {name}={value!r} is not allowed; give a finite number")
            object.__setattr__(self, name, float(value) + 0.0)  # -0.0 is 0.0: equal nouns are one noun
        if not 0 <= self.c1 <= self.c2:
            raise InputError(f"Swish c1={self.c1:g}, c2={self.c2:g} is not allowed; give 0 <= c1 <= c2")

    @np.errstate(over="ignore")
    def value(self, t: Array) -> Array:
        """Return t times the secant."""
        return t * self.secant(t)

    def derivative(self, t: Array) -> Array:
        """Secant + (sqrt c2 - sqrt c1) z s (1 - s), s the logistic function of z = zeta t."""
        z = self._scaled(t)
        return self.secant(t) + self._rise() * z * (expit(z) * expit(-z))

    def second_derivative(self, t: Array) -> Array:
        """(sqrt c2 - sqrt c1) zeta s (1 - s) (2 - z tanh(z/2)), where tanh(z/2) = 2s - 1."""
        z = self._scaled(t)
        bend = 2 - z * array_namespace(t).tanh(z / 2)
        return self._rise() * self.zeta * (expit(z) * expit(-z)) * bend

    def secant(self, t: Array) -> Array:
        """sqrt(c1) + (sqrt c2 - sqrt c1) / (1 + exp(-zeta t)): no division by t."""
        return math.sqrt(self.c1) + self._rise() * expit(self._scaled(t))

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(sqrt c1, sqrt c2) on the line; rising, or falling where zeta < 0."""
        ends = math.sqrt(self.c1), math.sqrt(self.c2)
        if self.zeta == 0:
            ends = (sum(ends) / 2,) * 2
        left, right = ends if self.zeta >= 0 else ends[::-1]
        return bounds.monotone(self.secant, lower, upper, left, right)

    def _rise(self) -> float:
        """Difference of the secant's two limits."""
        return math.sqrt(self.c2) - math.sqrt(self.c1)

    def _scaled(self, t: Array) -> Array:
        """Zeta t, held where the transition is over: neither zeta t nor its product with a zero overflows."""
        limit = _LOGISTIC_LIMIT / abs(self.zeta) if self.zeta else math.inf
        return self.zeta * array_namespace(t).clip(t, -limit, limit)


@noun
class Gelu:
    """phi(t) = t times the normal distribution function at t, exact (not its tanh approximation).

    Notes
    -----
    Hendrycks & Gimpel (2016).

    Condition t^2 in the left tail (both tails for the second derivative); the derivative vanishes at
    t = -0.7518 and the second derivative at +-sqrt 2, where only the absolute error is small.

    Examples
    --------
    >>> import numpy as np
    >>> Gelu().secant(np.array([-100.0, 0.0, 100.0]))
    array([0. , 0.5, 1. ])
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """Return t times the normal distribution function."""
        return t * normal_cdf(t)

    def derivative(self, t: Array) -> Array:
        """Normal distribution function + t times the normal density."""
        near = array_namespace(t).clip(t, -NORMAL_LIMIT, NORMAL_LIMIT)
        return normal_cdf(t) + near * normal_density(near)

    def second_derivative(self, t: Array) -> Array:
        """(2 - t^2) times the normal density."""
        near = array_namespace(t).clip(t, -NORMAL_LIMIT, NORMAL_LIMIT)
        return (2 - near * near) * normal_density(near)

    def secant(self, t: Array) -> Array:
        """Normal distribution function at t: no division by t."""
        return normal_cdf(t)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1) on the line; rising."""
        return bounds.monotone(self.secant, lower, upper, 0.0, 1.0)
