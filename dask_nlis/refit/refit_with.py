"""The verb refit_with: a scikit-learn estimator fitted on a weighted sample, weights routed to every step that takes them."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Set, Sized
from inspect import signature
from typing import Any, TypeVar

from dask_nlis.errors import InputError, InputTypeError, MissingExtraError, NlisWarning
from dask_nlis.refit.taken import row_weights
from dask_nlis.sample import Sample

E = TypeVar("E")

#: Methods whose rows have weights while an estimator is fitted: searches score candidates on held-out rows.
_METHODS = ("fit", "score")


def refit_with(estimator: E, X: Any, y: Any, sample: Any) -> E:
    """Fit a copy of a scikit-learn estimator on drawn rows with their weights. Works in memory; no reads.

    The weights go to `fit(sample_weight=...)`. In a Pipeline, a search and other estimators of estimators they go to
    every step whose fit takes them, and to the scores of candidates, by scikit-learn's metadata routing; a step that
    has `set_fit_request(sample_weight=False)` goes without. The weights add up to about the rows drawn from, so a
    penalty such as C means what it means on all rows.

    Parameters
    ----------
    estimator : scikit-learn estimator
        Left as it is; a copy is fitted.
    X : array_like of shape (s, d)
        Taken rows, in memory (`sample.take(X, y)`); what the estimator reads: NumPy, pandas, sparse.
    y : array_like of shape (s,) or None
        Their labels.
    sample : Sample or array_like of shape (s,)
        The sample the rows come from, or weights >= 0 of one's own.

    Returns
    -------
    estimator
        The fitted copy. It knows nothing of the sample's design: standard errors are those of `refit`.

    Raises
    ------
    InputTypeError
        If it is no estimator, its fit or that of an estimator inside takes no sample_weight, or X is lazy.
    InputError
        If X, y and the sample have different numbers of rows, or a weight is negative or not finite.
    MissingExtraError
        If scikit-learn is not installed.

    Warns
    -----
    NlisWarning
        If a transformer learns from the rows without weights, as PCA does: what it learns is that of the sample, not
        of all rows.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.arange(6.0).reshape(6, 1)
    >>> fitted = nlis.refit_with(LinearRegression(), X, 3 * X[:, 0] + 1, np.ones(6))
    >>> fitted.coef_.round(6), round(float(fitted.intercept_), 6)
    (array([3.]), 1.0)
    """
    return weighted(estimator)(X, y, sample)


def weighted(estimator: E) -> Callable[[Any, Any, Any], E]:
    """A copy of an estimator as the function (X, y, sample) -> fitted copy; raises where it takes no weights."""
    try:
        from sklearn import config_context
        from sklearn.base import clone
    except ImportError as cause:
        raise MissingExtraError("refit_with needs scikit-learn; pip install 'dask-nlis[sklearn]'") from cause
    if isinstance(estimator, type) or not (_is_estimator(estimator) and hasattr(estimator, "get_params")):
        what = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
        raise InputTypeError(f"estimator is {what}; give a scikit-learn estimator such as LogisticRegression()")
    copied: Any = clone(estimator)
    parts = list(_inside(copied))
    routed: bool | None = None  # leaves the setting as it is
    if not parts:
        if not _takes_weights(copied):
            raise _refusal(copied, copied)
    else:
        with config_context(enable_metadata_routing=True):
            routed = _routes(copied)
        with config_context(enable_metadata_routing=routed):
            if not routed and not (_takes_weights(copied) and all(map(_takes_weights, parts))):
                # Without routing there is only fit(sample_weight=...), and what it hands on.
                wrong = next((part for part in parts if not _takes_weights(part)), copied)
                raise _refusal(copied, copied if not _takes_weights(copied) else wrong)
            if routed:
                _request(copied, parts)

    def fitted(X: Any, y: Any, sample: Any) -> E:
        weights = _weights_of(sample, X, y)
        with config_context(enable_metadata_routing=routed):
            return _returned(copied, copied.fit(X, y, sample_weight=weights))

    return fitted


def _returned(fitted: Any, answer: Any) -> Any:
    """What fit returned, which is the estimator itself by scikit-learn's rules."""
    return fitted if answer is None else answer


