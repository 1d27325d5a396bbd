"""The drawn rows in memory, and the fit to them."""

import math
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import NonFiniteError
from dask_nlis.intake import take_in
from dask_nlis.matrix import TallMatrix
from dask_nlis.matrix.leaf import as_labels
from dask_nlis.problem import Problem
from dask_nlis.refit import Fit, fit_rows
from dask_nlis.sample import Sample


class Drawn(NamedTuple):
    """The drawn rows in memory, float64."""

    X: np.ndarray  # (m, d)
    y: np.ndarray  # (m,), or (m, k) of several outputs
    weight: np.ndarray | None  # (m,), row weights of the data


def take_drawn(sample: Sample, X: Any, y: Any, sample_weight: Any) -> Drawn:
    """Take the rows of a sample, with their labels and row weights; reads the blocks that hold them."""
    x, *columns = sample.take(X, y, *(() if sample_weight is None else (sample_weight,)))
    return as_drawn(x, *columns)


def as_drawn(x: Any, y: Any, weight: Any = None) -> Drawn:
    """Rows with their labels and row weights as they were stored, in float64."""
    labels = as_labels(np.asarray(y, dtype=np.float64))
    weights = None if weight is None else np.asarray(weight, dtype=np.float64).reshape(-1)
    rows = np.asarray(x, dtype=np.float64)
    return Drawn(rows.reshape(len(rows), math.prod(rows.shape[1:])), labels, weights)


def fit_drawn(problem: Problem, sample: Sample, taken: Drawn, names: tuple[str, ...], start: Any = None) -> Fit:
    """Fit the rows of a sample, its weights times those of the data."""
    weights = sample.weights
    if taken.weight is not None:
        with np.errstate(over="ignore"):
            weights = weights * taken.weight
        if not np.isfinite(weights).all():
            row = int(sample.indices[np.argmin(np.isfinite(weights))])
            raise NonFiniteError(
                f"sample_weight of row {row} times its weight in the sample is beyond float64; bring sample_weight to smaller units"
            )
    return fit_rows(problem, taken.X, taken.y, weights, names, sample=sample, start=start)


def matrix_of(matrix: TallMatrix, taken: Drawn) -> TallMatrix:
    """The matrix of the taken rows."""
    source = take_in(taken.X, taken.y, taken.weight, label_columns=matrix.label_columns)
    return TallMatrix(source, matrix.rule, matrix.missing, matrix.device)
