"""Functions with two branches: Relu, LeakyRelu, SquaredRelu, Elu. The right branch is t > 0, strictly."""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import bounds
from dask_nlis.activations.protocol import LINE
from dask_nlis.errors import InputError
from dask_nlis.kernels.numbers import as_float, is_number
from dask_nlis.kernels.special import quotient
from dask_nlis.nouns import noun

Array = Any


def _branches(t: Array, right: Array | float, left: Array | float) -> Array:
    """`right` where t > 0, `left` elsewhere; both arrays or numbers."""
    xp = array_namespace(t)
    right, left = (xp.full_like(t, part) if isinstance(part, float) else part for part in (right, left))
    return xp.where(t > 0, right, left)


def _slopes(lower: float, upper: float, slope: float) -> tuple[float, float]:
    """Bounds of the secant that is 1 where t > 0 and `slope` elsewhere."""
    lower, upper = bounds.interval(lower, upper)
    met = [slope] * (lower <= 0) + [1.0] * (upper > 0)
    return min(met), max(met)


@noun
class Relu:
    """phi(t) = max(t, 0).

    Notes
    -----
    Nair & Hinton (2010).

    Derivative and secant at t = 0 are 0: a unit whose input is 0 counts as dead.

    Examples
    --------
    >>> import numpy as np
    >>> Relu().secant(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 1.])
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """max(t, 0)."""
        return _branches(t, t, 0.0)

    def derivative(self, t: Array) -> Array:
        """1 where t > 0, else 0."""
        return _branches(t, 1.0, 0.0)

    def second_derivative(self, t: Array) -> Array:
        """0 everywhere: the jump of the slope at 0 is left out."""
        return array_namespace(t).zeros_like(t)

    def secant(self, t: Array) -> Array:
        """1 where t > 0, else 0."""
        return _branches(t, 1.0, 0.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1) on the line; the two slopes that the interval meets."""
        return _slopes(lower, upper, 0.0)


@noun
class LeakyRelu:
    """phi(t) = t for t > 0 and slope t elsewhere.

    Parameters
    ----------
    slope : float, default 0.01
        Slope of the left branch, not negative; derivative and secant at t = 0 are this slope.

    Raises
    ------
    InputError
        If slope is no finite number, or negative: the secant would change its sign.

    Notes
    -----
    Maas, Hannun & Ng (2013).

    Examples
    --------
    >>> import numpy as np
    >>> LeakyRelu(0.1).value(np.array([-2.0, 0.0, 3.0]))
    array([-0.2,  0. ,  3. ])
    """

    slope: float = 0.01

    at_zero = 0.0
    domain = LINE

    def __post_init__(self) -> None:
        slope = self.slope
        if not is_number(slope) or not 0 <= as_float(slope) < math.inf:
            raise InputError(f"LeakyRelu slope={slope!r} is not allowed; give a finite number >= 0, such as 0.01")
        object.__setattr__(self, "slope", float(slope) + 0.0)  # -0.0 is 0.0: equal nouns are one noun

    @np.errstate(over="ignore")
    def value(self, t: Array) -> Array:
        """Return t where t > 0, else slope t."""
        return _branches(t, t, self.slope * t)

    def derivative(self, t: Array) -> Array:
        """1 where t > 0, else the slope."""
        return _branches(t, 1.0, self.slope)

    def second_derivative(self, t: Array) -> Array:
        """0 everywhere: the jump of the slope at 0 is left out."""
        return array_namespace(t).zeros_like(t)

    def secant(self, t: Array) -> Array:
        """1 where t > 0, else the slope."""
        return _branches(t, 1.0, self.slope)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """The smaller and the larger of slope and 1 on the line; the slopes that the interval meets."""
        return _slopes(lower, upper, self.slope)


@noun
class SquaredRelu:
    """phi(t) = max(t, 0)^2.

    Notes
    -----
    So et al. (2021).

    phi'(0) = 0. Above t = 1.34e154 the value is infinite, without a warning.

    Examples
    --------
    >>> import numpy as np
    >>> SquaredRelu().secant(np.array([-2.0, 0.0, 3.0]))
    array([0., 0., 3.])
    """

    at_zero = 0.0
    domain = (-math.inf, math.sqrt(np.finfo(np.float64).max))

    @np.errstate(over="ignore")
    def value(self, t: Array) -> Array:
        """max(t, 0)^2."""
        positive = _branches(t, t, 0.0)
        return positive * positive

    @np.errstate(over="ignore")
    def derivative(self, t: Array) -> Array:
        """2 max(t, 0)."""
        return 2 * _branches(t, t, 0.0)

    def second_derivative(self, t: Array) -> Array:
        """2 where t > 0, else 0."""
        return _branches(t, 2.0, 0.0)

    def secant(self, t: Array) -> Array:
        """max(t, 0)."""
        return _branches(t, t, 0.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, inf) on the line; rising."""
        return bounds.monotone(self.secant, lower, upper, 0.0, math.inf)


@noun
class Elu:
    """phi(t) = t for t > 0 and exp(t) - 1 elsewhere.

    Notes
    -----
    Clevert, Unterthiner & Hochreiter (2016), with alpha = 1.

    The second derivative jumps from 1 to 0 behind t = 0, where it is 1. Condition of the derivatives |t| on the left.

    Examples
    --------
    >>> import numpy as np
    >>> Elu().secant(np.array([-1e300, -1e-300, 0.0, 3.0]))
    array([1.e-300, 1.e+000, 1.e+000, 1.e+000])
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """Return t where t > 0, else expm1(t)."""
        return _branches(t, t, array_namespace(t).expm1(_branches(t, 0.0, t)))

    def derivative(self, t: Array) -> Array:
        """1 where t > 0, else exp(t)."""
        return array_namespace(t).exp(_branches(t, 0.0, t))

    def second_derivative(self, t: Array) -> Array:
        """0 where t > 0, else exp(t)."""
        return _branches(t, 0.0, self.derivative(t))

    def secant(self, t: Array) -> Array:
        """1 where t > 0, else expm1(t) / t."""
        return quotient(array_namespace(t).expm1, _branches(t, 0.0, t), 1.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1) on the line; rising."""
        return bounds.monotone(self.secant, lower, upper, 0.0, 1.0)
