"""The page of a run: what came of it, in words, pictures and tables, for somebody who never read the paper."""

from dask_nlis.report.noun import Report
from dask_nlis.report.verb import report_on

__all__ = ["Report", "report_on"]
