"""The loss over all rows, for one theta or many in one read."""

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any

import dask.array as da
import numpy as np
from array_api_compat import array_namespace

from dask_nlis import phase
from dask_nlis.checkpoints import NOWHERE, Checkpoints, kinds_of
from dask_nlis.device import choose
from dask_nlis.errors import InputError, InputTypeError, NonFiniteError
from dask_nlis.intake import Rows
from dask_nlis.kernels.numbers import real_array
from dask_nlis.matrix import Finding, Job, TallMatrix, boxed, check_finite, dual_matrix, leaves, map_boxes
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.problem import Problem, check_theta
from dask_nlis.scores.losses import losses_of

Array = Any

#: Blocks whose losses are kept together.
_TOGETHER = 1024


def total_loss(
    problem: Problem,
    X: Any,
    y: Any,
    theta: Any,
    *,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> Any:
    """Sum of losses over all rows: X (n, d), y (n,), theta (p,) -> float, (k, p) -> (k,). One read of X, whatever k.

    Parameters
    ----------
    problem : Problem
        Model and loss; the set plays no part.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,) or (n, n_outputs)
        Labels; a column an output where a loss is summed over several.
    theta : array_like of shape (p,) or (k, p)
        Where to evaluate.
    sample_weight : array_like of shape (n,), optional
        Row weights >= 0.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    float or ndarray of shape (k,), float64
        A value for each theta, in the units of the loss.

    Raises
    ------
    NonFiniteError
        If a cell or a loss is not finite, naming the row, or the sum of the losses is not.
    InputError, InputTypeError
        If shapes do not fit; or if an argument is of another type.
    MissingDataError
        If a path was given and nothing is stored there.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.Linear(intercept=False))
    >>> nlis.total_loss(problem, np.array([[1.0], [2.0]]), np.array([1.0, 1.0]), [[0.0], [1.0]])
    array([2., 1.])
    """
    if y is None:
        raise InputTypeError(f"y is None, but {type(problem.loss).__name__} needs labels; give an array of shape (n,)")
    table = np.atleast_2d(real_array("theta", theta, "numbers of shape (p,) or (k, p)"))
    if table.ndim != 2 or not len(table):
        raise InputError(f"theta has shape {np.shape(theta)}; give (p,) or (k, p)")
    matrix = dual_matrix(
        problem,
        X,
        y,
        theta=table[0],
        sample_weight=sample_weight,
        missing=missing,
        device=device,
        block_bytes=block_bytes,
    )
    source = matrix.source
    thetas = np.stack([check_theta(problem, row, source.n_columns, source.names) for row in table])
    totals, _ = summed_losses(matrix, problem, thetas)
    return float(totals[0]) if np.ndim(theta) == 1 else totals


def summed_losses(
    matrix: TallMatrix, problem: Problem, thetas: np.ndarray, saved: Checkpoints = NOWHERE
) -> tuple[np.ndarray, int]:
    """Losses of checked thetas (k, p) over the rows behind a matrix, (k,), and how many rows were dropped. One read.

    Those of blocks are kept in `saved`, many together, and blocks whose losses are there are not read.
    """
    source = matrix.source
    lazy = map_boxes(matrix, loss_block, "nlis-loss", problem=problem, thetas=thetas)
    parts = _parts(lazy, source, saved)
    found = reduce(Finding.plus, (finding for _, finding in parts))
    check_finite(found, source.names, "in all")
    totals = np.array([summed(column) for column in zip(*(losses for losses, _ in parts), strict=True)])
    return totals, found.n_dropped


def _parts(lazy: da.Array, source: Rows, saved: Checkpoints) -> list[tuple[tuple[float, ...], Finding]]:
    """Losses and finding of each block: those that are kept, and the others."""
    n = lazy.numblocks[0]
    batches = [range(k, min(k + _TOGETHER, n)) for k in range(0, n, _TOGETHER)]
    parts = {str(batch[0]): saved.load(str(batch[0]), kinds_of(Finding)) for batch in batches}
    missing = [k for batch in batches if parts[str(batch[0])] is None for k in batch]
    waiting = iter(missing)
    some: list[Any] = []

    def add(block: np.ndarray) -> None:
        k = next(waiting)
        some.append(block[0, 0])
        if k + 1 == n or not (k + 1) % _TOGETHER:
            name = str(k // _TOGETHER * _TOGETHER)
            parts[name] = some.copy()
            saved.save(name, parts[name])
            some.clear()

    share = len(missing) / n
    only = None if len(missing) == n else missing
    n_rows, n_bytes = round(share * source.n_rows), round(share * source.n_bytes)
    if missing:
        phase.each_block(lazy, "nlis-loss", add, only=only, n_rows=n_rows, n_bytes=n_bytes)
    return [each for batch in batches for each in parts[str(batch[0])]]


def summed(values: Iterable[float], what: str = "losses") -> float:
    """Exact sum of finite losses or scores, rounded once; raises where it is no float64, or one of them was no more."""
    try:
        total = math.fsum(values)
    except OverflowError:
        total = math.inf
    if not math.isfinite(total):
        raise NonFiniteError(
            f"{what} are finite row by row, but their sum overflows; bring y, theta and the columns to smaller units"
        )
    return total


@on_device
def loss_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    problem: Problem,
    thetas: np.ndarray,
) -> np.ndarray:
    """Losses of one block summed over its rows, a tuple of k, and what was found in it, in a 1 x 1 object array."""
    device = choose(job.device)
    columns = [device.put(theta) for theta in thetas]
    parts: list[Array] = []  # sums of a sub-block, one a theta
    found = Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            found = found.plus(leaf.finding)
            if not leaf.counts:
                continue
            xp = array_namespace(leaf.x)
            parts.append(xp.stack([xp.sum(losses_of(leaf, problem, theta)) for theta in columns]))
            for theta in columns if overflow(parts[-1], 0).n_bad else ():
                found = found.plus(overflow(losses_of(leaf, problem, theta), int(start) + leaf.place.start))
        totals = device.fetch(array_namespace(parts[0]).stack(parts)).T if parts else np.zeros((len(thetas), 0))
    return boxed((tuple(math.fsum(part) if np.isfinite(part).all() else math.nan for part in totals), found))
