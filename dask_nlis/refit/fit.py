"""The noun Fit: theta, what it costs, and whether our own checks let it pass."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_nlis.errors import InputError
from dask_nlis.intake import default_names, in_memory
from dask_nlis.nouns import from_dict, noun, to_dict
from dask_nlis.problem import Problem


@noun
class Fit:
    """A fitted theta with the verdict of checks of our own, never a solver's status.

    Attributes
    ----------
    problem : Problem
        What was fitted.
    theta : ndarray of shape (p,)
        The parameters.
    feature_names : tuple of str
        Columns of X the fit was made on.
    loss : float
        Weighted sum of losses at theta: the sample's estimate of the total loss.
    ok : bool
        Finite, inside the set and stationary.
    reasons : tuple of str
        Why not ok; empty when ok.
    active : tuple of str
        Constraints on whose boundary theta lies.
    stationarity : float
        Decrease that the local quadratic still promises inside the set, relative to the loss; ok below 1e-8.
    n_rows : int
        Rows fitted on.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.Linear(intercept=False), constraint=nlis.Ball(1.0))
    >>> nlis.refit(problem, np.array([[1.0]]), np.array([5.0]), np.ones(1))
    Fit(ok=True, loss=16, p=1, n_rows=1, active=('ball of radius 1',))
    """

    problem: Problem
    theta: np.ndarray
    feature_names: tuple[str, ...]
    loss: float
    ok: bool
    reasons: tuple[str, ...]
    active: tuple[str, ...]
    stationarity: float
    n_rows: int

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each entry of theta."""
        return self.problem.model.parameter_names(self.feature_names)

    @property
    def params(self) -> dict[str, float]:
        """Theta by name."""
        return dict(zip(self.names, map(float, self.theta), strict=True))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the mean response of rows held in memory: X (m, d) -> (m,).

        The model's output; where the loss has its link inside, its response: the probability of the second label for
        LogisticLoss, the rate exp(u) for PoissonDeviance. The linear predictor is `problem.model.index(theta, X)`.

        Parameters
        ----------
        X : array_like of shape (m, d)
            NumPy, pandas or in-memory xarray; for Dask, `X.map_blocks(fit.predict, dtype=float, drop_axis=1)`.

        Raises
        ------
        InputError
            If the number of columns, or the column names of a pandas X, differ from those of the fit.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0])
        >>> fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(3))
        >>> fit.predict(np.array([[10.0]])).round(6)
        array([21.])
        """
        x, names = in_memory("X", X)
        if x.ndim != 2 or x.shape[1] != len(self.feature_names):
            raise InputError(f"X has shape {x.shape}, but the fit expects {len(self.feature_names)} columns")
        if names is not None and names != self.feature_names and self.feature_names != default_names(x.shape[1]):
            differ = next((a, b) for a, b in zip(names, self.feature_names, strict=True) if a != b)
            raise InputError(
                f"X has column {differ[0]!r} where the fit has {differ[1]!r}; give columns in the fit's order"
            )
        response: np.ndarray = self.problem.loss.response(self.problem.model.predict(self.theta, x))
        return response

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as JSON values and arrays."""
        return to_dict(self) | {"problem": self.problem.to_dict()}

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Fit":
        """Rebuild a fit from `to_dict`."""
        problem = Problem.from_dict(found["problem"])
        fit: Fit = from_dict({**found, "problem": problem}, {"Fit": Fit})
        return fit

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"ok": self.ok, "loss": self.loss, "p": len(self.theta), "n_rows": self.n_rows}
        extra = {"active": self.active, "reasons": self.reasons}
        return shown | {name: value for name, value in extra.items() if value}
