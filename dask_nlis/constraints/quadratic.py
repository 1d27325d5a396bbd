"""Minima of quadratics over faces (linear inequalities) and balls: active sets of faces inside, multipliers outside.

The nearest point of a polyhedron is a least distance problem, which is one of non-negative least squares (Lawson &
Hanson 1974, chapter 23). A quadratic is a distance in whitened units. A ball adds a multiplier mu to the curvature,
and |z(mu) - center| falls in mu, so that its root is bracketed (the secular equation of More & Sorensen 1983).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import brentq, nnls

Vector = np.ndarray

#: Shares of a unit diagonal that a direction without curvature gets, one after the other; solving again from the
#: solution (the proximal point method) takes their effect out. Little curvature reaches far; with more of it the
#: minimum without faces lies near enough for its distance to each of them to have digits.
_CURVATURES = (1e-9, 1e-5, 1e-9, 1e-5)

#: Turns in which the nearest point of a polyhedron is reached from far away; two suffice within 1e7 of its size.
_TURNS = 60

#: Squared distance of the certificate of an empty polyhedron from 0, below which it is one.
_EMPTY = 1e-14


class Pieces(NamedTuple):
    """What bounds a convex set: rows @ theta <= limits (k, p), (k,), and balls as (centre (p,), radius)."""

    rows: Vector
    limits: Vector
    balls: tuple[tuple[Vector, float], ...] = ()


class NoPointError(Exception):
    """No point satisfies all faces; `rows` are the indices of some that contradict each other."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)


def unit_diagonal(hessian: Vector) -> Vector:
    """Scale that gives a positive semidefinite matrix a unit diagonal, 1 where the diagonal is zero.

    Small problems are solved in these units, so that the units of the columns do not decide what is singular.
    """
    size = np.sqrt(np.diagonal(hessian))
    return np.where(size > 0, 1 / np.where(size > 0, size, 1.0), 1.0)


def smallest_step(hessian: Vector, gradient: Vector) -> Vector:
    """Minimise gradient's + s'hessian s / 2; of several minima the smallest in units of `unit_diagonal`."""
    scale = unit_diagonal(hessian)
    solution = np.linalg.lstsq(hessian * np.outer(scale, scale), -scale * gradient, rcond=1e-13)[0]
    return scale * solution


def shortest(rows: Vector, excess: Vector) -> tuple[Vector, Vector]:
    """Shortest s with rows s + excess <= 0, rows (k, p), and the mask (k,) of the rows that hold it back.

    Raises NoPointError when there is none.
    """
    length = np.linalg.norm(rows, axis=1)
    unit, over = rows / length[:, None], excess / length
    worst = over.max(initial=0.0)
    if worst <= 0:
        return np.zeros(rows.shape[1]), np.zeros(len(rows), dtype=bool)
    basis, small = np.linalg.qr(unit.T)  # the step lies in the span of the rows
    tall = np.vstack([-small, over / worst])
    target = np.zeros(len(tall))
    target[-1] = 1.0
    try:
        multipliers, _ = nnls(tall, target, maxiter=30 * len(rows) + 30)
    except RuntimeError as cause:
        raise LinAlgError("non-negative least squares went round in circles") from cause
    left = tall @ multipliers - target
    held = multipliers > 0
    if -left[-1] <= _EMPTY:
        raise NoPointError(np.flatnonzero(held).tolist())
    rough = -basis @ (left[:-1] / left[-1]) * worst
    # The rows that hold are known now; the shortest step onto them has no quotient of small numbers.
    exact = -np.linalg.lstsq(unit[held], over[held], rcond=1e-13)[0]
    step = exact if (unit @ exact + over).max() <= max((unit @ rough + over).max(), 1e-12 * worst) else rough
    return step, held


def nearest(rows: Vector, limits: Vector, point: Vector) -> Vector:
    """Nearest point of the polyhedron rows z <= limits; later turns take out the rounding of a long first step."""
    for _ in range(_TURNS):
        excess = rows @ point - limits
        few = 4 * np.finfo(np.float64).eps  # a power of two, taken first: sums of large numbers must not overflow
        rounding = np.abs(rows) @ (few * np.abs(point)) + few * np.abs(limits)
        if not (excess > rounding).any():
            return point
        step, held = shortest(rows, excess)
        point = pinned(rows, limits, held, point + step)
    return point


