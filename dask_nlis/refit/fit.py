"""The noun Fit: theta, what it costs, and whether our own checks let it pass."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import default_names, flat_in_memory, in_memory
from dask_nlis.nouns import from_dict, noun, to_dict
from dask_nlis.problem import Problem
from dask_nlis.refit.stored import check_stored
from dask_nlis.refit.summary import Summary

TARGETS = ("full_data", "population")


class ConfidenceInterval(NamedTuple):
    """Lower and upper ends, (p,) each."""

    low: np.ndarray
    high: np.ndarray


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
    covariance : ndarray of shape (p, p)
        Of theta around the fit to all rows, by the design of the sample; NaN where `withheld` says why.
    population_covariance : ndarray of shape (p, p)
        What to add for the distance of the fit to all rows from the population they come from.
    design : str
        What the covariance takes the rows for: the scheme of the sample, or one independent draw a row.
    withheld : str
        Why there are no standard errors: the fit is not ok, a constraint is active, or the optimum is not unique;
        empty where there are.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.Linear(intercept=False), constraint=nlis.Ball(1.0))
    >>> nlis.refit(problem, np.array([[1.0]]), np.array([5.0]), np.ones(1))
    Fit(ok=True, loss=16, p=1, n_rows=1, active=('ball of radius 1',))
    >>> fit = nlis.refit(nlis.Problem(nlis.Linear()), np.eye(4), np.array([0.0, 1.0, 2.0, 9.0]), np.ones(4), ridge=1.0)
    >>> fit.names[-1], list(fit.params) == list(fit.names), fit.standard_errors.shape
    ('intercept', True, (5,))
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
    covariance: np.ndarray
    population_covariance: np.ndarray
    design: str
    withheld: str

    def __post_init__(self) -> None:
        for array in (self.theta, self.covariance, self.population_covariance):
            array.setflags(write=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each entry of theta."""
        return self.problem.model.parameter_names(self.feature_names)

    @property
    def params(self) -> dict[str, float]:
        """Theta by name."""
        return dict(zip(self.names, map(float, self.theta), strict=True))

    @property
    def standard_errors(self) -> np.ndarray:
        """Standard error of each entry of theta around the fit to all rows, (p,); NaN where they are withheld."""
        return np.sqrt(np.diagonal(self.covariance))

    def confidence_interval(self, confidence_level: float = 0.95, *, target: str = "full_data") -> ConfidenceInterval:
        """Interval of each entry of theta, estimate -+ normal quantile x standard error: (low, high), (p,) each.

        Parameters
        ----------
        confidence_level : float, default 0.95
            Between 0 and 1.
        target : {"full_data", "population"}
            What the interval is to cover: the fit to all rows the sample was drawn from, or that to the population
            all rows are a sample of, which adds the sampling error of the data themselves.

        Returns
        -------
        ConfidenceInterval
            NaN where `withheld` says why.

        Raises
        ------
        InputError, InputTypeError
            If the level is no number between 0 and 1, or the target is not known.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> X, y = np.arange(8.0).reshape(-1, 1), np.array([0.1, 1.0, 1.9, 3.1, 4.0, 4.8, 6.2, 7.0])
        >>> fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(8))
        >>> low, high = fit.confidence_interval()
        >>> bool(low[0] < 1 < high[0])
        True
        """
        if isinstance(confidence_level, bool) or not isinstance(
            confidence_level, int | float | np.integer | np.floating
        ):
            raise InputTypeError(f"confidence_level={confidence_level!r} is no number; give one between 0 and 1")
        if not 0 < confidence_level < 1:
            raise InputError(f"confidence_level={confidence_level!r} is not allowed; give a number between 0 and 1")
        if not isinstance(target, str) or target not in TARGETS:
            raise InputError(f"target={target!r} is not known; give one of {', '.join(map(repr, TARGETS))}")
        covariance = self.covariance + (self.population_covariance if target == "population" else 0.0)
        half = ndtri((1 + float(confidence_level)) / 2) * np.sqrt(np.diagonal(covariance))
        return ConfidenceInterval(self.theta - half, self.theta + half)

    def summary(self, confidence_level: float = 0.95, *, target: str = "full_data") -> Summary:
        """Table of names, estimates, standard errors and intervals, to print or to show in a notebook.

        Parameters
        ----------
        confidence_level : float, default 0.95
            As in `confidence_interval`.
        target : {"full_data", "population"}
            As in `confidence_interval`; the standard errors are those of the target.

        Returns
        -------
        Summary
            Prints as a table in text; in a notebook as one of HTML.

        Raises
        ------
        InputError, InputTypeError
            As `confidence_interval`.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> X, y = np.arange(8.0).reshape(-1, 1), np.array([0.1, 1.0, 1.9, 3.1, 4.0, 4.8, 6.2, 7.0])
        >>> print(nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(8)).summary())
        8 rows (one independent draw a row), loss 0.10869, ok
        parameter   estimate   standard error   95 % from        to
        ───────────────────────────────────────────────────────────
        x0           0.99881         0.023861     0.95204    1.0456
        intercept   0.016667         0.079588    -0.13932   0.17266
        errors: around the fit to all rows
        """
        low, high = self.confidence_interval(confidence_level, target=target)
        covariance = self.covariance + (self.population_covariance if target == "population" else 0.0)
        around = {"full_data": "around the fit to all rows", "population": "around the population's parameters"}[target]
        return Summary(
            heading=f"{self.n_rows:,} rows ({self.design}), loss {self.loss:.5g}, {'ok' if self.ok else 'not ok'}",
            names=self.names,
            estimates=self.theta,
            standard_errors=np.sqrt(np.diagonal(covariance)),
            low=low,
            high=high,
            confidence_level=float(confidence_level),
            note=f"no standard errors: {self.withheld}" if self.withheld else f"errors: {around}",
        )

    def predict(self, X: Any) -> np.ndarray:
        """Predict the mean response of rows held in memory: X (m, d) -> (m,).

        The model's output; where the loss has its link inside, its response: the probability of the second label for
        LogisticLoss, the rate exp(u) for PoissonDeviance. The linear predictor is `problem.model.index(theta, X)`.

        Parameters
        ----------
        X : array_like of shape (m, d)
            NumPy, pandas or in-memory xarray; for Dask, `X.map_blocks(fit.predict, dtype=float, drop_axis=1)`.

        Returns
        -------
        ndarray of shape (m,), float64
            In the units of y; (m, n_outputs) for a model of several outputs, (m, n_classes) for SoftmaxLoss.

        Raises
        ------
        InputError
            If the number of columns, or the column names of a pandas X, differ from those of the fit.
        InputTypeError
            If X is lazy, or holds no real numbers.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 3.0, 5.0])
        >>> fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, np.ones(3))
        >>> fit.predict(np.array([[10.0]])).round(6)
        array([21.])
        """
        x, names = in_memory("X", X)
        x = flat_in_memory(x, self.problem.input_shape)
        if x.ndim != 2 or x.shape[1] != len(self.feature_names):
            raise InputError(
                f"X has shape {x.shape}, but the fit expects {len(self.feature_names)} columns; give (m, {len(self.feature_names)})"
            )
        if names is not None and names != self.feature_names and self.feature_names != default_names(x.shape[1]):
            differ = next((a, b) for a, b in zip(names, self.feature_names, strict=True) if a != b)
            raise InputError(
                f"X has column {differ[0]!r} where the fit has {differ[1]!r}; give columns in the fit's order"
            )
        response: np.ndarray = self.problem.row_loss.response(self.problem.model.predict(self.theta, x))
        return response

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as JSON values and arrays; raises as `Problem.to_dict`.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        return to_dict(self) | {"problem": self.problem.to_dict()}

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Fit":
        """Rebuild a fit from `to_dict`.

        Parameters
        ----------
        found : mapping
            What `to_dict` returned, its arrays as arrays or as the lists that JSON makes of them.

        Returns
        -------
        Fit
            Equal to the one that was stored.

        Raises
        ------
        InputError, InputTypeError
            If it is no fit, or its fields do not fit together.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> fit = nlis.refit(nlis.Problem(nlis.Linear(intercept=False)), np.eye(1), np.ones(1), np.ones(1))
        >>> nlis.Fit.from_dict(fit.to_dict()) == fit
        True
        """
        known = isinstance(found, Mapping) and isinstance(found.get("problem"), Mapping)
        fields = {**found, "problem": Problem.from_dict(found["problem"])} if known else found
        fit: Fit = from_dict(fields, {"Fit": Fit}, typed=True)  # says what is wrong with the others
        check_stored(fit)
        return fit

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"ok": self.ok, "loss": self.loss, "p": len(self.theta), "n_rows": self.n_rows}
        extra = {"active": self.active, "reasons": self.reasons}
        return shown | {name: value for name, value in extra.items() if value}
