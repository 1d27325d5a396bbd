"""The interface of an activation: a scalar function phi with its calculus."""

import math
from typing import Any, Protocol

Array = Any

#: The domain of a phi that grows no faster than linearly: a slope above 1 overflows next to the largest float only.
LINE = (-math.inf, math.inf)


class Activation(Protocol):
    """A scalar nonlinearity with its calculus; every method works elementwise on finite t of any shape."""

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
