"""The common points of several convex sets."""

import math
from collections.abc import Sequence

import numpy as np

from dask_nlis.constraints.ball import OUTSIDE, Ball
from dask_nlis.constraints.box import Box
from dask_nlis.constraints.half_spaces import HalfSpaces
from dask_nlis.constraints.quadratic import NoPointError, Pieces, minimize_over, nearest
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.nouns import noun

Vector = np.ndarray
Convex = Ball | Box | HalfSpaces


@noun
class Intersection:
    """The points that several convex sets have in common.

    Parameters
    ----------
    *sets : Ball, Box or HalfSpaces
        One or more. AmplitudeBand is not convex and has no part in it.

    Raises
    ------
    InputError
        If the sets live in different dimensions or have no common point; where none of them knows its dimension, the
        latter when a problem is fitted.

    Notes
    -----
    The projection minimises |z - theta|^2 over all faces and balls at once: the faces by their active sets, a ball by
    its multiplier. Alternating projections (Boyle & Dykstra 1986) give the same point and take thousands of turns where faces meet
    at small angles.

    Examples
    --------
    >>> import numpy as np
    >>> both = Intersection(Ball(1.0), Box(0.0, np.inf))
    >>> both.project(np.array([3.0, -4.0]))
    array([1., 0.])
    >>> Intersection(Ball(1.0), Ball(1.0, [3.0, 0.0]))
    Traceback (most recent call last):
    dask_nlis.errors.InputError: Intersection is empty: ball of radius 1 has no point in common with the sets before it; enlarge one
    """

    sets: tuple[Convex, ...]

    def __init__(self, *sets: Convex) -> None:
        if not sets:
            raise InputError("Intersection has no sets; give one or more, such as Ball(10.0), Box(0, 1)")
        for part in sets:
            if not isinstance(part, Ball | Box | HalfSpaces):
                raise InputTypeError(
                    f"Intersection got {type(part).__name__}, which is no convex set of the library; "
                    "give Ball, Box or HalfSpaces"
                )
        object.__setattr__(self, "sets", tuple(sets))
        known = [p for p in map(_dimension, sets) if p is not None]
        if known:
            self.check(known[0])

    @staticmethod
    def _from_fields(sets: Sequence[Convex]) -> "Intersection":
        return Intersection(*sets)

    def __repr__(self) -> str:
        return f"Intersection({', '.join(map(repr, self.sets))})"

    def project(self, theta: Vector) -> Vector:
        """Nearest common point."""
        if self.contains(theta):
            z = theta.copy()
            for part in self.sets:  # what is within rounding of a bound goes onto it
                z = part.project(z) if isinstance(part, Box) else z
            return z
        p = len(theta)
        return minimize_over(self.pieces(p), np.eye(p), np.zeros(p), theta)

    def contains(self, theta: Vector) -> bool:
        """Every set contains theta."""
        return all(part.contains(theta) for part in self.sets)

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """What is active in each set."""
        return tuple(text for part in self.sets for text in part.active(theta, names))

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Faces by active sets, balls by their multipliers."""
        return minimize_over(self.pieces(len(theta)), hessian, gradient, theta)

    def pieces(self, p: int) -> Pieces:
        """All faces and balls."""
        parts = [part.pieces(p) for part in self.sets]
        return Pieces(
            np.vstack([part.rows for part in parts]),
            np.concatenate([part.limits for part in parts]),
            tuple(ball for part in parts for ball in part.balls),
        )

    def check(self, p: int) -> None:
        """Check each set, and that they have a common point: the faces first, then one ball after the other."""
        for part in self.sets:
            part.check(p)
        everything = self.pieces(p)
        try:
            nearest(everything.rows, everything.limits, np.zeros(p))
        except NoPointError as cause:
            raise InputError(
                "Intersection is empty: its boxes and half-spaces have no common point; relax one of them"
            ) from cause
        for k, (center, radius) in enumerate(everything.balls):
            so_far = everything._replace(balls=everything.balls[:k])
            closest = minimize_over(so_far, np.eye(p), np.zeros(p), center)
            with np.errstate(
                over="ignore"
            ):  # bounds near the largest float: the distance is infinite, and the sets apart
                apart = math.hypot(*(closest - center).tolist())
            if not apart <= radius * (1 + OUTSIDE):
                raise InputError(
                    f"Intersection is empty: ball of radius {radius:g} has no point in common with the sets before it; "
                    "enlarge one"
                )


def _dimension(part: Convex) -> int | None:
    """Length of theta, where the set tells."""
    if isinstance(part, HalfSpaces):
        return part.A.shape[1]
    arrays = (part.center,) if isinstance(part, Ball) else (part.lower, part.upper)
    return next((len(array) for array in arrays if array is not None and array.ndim), None)
