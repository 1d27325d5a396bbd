"""What came in goes out: NumPy for NumPy, lazy Dask for Dask, Series for pandas, DataArray for xarray."""

from typing import Any, NamedTuple

import dask.array as da
from dask.utils import format_bytes

from dask_nlis import phase, workers
from dask_nlis.errors import MemoryLimitError


class Container(NamedTuple):
    """The container X came in, with what is needed to give a value per row back in it."""

    kind: str  # "dask", "numpy", "pandas", "xarray"
    template: Any = None  # pandas: the row index; xarray: (dimension, coordinates along it)
    lazy: bool = True  # whether the data behind it are lazy


def give_back(container: Container, scores: da.Array, name: str, label: str) -> Any:
    """Return lazy scores of shape (n,) in the caller's container; computes unless that is lazy.

    Raises MemoryLimitError before anything is computed where they would take more than half of the memory.
    """
    if container.kind == "dask":
        return scores
    if not container.lazy and scores.nbytes > workers.memory_here() // 2:
        raise MemoryLimitError(
            f"{name} scores of {scores.shape[0]:,} rows take {format_bytes(scores.nbytes)}, above half of the "
            f"{format_bytes(workers.memory_here())} of this process; give X as a Dask array or a path, whose scores stay lazy"
        )
    values = scores if container.lazy else phase.computed(scores, label)
    if container.kind == "pandas":
        import pandas as pd

        return pd.Series(values, index=container.template, name=name)
    if container.kind == "xarray":
        import xarray as xr

        dimension, coordinates = container.template
        return xr.DataArray(values, dims=(dimension,), coords=coordinates, name=name)
    return values
