"""Half-spaces: a polyhedron."""

from collections.abc import Sequence

import numpy as np

from dask_nlis.constraints.arguments import spacing, vector
from dask_nlis.constraints.quadratic import NoPointError, Pieces, minimize_over, nearest
from dask_nlis.errors import InputError
from dask_nlis.kernels.numbers import real_array
from dask_nlis.nouns import noun

Vector = np.ndarray

#: Share of the terms of a row by which it may be exceeded, or missed and still be met with equality.
_OUTSIDE, _ACTIVE = 1e-12, 1e-9

#: Terms of a row that its name spells out.
_TERMS = 3


@noun
class HalfSpaces:
    """The polyhedron A theta <= b: the common points of k half-spaces. A row and its negative make an equation.

    Parameters
    ----------
    A : array_like of shape (k, p)
        Normals, finite, none of them zero; in the units of 1 / theta times b.
    b : float or array_like of shape (k,)
        Limits, finite.

    Raises
    ------
    InputError, InputTypeError
        If shapes differ, a number is not finite, a normal is zero, or no theta satisfies all rows;
        or if an argument is of another type.

    Notes
    -----
    The projection is a least distance problem, solved by SciPy's non-negative least squares (Lawson & Hanson 1974,
    chapter 23): O(k p min(k, p)) a projection and about as much for each row that holds. Rows whose common points lie
    more than 1e7 times as far away as the planes themselves count as having none.

    Examples
    --------
    >>> import numpy as np
    >>> HalfSpaces([[1.0, 1.0]], 1.0).project(np.array([2.0, 2.0])).round(12)
    array([0.5, 0.5])
    """

    A: Vector
    b: Vector

    def __post_init__(self) -> None:
        rows = real_array("HalfSpaces A", self.A, "a (k, p) array of numbers", "iuf")
        if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
            raise InputError(f"HalfSpaces A has shape {rows.shape} or is not finite; give a finite (k, p) array")
        limits = vector("HalfSpaces b", self.b)
        if limits.shape not in ((), (len(rows),)):
            raise InputError(f"HalfSpaces b has shape {limits.shape}, but A has {len(rows)} rows; give ({len(rows)},)")
        limits = np.broadcast_to(limits, len(rows)).copy()
        if not np.isfinite(limits).all():
            raise InputError("HalfSpaces b holds an infinity; give finite numbers, and leave out rows without a limit")
        if not rows.any(axis=1).all():
            raise InputError(f"HalfSpaces A row {int(np.argmin(rows.any(axis=1)))} is zero; leave it out")
        for name, array in (("A", rows), ("b", limits)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        try:
            nearest(*self._unit(), np.zeros(rows.shape[1]))
        except NoPointError as cause:
            which = ", ".join(map(str, cause.rows[:6])) + (", ..." if len(cause.rows) > 6 else "")
            raise InputError(f"HalfSpaces is empty: its rows {which} contradict each other; relax their b") from cause

    def _unit(self) -> tuple[Vector, Vector]:
        """Rows and limits with normals of length 1."""
        largest = np.abs(self.A).max(axis=1)  # squares of what remains neither over- nor underflow
        length = largest * np.linalg.norm(self.A / largest[:, None], axis=1)
        return self.A / length[:, None], self.b / length

    def _sides(self, theta: Vector) -> tuple[Vector, Vector, float]:
        """How far theta lies beyond each plane, the size of the terms of that difference, and its rounding."""
        rows, limits = self._unit()
        return rows @ theta - limits, np.abs(rows) @ np.abs(theta) + np.abs(limits), 8 * spacing(theta)

    def project(self, theta: Vector) -> Vector:
        """Nearest point that satisfies every row."""
        return theta.copy() if self.contains(theta) else nearest(*self._unit(), theta)

    def contains(self, theta: Vector) -> bool:
        """Every row holds, up to 1e-12 of the size of its terms and the rounding of theta."""
        beyond, terms, rounding = self._sides(theta)
        return bool((beyond <= _OUTSIDE * terms + rounding).all())

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name each row that holds with equality."""
        beyond, terms, rounding = self._sides(theta)
        return tuple(self._named(int(k), names) for k in np.flatnonzero(beyond >= -_ACTIVE * terms - rounding))

    def _named(self, k: int, names: Sequence[str]) -> str:
        involved = np.flatnonzero(self.A[k]).tolist()
        if len(involved) > _TERMS:
            return f"half-space {k}"
        terms = " + ".join(f"{self.A[k, j]:g} {names[j]}" for j in involved).replace("+ -", "- ")
        return f"half-space {k}: {terms} <= {self.b[k]:g}"

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """The least distance problem in units that whiten the Hessian."""
        return minimize_over(self.pieces(len(theta)), hessian, gradient, theta)

    def pieces(self, p: int) -> Pieces:
        """The faces."""
        return Pieces(*self._unit())

    def check(self, p: int) -> None:
        """Compare the columns of A with p."""
        if self.A.shape[1] != p:
            raise InputError(f"HalfSpaces A has {self.A.shape[1]} columns, but theta has {p} entries; give (k, {p})")
