"""What a set is, and how a set that is not convex falls into convex pieces."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

Vector = np.ndarray


class Constraint(Protocol):
    """A closed set of parameters, theta of shape (p,) in float64; convex, unless it is `Piecewise`.

    Notes
    -----
    What a projected method needs (Bertsekas 1999, section 2.3).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ball, theta = nlis.Ball(1.0), np.array([3.0, 4.0])
    >>> ball.project(theta), ball.contains(theta), ball.active(ball.project(theta), ["a", "b"])
    (array([0.6, 0.8]), False, ('ball of radius 1',))
    >>> ball.minimize_quadratic(np.eye(2), np.array([1.0, 0.0]), np.zeros(2)).round(12), ball.check(2)
    (array([-1.,  0.]), None)
    """

    def project(self, theta: Vector) -> Vector:
        """Return the point of the set nearest to theta."""

    def contains(self, theta: Vector) -> bool:
        """Tell whether theta lies in the set, up to rounding."""

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Describe the parts of the boundary on which theta lies."""

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Return the z of the set with the smallest gradient'(z - theta) + (z - theta)' hessian (z - theta) / 2."""

    def check(self, p: int) -> None:
        """Raise InputError when the set does not live in p dimensions, or is empty there."""


@runtime_checkable
class Piecewise(Constraint, Protocol):
    """A set that is a union of convex pieces at a distance from each other, so that an optimum of one is local.

    Notes
    -----
    As the networks of Rajmohan & Roosta (ICML 2025) have, whose amplitudes keep away from 0.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> band, theta = nlis.AmplitudeBand(1.0, 9.0, amplitudes=(0,)), np.array([-2.0, 1.0])
    >>> band.piece(theta).contains(-theta), np.abs(band.flipped(theta, np.random.default_rng(0)))
    (False, array([2., 1.]))
    """

    def piece(self, theta: Vector) -> Constraint:
        """Return the convex piece nearest to theta."""

    def flipped(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Return theta moved into another piece, by mirroring."""


def piece(constraint: Constraint | None, theta: Vector) -> Constraint | None:
    """Return the convex piece nearest to theta; a convex set is its own."""
    return constraint.piece(theta) if isinstance(constraint, Piecewise) else constraint
