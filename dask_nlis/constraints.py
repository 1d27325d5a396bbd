"""Closed sets for theta: projection, membership, the minimum of a quadratic, which parts are active.

Sets act on the whole theta, intercept included. Theta is small and lives in host memory, so these are
NumPy formulas.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import lsq_linear

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.nouns import noun

Vector = np.ndarray

#: Shares of the radius by which a point may lie outside a ball and still count as inside, or inside and still
#: count as on its surface.
_OUTSIDE, _ACTIVE = 1e-9, 1e-7


class Constraint(Protocol):
    """A closed convex set of parameters, theta of shape (p,)."""

    def project(self, theta: Vector) -> Vector:
        """Return the point of the set nearest to theta."""

    def contains(self, theta: Vector) -> bool:
        """Tell whether theta lies in the set, up to rounding."""

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Describe the parts of the boundary on which theta lies."""

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Return the z of the set with the smallest gradient'(z - theta) + (z - theta)' hessian (z - theta) / 2."""

    def check(self, p: int) -> None:
        """Raise InputError when the set does not live in p dimensions."""


def _vector(name: str, value: object) -> Vector:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise InputTypeError(f"{name} is {type(value).__name__}; give a number or a 1-D sequence of numbers") from cause
    if array.ndim > 1 or np.isnan(array).any():
        raise InputError(f"{name} has shape {array.shape} or holds NaN; give a number or a 1-D sequence of numbers")
    array.setflags(write=False)
    return array


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


@noun
class Ball:
    """The ball |theta - center| <= radius.

    Parameters
    ----------
    radius : float
        Radius, positive and finite, in the units of theta.
    center : array_like of shape (p,), optional
        Centre; the origin by default.

    Raises
    ------
    InputError
        If the radius is not a positive finite number.

    Examples
    --------
    >>> import numpy as np
    >>> Ball(1.0).project(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    radius: float
    center: Vector | None = None

    def __post_init__(self) -> None:
        if isinstance(self.radius, bool) or not isinstance(self.radius, int | float | np.number):
            raise InputTypeError(f"Ball radius={self.radius!r} is {type(self.radius).__name__}; give a positive number")
        if not 0 < self.radius < np.inf:
            raise InputError(f"Ball radius={self.radius!r} is not allowed; give a positive finite number")
        object.__setattr__(self, "radius", float(self.radius))
        if self.center is not None:
            center = _vector("Ball center", self.center)
            if not np.isfinite(center).all():
                raise InputError("Ball center holds an infinity; give finite numbers")
            if center.ndim != 1:
                raise InputError("Ball center is one number; give (p,) numbers, or None for the origin")
            object.__setattr__(self, "center", center)

    def _offset(self, theta: Vector) -> tuple[Vector, float]:
        """Offset from the centre and its length, which squares nothing and so cannot overflow."""
        offset = theta if self.center is None else theta - self.center
        return offset, math.hypot(*offset.tolist())

    def project(self, theta: Vector) -> Vector:
        """Scale the offset from the centre to the radius when it is longer."""
        offset, length = self._offset(theta)
        if length <= self.radius:
            return theta.copy()
        return offset / length * self.radius + (0.0 if self.center is None else self.center)

    def contains(self, theta: Vector) -> bool:
        """|theta - center| <= radius (1 + 1e-9), up to the rounding of theta itself."""
        return self._offset(theta)[1] <= self.radius * (1 + _OUTSIDE) + 4 * _spacing(theta)

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name the ball when theta lies on its surface."""
        on_surface = self._offset(theta)[1] >= self.radius * (1 - _ACTIVE) - 4 * _spacing(theta)
        return (f"ball of radius {self.radius:g}",) if on_surface else ()

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Newton's method on the secular equation |z(mu) - center| = radius (More & Sorensen 1983)."""
        center = np.zeros_like(theta) if self.center is None else self.center
        slope = gradient + hessian @ (center - theta)
        steepness = math.hypot(*slope.tolist())
        if steepness == 0:
            return center.copy()
        free = smallest_step(hessian, slope)
        left = np.linalg.norm(unit_diagonal(hessian) * (hessian @ free + slope))
        solved = left <= 1e-8 * np.linalg.norm(unit_diagonal(hessian) * slope)
        if solved and np.linalg.norm(free) <= self.radius:
            return center + free
        # |offset(mu)| falls from above the radius at `low` to below it at `high`.
        low, high = 0.0, steepness / self.radius
        mu = 1e-3 * high
        offset = -slope / high
        for _ in range(200):
            try:
                offset, along = _shifted(hessian, mu, slope)
            except LinAlgError:  # mu has vanished beside a singular Hessian: the last point is its limit
                break
            length = float(np.linalg.norm(offset))
            if abs(length - self.radius) <= 1e-14 * self.radius or high <= low * (1 + 1e-15):
                break
            low, high = (mu, high) if length > self.radius else (low, mu)
            newton = mu + (length / self.radius - 1) * length**2 / float(offset @ along)
            mu = newton if low < newton < high else math.sqrt(max(low, 1e-18 * high) * high)
        return self.project(center + offset)

    def check(self, p: int) -> None:
        """Compare the length of the centre with p."""
        if self.center is not None and self.center.shape != (p,):
            raise InputError(f"Ball center has shape {self.center.shape}, but theta has {p} entries; give ({p},)")


def _shifted(hessian: Vector, mu: float, slope: Vector) -> tuple[Vector, Vector]:
    """-(hessian + mu)^-1 slope, and (hessian + mu)^-1 times that with its sign, by one scaled Cholesky factor."""
    shifted = hessian + mu * np.eye(len(slope))
    scale = unit_diagonal(shifted)
    factor = cho_factor(shifted * np.outer(scale, scale), lower=True)
    offset = -scale * cho_solve(factor, scale * slope)
    return offset, scale * cho_solve(factor, scale * offset)


def _spacing(theta: Vector) -> float:
    """Distance between neighbouring floats at the size of theta."""
    return float(np.spacing(np.abs(theta).max(initial=0.0)))


@noun
class Box:
    """The box lower <= theta <= upper, entry by entry.

    Parameters
    ----------
    lower, upper : float or array_like of shape (p,)
        Bounds in the units of theta; infinities leave a side open.

    Raises
    ------
    InputError
        If a lower bound exceeds its upper bound.

    Examples
    --------
    >>> import numpy as np
    >>> Box(0.0, np.inf).project(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    lower: Vector
    upper: Vector

    def __post_init__(self) -> None:
        lower, upper = _vector("Box lower", self.lower), _vector("Box upper", self.upper)
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise InputError(f"Box lower has shape {lower.shape}, upper {upper.shape}; give equal lengths")
        if np.any(lower > upper) or np.any(lower == np.inf) or np.any(upper == -np.inf):
            where = int(np.argmax(np.atleast_1d((lower > upper) | (lower == np.inf) | (upper == -np.inf))))
            raise InputError(f"Box is empty at entry {where}: lower exceeds upper; give lower <= upper")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    def project(self, theta: Vector) -> Vector:
        """Clip entry by entry; what is within rounding of a bound goes onto it."""
        above, below = self._sides(theta)
        inside = np.where(above <= 4, self.lower, np.where(below <= 4, self.upper, theta))
        return np.clip(inside, self.lower, self.upper)

    def _sides(self, theta: Vector) -> tuple[Vector, Vector]:
        """How far theta lies above the lower and below the upper bound, in roundings: the projection is exact."""
        with np.errstate(invalid="ignore"):
            above = (theta - self.lower) / np.spacing(np.maximum(np.abs(theta), np.abs(self.lower)))
            below = (self.upper - theta) / np.spacing(np.maximum(np.abs(theta), np.abs(self.upper)))
        return np.where(self.lower == -np.inf, np.inf, above), np.where(self.upper == np.inf, np.inf, below)

    def contains(self, theta: Vector) -> bool:
        """Bounds met up to four roundings."""
        above, below = self._sides(theta)
        return bool((above >= -4).all() and (below >= -4).all())

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name each parameter that sits on a bound."""
        above, below = self._sides(theta)
        return tuple(
            f"{name} at its {'lower' if at_low else 'upper'} bound"
            for name, at_low, at_high in zip(names, above <= 4, below <= 4, strict=True)
            if at_low or at_high
        )

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Bounded least squares on a root of the Hessian (SciPy's active-set solver), in units of `unit_diagonal`.

        Flat directions get a little curvature, where a linear objective must go to its bound; solving again from
        the solution (the proximal point method) takes its effect out.
        """
        scale = unit_diagonal(hessian)
        lower, upper = (np.broadcast_to(bound, theta.shape) / scale for bound in (self.lower, self.upper))
        scaled = hessian * np.outer(scale, scale)
        values, basis = np.linalg.eigh(scaled)
        values = np.where(values > 1e-12, values, 1e-9)
        root = np.sqrt(values)[:, None] * basis.T
        free = upper > lower  # SciPy wants room between the bounds
        start = theta / scale
        z = np.clip(start, lower, upper)
        for _ in range(3):
            if not free.any():
                break
            slope = scale * gradient + scaled @ (z - start)
            target = root[:, free] @ z[free] - (basis.T @ slope) / np.sqrt(values)
            bounds = (lower[free], upper[free])
            z[free] = lsq_linear(root[:, free], target, bounds, method="bvls", tol=1e-15, max_iter=50 * len(z)).x
        return self.project(z * scale)

    def check(self, p: int) -> None:
        """Compare the lengths of the bounds with p."""
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.ndim and bound.shape != (p,):
                raise InputError(f"Box {name} has shape {bound.shape}, but theta has {p} entries; give ({p},)")
