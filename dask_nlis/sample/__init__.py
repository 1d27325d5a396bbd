"""A weighted sample of rows: the noun, how its scores became probabilities, and taking its rows out of arrays."""

from dask_nlis.sample.combine import concat, pool, pool_at, union_rows
from dask_nlis.sample.noun import Sample
from dask_nlis.sample.scale import GroupScale, Scale
from dask_nlis.sample.take import take_rows

__all__ = ["GroupScale", "Sample", "Scale", "concat", "pool", "pool_at", "take_rows", "union_rows"]
