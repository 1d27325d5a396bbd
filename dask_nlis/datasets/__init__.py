"""Built-in data: real, shipped with the package, no download."""

from dask_nlis.datasets.california import california_housing

__all__ = ["california_housing"]
