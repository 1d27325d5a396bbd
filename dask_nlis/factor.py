"""Pass 1: a tall matrix -> its R factor, rank, condition and whitener, by an R-only QR tree.

1. `factor_block`: in-block R of cache-sized sub-blocks, one task a block, X and y read inside it.
2. `_stacked`: R factors of 16 neighbours in one chunk, still on the workers.
3. `_merged`: `dask.array.linalg.tsqr` of the stacks, R only (Benson, Gleich & Demmel 2013), in a compute
   of its own.
4. `spectrum`: SVD of the p x p R after power-of-two column scaling; rank and whitener.
5. One refinement read when the condition is above 1e3: the same steps on F W.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask import delayed
from dask._task_spec import List, Task, TaskRef
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.blocks import STACK, group_blocks
from dask_nlis.device import choose
from dask_nlis.errors import InputError, NonFiniteError, RankAmbiguityWarning
from dask_nlis.kernels.linalg import Spectrum, frobenius_norm, merge_r, r_factor, spectrum
from dask_nlis.matrix import Finding, Job, TallMatrix, as_matrix, check_finite, leaves, map_blocks
from dask_nlis.matrix.tasks import matrix_rows, overflow
from dask_nlis.nouns import from_dict, noun, to_dict

METHODS = ("auto", "tsqr")

#: Above this condition the whitener is refined by one more read (numerics: unrefined error kappa eps).
_REFINE_ABOVE = 1e3

#: A p x p factor above this is refused before anything is read (p about 16,000).
_LARGEST_FACTOR_BYTES = 2**31


@noun
class Factor:
    """R factor of a tall matrix F (n, p), with its rank and a whitener W such that F W is orthonormal.

    Attributes
    ----------
    r : ndarray of shape (p, p)
        Upper triangular, diagonal >= 0, R'R = F'F; never truncated.
    rank : int
        Singular values above 10 p eps of the largest, after power-of-two column scaling.
    singular_values : ndarray of shape (p,)
        Of R after column scaling, descending.
    condition : float
        Largest over smallest kept singular value.
    column_scale : ndarray of shape (p,)
        Powers of two that bring column norms into [0.5, 1).
    whitener : ndarray of shape (p, rank)
        W: leverage is the squared row norm of F W, or of (F W) C where there is a correction.
    correction : ndarray of shape (rank, rank), or None
        C of the second read, to be applied to F W as rounded; W C would lose what it gains.
    frobenius : float
        Frobenius norm of F.
    n_rows, n_dropped : int
        Rows that count; rows left out by missing="drop".
    method : str
        How it was computed.
    reads : int
        Reads of X it took.
    token : str
        Token of the matrix it belongs to.
    columns, dependent : tuple of str
        Names of the columns of F; those that take part in an exact linear dependency.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> factor = nlis.factorize(np.array([[3.0, 3.0], [4.0, 4.0], [0.0, 0.0]]))
    >>> factor.rank, factor.dependent, factor.r.round(12)[0]
    (1, ('x0', 'x1'), array([5., 5.]))
    """

    r: np.ndarray
    rank: int
    singular_values: np.ndarray
    condition: float
    column_scale: np.ndarray
    whitener: np.ndarray
    correction: np.ndarray | None
    frobenius: float
    n_rows: int
    n_dropped: int
    method: str
    reads: int
    token: str
    columns: tuple[str, ...]
    dependent: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the factor as JSON values and arrays."""
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Factor":
        """Rebuild a factor from `to_dict`."""
        factor: Factor = from_dict(found, {"Factor": Factor})
        return factor

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"p": len(self.columns), "rank": self.rank, "condition": self.condition}
        shown |= {"n_rows": self.n_rows, "method": self.method, "reads": self.reads}
        extra = {"n_dropped": self.n_dropped, "dependent": self.dependent}
        return shown | {name: value for name, value in extra.items() if value}


class Partial(NamedTuple):
    """R factor of some rows, how many there are, and what was wrong with them."""

    r: np.ndarray
    n_rows: int
    finding: Finding


