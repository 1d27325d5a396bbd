"""What people bring: tables with columns of all kinds."""

from dask_nlis.adapters.dataframes import Encoded, from_dataframe
from dask_nlis.adapters.encoding import Encoding
from dask_nlis.adapters.ingest import ingest

__all__ = ["Encoded", "Encoding", "from_dataframe", "ingest"]
