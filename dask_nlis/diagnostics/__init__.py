"""What a fit costs on all rows, and which rows stand out."""

from dask_nlis.diagnostics.compare import compare
from dask_nlis.diagnostics.comparison import Comparison
from dask_nlis.diagnostics.drift import drift
from dask_nlis.diagnostics.drift_noun import Drift
from dask_nlis.diagnostics.row_tables import RowTable, bottom_rows, top_rows
from dask_nlis.diagnostics.suspects import suspects
from dask_nlis.diagnostics.total_loss import summed_losses, total_loss

__all__ = [
    "Comparison",
    "Drift",
    "RowTable",
    "bottom_rows",
    "compare",
    "drift",
    "summed_losses",
    "suspects",
    "top_rows",
    "total_loss",
]
