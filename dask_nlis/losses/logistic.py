"""Logistic loss: the negative log-likelihood of two classes, with the logit link inside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.activations import expit
from dask_nlis.errors import InputError
from dask_nlis.losses import protocol
from dask_nlis.nouns import noun

Array = Any

#: Below this m softplus(m) is exp(m) to the last bit, and its root is formed as exp(m/2) before exp(m) underflows.
_LEFT_TAIL = -38.0

_ALLOWED = ((0, 1), (-1, 1))


@noun
class LogisticLoss:
    """Logistic loss log(1 + exp(-s u)) of the linear predictor u, s = -1 or +1 for the first and second label.

    The link is inside, so the model must give u itself: `Linear()` or another model with `Identity()`. The root is
    -s sqrt(log(1 + exp(-s u))): it grows with u in both classes, from -s sqrt(log 2) at u = 0.

    Parameters
    ----------
    labels : {(0, 1), (-1, 1)}
        The two values of y; others raise an error naming the first row.

    Raises
    ------
    InputError
        If `labels` is neither of the two pairs.

    Notes
    -----
    Logistic regression (McCullagh & Nelder 1989, chapter 4). The root of the paper (Rajmohan & Roosta, ICML 2025) has no
    sign; with it every slope is positive.

    Examples
    --------
    >>> import numpy as np
    >>> LogisticLoss().value(np.array([0.0, 800.0]), np.array([0.0, 1.0])).round(6)
    array([0.693147, 0.      ])
    """

    labels: tuple[int, int] = (0, 1)

    takes = "linear predictor"
    may_be_singular = False
    singular = protocol.never_singular

    def __post_init__(self) -> None:
        given = self.labels.tolist() if isinstance(self.labels, np.ndarray) else self.labels
        pair = tuple(given) if isinstance(given, Sequence) else ()
        if not all(isinstance(value, int | float | np.generic) for value in pair) or pair not in _ALLOWED:
            raise InputError(f"LogisticLoss labels={self.labels!r} is not allowed; give (0, 1) or (-1, 1)")
        object.__setattr__(self, "labels", _ALLOWED[_ALLOWED.index(pair)])

    def check_labels(self, y: Array) -> tuple[Array, str, str] | None:
        """Labels other than the two declared."""
        first, second = self.labels
        (other,) = (pair for pair in _ALLOWED if pair != self.labels)
        mask = (y != first) & (y != second)
        return mask, f"outside {{{first}, {second}}}", f"map y to them, or give LogisticLoss(labels={other})"

    def value(self, prediction: Array, y: Array) -> Array:
        """softplus(-s u)."""
        return _softplus(-self._signs(y) * prediction)

    def derivative(self, prediction: Array, y: Array) -> Array:
        """-s / (1 + exp(s u))."""
        signs = self._signs(y)
        return -signs * expit(-signs * prediction)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """Product of the two class probabilities."""
        return expit(prediction) * expit(-prediction)

    def root(self, prediction: Array, y: Array) -> Array:
        """-s sqrt(softplus(-s u))."""
        signs = self._signs(y)
        return -signs * _root_softplus(-signs * prediction)

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Slope of softplus over the sum of the two roots; positive everywhere.

        With m = -s a and n = -s b both signs drop out: (h(m) - h(n)) / (m - n) for h = sqrt(softplus).
        """
        xp = array_namespace(a)
        signs = self._signs(y)
        m, n = -signs * a, -signs * b
        high, low = xp.maximum(m, n), xp.minimum(m, n)
        tail = high < _LEFT_TAIL
        # h is exp(m/2) in the left tail, where softplus itself underflows before its root does.
        in_tail = xp.exp(xp.where(tail, high, xp.zeros_like(high)) / 2) * _decay((high - low) / 2) / 2
        usual = _softplus_slope(high, low) / (
            _root_softplus(high) + xp.where(tail, xp.ones_like(m), _root_softplus(low))
        )
        return xp.where(tail, in_tail, usual)

    def response(self, prediction: Array) -> Array:
        """Probability of the second label, 1 / (1 + exp(-u))."""
        return expit(prediction)

    def _signs(self, y: Array) -> Array:
        xp = array_namespace(y)
        return xp.where(y > sum(self.labels) / 2, xp.ones_like(y), -xp.ones_like(y))


def _softplus(m: Array) -> Array:
    """log(1 + exp(m)) with full relative accuracy in both tails."""
    xp = array_namespace(m)
    return xp.where(m > 0, m, xp.zeros_like(m)) + xp.log1p(xp.exp(-xp.abs(m)))


def _root_softplus(m: Array) -> Array:
    """sqrt(softplus(m)), down to exp(m/2) where softplus(m) is no float64 any more."""
    xp = array_namespace(m)
    tail = m < _LEFT_TAIL
    left = xp.exp(xp.where(tail, m, xp.zeros_like(m)) / 2)
    return xp.where(tail, left, xp.sqrt(_softplus(xp.where(tail, xp.zeros_like(m), m))))


def _decay(d: Array) -> Array:
    """(1 - exp(-d)) / d for d >= 0, and 1 at d = 0."""
    xp = array_namespace(d)
    still = d == 0
    safe = xp.where(still, xp.ones_like(d), d)
    return xp.where(still, xp.ones_like(d), -xp.expm1(-safe) / safe)


def _softplus_slope(high: Array, low: Array) -> Array:
    """Divided difference of softplus: the mean of expit between low and high."""
    xp = array_namespace(high)
    # softplus(m) = m + softplus(-m) turns slopes above 1/2 into 1 minus one below: no digits are lost in either.
    turned = high / 2 + low / 2 > 0
    high, low = xp.where(turned, -low, high), xp.where(turned, -high, low)
    d = high - low
    near = d <= 1
    step = xp.where(near, d, xp.ones_like(d))
    still = step < 1e-20  # the slope is that at `high` to the last bit, and products with `step` would underflow
    safe = xp.where(still, xp.ones_like(d), step)
    close = xp.where(still, expit(high), -xp.log1p(expit(high) * xp.expm1(-safe)) / safe)
    # More than 1 apart with a centre below 0, softplus(low) is less than half of softplus(high).
    apart = (_softplus(high) - _softplus(low)) / xp.where(near, xp.ones_like(d), d)
    slope = xp.where(near, close, apart)
    return xp.where(turned, 1 - slope, slope)
