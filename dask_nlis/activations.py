"""Activations phi: value, derivative and the secant slope (phi(t) - phi(0)) / t, free of cancellation.

The secant is what the adjoint of a nonlinear model is made of (DESIGN: Prop. 3.1 of Rajmohan & Roosta,
ICML 2025). The naive quotient loses every digit near t = 0; the closed forms here keep a relative error
of a few units in the last place for all t, and return phi'(0) at t = 0.

Every method takes and returns an array of any shape in any array API namespace.
"""

import math
from typing import Any, Protocol

from array_api_compat import array_namespace

from dask_nlis.errors import InputError
from dask_nlis.nouns import noun

Array = Any

#: Below this |t| the secants here equal phi'(0) to the last bit (the next term is of order t^2).
_NEAR_ZERO = 1e-8


class Activation(Protocol):
    """A scalar nonlinearity with its calculus."""

    @property
    def at_zero(self) -> float:
        """phi(0)."""

    def value(self, t: Array) -> Array:
        """phi(t)."""

    def derivative(self, t: Array) -> Array:
        """phi'(t)."""

    def secant(self, t: Array) -> Array:
        """(phi(t) - phi(0)) / t, and phi'(0) at t = 0."""

    def secant_bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the secant over the whole line."""


def expit(t: Array) -> Array:
    """1 / (1 + exp(-t)) with full relative accuracy in both tails."""
    xp = array_namespace(t)
    small = xp.exp(-xp.abs(t))
    return xp.where(t >= 0, xp.ones_like(t), small) / (1 + small)


def _away_from_zero(t: Array) -> tuple[Array, Array]:
    """A mask of |t| too small to divide by, and t with those entries replaced by 1."""
    xp = array_namespace(t)
    near = xp.abs(t) < _NEAR_ZERO
    return near, xp.where(near, xp.ones_like(t), t)


@noun
class Identity:
    """phi(t) = t.

    Examples
    --------
    >>> import numpy as np
    >>> Identity().secant(np.array([0.0, 3.0]))
    array([1., 1.])
    """

    @property
    def at_zero(self) -> float:
        """phi(0) = 0."""
        return 0.0

    def value(self, t: Array) -> Array:
        """Return t."""
        return t

    def derivative(self, t: Array) -> Array:
        """1 everywhere."""
        return array_namespace(t).ones_like(t)

    def secant(self, t: Array) -> Array:
        """1 everywhere."""
        return array_namespace(t).ones_like(t)

    def secant_bounds(self) -> tuple[float, float]:
        """(1, 1)."""
        return 1.0, 1.0


@noun
class Logistic:
    """phi(t) = 1 / (1 + exp(-t)), with secant tanh(t/2) / (2t): positive everywhere.

    The paper's example carries a minus sign here; the derivation gives plus.

    Examples
    --------
    >>> import numpy as np
    >>> Logistic().secant(np.array([0.0, 1e-300]))
    array([0.25, 0.25])
    """

    @property
    def at_zero(self) -> float:
        """phi(0) = 1/2."""
        return 0.5

    def value(self, t: Array) -> Array:
        """1 / (1 + exp(-t))."""
        return expit(t)

    def derivative(self, t: Array) -> Array:
        """phi(t) (1 - phi(t)), as a product that keeps both tails."""
        return expit(t) * expit(-t)

    def secant(self, t: Array) -> Array:
        """tanh(t/2) / (2t)."""
        xp = array_namespace(t)
        near, safe = _away_from_zero(t)
        return xp.where(near, 0.25 * xp.ones_like(t), xp.tanh(safe / 2) / safe / 2)

    def secant_bounds(self) -> tuple[float, float]:
        """(0, 1/4)."""
        return 0.0, 0.25


@noun
class Tanh:
    """phi(t) = tanh(t).

    Examples
    --------
    >>> import numpy as np
    >>> Tanh().secant(np.array([0.0, 1e-17]))
    array([1., 1.])
    """

    @property
    def at_zero(self) -> float:
        """phi(0) = 0."""
        return 0.0

    def value(self, t: Array) -> Array:
        """tanh(t)."""
        return array_namespace(t).tanh(t)

    def derivative(self, t: Array) -> Array:
        """1 - tanh(t)^2, written as 4 phi(1 - phi) of the logistic at 2t to keep the tails."""
        return 4 * expit(2 * t) * expit(-2 * t)

    def secant(self, t: Array) -> Array:
        """tanh(t) / t."""
        xp = array_namespace(t)
        near, safe = _away_from_zero(t)
        return xp.where(near, xp.ones_like(t), xp.tanh(safe) / safe)

    def secant_bounds(self) -> tuple[float, float]:
        """(0, 1)."""
        return 0.0, 1.0


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

    Examples
    --------
    >>> import numpy as np
    >>> Swish(c1=1, c2=4).secant(np.array([0.0, 800.0, -800.0]))
    array([1.5, 2. , 1. ])
    """

    c1: float
    c2: float
    zeta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c1", "c2", "zeta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"Swish {name}={value!r} is not allowed; give a finite number")
            object.__setattr__(self, name, float(value))
        if not 0 <= self.c1 <= self.c2:
            raise InputError(f"Swish c1={self.c1:g}, c2={self.c2:g} is not allowed; give 0 <= c1 <= c2")

    @property
    def at_zero(self) -> float:
        """phi(0) = 0."""
        return 0.0

    def value(self, t: Array) -> Array:
        """Return t times the secant."""
        return t * self.secant(t)

    def derivative(self, t: Array) -> Array:
        """Secant + t (sqrt c2 - sqrt c1) zeta s (1 - s), s the logistic function of zeta t."""
        z = self.zeta * t
        rise = math.sqrt(self.c2) - math.sqrt(self.c1)
        return self.secant(t) + rise * z * (expit(z) * expit(-z))

    def secant(self, t: Array) -> Array:
        """sqrt(c1) + (sqrt c2 - sqrt c1) / (1 + exp(-zeta t)): no division by t."""
        low, high = self.secant_bounds()
        return low + (high - low) * expit(self.zeta * t)

    def secant_bounds(self) -> tuple[float, float]:
        """(sqrt c1, sqrt c2)."""
        return math.sqrt(self.c1), math.sqrt(self.c2)
