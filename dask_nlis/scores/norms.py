"""Squared row norms: one read, decided by the units of the columns."""

import math
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
from array_api_compat import array_namespace

from dask_nlis import phase
from dask_nlis.device import Device, choose, sub_block_rows
from dask_nlis.errors import InputError, InputTypeError, NonFiniteError, ScaleWarning
from dask_nlis.intake import give_back
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.matrix import Dual, Finding, Job, Leaf, TallMatrix, as_matrix, check_finite, leaves, summed_over
from dask_nlis.matrix.findings import overflow
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.pieces import Gathered
from dask_nlis.matrix.tasks import check_slopes, matrix_rows, row_norms
from dask_nlis.models import DeepReluNetwork, ReluNetwork, is_layered
from dask_nlis.scores.scorer import Scorer, lazy_scores

Array = Any

#: Powers of two between the smallest and the largest float64, and then some.
_LARGEST_SCALE = 1100

#: Rows formed at least to see whether one column outweighs all others.
_FEWEST_ROWS = 32


def norm_scores(A: Any, *, log2_scale: int = 0) -> Any:
    """Squared row norms of A (n, p), times 2^(-2 log2_scale) -> (n,), non-negative. One read of X when computed.

    In closed form, without forming the rows. Cheaper than leverage by one read, but decided by the units of
    the columns; no guarantee of a subspace embedding at the paper's size. Lazy as `leverage_scores`.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        The matrix; no factor is needed.
    log2_scale : int, default 0
        Rows are divided by 2^log2_scale first, which changes no digit; needed where squares would over- or
        underflow, and the error then names the value.

    Returns
    -------
    array of shape (n,), float64
        In the container X came in.

    Raises
    ------
    InputError, InputTypeError
        If an argument has another shape or type than it should.
    NonFiniteError
        When computed, if a row is not finite, or its square is not; the message names `log2_scale`.
    MissingDataError
        If a path was given and nothing is stored there.

    Warns
    -----
    ScaleWarning
        When computed, if one column carries over 90 % of the squared norms of the first block.

    Notes
    -----
    The nonlinear norm scores of Rajmohan & Roosta (ICML 2025) before they are divided by their sum; `draw` divides. Sampling
    by squared row norms is that of Drineas, Kannan & Mahoney (2006).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.norm_scores(np.array([[3.0, 4.0], [4.0, -3.0]]))
    array([25., 25.])
    """
    if not is_whole(log2_scale):
        raise InputTypeError(f"log2_scale={log2_scale!r} is {type(log2_scale).__name__}; give an integer")
    if abs(log2_scale) > _LARGEST_SCALE:
        raise InputError(
            f"log2_scale={log2_scale} is beyond any float64; give one from -{_LARGEST_SCALE} to {_LARGEST_SCALE}"
        )
    matrix = as_matrix(A)
    return give_back(matrix.source.container, lazy_norms(matrix, int(log2_scale)), "norm", "nlis-score")


def lazy_norms(matrix: TallMatrix, log2_scale: int = 0) -> da.Array:
    """Squared row norms as a lazy Dask array (n,) with one task a block."""
    return lazy_scores(matrix, norm_scorer(matrix, log2_scale))


def norm_scorer(matrix: TallMatrix, log2_scale: int = 0) -> Scorer:
    """How rows are scored by squared norms."""
    return Scorer(norm_block, {"job": matrix.job, "log2_scale": log2_scale})


