"""Whether a set is bounded, so that few rows are enough for a fit in it."""

import numpy as np

from dask_nlis.constraints.amplitude_band import AmplitudeBand
from dask_nlis.constraints.ball import Ball
from dask_nlis.constraints.box import Box
from dask_nlis.constraints.intersection import Intersection
from dask_nlis.constraints.protocol import Constraint


def is_bounded(constraint: Constraint | None) -> bool:
    """Whether the set lies in a ball, as far as its kind tells: of half-spaces alone it is not asked."""
    if isinstance(constraint, Box):
        return bool(np.isfinite(constraint.lower).all() and np.isfinite(constraint.upper).all())
    if isinstance(constraint, Intersection):
        return any(map(is_bounded, constraint.sets))
    return isinstance(constraint, Ball | AmplitudeBand)
