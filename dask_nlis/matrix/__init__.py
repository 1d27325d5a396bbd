"""X, y, theta -> a tall matrix of one row a data row, never formed as a whole."""

from dask_nlis.matrix.constructors import (
    as_matrix,
    check_has_curvature,
    dual_at,
    dual_matrix,
    reference_matrix,
    tangent_matrix,
)
from dask_nlis.matrix.findings import Finding, check_finite
from dask_nlis.matrix.leaf import Leaf
from dask_nlis.matrix.rules import Dual, Plain, Reference, Rule, Tangent, summed_over
from dask_nlis.matrix.sharing import shared
from dask_nlis.matrix.tall import TallMatrix, boxed, map_blocks, map_boxes
from dask_nlis.matrix.tasks import Job, leaves

__all__ = [
    "Dual",
    "Finding",
    "Job",
    "Leaf",
    "Plain",
    "Reference",
    "Rule",
    "TallMatrix",
    "Tangent",
    "as_matrix",
    "boxed",
    "check_finite",
    "check_has_curvature",
    "dual_at",
    "dual_matrix",
    "leaves",
    "map_blocks",
    "map_boxes",
    "reference_matrix",
    "shared",
    "summed_over",
    "tangent_matrix",
]