def pinned(rows: Vector, limits: Vector, held: Vector, point: Vector) -> Vector:
    """Put a point that lies on the planes `held` (k,) exactly onto those of one entry alone, the bounds."""
    bounds = np.flatnonzero(held & (np.count_nonzero(rows, axis=1) == 1))
    at = np.argmax(rows[bounds] != 0, axis=1)
    point[at] = limits[bounds] / rows[bounds, at]
    return point


def minimize_over(pieces: Pieces, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
    """Minimise gradient'(z - theta) + (z - theta)'hessian (z - theta) / 2 over faces and balls that have a point.

    NaN where the faces are so sharp that rounding hides their common points. Cholesky factors of (p, p): one, times
    about ten for a ball that holds, times those of a second one.
    """
    scale = unit_diagonal(hessian)
    flat = not _has_full_rank(hessian * np.outer(scale, scale))
    z = theta
    try:
        for weak in _CURVATURES if flat else (0.0,):
            before = z
            solid = hessian + np.diag(weak / scale**2)
            z = _over_balls(pieces, 0, solid, gradient + hessian @ (z - theta), z)
            if weak == max(_CURVATURES) and (np.abs(z - before) <= 1e-12 * np.abs(z)).all():
                break
    except (NoPointError, LinAlgError):
        return np.full(theta.shape, np.nan)
    return z


def _has_full_rank(scaled: Vector) -> bool:
    """Whether no column is a combination of those before it, to about the root of a rounding."""
    try:
        return bool(np.diagonal(cholesky(scaled, lower=True)).min(initial=1.0) > 1e-6)
    except LinAlgError:
        return False


def _over_balls(pieces: Pieces, first: int, hessian: Vector, slope: Vector, origin: Vector) -> Vector:
    """Minimise slope'(z - origin) + (z - origin)'hessian (z - origin) / 2 over the faces and the balls from `first`."""
    if first == len(pieces.balls):
        return _over_faces(pieces, hessian, slope, origin)
    center, radius = pieces.balls[first]

    def at(mu: float) -> Vector:
        curved = hessian + mu * np.eye(len(origin))
        return _over_balls(pieces, first + 1, curved, slope + mu * (origin - center), origin)

    inside: dict[float, Vector] = {}

    def outside(mu: float) -> float:  # nearly straight in mu
        z = at(mu)
        length = float(np.linalg.norm(z - center))
        if length <= radius * (1 + 1e-15):
            inside[mu] = z
        return 1 / radius - 1 / max(length, np.finfo(np.float64).tiny)

    if outside(0.0) <= 0:
        return inside[0.0]
    push = float(np.linalg.norm(slope + hessian @ (center - origin)))
    high = push / radius if push > 0 else float(np.abs(hessian).max())
    for _ in range(60):
        if outside(high) <= 0:
            break
        high *= 8  # the faces keep z away from the centre
    else:
        return at(high)  # the ball touches the faces in one point
    brentq(outside, 0.0, high, xtol=1e-300, rtol=4 * np.finfo(np.float64).eps, maxiter=300, disp=False)
    return inside[min(inside)]


def _over_faces(pieces: Pieces, hessian: Vector, slope: Vector, origin: Vector) -> Vector:
    """The same over the faces alone, for a positive definite Hessian: nearest in whitened units."""
    scale = unit_diagonal(hessian)
    root = cholesky(hessian * np.outer(scale, scale), lower=True)
    free = -solve_triangular(root, scale * slope, lower=True)
    target = origin + scale * solve_triangular(root.T, free, lower=False)
    if not len(pieces.rows) or not (pieces.rows @ target > pieces.limits).any():
        return target
    white = solve_triangular(root, (pieces.rows * scale).T, lower=True).T
    held = shortest(white, pieces.rows @ target - pieces.limits)[1]
    # From the origin, which is near, onto the rows that hold; the target may be far in directions without curvature.
    left, size, right = np.linalg.svd(white[held], full_matrices=False)
    left, size, right = (part[..., size > 1e-13 * size[0]] for part in (left, size, right.T))
    onto = right @ ((left.T @ (pieces.limits[held] - pieces.rows[held] @ origin)) / size)
    step = onto + free - right @ (right.T @ free)
    z = pinned(pieces.rows, pieces.limits, held, origin + scale * solve_triangular(root.T, step, lower=False))
    return nearest(pieces.rows, pieces.limits, z)
