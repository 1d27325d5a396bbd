"""The constrained, weighted fit of a small sample in memory."""

from dask_nlis.refit.design import contributions
from dask_nlis.refit.fit import Fit
from dask_nlis.refit.refit_with import refit_with, weighted
from dask_nlis.refit.taken import row_weights
from dask_nlis.refit.verb import STATIONARY, fit_rows, refit

__all__ = ["STATIONARY", "Fit", "contributions", "fit_rows", "refit", "refit_with", "row_weights", "weighted"]
