"""Centre and scale columns: one read, lazily applied, with the way back for theta."""

from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import InputError, NonFiniteError
from dask_nlis.intake.names import name_columns
from dask_nlis.intake.opened import check_block_bytes, look_at
from dask_nlis.intake.rows import Rows, take_in
from dask_nlis.kernels.aligned import aligned
from dask_nlis.kernels.numbers import real_array
from dask_nlis.nouns import noun


@noun
class Standardization:
    """Column means and scales of X and y; scales are population standard deviations, 1 for constant columns.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,)
        Of the columns of X, in their units.
    y_mean, y_scale : float, ndarray of shape (k,) or None
        Of y, in its units, or of each of its k columns; None when no y was given.

    Examples
    --------
    >>> Standardization(np.array([2.0]), np.array([4.0])).to_raw([8.0, 1.0])
    array([ 2., -3.])
    """

    mean: np.ndarray
    scale: np.ndarray
    y_mean: float | np.ndarray | None = None
    y_scale: float | np.ndarray | None = None

    def to_raw(self, theta: np.ndarray) -> np.ndarray:
        """Turn theta of the standardised X into the theta that gives the same index on X as it was.

        Parameters
        ----------
        theta : array_like of shape (d + 1,)
            coef, then intercept, of Linear or SingleIndex; the intercept takes up the means. y is not
            undone: predictions stay in standardised units of y.

        Returns
        -------
        ndarray of shape (d + 1,), float64
            In the units of X as it was.

        Raises
        ------
        InputError
            If theta has not d + 1 entries: without an intercept the means have nowhere to go.
        InputTypeError
            If it holds no real numbers.

        Examples
        --------
        >>> Standardization(np.array([2.0]), np.array([4.0])).to_raw([8.0, 1.0])
        array([ 2., -3.])
        """
        array = real_array("theta", theta, f"{len(self.mean) + 1} numbers")
        if array.shape != (len(self.mean) + 1,):
            raise InputError(
                f"theta has shape {array.shape}; give ({len(self.mean) + 1},), coef then intercept, of a model with intercept"
            )
        coef = array[:-1] / self.scale
        return np.append(coef, array[-1] - coef @ self.mean)


class Standardized(NamedTuple):
    """X and y with columns of mean 0 and standard deviation 1, and the transform that made them.

    Attributes
    ----------
    X : array of shape (n, d), float64
        In the container it came in; lazy where it was.
    y : array of shape (n,) or (n, k), float64, or None
        The same; None when no y was given.
    transform : Standardization
        Means and scales; `to_raw` brings theta back to the units of X.

    Examples
    --------
    >>> X, y, transform = standardize(np.array([[1.0], [3.0]]))
    >>> X.ravel(), y
    (array([-1.,  1.]), None)
    """

    X: Any
    y: Any
    transform: Standardization


class Moments(NamedTuple):
    """Count, mean (as a sum of two parts) and sum of squared deviations of the columns of a block."""

    n: int
    mean: np.ndarray
    rest: np.ndarray
    m2: np.ndarray


def standardize(X: Any, y: Any = None, *, block_bytes: int | None = None) -> Standardized:
    """Centre and scale every column of X (n, d), and y (n,) or each column of y (n, k): one read of X and y.

    Scales are population standard deviations (ddof 0); a constant column is centred and keeps its scale.
    The result is lazy where the input is, and names travel along. Nothing else in the library standardises.

    Parameters
    ----------
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,) or (n, k), optional
        Target, or the k targets of a model of several outputs.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Standardized
        X, y in the container they came in, and the `Standardization`.

    Raises
    ------
    InputError, InputTypeError
        If an argument has another shape or type than it should.
    NonFiniteError
        If a column holds NaN or an infinity, naming it.
    MissingDataError
        If a path was given and nothing is stored there.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, transform = standardize(np.array([[1.0], [3.0]]), np.array([0.0, 10.0]))
    >>> X.ravel(), y, transform.y_scale
    (array([-1.,  1.]), array([-1.,  1.]), 5.0)
    """
    n_bytes = check_block_bytes(block_bytes)
    rows = take_in(X, y, block_bytes=n_bytes, label_columns=_columns_of(y, n_bytes))
    mean, std = _moments(rows)
    scale = scales_of(mean, std)
    d = rows.n_columns
    new_x = _apply(X, rows.x, mean[:d], scale[:d], rows.names)
    if rows.y is None:
        return Standardized(new_x, None, Standardization(mean[:d], scale[:d]))
    of_y: tuple[Any, Any] = (mean[d:], scale[d:])
    if len(of_y[0]) == 1:
        of_y = float(mean[d]), float(scale[d])
    return Standardized(new_x, _apply(y, rows.y, *of_y, None), Standardization(mean[:d], scale[:d], *of_y))


