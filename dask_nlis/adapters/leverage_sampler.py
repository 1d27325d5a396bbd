"""The estimator NonlinearLeverageSampler: the five words in scikit-learn's, `fit` for all of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.utils import _safe_indexing, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_nlis import phase
from dask_nlis.adapters.by_leverage import Asked, Given, drawn_by_leverage
from dask_nlis.adapters.problem_for import problem_for
from dask_nlis.errors import NlisWarning
from dask_nlis.kernels.numbers import is_lazy
from dask_nlis.problem import Problem
from dask_nlis.refit import row_weights, weighted
from dask_nlis.sample import Sample


def _if_estimator_has(name: str) -> Callable[[Callable[..., Any]], Any]:
    """A method that is there where the estimator has it, as scikit-learn's searches have theirs."""

    def known(self: "NonlinearLeverageSampler") -> bool:
        getattr(getattr(self, "estimator_", self.estimator), name)  # its AttributeError is the cause of ours
        return True

    return available_if(known)


class NonlinearLeverageSampler(BaseEstimator):
    """Draw rows by their leverage under a nonlinear model and, with `estimator`, fit it on them with their weights.

    The last step of a pipeline, since what it passes on are weights beside rows: `make_pipeline(StandardScaler(),
    NonlinearLeverageSampler(problem, size=500, estimator=LogisticRegression()))` predicts as the estimator does.
    Without an estimator, `fit` finds rows, and `fit_resample` returns them. Does `pilot`, `dual_matrix`, `factorize`,
    `leverage_scores` and `draw`; scoring is in memory for what scikit-learn reads, and block by block for Dask arrays.
    Reads nothing before `fit`.

    Parameters
    ----------
    problem : Problem, optional
        The model and loss that rows are scored by. None chooses by y: `Problem(Linear())` for continuous y and for
        regressors, `Problem(Linear(), LogisticLoss())` for two classes; more classes, several outputs and no y at all
        are scored by the leverage of X alone. The two classes of a `LogisticLoss` may have any names.
    size : int or float, default 0.1
        Draws or, as a float in (0, 1], their share of the rows, as in `draw`.
    scheme : {"multinomial", "stratified", "poisson", "systematic"}
        As in `draw`.
    mix : float, default 0.0
        Share of the draws that is uniform, as in `draw`; 0.1 is a safeguard where the estimator is another model than
        that of the problem.
    theta : array_like of shape (p,), optional
        Where rows are scored. None fits a pilot first; where that fit is not ok, rows are scored by the reference
        matrix, which needs no theta, and a warning says so.
    pilot_size : int or float, optional
        Rows of the pilot, a count or a share; by default ten a parameter, and at least a quarter of `size`.
    min_per_group : int, optional
        Draws that each class of y has at least, as in `draw` by groups. By default classes are not looked at, and one
        that a classifier would not see is warned of.
    estimator : estimator, optional
        Fitted on the drawn rows, as `refit_with` does; left as it is. One that takes no sample_weight is refused.
    random_state : int, RandomState or None
        An integer is the seed of `draw`. For a RandomState, or None, which is NumPy's own, one is drawn from it; a
        Generator is refused. `sample_.seed` tells the seed.

    Attributes
    ----------
    sample_indices_ : ndarray of shape (m,), int64
        Drawn rows, distinct and ascending.
    sample_weight_ : ndarray of shape (m,)
        Their weights, times those given to `fit`: sums weighted by them estimate sums over all rows without bias.
    scores_ : array of shape (n,)
        Leverage of all rows, in [0, 1]; lazy for Dask arrays.
    sample_ : Sample
        The sample, without the weights given to `fit`.
    problem_ : Problem
        The problem that rows were scored by.
    theta_ : ndarray of shape (p,) or None
        Where they were scored; None where scores needed no theta.
    estimator_ : estimator
        The fitted copy of `estimator`.
    classes_ : ndarray of shape (k,)
        Classes that `estimator_` knows.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Their names, where X has names that are text.

    Raises
    ------
    InputError, InputTypeError
        From `fit`, if an argument is not allowed; as in scikit-learn they are kept as they come.

    See Also
    --------
    refit_with : the fit alone, for a sample drawn by other means.
    run : the whole job with a store, for rows that do not fit in memory.

    Notes
    -----
    Nothing is standardised; let a `StandardScaler` come before, as the example does. The pilot is drawn by the seed
    `np.random.SeedSequence([seed, 1]).generate_state(1)[0]`, independent of the draw's.

    Pipelines of imbalanced-learn call `fit_resample` and fit the steps after it on its rows, but hand no weights on:
    what they fit is biased to unusual rows. Give `estimator` instead.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss(), constraint=nlis.Ball(5.0))
    >>> sampler = nlis.NonlinearLeverageSampler(problem, size=300, estimator=LogisticRegression(), random_state=0)
    >>> model = make_pipeline(StandardScaler(), sampler).fit(X, y)
    >>> len(X), len(model[-1].sample_indices_), bool(model.score(X, y) > 0.95)
    (569, 186, True)
    >>> model[-1].classes_
    array([0, 1])
    """

    def __init__(
        self,
        problem: Problem | None = None,
        *,
        size: int | float = 0.1,
        scheme: str = "multinomial",
        mix: float = 0.0,
        theta: Any = None,
        pilot_size: int | float | None = None,
        min_per_group: int | None = None,
        estimator: Any = None,
        random_state: Any = None,
    ) -> None:
        self.problem = problem
        self.size = size
        self.scheme = scheme
        self.mix = mix
        self.theta = theta
        self.pilot_size = pilot_size
        self.min_per_group = min_per_group
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "NonlinearLeverageSampler":
        """Score and draw rows, and fit a copy of the estimator on them where there is one.

        Parameters
        ----------
        X : array_like of shape (n, d)
            What scikit-learn reads, dense and finite, or a Dask array.
        y : array_like of shape (n,), optional
            Labels; a Dask array where X is one, or in memory.
        sample_weight : array_like of shape (n,), optional
            Row weights >= 0; an integer counts like repeated rows.

        Returns
        -------
        NonlinearLeverageSampler
            Itself.

        Raises
        ------
        InputError, InputTypeError
            If an argument of the sampler, or the shape or content of X, y and the weights, is not allowed.
        """
        fitted = None if self.estimator is None else weighted(self.estimator)
        labels = self._drawn(X, y, sample_weight)
        if fitted is not None:
            drawn = _taken(self.sample_, X), _taken(self.sample_, labels)
            self.estimator_ = fitted(*drawn, self.sample_weight_)
        return self

    def fit_resample(self, X: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any]:
        """Score and draw rows and return them with their labels, (m, d) and (m,); `sample_weight_` has the weights.

        Parameters
        ----------
        X : array_like of shape (n, d)
            As in `fit`.
        y : array_like of shape (n,), optional
            As in `fit`.
        sample_weight : array_like of shape (n,), optional
            As in `fit`.

        Returns
        -------
        X_s, y_s : array of shape (m, d), array of shape (m,)
            In the containers they came in, NumPy for Dask; None for y where there is none.

        Raises
        ------
        InputError, InputTypeError
            As `fit`.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> X = np.arange(40.0).reshape(20, 2) ** 2
        >>> X_s, y_s = nlis.NonlinearLeverageSampler(size=9, random_state=0).fit_resample(X, X[:, 0])
        >>> X_s.shape[1], bool((X_s[:, 0] == y_s).all())
        (2, True)
        """
        self._drawn(X, y, sample_weight)
        return _taken(self.sample_, X), _taken(self.sample_, y)

    @_if_estimator_has("predict")
    def predict(self, X: Any) -> Any:
        """What the fitted estimator predicts: X (n, d) -> (n,)."""
        return self._fitted().predict(X)

    @_if_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes by the fitted estimator: X (n, d) -> (n, k)."""
        return self._fitted().predict_proba(X)

    @_if_estimator_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the probabilities of the classes by the fitted estimator: X (n, d) -> (n, k)."""
        return self._fitted().predict_log_proba(X)

    @_if_estimator_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Decision function of the fitted estimator: X (n, d) -> (n,) or (n, k)."""
        return self._fitted().decision_function(X)

    @_if_estimator_has("score")
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The score of the fitted estimator on rows: X (n, d), y (n,) -> float."""
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._fitted().score(X, y, **weights)

    @property
    def classes_(self) -> Any:
        """Classes that the fitted estimator knows, (k,)."""
        return self.estimator_.classes_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__") and not isinstance(self.estimator, type):
            inner = get_tags(self.estimator)
            tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
            tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        return tags

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def _drawn(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """Draw rows and keep what is known of them; return y as it is checked."""
        _forget(self, "estimator_")  # which belongs to another sample
        x, labels, weights = self._checked(X, y, sample_weight)
        problem, taken = problem_for(self.problem, labels, is_regressor(self))
        asked = Asked(
            size=self.size,
            scheme=self.scheme,
            mix=self.mix,
            theta=self.theta,
            pilot_size=self.pilot_size,
            min_per_group=self.min_per_group,
            seed=_seed(self.random_state),
        )
        found = drawn_by_leverage(problem, Given(x, taken, labels, weights), asked)
        known = getattr(self, "feature_names_in_", None)
        sample = found.sample if known is None else replace(found.sample, feature_names=tuple(known))
        self.n_features_in_ = found.n_columns
        self.problem_, self.theta_, self.scores_ = problem, found.theta, found.scores
        self.sample_, self.sample_indices_ = sample, sample.indices
        self.sample_weight_ = sample.weights * (1.0 if weights is None else np.reshape(sample.take(weights), -1))
        if is_classifier(self):
            _check_classes(labels, sample)
        return labels

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """X, y and row weights as they are scored; blocks of Dask arrays are checked by the task that reads them."""
        if isinstance(X, da.Array):
            _forget(self, "feature_names_in_")
            labels, weights = (
                each if each is None or is_lazy(each) else np.asarray(each) for each in (y, sample_weight)
            )
            return X, labels, weights
        if y is None:
            x, labels = validate_data(self, X, y), None
        else:
            several = get_tags(self).target_tags.multi_output
            x, labels = validate_data(self, X, y, multi_output=several, y_numeric=is_regressor(self))
        return x, labels, None if sample_weight is None else row_weights("sample_weight", sample_weight, len(x))


def _forget(estimator: Any, name: str) -> None:
    if hasattr(estimator, name):
        delattr(estimator, name)


def _seed(random_state: Any) -> Any:
    """An integer for NumPy's states, as scikit-learn draws them; anything else as it is, to be checked as a seed."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    return random_state


def _taken(sample: Sample, value: Any) -> Any:
    """Drawn rows in the container they came in, NumPy for Dask."""
    if value is None or isinstance(value, da.Array):
        return None if value is None else sample.take(value)
    (value,) = indexable(value)
    return _safe_indexing(value, sample.indices)


def _check_classes(labels: Any, sample: Sample) -> None:
    """Warn of classes that no drawn row has."""
    if not isinstance(labels, np.ndarray) or type_of_target(labels) not in ("binary", "multiclass"):
        return
    n, missing = len(np.unique(labels)), np.setdiff1d(labels, labels[sample.indices]).tolist()
    if missing:
        phase.warn(
            f"no drawn row is of {len(missing)} of the {n} classes, {missing[0]!r} first; give min_per_group=1 or a "
            "larger size",
            NlisWarning,
        )
