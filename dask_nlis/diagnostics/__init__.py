"""What a sample is worth, what a fit costs on all rows, which rows stand out, how scores drift and compare, and bounds."""

from dask_nlis.diagnostics.certificate import Points, certificate, certified, realised_epsilon
from dask_nlis.diagnostics.certificate_noun import Certificate
from dask_nlis.diagnostics.compare import compare
from dask_nlis.diagnostics.comparison import Comparison
from dask_nlis.diagnostics.drift import drift
from dask_nlis.diagnostics.drift_noun import Drift
from dask_nlis.diagnostics.row_tables import RowTable, bottom_rows, top_rows
from dask_nlis.diagnostics.sandwich import Sandwich, sandwich
from dask_nlis.diagnostics.suspects import suspects
from dask_nlis.diagnostics.total_loss import summed_losses, total_loss

__all__ = [
    "Certificate",
    "Comparison",
    "Drift",
    "Points",
    "RowTable",
    "Sandwich",
    "bottom_rows",
    "certificate",
    "certified",
    "compare",
    "drift",
    "realised_epsilon",
    "sandwich",
    "summed_losses",
    "suspects",
    "top_rows",
    "total_loss",
]