def factorize(A: Any, *, method: str = "auto") -> Factor:
    """Factorise a tall matrix: A (n, p) -> Factor; reads X once, twice when the condition exceeds 1e3.

    Computes. An R-only QR tree (never an explicit Q, never a Gram matrix with a cut-off), then the rank of
    the p x p factor after power-of-two column scaling. Memory: one block and a p x p factor a task.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        What to factorise.
    method : {"auto", "tsqr"}
        Both are the QR tree; the argument is recorded.

    Returns
    -------
    Factor

    Raises
    ------
    NonFiniteError
        If a cell is NaN or infinite, naming the first row, its column and the number of rows.
    InputError
        If all rows are zero, or p is too large for a p x p factor.

    Warns
    -----
    RankAmbiguityWarning
        If a kept singular value is below 1000 tolerances or a dropped one suspiciously large.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.arange(8.0).reshape(4, 2)
    >>> nlis.factorize(np.column_stack([X, X[:, 0]])).rank
    2
    """
    matrix = as_matrix(A)
    if method not in METHODS:
        raise InputError(f"method={method!r} is not known; give one of {', '.join(map(repr, METHODS))}")
    n, p = matrix.shape
    if 8 * p * p > _LARGEST_FACTOR_BYTES:
        raise InputError(f"p={p:,} columns need a factor of {8 * p * p:,} bytes; use fewer parameters or norm_scores")
    total = _read(matrix, None)
    reads = 1
    n_kept = n - total.finding.n_dropped
    decided = spectrum(total.r)
    if not decided.rank:
        raise InputError("all rows of the matrix are zero, so no row has leverage; check theta and the data")
    if decided.ambiguous:
        phase.warn(
            f"rank {decided.rank} of {p} is uncertain: relative singular values "
            f"{', '.join(f'{v:.2g}' for v in decided.ambiguous[:3])} lie near the tolerance "
            f"{10 * p * np.finfo(float).eps:.2g}; look at columns "
            f"{', '.join(matrix.columns[j] for j in decided.involved[:4])}",
            RankAmbiguityWarning,
        )
    whitener = decided.whitener
    if not np.isfinite(whitener).all():
        raise NonFiniteError("columns are too small for float64 (below about 1e-308); bring them to larger units")
    correction = None
    if decided.condition > _REFINE_ABOVE:
        again = _read(matrix, whitener)
        correction = spectrum(again.r).whitener
        reads += 1
    return Factor(
        r=total.r,
        rank=decided.rank,
        singular_values=decided.singular_values,
        condition=decided.condition,
        column_scale=decided.column_scale,
        whitener=whitener,
        correction=correction,
        frobenius=frobenius_norm(total.r),
        n_rows=n_kept,
        n_dropped=total.finding.n_dropped,
        method="tsqr",
        reads=reads,
        token=matrix.token,
        columns=matrix.columns,
        dependent=_dependent(decided, matrix.columns),
    )


def _dependent(decided: Spectrum, columns: Sequence[str]) -> tuple[str, ...]:
    """Columns with a part in the null space: together they are linearly dependent (a zero column alone is)."""
    # Rounding turns the null space towards the smallest kept direction by about kappa eps.
    noise = max(1e-8, 10 * decided.condition * np.finfo(np.float64).eps)
    taking_part = np.abs(decided.null_space).max(axis=1, initial=0.0) > noise
    return tuple(name for name, part in zip(columns, taking_part, strict=True) if part)


def _read(matrix: TallMatrix, whitener: np.ndarray | None) -> Partial:
    """One read of X: the R factor of F, or of F W when a whitener is given, group of blocks by group."""
    p = matrix.shape[1] if whitener is None else whitener.shape[1]
    shared = None if whitener is None else delayed(whitener, name=f"nlis-whitener-{matrix.token}")
    lazy = map_blocks(
        matrix,
        factor_block,
        "nlis-factor",
        rows=1,
        meta=np.empty((0, 0), dtype=object),
        job=matrix.job,
        whitener=shared,
    )
    n_blocks = len(matrix.source.chunks)
    share = 1 / n_blocks
    groups = []
    group = group_blocks(p)
    for first in range(0, n_blocks, group):
        last = min(first + group, n_blocks)
        size = share * (last - first)
        stacks = phase.held(
            _stacked(lazy, first, last, p),
            "nlis-factor",
            n_rows=round(size * matrix.shape[0]),
            n_bytes=round(size * matrix.source.n_bytes),
        )
        groups.append(_merged(stacks, p))
    found = reduce(Finding.plus, (g.finding for g in groups))
    check_finite(found, matrix.source.names, "in all")
    r = r_factor(merge_r([g.r for g in groups]))
    if not np.isfinite(r).all():
        raise NonFiniteError(
            "the factor overflows: rows are finite but too large together; bring columns to smaller units"
        )
    return Partial(r, sum(g.n_rows for g in groups), found)


