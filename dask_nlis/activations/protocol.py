"""The interface of an activation: a scalar function phi with its calculus."""

import math
from typing import Any, Protocol

Array = Any

#: The domain of a phi that grows no faster than linearly: a slope above 1 overflows next to the largest float only.
LINE = (-math.inf, math.inf)


class Activation(Protocol):
    """A scalar nonlinearity with its calculus; every method works elementwise on finite t of any shape.

    Arrays are float64, in memory or on a device; t has no unit.

    Notes
    -----
    The secant (phi(t) - phi(0)) / t is the slope of Proposition 3.1 of Rajmohan & Roosta (ICML 2025). Formulas keep their
    relative accuracy: notes of each activation tell the condition of what loses some.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> phi, t = nlis.Softplus(), np.array([0.0])
    >>> round(phi.at_zero, 6), phi.domain[0], phi.value(t).round(6), phi.secant(t)
    (0.693147, -inf, array([0.693147]), array([0.5]))
    >>> phi.derivative(t), phi.second_derivative(t), phi.secant_bounds()
    (array([0.5]), array([0.25]), (0.0, 1.0))
    """

    @property
    def at_zero(self) -> float:
        """phi(0)."""

    @property
    def domain(self) -> tuple[float, float]:
        """Smallest and largest t whose phi(t) is finite in float64; beyond them phi is infinite, without a warning."""

    def value(self, t: Array) -> Array:
        """phi(t)."""

    def derivative(self, t: Array) -> Array:
        """phi'(t)."""

    def second_derivative(self, t: Array) -> Array:
        """phi''(t)."""

    def secant(self, t: Array) -> Array:
        """(phi(t) - phi(0)) / t, and phi'(0) at t = 0."""

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """Infimum and supremum of the secant over lower <= t <= upper."""
