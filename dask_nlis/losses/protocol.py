"""What every loss declares, and the answers that most of them share."""

from typing import Any, Protocol

Array = Any


class Loss(Protocol):
    """A per-row loss l(prediction, y) >= 0; every method works elementwise on arrays of equal shape.

    Where `takes` is "linear predictor" the link is inside the loss: its first argument is the index u, and a
    model must hand it over as it is (`Identity` activation). Arrays are float64, in memory or on a device; l is in the
    units of y squared, or of the log-likelihood.

    Notes
    -----
    l enters as the square of a signed root, as in Rajmohan & Roosta (ICML 2025, section 3), whose roots are unsigned.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> loss, u, y = nlis.Huber(1.0), np.array([0.5, 3.0]), np.zeros(2)
    >>> loss.takes, loss.may_be_singular, loss.check_labels(y), loss.singular(u, u, y)
    ('prediction', False, None, array([False, False]))
    >>> loss.value(u, y), loss.derivative(u, y), loss.curvature(u, y)
    (array([0.25, 5.  ]), array([1., 2.]), array([2., 0.]))
    >>> loss.root(u, y).round(3), loss.root_slope(u, y, y).round(3), loss.response(u)
    (array([0.5  , 2.236]), array([1.   , 0.745]), array([0.5, 3. ]))
    """

    @property
    def takes(self) -> str:
        """What the first argument is: "prediction" or "linear predictor"."""

    @property
    def may_be_singular(self) -> bool:
        """Whether `singular` has to be asked."""

    def value(self, prediction: Array, y: Array) -> Array:
        """l(prediction, y)."""

    def derivative(self, prediction: Array, y: Array) -> Array:
        """First derivative of l in the prediction."""

    def curvature(self, prediction: Array, y: Array) -> Array:
        """Second derivative of l in the prediction; 0 where l is straight."""

    def root(self, prediction: Array, y: Array) -> Array:
        """Signed root of l, non-decreasing in the prediction where l has one minimum."""

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Divided difference (root(a, y) - root(b, y)) / (a - b), and the derivative of the root where a = b."""

    def check_labels(self, y: Array) -> tuple[Array, str, str] | None:
        """Mask of finite labels that are not allowed, what they are in words, and a remedy; None where all are."""

    def singular(self, a: Array, b: Array, y: Array) -> Array:
        """Mask of rows whose root has no slope between a and b."""

    def response(self, prediction: Array) -> Array:
        """Mean of y that a prediction stands for: what `Fit.predict` returns."""


def any_label(loss: Loss, y: Array) -> None:
    """None: every finite label is allowed."""


def never_singular(loss: Loss, a: Array, b: Array, y: Array) -> Array:
    """False everywhere: the root always has a slope."""
    return a != a  # inputs are finite


def as_predicted(loss: Loss, prediction: Array) -> Array:
    """Return the prediction: it is the mean response already."""
    return prediction
