"""Built-in data: real, shipped with the package, no download; and rows that are made when they are read."""

from dask_nlis.datasets.california import california_housing
from dask_nlis.datasets.generated import generated_rows

__all__ = ["california_housing", "generated_rows"]
