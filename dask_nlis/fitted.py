"""A model that comes with parameters and a loss: what another library's fitted estimator is here."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_nlis.errors import InputError
from dask_nlis.losses import Loss, SoftmaxLoss
from dask_nlis.models import Model
from dask_nlis.models.protocol import Form
from dask_nlis.nouns import noun

Array = Any


@noun
class FittedModel:
    """A model with the parameters and the loss that it was fitted with; returned by `from_sklearn`.

    A `Problem` of it has the `model` inside, and its loss where no other is given. Reads nothing.

    Attributes
    ----------
    model : Model
        A model of this library.
    theta : ndarray of shape (p,)
        Its parameters as they were fitted, in the layout of `model`.
    loss : Loss or SoftmaxLoss
        What was minimised, up to a constant factor and a penalty.
    classes : tuple or None
        The labels of a classifier; of two, the second is the one whose log odds are predicted. None for others.
    feature_names : tuple of str or None
        Names of the columns it was fitted on, if they had names.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> fitted = nlis.from_sklearn(LinearRegression().fit(X, [1.0, 3.0, 5.0]))
    >>> fitted.theta.round(12)
    array([2., 1.])
    """

    model: Model
    theta: np.ndarray
    loss: Loss | SoftmaxLoss
    classes: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        theta = np.array(self.theta, dtype=np.float64) + 0.0
        theta.setflags(write=False)
        object.__setattr__(self, "theta", theta)

    def labels(self, y: Any) -> np.ndarray:
        """Classes (n,) of any kind as the labels that the loss takes, 0.0, 1.0, ..., (n,); in memory.

        Parameters
        ----------
        y : array_like of shape (n,)
            Classes as the estimator was fitted to them; in memory.

        Returns
        -------
        ndarray of shape (n,), float64
            Position of each in `classes`.

        Raises
        ------
        InputError
            If it is no classifier, or y holds another class, naming the first row.

        Examples
        --------
        >>> import dask_nlis as nlis
        >>> from sklearn.linear_model import LogisticRegression
        >>> nlis.from_sklearn(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"])).labels(["yes", "no"])
        array([1., 0.])
        """
        if self.classes is None:
            raise InputError(f"{type(self.model).__name__} of a regressor has no classes; give y as it is")
        given = np.asarray(y)
        codes = np.full(given.shape, -1.0)
        for code, name in enumerate(self.classes):
            codes[given == name] = code
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            allowed = ", ".join(map(repr, self.classes[:6])) + (", ..." if len(self.classes) > 6 else "")
            raise InputError(f"y={given[row]!r} at row {row} is no class; allowed are {allowed}")
        return codes

    @property
    def form(self) -> Form:
        """That of `model`."""
        return self.model.form

    @property
    def n_outputs(self) -> int:
        """Predictions a row."""
        return self.model.n_outputs

    def n_parameters(self, d: int) -> int:
        """Length of theta for d features."""
        return self.model.n_parameters(d)

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Name every entry of theta."""
        return self.model.parameter_names(feature_names)

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into named arrays."""
        return self.model.unpack(theta)

    def pack(self, **parts: object) -> np.ndarray:
        """Join named arrays into theta."""
        return self.model.pack(**parts)

    def inputs(self, x: Array) -> Array:
        """x as the model sees it."""
        return self.model.inputs(x)

    def predict(self, theta: Array, x: Array) -> Array:
        """Prediction, shape (m,) or (m, n_outputs)."""
        return self.model.predict(theta, x)

    def jacobian(self, theta: Array, x: Array) -> Array:
        """Gradient of the prediction in theta, shape (m, p)."""
        return self.model.jacobian(theta, x)

    def hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Weighted sum over rows of the second derivatives of the prediction in theta."""
        return self.model.hessian(theta, x, weights)

    def at_zero(self, x: Array) -> Array:
        """Prediction at theta = 0."""
        return self.model.at_zero(x)
