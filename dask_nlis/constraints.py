"""Closed sets for theta: projection, membership, the minimum of a quadratic, which parts are active.

Sets act on the whole theta, intercept included. Theta is small and lives in host memory, so these are
NumPy formulas.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from scipy.optimize import brentq, lsq_linear

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.nouns import noun

Vector = np.ndarray

#: A point counts as inside when it is no farther from the set than this share of the set's size.
_TOLERANCE = 1e-9


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
            object.__setattr__(self, "center", _vector("Ball center", self.center))

    def _offset(self, theta: Vector) -> Vector:
        return theta if self.center is None else theta - self.center

    def project(self, theta: Vector) -> Vector:
        """Scale the offset from the centre to the radius when it is longer."""
        offset = self._offset(theta)
        norm = np.linalg.norm(offset)
        if norm <= self.radius:
            return theta.copy()
        return offset * (self.radius / norm) + (0.0 if self.center is None else self.center)

    def contains(self, theta: Vector) -> bool:
        """|theta - center| <= radius (1 + 1e-9)."""
        return bool(np.linalg.norm(self._offset(theta)) <= self.radius * (1 + _TOLERANCE))

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name the ball when theta lies on its surface."""
        norm = np.linalg.norm(self._offset(theta))
        return (f"ball of radius {self.radius:g}",) if norm >= self.radius * (1 - 1e-7) else ()

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Solve the secular equation |z(mu) - center| = radius in the eigenbasis of the Hessian."""
        center = np.zeros_like(theta) if self.center is None else self.center
        values, basis = np.linalg.eigh(hessian)
        values = np.maximum(values, 0.0)
        slope = basis.T @ (gradient + hessian @ (center - theta))

        def offset(mu: float) -> Vector:
            shifted = values + mu
            ok = shifted > 1e-14 * values[-1]
            return -np.where(ok, slope / np.where(ok, shifted, 1.0), 0.0)

        if np.linalg.norm(offset(0.0)) <= self.radius:
            return center + basis @ offset(0.0)
        # 1/|offset| is nearly linear in mu (More & Sorensen 1983), so few evaluations are needed.
        top = float(np.linalg.norm(slope)) / self.radius
        low = 1e-15 * top
        if np.linalg.norm(offset(low)) <= self.radius:
            return self.project(center + basis @ offset(low))
        mu = brentq(lambda m: 1 / np.linalg.norm(offset(m)) - 1 / self.radius, low, top, xtol=1e-300, rtol=1e-14)
        return self.project(center + basis @ offset(mu))

    def check(self, p: int) -> None:
        """Compare the length of the centre with p."""
        if self.center is not None and self.center.shape != (p,):
            raise InputError(f"Ball center has shape {self.center.shape}, but theta has {p} entries; give ({p},)")


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
        """Clip entry by entry."""
        return np.clip(theta, self.lower, self.upper)

    def contains(self, theta: Vector) -> bool:
        """Bounds met up to 1e-9 of each entry's size."""
        slack = _TOLERANCE * (1 + np.abs(theta))
        return bool(np.all(theta >= self.lower - slack) and np.all(theta <= self.upper + slack))

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name each parameter that sits on a bound."""
        slack = 1e-7 * (1 + np.abs(theta))
        low, high = theta <= self.lower + slack, theta >= self.upper - slack
        return tuple(
            f"{name} at its {'lower' if at_low else 'upper'} bound"
            for name, at_low, at_high in zip(names, low, high, strict=True)
            if at_low or at_high
        )

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Bounded least squares on a square root of the Hessian (SciPy's active-set solver)."""
        values, basis = np.linalg.eigh(hessian)
        kept = values > 1e-14 * max(values[-1], 0.0)
        root = np.sqrt(values[kept])[:, None] * basis[:, kept].T
        target = root @ theta - (basis[:, kept].T @ gradient) / np.sqrt(values[kept])
        lower, upper = (np.broadcast_to(b, theta.shape) for b in (self.lower, self.upper))
        # SciPy wants room between the bounds; a fixed entry gets a width below rounding, then is clipped.
        room = np.where(upper > lower, upper, np.nextafter(lower, np.inf))
        return self.project(lsq_linear(root, target, (lower, room), method="bvls").x)

    def check(self, p: int) -> None:
        """Compare the lengths of the bounds with p."""
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.ndim and bound.shape != (p,):
                raise InputError(f"Box {name} has shape {bound.shape}, but theta has {p} entries; give ({p},)")
