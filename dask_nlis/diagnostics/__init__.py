"""What a sample is worth, what a fit costs on all rows, which rows stand out, and how far theory bounds the adjoints."""

from dask_nlis.diagnostics.certificate import Points, certificate, certified
from dask_nlis.diagnostics.certificate_noun import Certificate
from dask_nlis.diagnostics.row_tables import RowTable, bottom_rows, top_rows
from dask_nlis.diagnostics.sandwich import Sandwich, sandwich
from dask_nlis.diagnostics.total_loss import summed_losses, total_loss

__all__ = [
    "Certificate",
    "Points",
    "RowTable",
    "Sandwich",
    "bottom_rows",
    "certificate",
    "certified",
    "sandwich",
    "summed_losses",
    "top_rows",
    "total_loss",
]
