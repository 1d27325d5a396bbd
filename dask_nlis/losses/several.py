"""Losses of several predictions a row: what they declare, sums of a loss of one over the outputs, and one alone."""

from typing import Any, Protocol, TypeGuard

from array_api_compat import array_namespace

from dask_nlis.losses.protocol import Loss
from dask_nlis.nouns import noun

Array = Any


class LossOfSeveral(Protocol):
    """A loss l(predictions, y) >= 0 of a whole data row: predictions (m, k); y (m,) or (m, k), as the loss has it.

    Its root is sqrt(l), without a sign: several residuals have none in common.

    Notes
    -----
    Unsigned roots are those of Rajmohan & Roosta (ICML 2025, section 3).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> loss, u, y = nlis.SoftmaxLoss(2), np.array([[0.0, 0.0]]), np.array([1.0])
    >>> loss.takes, loss.may_be_singular, loss.label_columns, loss.singular(u, u, y)
    ('linear predictor', False, 1, array([False]))
    >>> loss.value(u, y).round(3), loss.derivative(u, y), loss.curvature_root(u, y).shape
    (array([0.693]), array([[ 0.5, -0.5]]), (1, 2, 2))
    >>> loss.root(u, y).round(3), loss.root_gradient(u, y).round(3), loss.response(u)
    (array([0.833]), array([[ 0.3, -0.3]]), array([[0.5, 0.5]]))
    >>> loss.check_labels(np.array([1.0, 2.0]))[0]
    array([False,  True])
    """

    @property
    def takes(self) -> str:
        """What the first argument is: "prediction" or "linear predictor"."""

    @property
    def may_be_singular(self) -> bool:
        """Whether `singular` has to be asked."""

    @property
    def label_columns(self) -> int:
        """Columns of y."""

    def value(self, prediction: Array, y: Array) -> Array:
        """l(predictions, y), (m,)."""

    def derivative(self, prediction: Array, y: Array) -> Array:
        """Gradient of l in the predictions, (m, k)."""

    def curvature_root(self, prediction: Array, y: Array, sign: int = 1) -> Array:
        """S (m, k, k) with S'S the part of the Hessian of l in the predictions that bends up, or down for sign -1."""

    def root(self, prediction: Array, y: Array) -> Array:
        """sqrt(l), (m,)."""

    def root_gradient(self, prediction: Array, y: Array) -> Array:
        """Gradient of sqrt(l) in the predictions, (m, k); 0 where l is 0."""

    def check_labels(self, y: Array) -> tuple[Array, str, str] | None:
        """Mask of finite labels that are not allowed, of the shape of y, what they are in words, and a remedy."""

    def singular(self, a: Array, b: Array, y: Array) -> Array:
        """Mask (m,) of rows whose root has no slope between a and b."""

    def response(self, prediction: Array) -> Array:
        """Means of y that predictions stand for, (m, k) or one more column."""


def is_of_several(loss: object) -> TypeGuard[LossOfSeveral]:
    """Whether a loss is one of a whole row of predictions."""
    return callable(getattr(loss, "root_gradient", None))


@noun
class OverOutputs:
    """Sum of a loss of one prediction over the outputs of a row: predictions (m, k), y (m, k).

    Examples
    --------
    >>> import numpy as np
    >>> from dask_nlis.losses import SquaredError
    >>> OverOutputs(SquaredError(), 2).root(np.array([[3.0, 4.0]]), np.zeros((1, 2)))
    array([5.])
    """

    loss: Loss
    label_columns: int

    @property
    def takes(self) -> str:
        """What the loss of one prediction takes."""
        return self.loss.takes

    @property
    def may_be_singular(self) -> bool:
        """False: a sum of roots has a slope wherever it is not 0 as a whole."""
        return False

    def value(self, prediction: Array, y: Array) -> Array:
        """Sum of the losses of the outputs."""
        return array_namespace(prediction).sum(self.loss.value(prediction, y), axis=1)

    def derivative(self, prediction: Array, y: Array) -> Array:
        """Slopes of the losses of the outputs."""
        return self.loss.derivative(prediction, y)

    def curvature_root(self, prediction: Array, y: Array, sign: int = 1) -> Array:
        """Diagonal matrices of the roots of the curvatures."""
        xp, bend = array_namespace(prediction), sign * self.loss.curvature(prediction, y)
        root = xp.sqrt(xp.where(bend > 0, bend, xp.zeros_like(bend)))
        return root[:, :, None] * xp.eye(self.label_columns, dtype=root.dtype)[None, :, :]

    def root(self, prediction: Array, y: Array) -> Array:
        """Length of the vector of the signed roots, whose squares neither over- nor underflow."""
        return _lengths(self.loss.root(prediction, y))

    def root_gradient(self, prediction: Array, y: Array) -> Array:
        """Slopes over twice the root."""
        xp, root = array_namespace(prediction), self.root(prediction, y)
        some = root > 0
        slopes = self.loss.derivative(prediction, y) / 2 / xp.where(some, root, xp.ones_like(root))[:, None]
        return xp.where(some[:, None], slopes, xp.zeros_like(slopes))

    def check_labels(self, y: Array) -> tuple[Array, str, str] | None:
        """What the loss of one prediction refuses."""
        return self.loss.check_labels(y)

    def singular(self, a: Array, b: Array, y: Array) -> Array:
        """False everywhere."""
        return array_namespace(a).any(a != a, axis=1)

    def response(self, prediction: Array) -> Array:
        """Response of each output."""
        return self.loss.response(prediction)


@noun
class OneOutput:
    """A loss of one output of several, or that output itself without labels: predictions (m, k), y (m, k) or None."""

    loss: Loss
    output: int
    n_outputs: int

    def root(self, prediction: Array, y: Array | None) -> Array:
        """Signed root of the loss of the output, or the output, (m,)."""
        mine = prediction[:, self.output]
        return mine if y is None else self.loss.root(mine, y[:, self.output])

    def root_gradient(self, prediction: Array, y: Array | None) -> Array:
        """Its gradient in the predictions, (m, k): 0 but for the output itself."""
        xp, mine = array_namespace(prediction), prediction[:, self.output]
        slope = xp.ones_like(mine) if y is None else self.loss.root_slope(mine, mine, y[:, self.output])
        unit = xp.arange(self.n_outputs) == self.output
        return xp.where(unit[None, :], slope[:, None], xp.zeros_like(prediction))


def _lengths(vectors: Array) -> Array:
    """Lengths of vectors (m, k), (m,); by vectors brought near 1, whose squares are no matter."""
    xp = array_namespace(vectors)
    largest = xp.max(xp.abs(vectors), axis=1)
    known = (largest > 0) & xp.isfinite(largest)
    near = vectors / xp.where(known, largest, xp.ones_like(largest))[:, None]
    return xp.where(known, largest * xp.sqrt(xp.sum(near * near, axis=1)), largest)
