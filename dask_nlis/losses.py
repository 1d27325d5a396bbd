"""Losses enter the adjoint through their signed root: root = sign(prediction - y) sqrt(loss).

A loss declares `root(prediction, y)` and `root_slope(a, b, y)`, the divided difference
(root(a, y) - root(b, y)) / (a - b), which composes with the secant of the activation without 0/0.
"""

from typing import Any, Protocol

from array_api_compat import array_namespace

from dask_nlis.nouns import noun

Array = Any


class Loss(Protocol):
    """A per-row loss l(prediction, y) >= 0; every method works elementwise on arrays of equal shape."""

    def value(self, prediction: Array, y: Array) -> Array:
        """l(prediction, y)."""

    def derivative(self, prediction: Array, y: Array) -> Array:
        """First derivative of l in the prediction."""

    def curvature(self, prediction: Array, y: Array) -> Array:
        """Second derivative of l in the prediction."""

    def root(self, prediction: Array, y: Array) -> Array:
        """Signed root of l."""

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Divided difference of the root between predictions a and b."""


@noun
class SquaredError:
    """l = (prediction - y)^2, whose signed root is the residual prediction - y.

    Examples
    --------
    >>> import numpy as np
    >>> SquaredError().root(np.array([3.0]), np.array([1.0]))
    array([2.])
    """

    def value(self, prediction: Array, y: Array) -> Array:
        """(prediction - y)^2."""
        residual = prediction - y
        return residual * residual

    def derivative(self, prediction: Array, y: Array) -> Array:
        """2 (prediction - y)."""
        return 2 * (prediction - y)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """2 everywhere."""
        return 2 * array_namespace(prediction).ones_like(prediction)

    def root(self, prediction: Array, y: Array) -> Array:
        """Residual prediction - y."""
        return prediction - y

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """1 everywhere."""
        return array_namespace(a).ones_like(a)
