"""What people bring: tables, estimators and data sets of other libraries, which are imported where they are used."""

from dask_nlis.adapters.dataframes import Encoded, from_dataframe
from dask_nlis.adapters.encoding import Encoding
from dask_nlis.adapters.from_jax import from_jax
from dask_nlis.adapters.from_sklearn import from_sklearn
from dask_nlis.adapters.from_torch import from_torch
from dask_nlis.adapters.from_xarray import from_xarray
from dask_nlis.adapters.ingest import ingest
from dask_nlis.adapters.jax_model import JaxModel
from dask_nlis.adapters.torch_model import TorchModel
from dask_nlis.adapters.xarray_rows import XarrayRows

__all__ = [
    "Encoded",
    "Encoding",
    "JaxModel",
    "TorchModel",
    "XarrayRows",
    "from_dataframe",
    "from_jax",
    "from_sklearn",
    "from_torch",
    "from_xarray",
    "ingest",
]
