"""The models and containers that people bring, by libraries that are imported where they are needed."""

from dask_nlis.adapters.from_xarray import from_xarray
from dask_nlis.adapters.xarray_rows import XarrayRows

__all__ = ["XarrayRows", "from_xarray"]