def _weights_of(sample: Any, X: Any, y: Any) -> Any:
    for name, value in (("X", X), ("y", y)):
        if hasattr(value, "__dask_graph__"):
            raise InputTypeError(
                f"{name} is a lazy {type(value).__name__}; give the taken rows, X_s, y_s = sample.take(X, y)"
            )
    s = _n_rows("X", X)
    if y is not None and _n_rows("y", y) != s:
        raise InputError(f"y has {_n_rows('y', y)} rows, but X has {s}; give sample.take(X, y)")
    if not isinstance(sample, Sample):
        return row_weights("sample", sample, s)
    if len(sample) != s:
        raise InputError(f"X has {s} rows, but the sample has {len(sample)}; give sample.take(X, y)")
    return sample.weights.copy()  # some estimators write into them


def _n_rows(argument: str, value: Any) -> int:
    """Rows of what an estimator may take: arrays, tables, sparse matrices, lists."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    if shape is not None or isinstance(value, str | bytes | Mapping | Set) or not isinstance(value, Sized):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give the taken rows, X_s, y_s = sample.take(X, y)")
    return len(value)


def _is_estimator(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "fit", None))


def _inside(estimator: Any) -> Iterator[Any]:
    """Estimators among the parameters of an estimator, at every depth, also in lists of steps and grids of a search."""
    for value in estimator.get_params(deep=False).values():
        yield from _found(value)


def _found(value: Any) -> Iterator[Any]:
    if _is_estimator(value) and hasattr(value, "get_params"):
        yield value
        yield from _inside(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _found(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _found(inner)


def _takes_weights(estimator: Any) -> bool:
    from sklearn.utils.validation import has_fit_parameter

    return bool(has_fit_parameter(estimator, "sample_weight"))


def _routes(estimator: Any) -> bool:
    """Whether scikit-learn knows how to hand weights on to what is inside."""
    try:
        return estimator.get_metadata_routing() is not None if hasattr(estimator, "get_metadata_routing") else False
    except NotImplementedError:  # AdaBoost
        return False


def _request(fitted: Any, parts: list[Any]) -> None:
    """Ask for weights wherever they are taken; refuse predictors that take none, name transformers that take none."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.utils import get_tags
    from sklearn.utils.metadata_routing import get_routing_for_object

    without = []
    for part in (fitted, *parts):
        holds = any(True for _ in _inside(part))
        if _takes_weights(part):
            _ask(part)
        elif not holds and hasattr(part, "predict"):
            raise _refusal(fitted, part)
        elif not holds and get_tags(part).requires_fit:
            without.append(type(part).__name__)
        scoring = part.get_params(deep=False).get("scoring")
        if isinstance(part, LogisticRegressionCV) and scoring in (None, "warn"):
            scoring = "accuracy"  # its default, which is no parameter that could ask for weights
        if scoring is not None:
            part.set_params(scoring=_weighted(scoring))
    if not get_routing_for_object(fitted).consumes("fit", ("sample_weight",)):
        raise _refusal(fitted, fitted)
    if without:
        warnings.warn(
            f"{', '.join(dict.fromkeys(without))} in {type(fitted).__name__} takes no sample_weight: what it learns "
            "from the rows counts each of them once",
            NlisWarning,
            stacklevel=4,
        )


def _ask(part: Any) -> None:
    """Set requests for weights that are not set yet."""
    for method in _METHODS:
        setter = getattr(part, f"set_{method}_request", None)
        if setter is None:
            continue
        known = getattr(getattr(part.get_metadata_routing(), method, None), "requests", {})
        if known.get("sample_weight", "none") is None or not known:
            try:
                setter(sample_weight=True)
            except TypeError:  # its score takes no weights
                continue


def _weighted(scoring: Any) -> Any:
    """The scoring of a search, its scorers asking for weights."""
    from sklearn.metrics import get_scorer, get_scorer_names

    if isinstance(scoring, str):
        return _weighted(get_scorer(scoring)) if scoring in get_scorer_names() else scoring
    if isinstance(scoring, list | tuple | set):
        return {name: _weighted(name) for name in scoring}
    if isinstance(scoring, Mapping):
        return {name: _weighted(scorer) for name, scorer in scoring.items()}
    if not hasattr(scoring, "set_score_request"):
        return scoring
    takes = "sample_weight" in signature(getattr(scoring, "_score_func", scoring)).parameters
    return scoring.set_score_request(sample_weight=takes)


def _refusal(fitted: Any, part: Any) -> InputTypeError:
    inside = "" if part is fitted else f" in {type(fitted).__name__}"
    return InputTypeError(
        f"estimator {type(part).__name__}{inside} takes no sample_weight, so it would take drawn rows for a random "
        "sample; give one whose fit has sample_weight"
    )
