"""Closed sets for theta: projection, membership, the minimum of a quadratic, which parts are active.

Sets act on the whole theta, intercept included. Theta is small and lives in host memory, so these are
NumPy formulas.
"""

from dask_nlis.constraints.amplitude_band import AmplitudeBand
from dask_nlis.constraints.ball import Ball
from dask_nlis.constraints.bounded import is_bounded
from dask_nlis.constraints.box import Box
from dask_nlis.constraints.half_spaces import HalfSpaces
from dask_nlis.constraints.intersection import Intersection
from dask_nlis.constraints.protocol import Constraint, Piecewise, piece
from dask_nlis.constraints.quadratic import smallest_step

__all__ = [
    "AmplitudeBand",
    "Ball",
    "Box",
    "Constraint",
    "HalfSpaces",
    "Intersection",
    "Piecewise",
    "is_bounded",
    "piece",
    "smallest_step",
]
