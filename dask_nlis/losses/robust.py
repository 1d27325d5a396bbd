"""Losses that turn from a square into a straight line: Huber and pseudo-Huber."""

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import as_float, is_number
from dask_nlis.losses import protocol
from dask_nlis.nouns import noun

Array = Any


#: Smallest delta: below it a float64 has not all its digits.
_SMALLEST = float(np.finfo(np.float64).smallest_normal)


def _check_delta(name: str, delta: Any) -> float:
    if not is_number(delta):
        raise InputTypeError(f"{name} delta={delta!r} is {type(delta).__name__}; give a positive number")
    if not _SMALLEST <= as_float(delta) < math.inf:
        raise InputError(f"{name} delta={delta!r} is not allowed; give a positive finite number, in the units of y")
    return float(delta)


@noun
class Huber:
    """Huber's loss: t^2 up to |t| = delta, 2 delta |t| - delta^2 beyond, t = prediction - y.

    The root is t inside and sign(t) sqrt(2 delta |t| - delta^2) outside, where it joins smoothly. `Huber(1e300)`
    is `SquaredError()`.

    Parameters
    ----------
    delta : float
        Residual at which the square becomes a straight line, in the units of y.

    Raises
    ------
    InputError, InputTypeError
        If delta is not a positive finite number.

    Notes
    -----
    Twice the loss of Huber (1964) and twice the cost of SciPy's `least_squares(loss="huber", f_scale=delta)`.

    Examples
    --------
    >>> import numpy as np
    >>> Huber(1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.25, 5.  ])
    """

    delta: float

    takes = "prediction"
    check_labels = protocol.any_label
    may_be_singular = False
    singular = protocol.never_singular
    response = protocol.as_predicted

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _check_delta("Huber", self.delta))

    @np.errstate(over="ignore")
    def value(self, prediction: Array, y: Array) -> Array:
        """Return m (2 |t| - m) with m = min(|t|, delta)."""
        xp = array_namespace(prediction)
        size = xp.abs(prediction - y)
        inside = xp.clip(size, None, self.delta)
        return inside * (size + (size - inside))

    def derivative(self, prediction: Array, y: Array) -> Array:
        """2 t, clipped to +-2 delta."""
        return 2 * array_namespace(prediction).clip(prediction - y, -self.delta, self.delta)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """2 inside, 0 outside."""
        xp = array_namespace(prediction)
        inside = xp.abs(prediction - y) <= self.delta
        return xp.where(inside, 2 * xp.ones_like(prediction), xp.zeros_like(prediction))

    def root(self, prediction: Array, y: Array) -> Array:
        """Return t inside, sign(t) sqrt(2 delta) sqrt(|t| - delta / 2) outside."""
        xp = array_namespace(prediction)
        t = prediction - y
        size = xp.abs(t)
        outside = xp.sign(t) * math.sqrt(self.delta) * self._beyond(size)
        return xp.where(size <= self.delta, t, outside)

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Mean of the slopes below -delta, between and above delta, each weighted by its part of the way."""
        xp = array_namespace(a)
        delta = self.delta
        high, low = xp.maximum(a, b) - y, xp.minimum(a, b) - y
        inside = xp.clip(high, -delta, delta) - xp.clip(low, -delta, delta)
        above = xp.clip(high, delta, None) - xp.clip(low, delta, None)
        below = xp.clip(high, None, -delta) - xp.clip(low, None, -delta)
        # sqrt(delta) (sqrt(2 s - delta) - sqrt(2 t - delta)) / (s - t), without the difference of roots.
        steep = 2 * math.sqrt(delta)
        up = steep / (self._beyond(high) + self._beyond(low))
        down = steep / (self._beyond(-high) + self._beyond(-low))
        way = above + inside + below
        still = way == 0  # a = b, or equal once rounded beside y: one of the slopes is 1, the other the derivative
        safe = xp.where(still, xp.ones_like(way), way)
        return xp.where(still, up * down, up * (above / safe) + inside / safe + down * (below / safe))

    def _beyond(self, t: Array) -> Array:
        """Return sqrt(2 t - delta), t raised to delta at least: no square is formed."""
        xp = array_namespace(t)
        return math.sqrt(2) * xp.sqrt(xp.clip(t, self.delta, None) - self.delta / 2)


@noun
class PseudoHuber:
    """Smooth relative of Huber's loss: 2 delta^2 (S - 1), S = hypot(1, t / delta), t = prediction - y.

    t^2 near 0, 2 delta |t| - 2 delta^2 far out, with derivatives of every order. The root is t sqrt(2 / (1 + S)).

    Parameters
    ----------
    delta : float
        Residual about which the square becomes a straight line, in the units of y.

    Raises
    ------
    InputError, InputTypeError
        If delta is not a positive finite number.

    Notes
    -----
    Charbonnier et al. (1994) in the scale of `Huber`.

    Examples
    --------
    >>> import numpy as np
    >>> PseudoHuber(1.0).value(np.array([0.0, 3**0.5]), np.zeros(2)).round(12)
    array([0., 2.])
    """

    delta: float

    takes = "prediction"
    check_labels = protocol.any_label
    may_be_singular = False
    singular = protocol.never_singular
    response = protocol.as_predicted

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _check_delta("PseudoHuber", self.delta))

    @np.errstate(over="ignore")
    def value(self, prediction: Array, y: Array) -> Array:
        """Return the square of the root: S - 1 would cancel near t = 0."""
        root = self.root(prediction, y)
        return root * root

    def derivative(self, prediction: Array, y: Array) -> Array:
        """2 t / S."""
        xp = array_namespace(prediction)
        t = prediction - y
        length = self._length(t)
        # Of the two products the one whose quotient cannot underflow.
        return 2 * xp.where(xp.abs(t) > self.delta, self.delta * (t / length), t * (self.delta / length))

    def curvature(self, prediction: Array, y: Array) -> Array:
        """2 / S^3."""
        return 2 * (self.delta / self._length(prediction - y)) ** 3

    def root(self, prediction: Array, y: Array) -> Array:
        """Return t sqrt(2 / (1 + S))."""
        t = prediction - y
        return t * self._shrink(self._length(t))

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Return m for residuals of opposite sign, 2 / ((S_a + S_b) m) for equal ones.

        m is the mean of root / residual at a and b, weighted by the residuals: root_a + root_b over t_a + t_b in
        absolute values. For equal signs the difference of roots is a difference of squares over their sum.
        """
        xp = array_namespace(a)
        t, s = a - y, b - y
        length_t, length_s = self._length(t), self._length(s)
        # Halves, so that the sum of two large residuals stays finite.
        size_t, size_s = xp.abs(t) / 2, xp.abs(s) / 2
        total = size_t + size_s
        nowhere = total == 0
        whole = xp.where(nowhere, xp.ones_like(t), total)
        half = xp.where(nowhere, xp.ones_like(t) / 2, xp.zeros_like(t))
        # Two quotients: 1 minus the first would lose the second where it is small and its factor large.
        mean = (size_t / whole + half) * self._shrink(length_t) + (size_s / whole + half) * self._shrink(length_s)
        crossing = xp.sign(t) * xp.sign(s) < 0
        return xp.where(crossing, mean, self.delta / ((length_t / 2 + length_s / 2) * mean))

    def _length(self, t: Array) -> Array:
        """Return delta S = hypot(delta, t), so that t / delta cannot overflow."""
        xp = array_namespace(t)
        return xp.hypot(self.delta * xp.ones_like(t), t)

    def _shrink(self, length: Array) -> Array:
        """Root over residual, sqrt(2 / (1 + S))."""
        # Halves of large lengths, so that their sum stays finite; half of the smallest would be 0.
        part = 0.5 if self.delta > 1 else 1.0
        half = array_namespace(length).sqrt(part * self.delta + part * length)
        return math.sqrt(2 * part) * math.sqrt(self.delta) / half
