"""What people bring: tables, estimators and data sets of other libraries, which are imported where they are used."""

from dask_nlis.adapters.dataframes import Encoded, from_dataframe
from dask_nlis.adapters.encoding import Encoding
from dask_nlis.adapters.ingest import ingest

__all__ = ["Encoded", "Encoding", "from_dataframe", "ingest"]
