"""Taken rows as a refit gets them: checked, in float64, with their labels and weights."""

from typing import Any

import numpy as np

from dask_nlis.errors import InputError, InputTypeError, NonFiniteError
from dask_nlis.intake import default_names, flat_in_memory, in_memory
from dask_nlis.losses import Loss, LossOfSeveral
from dask_nlis.problem import Problem
from dask_nlis.sample import Sample


def taken_rows(
    problem: Problem,
    X: Any,
    y: Any,
    sample: Any,
    sample_weight: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Rows (s, d), labels, weights of the sample times those of the data, (s,), and names of the columns, or raise."""
    x, names = in_memory("X", X)
    x = flat_in_memory(x, problem.input_shape)
    if x.ndim != 2:
        raise InputError(f"X has shape {x.shape}; give (s, d), the taken rows")
    s, d = x.shape
    if not s or not d:
        raise InputError(f"X has shape {x.shape}: no {'rows' if not s else 'columns'}; give at least one")
    labels = _column("y", y, s) if problem.label_columns == 1 else _label_columns(y, s, problem.label_columns)
    if isinstance(sample, Sample):
        if len(sample) != s:
            raise InputError(f"X has {s} rows, but the sample has {len(sample)}; give sample.take(X, y)")
        weights = sample.weights
    else:
        weights = row_weights("sample", sample, s)
    if sample_weight is not None:
        with np.errstate(over="ignore"):
            weights = weights * row_weights("sample_weight", sample_weight, s)
        if not np.isfinite(weights).all():
            row = int(np.argmax(~np.isfinite(weights)))
            raise InputError(
                f"sample_weight overflows times the weight of the sample at taken row {row}; give weights of a smaller scale"
            )
    if not weights.any():
        raise InputError("weights are all zero; give some weight to a row")
    bad = ~np.isfinite(x).all(axis=1) | ~np.isfinite(labels.reshape(s, -1)).all(axis=1)
    if bad.any():
        raise NonFiniteError(
            f"X or y is not finite at taken row {int(np.argmax(bad))} ({bad.sum()} in all); clean them first"
        )
    if names is None and isinstance(sample, Sample) and len(sample.feature_names) == d:
        names = sample.feature_names
    return x, labels, weights, names or default_names(d)


def check_labels(loss: Loss | LossOfSeveral, y: np.ndarray) -> None:
    """Raise where the loss does not allow a label, naming the first."""
    checked = loss.check_labels(y)
    if checked is not None and checked[0].any():
        wrong, fault, remedy = checked
        row = int(np.argwhere(wrong)[0][0])
        raise InputError(
            f"y holds labels {fault} first at taken row {row} (value {y[wrong][0]:g}; {wrong.sum()} in all); {remedy}"
        )


def _label_columns(value: Any, s: int, columns: int) -> np.ndarray:
    labels, _ = in_memory("y", value)
    if labels.shape != (s, columns):
        raise InputError(f"y has shape {labels.shape}; give ({s}, {columns}), one column an output of the model")
    return labels


def _column(argument: str, value: Any, s: int) -> np.ndarray:
    column, _ = in_memory(argument, value)
    if column.shape not in ((s,), (s, 1)):
        raise InputError(f"{argument} has shape {column.shape}; give ({s},), one value a row of X")
    return column.reshape(-1)


def row_weights(argument: str, value: Any, s: int) -> np.ndarray:
    """Weights >= 0 of s rows as float64, (s,), or raise."""
    if value is None:
        raise InputTypeError(f"{argument} is None; give the Sample, or one weight a row (all ones for an ordinary fit)")
    weights = _column(argument, value, s)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{argument}[{row}]={weights[row]} is negative or not finite; give weights >= 0")
    return weights