def _columns_of(y: Any, block_bytes: int) -> int:
    array = None if y is None else look_at("y", y, block_bytes).array
    return 1 if array is None or array.ndim != 2 else array.shape[1]


def scales_of(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Standard deviations, 1 where a column is constant: rounding leaves it one of order eps |mean|, not 0."""
    return np.where(std <= 10 * np.finfo(np.float64).eps * np.abs(mean), 1.0, std)


def _moments(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Means and population standard deviations of the columns of X and of y, from one read."""
    arrays = [rows.x, "ij"] if rows.y is None else [rows.x, "ij", rows.y, "ij"[: rows.y.ndim]]
    lazy = da.blockwise(
        _block_moments,
        "ij",
        *arrays,
        adjust_chunks={"i": 1, "j": 1},
        dtype=object,
        meta=np.empty((0, 0), dtype=object),
        token="nlis-standardize",  # noqa: S106 (a label of tasks)
        align_arrays=False,
    )
    blocks = phase.blocks_of(lazy, "nlis-standardize", n_rows=rows.n_rows, n_bytes=rows.n_bytes)
    mean, std = together([block[0, 0] for block in blocks if block[0, 0].n])
    bad = ~np.isfinite(std)
    if bad.any():
        k = len(std) - rows.n_columns
        names = [*rows.names, *(["y"] if k == 1 else [f"y[{j}]" for j in range(k)])]
        raise NonFiniteError(
            f"column {names[int(np.argmax(bad))]!r} holds NaN, an infinity or values that overflow; clean it first"
        )
    return mean, std


def _block_moments(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    out = np.empty((1, 1), dtype=object)
    table = aligned(np.asarray(x, dtype=np.float64))
    if y is not None:
        table = np.column_stack([table, np.asarray(y, dtype=np.float64)])
    out[0, 0] = moments_of(table)
    return out


def moments_of(table: np.ndarray) -> Moments:
    """Count, means and squared deviations of the columns of a block (n, d)."""
    n, d = table.shape
    with np.errstate(all="ignore"):
        mean = table.mean(axis=0) if n else np.zeros(d)
        # What the rounding of the mean left over counts beside an offset of many standard deviations.
        deviation = table - mean
        rest = deviation.mean(axis=0) if n else np.zeros(d)
        return Moments(n, mean, rest, ((deviation - rest) ** 2).sum(axis=0))


def together(parts: list[Moments]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of all blocks (Chan, Golub & LeVeque 1983, pairwise formula for many sets at once)."""
    with np.errstate(all="ignore"):
        counts = np.array([part.n for part in parts], dtype=np.longdouble)[:, None]
        means = np.array([part.mean for part in parts], dtype=np.longdouble) + np.array([part.rest for part in parts])
        total = counts.sum()
        mean = (means * (counts / total)).sum(axis=0)
        between = ((means - mean) ** 2 * (counts / total)).sum(axis=0)
        within = np.sum([part.m2 / total for part in parts], axis=0)
        return np.asarray(mean, dtype=np.float64), np.asarray(np.sqrt(between + within), dtype=np.float64)


def _apply(given: Any, lazy: da.Array, mean: Any, scale: Any, names: tuple[str, ...] | None) -> Any:
    if isinstance(given, np.ndarray | list | tuple) and not isinstance(given, np.memmap):
        return (np.asarray(given, dtype=np.float64) - mean) / scale
    if type(given).__module__.partition(".")[0] in ("pandas", "xarray"):
        return (given.astype(np.float64) - mean) / scale
    new: da.Array = (lazy.astype(np.float64) - mean) / scale
    return new if names is None else name_columns(new, names)
