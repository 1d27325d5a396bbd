"""Squared error, the loss of least squares."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.losses import protocol
from dask_nlis.nouns import noun

Array = Any


@noun
class SquaredError:
    """l = (prediction - y)^2, whose signed root is the residual prediction - y.

    Notes
    -----
    f_i = prediction - y of Rajmohan & Roosta (ICML 2025), and the one loss whose root has the same slope everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> SquaredError().root(np.array([3.0]), np.array([1.0]))
    array([2.])
    """

    takes = "prediction"
    check_labels = protocol.any_label
    may_be_singular = False
    singular = protocol.never_singular
    response = protocol.as_predicted

    @np.errstate(over="ignore")
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