def factor_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    whitener: np.ndarray | None = None,
) -> np.ndarray:
    """R factor of one block, as a Partial in a 1 x 1 object array; sub-block by sub-block on the device."""
    device = choose(job.device)
    p = job.n_matrix_columns if whitener is None else whitener.shape[1]
    target = None if whitener is None else device.put(whitener)
    factors, found = [], Finding()
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device):
            rows = matrix_rows(leaf, job)
            r = r_factor(rows if target is None else rows @ target)
            factors.append(r)
            found = found.plus(leaf.finding)
            host = device.fetch(r)
            if not np.isfinite(host).all():  # NaN or an infinity spreads through R; the rows say where
                found = found.plus(overflow(device.fetch(rows), int(start) + leaf.place.start))
        r = device.fetch(merge_r(factors)) if factors else np.zeros((p, p))
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = Partial(r, len(x), found)
    return out


def _stacked(lazy: da.Array, first: int, last: int, p: int) -> da.Array:
    """Object array (k, 1) of Partials, each the R factors of 16 neighbouring blocks one below the other."""
    name = f"nlis-factor-stack-{lazy.name.rpartition('-')[2]}-{first}"
    parts = [range(k, min(k + STACK, last)) for k in range(first, last, STACK)]
    graph = {
        (name, k, 0): Task((name, k, 0), _stack, List(*(TaskRef((lazy.name, b, 0)) for b in part)), p)
        for k, part in enumerate(parts)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[lazy]),
        name,
        chunks=((1,) * len(parts), (1,)),
        meta=np.empty((0, 0), dtype=object),
    )


def _stack(blocks: Sequence[np.ndarray], p: int) -> np.ndarray:
    """Stack R factors; a short last stack is padded with zero rows to 2p, so that the merge reduces it."""
    partials: list[Partial] = [block[0, 0] for block in blocks]
    rows = [partial.r for partial in partials]
    if len(rows) < 2:
        rows.append(np.zeros((p, p)))
    out = np.empty((1, 1), dtype=object)
    found = reduce(Finding.plus, (partial.finding for partial in partials))
    out[0, 0] = Partial(np.concatenate(rows), sum(partial.n_rows for partial in partials), found)
    return out


def _merged(stacks: da.Array, p: int) -> Partial:
    """Merge the stacks of a group with Dask's own tsqr, R only: at most 0.4 tasks a block."""
    findings = da.map_blocks(_info, stacks, dtype=object, meta=np.empty((0, 0), dtype=object), token="nlis-merge")
    infos = [block[0, 0] for block in phase.blocks_of(findings, "nlis-merge")]
    heights = tuple(height for height, _, _ in infos)
    found = reduce(Finding.plus, (finding for _, _, finding in infos))
    n_rows = sum(n for _, n, _ in infos)
    if found.n_bad:
        return Partial(np.zeros((p, p)), n_rows, found)
    tall = da.map_blocks(
        _r_of, stacks, chunks=(heights, (p,)), dtype=np.float64, meta=np.empty((0, 0)), token="nlis-merge"
    )
    r = da.linalg.tsqr(tall)[1]
    (merged,) = phase.blocks_of(r, "nlis-merge")
    return Partial(np.asarray(merged), n_rows, found)


def _info(block: np.ndarray) -> np.ndarray:
    partial: Partial = block[0, 0]
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = (len(partial.r), partial.n_rows, partial.finding)
    return out


def _r_of(block: np.ndarray) -> np.ndarray:
    partial: Partial = block[0, 0]
    return partial.r
