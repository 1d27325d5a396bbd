"""Functions that level off on both sides: Logistic, Tanh, Probit, Arctan. Their secants are even and fall in |t|."""

import math
from typing import Any

from array_api_compat import array_namespace

from dask_nlis.activations import bounds
from dask_nlis.activations.protocol import LINE
from dask_nlis.kernels.special import NORMAL_LIMIT, erf, expit, normal_cdf, normal_density, quotient
from dask_nlis.nouns import noun

Array = Any


@noun
class Logistic:
    """phi(t) = 1 / (1 + exp(-t)), with secant tanh(t/2) / (2t): positive everywhere.

    The paper's example carries a minus sign here; the derivation gives plus.

    Notes
    -----
    The inverse of the logit link (McCullagh & Nelder 1989, chapter 4).

    Condition of value and derivatives |t| in the left tail (both tails for the derivatives), about 1 elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> Logistic().secant(np.array([0.0, 1e-300]))
    array([0.25, 0.25])
    """

    at_zero = 0.5
    domain = LINE

    def value(self, t: Array) -> Array:
        """1 / (1 + exp(-t))."""
        return expit(t)

    def derivative(self, t: Array) -> Array:
        """phi(t) (1 - phi(t)), as a product that keeps both tails."""
        return expit(t) * expit(-t)

    def second_derivative(self, t: Array) -> Array:
        """-phi'(t) tanh(t/2), where tanh(t/2) = 2 phi(t) - 1."""
        return -array_namespace(t).tanh(t / 2) * self.derivative(t)

    def secant(self, t: Array) -> Array:
        """tanh(t/2) / (2t)."""
        xp = array_namespace(t)
        return quotient(lambda s: xp.tanh(s / 2) / 2, t, 0.25)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1/4) on the line; falling in |t|."""
        return bounds.even(self.secant, lower, upper)


@noun
class Tanh:
    """phi(t) = tanh(t).

    Notes
    -----
    LeCun, Bottou, Orr & Mueller (1998).

    Condition of the derivatives 2|t|, of value and secant at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> Tanh().secant(np.array([0.0, 1e-17]))
    array([1., 1.])
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """tanh(t)."""
        return array_namespace(t).tanh(t)

    def derivative(self, t: Array) -> Array:
        """1 - tanh(t)^2, written as 4 phi(1 - phi) of the logistic at 2t to keep the tails."""
        # Zero to the last bit from |t| = 373 on; twice 1e308 would overflow.
        twice = 2 * array_namespace(t).clip(t, -1000.0, 1000.0)
        return 4 * expit(twice) * expit(-twice)

    def second_derivative(self, t: Array) -> Array:
        """-2 tanh(t) phi'(t)."""
        return -2 * self.value(t) * self.derivative(t)

    def secant(self, t: Array) -> Array:
        """tanh(t) / t."""
        return quotient(array_namespace(t).tanh, t, 1.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1) on the line; falling in |t|."""
        return bounds.even(self.secant, lower, upper)


@noun
class Probit:
    """phi(t) = distribution function of the standard normal, with secant erf(t / sqrt 2) / (2t).

    Notes
    -----
    The inverse of the probit link (McCullagh & Nelder 1989, chapter 4).

    Condition t^2 in the tails where phi or its derivatives vanish; of the secant at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> Probit().secant(np.array([0.0, 1e-20, 1e3])).round(4)
    array([0.3989, 0.3989, 0.0005])
    """

    at_zero = 0.5
    domain = LINE

    def value(self, t: Array) -> Array:
        """Normal distribution function at t."""
        return normal_cdf(t)

    def derivative(self, t: Array) -> Array:
        """exp(-t^2 / 2) / sqrt(2 pi)."""
        return normal_density(t)

    def second_derivative(self, t: Array) -> Array:
        """-t phi'(t)."""
        return -array_namespace(t).clip(t, -NORMAL_LIMIT, NORMAL_LIMIT) * normal_density(t)

    def secant(self, t: Array) -> Array:
        """erf(t / sqrt 2) / (2t)."""
        return quotient(lambda s: erf(s * math.sqrt(0.5)) / 2, t, 1 / math.sqrt(2 * math.pi))

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1 / sqrt(2 pi)) on the line; falling in |t|."""
        return bounds.even(self.secant, lower, upper)


@noun
class Arctan:
    """phi(t) = arctan(t), a sigmoid with heavy tails.

    Notes
    -----
    The principal branch (NIST Digital Library of Mathematical Functions, DLMF 4.23).

    Condition at most 3 throughout.

    Examples
    --------
    >>> import numpy as np
    >>> Arctan().secant(np.array([0.0, 1e-17]))
    array([1., 1.])
    """

    at_zero = 0.0
    domain = LINE

    def value(self, t: Array) -> Array:
        """arctan(t)."""
        return array_namespace(t).atan(t)

    def derivative(self, t: Array) -> Array:
        """1 / (1 + t^2), through 1/t where |t| > 1: the square of 1e200 overflows."""
        xp = array_namespace(t)
        size = xp.abs(t)
        one = xp.ones_like(t)
        small = xp.where(size > 1, one / xp.where(size > 1, size, one), size)
        square = small * small
        return xp.where(size > 1, square, one) / (1 + square)

    def second_derivative(self, t: Array) -> Array:
        """-2 t phi'(t)^2."""
        slope = self.derivative(t)
        return -2 * (t * slope) * slope

    def secant(self, t: Array) -> Array:
        """arctan(t) / t."""
        return quotient(array_namespace(t).atan, t, 1.0)

    def secant_bounds(self, lower: float = -math.inf, upper: float = math.inf) -> tuple[float, float]:
        """(0, 1) on the line; falling in |t|."""
        return bounds.even(self.secant, lower, upper)
