"""Softmax loss: the negative log-likelihood of several classes, with the link inside."""

from typing import Any

from array_api_compat import array_namespace

from dask_nlis.errors import InputError
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.nouns import noun

Array = Any


@noun
class SoftmaxLoss:
    """Softmax loss log(sum_c exp(u_c)) - u_y of the linear predictors u of the classes, y = 0, 1, ..., n_classes - 1.

    The link is inside, so the model must give u itself, without an activation at its outputs. A model of `n_classes`
    outputs gives one to each class, and a constant may be added to all of them: its parameters have no unique optimum
    without a ridge. A model of one output fewer gives those of classes 1, 2, ..., against u = 0 for class 0, the
    reference, as is usual in statistics. A data row has one score: its root is the square root of its loss.

    Parameters
    ----------
    n_classes : int
        Number of classes, 2 or more; labels other than 0, ..., n_classes - 1 raise an error naming the first row.

    Raises
    ------
    InputError
        If `n_classes` is no integer above 1.

    Notes
    -----
    Multinomial logistic regression (McCullagh & Nelder 1989, chapter 5).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.SoftmaxLoss(3).value(np.array([[0.0, 0.0, 0.0], [0.0, 800.0, 0.0]]), np.array([2.0, 1.0])).round(6)
    array([1.098612, 0.      ])
    >>> nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=2), nlis.SoftmaxLoss(3)).loss  # class 0 is the reference
    SoftmaxLoss(n_classes=3)
    """

    n_classes: int

    takes = "linear predictor"
    may_be_singular = False
    label_columns = 1

    def __post_init__(self) -> None:
        if not is_whole(self.n_classes) or self.n_classes < 2:
            raise InputError(f"SoftmaxLoss n_classes={self.n_classes!r} is not allowed; give an integer above 1")
        object.__setattr__(self, "n_classes", int(self.n_classes))

    def check_labels(self, y: Array) -> tuple[Array, str, str] | None:
        """Labels that number no class."""
        xp, last = array_namespace(y), self.n_classes - 1
        mask = (y < 0) | (y > last) | (y != xp.floor(y))
        return mask, f"that are none of 0, ..., {last}", "number the classes so, or give SoftmaxLoss of more classes"

    def value(self, prediction: Array, y: Array) -> Array:
        """log(1 + sum over the other classes of exp(u_c - u_y)), without cancellation."""
        gaps, largest, _ = self._gaps(prediction, y)
        return _log_sum(gaps, largest)

    def derivative(self, prediction: Array, y: Array) -> Array:
        """Probabilities of the classes, minus 1 for the class itself, without cancellation; (m, k)."""
        gaps, largest, own = self._gaps(prediction, y)
        xp = array_namespace(gaps)
        shares = xp.exp(gaps - largest[:, None])
        shares = shares / xp.sum(shares, axis=1)[:, None]
        others = xp.where(own, xp.zeros_like(shares), shares)
        slopes = xp.where(own, -xp.sum(others, axis=1)[:, None], others)
        return slopes[:, self.n_classes - prediction.shape[1] :]

    def curvature_root(self, prediction: Array, y: Array, sign: int = 1) -> Array:
        """diag(sqrt(pi)) (1 - 1 pi'), whose product with its transpose is diag(pi) - pi pi'; none bends down."""
        xp, full = array_namespace(prediction), self.response(prediction)
        root = xp.sqrt(full)[:, :, None] * (xp.eye(self.n_classes, dtype=full.dtype)[None, :, :] - full[:, None, :])
        root = root if sign > 0 else xp.zeros_like(root)
        return root[:, :, self.n_classes - prediction.shape[1] :]

    def root(self, prediction: Array, y: Array) -> Array:
        """sqrt(l), down to the exponential of half a gap where l itself is no float64 any more."""
        gaps, largest, own = self._gaps(prediction, y)
        xp = array_namespace(gaps)
        second, beside = _others(gaps, own)
        tail = second < _LEFT_TAIL
        left = xp.exp(xp.where(tail, second, xp.zeros_like(second)) / 2) * xp.sqrt(xp.sum(beside, axis=1))
        return xp.where(tail, left, xp.sqrt(_log_sum(gaps, largest)))

    def root_gradient(self, prediction: Array, y: Array) -> Array:
        """Gradient of sqrt(l), (m, k): probabilities over twice the root, in the tail as exponentials of half a gap."""
        gaps, largest, own = self._gaps(prediction, y)
        xp = array_namespace(gaps)
        second, beside = _others(gaps, own)
        tail = second < _LEFT_TAIL
        total = xp.sum(beside, axis=1)
        left = xp.exp(xp.where(tail, second, xp.zeros_like(second)) / 2) / 2 / xp.sqrt(total)
        left = left[:, None] * xp.where(own, -total[:, None] * xp.ones_like(beside), beside)
        left = left[:, self.n_classes - prediction.shape[1] :]
        root = xp.where(tail, xp.ones_like(largest), xp.sqrt(_log_sum(gaps, largest)))
        return xp.where(tail[:, None], left, self.derivative(prediction, y) / 2 / root[:, None])

    def singular(self, a: Array, b: Array, y: Array) -> Array:
        """False everywhere: l is never 0."""
        return array_namespace(a).any(a != a, axis=1)

    def response(self, prediction: Array) -> Array:
        """Probabilities of the classes, (m, n_classes)."""
        u = self._full(prediction)
        xp = array_namespace(u)
        shares = xp.exp(u - xp.max(u, axis=1)[:, None])
        return shares / xp.sum(shares, axis=1)[:, None]

    def _full(self, prediction: Array) -> Array:
        """Linear predictors of all classes, with the 0 of the reference where the model leaves it out."""
        xp = array_namespace(prediction)
        if prediction.shape[1] == self.n_classes:
            return prediction
        return xp.concat([xp.zeros((prediction.shape[0], 1), dtype=prediction.dtype), prediction], axis=1)

    def _gaps(self, prediction: Array, y: Array) -> tuple[Array, Array, Array]:
        """u_c - u_y (m, n_classes), the largest of them (m,), and a mask of the class of each row."""
        u = self._full(prediction)
        xp = array_namespace(u)
        own = xp.astype(xp.arange(self.n_classes), y.dtype)[None, :] == y[:, None]
        gaps = u - xp.sum(xp.where(own, u, xp.zeros_like(u)), axis=1)[:, None]
        return gaps, xp.max(gaps, axis=1), own


#: Where every other class is so far behind, l is the sum of their exponentials to the last bit.
_LEFT_TAIL = -38.0


def _others(gaps: Array, own: Array) -> tuple[Array, Array]:
    """Largest gap of another class (m,), and exponentials of the gaps over it, 0 for the class itself, (m, k)."""
    xp = array_namespace(gaps)
    second = xp.max(xp.where(own, -xp.inf * xp.ones_like(gaps), gaps), axis=1)
    behind = xp.where(own, xp.zeros_like(gaps), gaps - second[:, None])
    return second, xp.where(own, xp.zeros_like(gaps), xp.exp(behind))


def _log_sum(gaps: Array, largest: Array) -> Array:
    """log of the sum of exponentials of gaps (m, k), one of which is 0: l itself, to the last bits where it is small."""
    xp = array_namespace(gaps)
    # The largest is left out of the sum by what it adds, exp(0), so that small others are not rounded away beside it.
    terms = xp.exp(gaps - largest[:, None])
    first = xp.astype(xp.arange(gaps.shape[1]), xp.int64)[None, :] == xp.argmax(gaps, axis=1)[:, None]
    return largest + xp.log1p(xp.sum(xp.where(first, xp.zeros_like(terms), terms), axis=1))
