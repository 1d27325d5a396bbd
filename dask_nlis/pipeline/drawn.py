"""The drawn rows in memory, and the fit to them."""

from typing import Any, NamedTuple

import numpy as np

from dask_nlis.problem import Problem
from dask_nlis.refit import Fit, fit_rows
from dask_nlis.sample import Sample


class Drawn(NamedTuple):
    """The drawn rows in memory, float64."""

    X: np.ndarray  # (m, d)
    y: np.ndarray  # (m,)
    weight: np.ndarray | None  # (m,), row weights of the data


def take_drawn(sample: Sample, X: Any, y: Any, sample_weight: Any) -> Drawn:
    """Take the rows of a sample, with their labels and row weights; reads the blocks that hold them."""
    x, *columns = sample.take(X, y, *(() if sample_weight is None else (sample_weight,)))
    labels, *weight = (np.asarray(column, dtype=np.float64).reshape(-1) for column in columns)
    return Drawn(np.asarray(x, dtype=np.float64), labels, weight[0] if weight else None)


def fit_drawn(problem: Problem, sample: Sample, taken: Drawn, names: tuple[str, ...], start: Any = None) -> Fit:
    """Fit the rows of a sample, its weights times those of the data."""
    weights = sample.weights if taken.weight is None else sample.weights * taken.weight
    return fit_rows(problem, taken.X, taken.y, weights, names, sample=sample, start=start)
