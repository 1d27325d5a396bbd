"""The box."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import lsq_linear

from dask_nlis.constraints.arguments import vector
from dask_nlis.constraints.quadratic import Pieces, unit_diagonal
from dask_nlis.errors import InputError
from dask_nlis.nouns import noun

Vector = np.ndarray


@noun
class Box:
    """The box lower <= theta <= upper, entry by entry.

    Parameters
    ----------
    lower, upper : float or array_like of shape (p,)
        Bounds in the units of theta; infinities leave a side open.

    Raises
    ------
    InputError, InputTypeError
        If a lower bound exceeds its upper bound; or if an argument is of another type.

    Notes
    -----
    A quadratic is minimised on it as bounded least squares (Stark & Parker 1995).

    Examples
    --------
    >>> import numpy as np
    >>> Box(0.0, np.inf).project(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    lower: Vector
    upper: Vector

    def __post_init__(self) -> None:
        lower, upper = vector("Box lower", self.lower), vector("Box upper", self.upper)
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

    def pieces(self, p: int) -> Pieces:
        """One face for each finite bound."""
        lower, upper = (np.broadcast_to(bound, (p,)) for bound in (self.lower, self.upper))
        below, above = np.isfinite(lower), np.isfinite(upper)
        rows = np.vstack([-np.eye(p)[below], np.eye(p)[above]])
        return Pieces(rows, np.concatenate([-lower[below], upper[above]]))

    def check(self, p: int) -> None:
        """Compare the lengths of the bounds with p."""
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.ndim and bound.shape != (p,):
                raise InputError(f"Box {name} has shape {bound.shape}, but theta has {p} entries; give ({p},)")
