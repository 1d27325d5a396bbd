"""The problem behind an estimator's rows: the one that is given, or one that the labels choose."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputTypeError
from dask_nlis.kernels.numbers import is_lazy
from dask_nlis.losses import LogisticLoss, SoftmaxLoss
from dask_nlis.models import Linear
from dask_nlis.problem import Problem


def problem_for(problem: Problem | None, y: Any, regressor: bool) -> tuple[Problem, Any]:
    """The problem that rows are scored by, and y as its loss takes it; None for y where scores know no labels.

    Parameters
    ----------
    problem : Problem or None
        Given; None lets y choose.
    y : array_like of shape (n,) or (n, k), or None
        Checked labels.
    regressor : bool
        Whether y holds numbers to be met and no classes, whatever it looks like.
    """
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:  # which estimators of several outputs keep
        y = y[:, 0]
    if problem is not None:
        if not isinstance(problem, Problem):
            raise InputTypeError(f"problem is {type(problem).__name__}; give Problem(model, loss), or None")
        return problem, _as_taken(problem, y)
    if y is None:
        return Problem(Linear()), None
    if is_lazy(y):
        raise InputTypeError(
            "problem is None, and a lazy y is not read to choose one; give one such as Problem(Linear(), LogisticLoss())"
        )
    from sklearn.utils.multiclass import type_of_target

    kind = "continuous" if regressor and y.ndim == 1 else type_of_target(y)
    if kind == "continuous":
        return Problem(Linear()), y
    if kind == "binary":
        two = Problem(Linear(), LogisticLoss())
        return two, _as_taken(two, y)
    return Problem(Linear()), None


def _as_taken(problem: Problem, y: Any) -> Any:
    """Classes of any name as the labels of a LogisticLoss or SoftmaxLoss, in sorted order; other labels as they are."""
    if not isinstance(problem.loss, LogisticLoss | SoftmaxLoss) or y is None or is_lazy(y) or y.ndim != 1:
        return y
    classes, codes = np.unique(y, return_inverse=True)
    if isinstance(problem.loss, SoftmaxLoss):
        numbered = classes.dtype.kind in "biuf" or len(classes) != problem.loss.n_classes
        return y if numbered else codes
    if len(classes) > 2 or set(classes.tolist()) <= set(problem.loss.labels):
        return y
    return np.asarray(problem.loss.labels)[codes]
