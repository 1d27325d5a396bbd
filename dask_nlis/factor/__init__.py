"""Pass 1: a tall matrix -> its R factor, rank, condition and whitener, by the cheapest method its condition allows."""

from dask_nlis.factor.ladder import factorize, factorize_together
from dask_nlis.factor.noun import Factor
from dask_nlis.factor.outside import check_comparable

__all__ = ["Factor", "check_comparable", "factorize", "factorize_together"]
