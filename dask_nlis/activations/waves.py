"""Sin and Cos, the two activations whose secant changes sign."""

import math
from typing import Any

from array_api_compat import array_namespace

from dask_nlis.activations import bounds
from dask_nlis.activations.protocol import LINE
from dask_nlis.kernels.special import quotient
from dask_nlis.nouns import noun

Array = Any


@noun
class Sin:
    """phi(t) = sin(t), with secant sin(t) / t between -0.2172... and 1.

    Notes
    -----
    Sitzmann et al. (2020) for networks of it.

    Condition |t cot t| of value and secant: near the zeros at multiples of pi only the absolute error is small.

    Examples
    --------
    >>> import numpy as np
    >>> Sin().secant(np.array([0.0, 1e-17]))
    array([1., 1.])
    >>> Sin().secant_bounds(0.0, 1.0)
    (0.8414709848078965, 1.0)
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """sin(t)."""
        return array_namespace(t).sin(t)

    def derivative(self, t: Array) -> Array:
        """cos(t)."""
        return array_namespace(t).cos(t)

    def second_derivative(self, t: Array) -> Array:
        """-sin(t)."""
        return -array_namespace(t).sin(t)

    def secant(self, t: Array) -> Array:
        """sin(t) / t."""
        return quotient(array_namespace(t).sin, t, 1.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(-0.2172..., 1) on the line: values at the ends and at the first two extrema between, which shrink in |t|."""
        near, far = bounds.distances(*bounds.interval(lower, upper))
        found = [bounds.at(self.secant, near, 0.0), bounds.at(self.secant, far, 0.0)]
        first = max(1, math.floor(near / math.pi))
        first += _stationary(first * math.pi, 1) < near
        for k in (first, first + 1):
            t = _stationary(k * math.pi, 1)
            if t <= far:
                found.append(math.copysign(1 / math.hypot(1, t), -1 if k % 2 else 1))
        return min(found), max(found)


@noun
class Cos:
    """phi(t) = cos(t), with secant -sin(t/2)^2 / (t/2) between -0.7246... and 0.7246...

    Notes
    -----
    Random features of Rahimi & Recht (2007) are of this kind.

    phi'(0) = 0: at theta = 0 the dual rows vanish but for their last entry. Condition of the secant
    |t cot(t/2) - 1|: near the zeros at multiples of 2 pi only the absolute error is small.

    Examples
    --------
    >>> import numpy as np
    >>> Cos().secant(np.array([0.0, 1e-20, np.pi]))
    array([ 0.00000000e+00, -5.00000000e-21, -6.36619772e-01])
    """

    at_zero = 1.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """cos(t)."""
        return array_namespace(t).cos(t)

    def derivative(self, t: Array) -> Array:
        """-sin(t)."""
        return -array_namespace(t).sin(t)

    def second_derivative(self, t: Array) -> Array:
        """-cos(t)."""
        return -array_namespace(t).cos(t)

    def secant(self, t: Array) -> Array:
        """-sin(t/2) sin(t/2) / (t/2)."""
        half = t / 2
        xp = array_namespace(t)
        return 0.0 - xp.sin(half) * quotient(xp.sin, half, 1.0)  # 0.0 - 0.0 is not -0.0

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(-0.7246..., 0.7246...) on the line; the secant is odd, and never positive for t > 0."""
        lower, upper = bounds.interval(lower, upper)
        found: list[float] = []
        if upper >= 0:
            found += self._right(max(lower, 0.0), upper)
        if lower <= 0:
            found += [0.0 - bound for bound in self._right(max(-upper, 0.0), -lower)]
        return min(found), max(found)

    def _right(self, near: float, far: float) -> list[float]:
        """Values at the ends, at the first minimum and at the first zero between, for 0 <= near <= t <= far."""
        found = [bounds.at(self.secant, near, 0.0), bounds.at(self.secant, far, 0.0)]
        k = math.floor(near / (2 * math.pi))
        k += 2 * _stationary(k * math.pi, 2) < near
        t = 2 * _stationary(k * math.pi, 2)
        if t <= far:
            found.append(-2 / (t + 1 / t))
        if 2 * math.pi * math.ceil(near / (2 * math.pi)) <= far:
            found.append(0.0)
        return found


def _stationary(start: float, slope: float) -> float:
    """The t > start, start a multiple of pi, that solves tan(t) = slope t: where sin(t) / t and sin(t)^2 / t turn."""
    t = start + math.pi / 2
    for _ in range(40):  # contracts by slope / (1 + (slope t)^2), at most 0.31
        t = start + math.atan(slope * t)
    return t