@on_device
def norm_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    log2_scale: int,
) -> np.ndarray:
    """Squared row norms of one block, (m,)."""
    device = choose(job.device)
    gathered = Gathered(device, (len(x),))
    found = Finding()
    vanished = 0.0  # largest entry of a row whose squared norm is not a normal number
    layered = isinstance(job.rule, Dual) and job.rule.layered
    closed = not log2_scale and (layered or job.rule.exact(y is not None))
    half = -log2_scale // 2  # in two steps, since 2^1028 is no float64
    model = job.rule.problem.model if closed and isinstance(job.rule, Dual) else None
    # Half the width is twice the rows at a time, and half the overhead: nothing as large as x is made of x.
    width = model.layer_width(len(job.names)) // 2 if isinstance(model, ReluNetwork | DeepReluNetwork) else None
    width = model.signal_width(len(job.names)) if model is not None and is_layered(model) else width
    with np.errstate(all="ignore"):
        for leaf in leaves(x, y, weight, int(start), job, device, width=width, lengths=closed):
            found = found.plus(leaf.finding)
            if start == 0 and leaf.place.start == 0:
                first = np.arange(min(leaf.x.shape[0], _first_rows(job.n_matrix_columns)))
                _warn_of_scale(next(_formed(leaf, first, job, device))[1], job, y is not None)
            if not leaf.counts:
                gathered.add(leaf.place, array_namespace(leaf.x).zeros(leaf.x.shape[0], dtype=leaf.x.dtype))
                continue
            if closed:
                norms = row_norms(leaf, job)
            else:
                norms = squared_row_norms(matrix_rows(leaf, job)[0] * 2.0**half * 2.0 ** (-log2_scale - half))
                norms = summed_over(norms, leaf.x.shape[0])
            xp = array_namespace(norms)
            doubtful = ~((norms >= float(np.finfo(np.float64).tiny)) & (norms < float("inf")))
            if bool(xp.any(doubtful)):
                if leaf.root_weight is not None:
                    doubtful = doubtful & (leaf.root_weight > 0)
                host = np.array(device.fetch(norms))
                for some, rows, finding in _formed(leaf, np.flatnonzero(device.fetch(doubtful)), job, device):
                    if not log2_scale:  # a closed form may leave the range of float64 where the row does not
                        host[some] = device.fetch(summed_over(squared_row_norms(rows), len(some)))
                    beyond = overflow(rows, 0, job.rule.each)
                    found = found.plus(finding).plus(_renumbered(beyond, leaf.row, some))
                    vanished = max(vanished, float(xp.max(xp.abs(rows))))
                norms = xp.asarray(host)
            gathered.add(leaf.place, norms)
        out = gathered.host()
    check_finite(found, job.names)
    overflows = not np.isfinite(out).all()
    # A row that vanishes beside ordinary ones has no share in the total, nor has a block that vanishes because
    # another one made the scale necessary.
    underflows = vanished > 0 and log2_scale <= 0 and out.max(initial=0.0) < np.finfo(np.float64).tiny
    if overflows or underflows:
        raise NonFiniteError(
            f"squared norms {'over' if overflows else 'under'}flow at log2_scale={log2_scale}; "
            f"give log2_scale={int(np.frexp(vanished)[1])}"
        )
    return out


def _first_rows(p: int) -> int:
    """Rows that are formed to look at the scale of p columns: a megabyte, 32 where that is less, at most 32 MB."""
    return max(1, min(max(_FEWEST_ROWS, 2**20 // (8 * p)), 2**25 // (8 * p)))


def _formed(leaf: Leaf, wanted: np.ndarray, job: Job, device: Device) -> Iterator[tuple[np.ndarray, Array, Finding]]:
    """Rows of the matrix behind some rows of a leaf, by their numbers in it; a sub-block of them at a time.

    What was found in the leaf itself is left out.
    """
    xp, step = array_namespace(leaf.x), sub_block_rows(device.kind, job.n_matrix_columns)
    if isinstance(job.rule, Dual):
        check_slopes(job.rule, leaf)  # which names rows by their place in the leaf
    for a in range(0, len(wanted), step):
        some = wanted[a : a + step]
        place = xp.asarray(some)
        part = leaf._replace(
            row=0,
            x=xp.take(leaf.x, place, axis=0),
            y=None if leaf.y is None else xp.take(leaf.y, place, axis=0),
            root_weight=None if leaf.root_weight is None else xp.take(leaf.root_weight, place, axis=0),
            finding=Finding(),
        )
        rows, finding = matrix_rows(part, job)
        yield some, rows, _renumbered(finding, leaf.row, some)


def _renumbered(finding: Finding, start: int, numbers: np.ndarray) -> Finding:
    """A finding in rows taken from a leaf, with the row of the data in place of that among those taken."""
    return finding._replace(row=start + int(numbers[finding.row])) if finding.n_bad else finding


def _warn_of_scale(rows: Array, job: Job, labelled: bool) -> None:
    xp = array_namespace(rows)
    squares = xp.sum(rows * rows, axis=0)
    total, largest = float(xp.sum(squares)), float(xp.max(squares))
    if squares.shape[0] > 1 and math.isfinite(total) and largest > 0.9 * total:
        name = job.rule.columns(job.names, labelled)[int(xp.argmax(squares))]
        phase.warn(
            f"column {name!r} carries {largest / total:.0%} of the squared norms of "
            "the first rows, so its unit decides the norm scores; standardize(X, y) or use leverage_scores",
            ScaleWarning,
        )
