"""Rows of any shape, images say, as rows of numbers, where a model states what shape it takes."""

import math

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import PerformanceWarning


def flattened(argument: str, x: da.Array, shape: tuple[int, ...] | None) -> da.Array:
    """Rows (n, *shape) as (n, numbers of a row), block by block where they lie; others as they came."""
    if shape is None or x.ndim < 3 or x.shape[1:] != shape:
        return x
    if any(len(chunks) > 1 for chunks in x.chunks[1:]):
        phase.warn(
            f"{argument} has blocks that hold parts of rows, which are joined on reading; store whole rows in each chunk",
            PerformanceWarning,
        )
        x = x.rechunk(dict.fromkeys(range(1, x.ndim), -1), method="tasks")
    # Fused into the task that reads: no task of its own.
    flat: da.Array = da.blockwise(
        _flat,
        (0, -1),
        x,
        tuple(range(x.ndim)),
        new_axes={-1: math.prod(shape)},
        concatenate=True,
        dtype=x.dtype,
        meta=np.empty((0, 0), dtype=x.dtype),
        token="nlis-rows",  # noqa: S106
    )
    return flat


def _flat(block: np.ndarray) -> np.ndarray:
    return block.reshape(len(block), -1)


def flat_in_memory(x: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    """The same of rows in memory."""
    return x.reshape(len(x), -1) if shape is not None and x.ndim > 2 and x.shape[1:] == shape else x
