"""Absolute error, whose root has a vertical tangent at zero loss."""

import math
from typing import Any

from array_api_compat import array_namespace

from dask_nlis.errors import InputError
from dask_nlis.losses import protocol
from dask_nlis.nouns import noun

Array = Any


@noun
class AbsoluteError:
    """Absolute error |prediction - y|, with root sign(t) sqrt|t|, t = prediction - y.

    The root has a vertical tangent at t = 0, so a row whose residual is zero at theta = 0 and still zero at
    theta has no adjoint: `singular` marks it, and a matrix of such rows raises ZeroLossSingularityError.

    Parameters
    ----------
    on_singular : {"raise", "zero"}
        "zero" gives such rows the adjoint 0, the smallest one that keeps f(theta) = f(0) + <theta, f*>.

    Raises
    ------
    InputError
        If `on_singular` is neither of the two.

    Notes
    -----
    Least absolute deviations (Koenker & Bassett 1978), at the median. `refit` minimises it through Huber losses of shrinking
    width.

    Examples
    --------
    >>> import numpy as np
    >>> AbsoluteError().root(np.array([4.0, -9.0]), np.zeros(2))
    array([ 2., -3.])
    """

    on_singular: str = "raise"

    takes = "prediction"
    check_labels = protocol.any_label
    response = protocol.as_predicted

    def __post_init__(self) -> None:
        if not isinstance(self.on_singular, str) or self.on_singular not in ("raise", "zero"):
            raise InputError(f"AbsoluteError on_singular={self.on_singular!r} is not known; give 'raise' or 'zero'")

    def value(self, prediction: Array, y: Array) -> Array:
        """Return |t|."""
        return array_namespace(prediction).abs(prediction - y)

    def derivative(self, prediction: Array, y: Array) -> Array:
        """Sign of t, 0 at t = 0."""
        return array_namespace(prediction).sign(prediction - y)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """0 everywhere."""
        return array_namespace(prediction).zeros_like(prediction)

    def root(self, prediction: Array, y: Array) -> Array:
        """sign(t) sqrt|t|."""
        xp = array_namespace(prediction)
        t = prediction - y
        return xp.sign(t) * xp.sqrt(xp.abs(t))

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """1 / (|root_a| + |root_b|) for residuals of equal sign; where both are zero, infinity or `on_singular`."""
        xp = array_namespace(a)
        t, s = a - y, b - y
        roots = xp.sqrt(xp.abs(t)) + xp.sqrt(xp.abs(s))
        # Halves, so that the sum of two large residuals stays finite.
        sizes = xp.abs(t) / 2 + xp.abs(s) / 2
        zero = self._zero(t, s)
        one = xp.ones_like(t)
        crossing = xp.sign(t) * xp.sign(s) < 0
        slope = xp.where(crossing, roots / xp.where(crossing, sizes, one) / 2, one / xp.where(zero, one, roots))
        return xp.where(zero, one * (math.inf if self.on_singular == "raise" else 0.0), slope)

    @property
    def may_be_singular(self) -> bool:
        """Whether singular rows are an error."""
        return self.on_singular == "raise"

    def singular(self, a: Array, b: Array, y: Array) -> Array:
        """Rows whose residuals at a and at b are both zero (below 2.3e-308)."""
        return self._zero(a - y, b - y)

    @staticmethod
    def _zero(t: Array, s: Array) -> Array:
        xp = array_namespace(t)
        tiny = xp.finfo(t.dtype).smallest_normal  # below it a residual has not all its digits
        return (xp.abs(t) < tiny) & (xp.abs(s) < tiny)
