"""The ball."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dask_nlis.constraints.arguments import positive, spacing, vector
from dask_nlis.constraints.quadratic import Pieces, smallest_step, unit_diagonal
from dask_nlis.errors import InputError
from dask_nlis.nouns import noun

Vector = np.ndarray

#: Shares of the radius by which a point may lie outside a ball and still count as inside, or inside and still
#: count as on its surface.
OUTSIDE, ACTIVE = 1e-9, 1e-7


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
    InputError, InputTypeError
        If the radius is not a positive finite number; or if an argument is of another type.

    Notes
    -----
    The trust-region subproblem (More & Sorensen 1983) is what a quadratic has to solve on it.

    Examples
    --------
    >>> import numpy as np
    >>> Ball(1.0).project(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    radius: float
    center: Vector | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive("Ball radius", self.radius))
        if self.center is not None:
            center = vector("Ball center", self.center)
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
        return self._offset(theta)[1] <= self.radius * (1 + OUTSIDE) + 4 * spacing(theta)

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name the ball when theta lies on its surface."""
        on_surface = self._offset(theta)[1] >= self.radius * (1 - ACTIVE) - 4 * spacing(theta)
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

    def pieces(self, p: int) -> Pieces:
        """The ball itself, no faces."""
        center = np.zeros(p) if self.center is None else self.center
        return Pieces(np.empty((0, p)), np.empty(0), ((center, self.radius),))

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
