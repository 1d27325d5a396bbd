"""Several scores as one: a convex mix of scores divided by their sums."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from array_api_compat import array_namespace
from dask import delayed
from dask.base import tokenize

from dask_nlis import phase, workers
from dask_nlis.blocks import starts
from dask_nlis.device import choose
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.factor import Factor
from dask_nlis.intake import Opened, column_names, give_back, name_columns, open_array
from dask_nlis.kernels import exact_sums
from dask_nlis.kernels.linalg import leverage
from dask_nlis.kernels.numbers import as_float, is_number
from dask_nlis.matrix import Finding, Job, Leaf, TallMatrix, Tangent, summed_over
from dask_nlis.matrix.grouping import Sought, groupings
from dask_nlis.matrix.on_device import on_device
from dask_nlis.matrix.tasks import gradient_rows, matrix_rows, row_values
from dask_nlis.scores.influence import gradient_lengths
from dask_nlis.scores.leverage import at_most, placed, serves_by_pattern, shared_whitener, wanted_form
from dask_nlis.scores.patterns import Form, Whitener, forms_of, pattern_lengths, pattern_leverage
from dask_nlis.scores.scorer import Scorer

Array = Any

#: Shares that should sum to 1 may miss it by rounding.
_ROUNDING = 1e-9


def blend(scores: Sequence[Any], shares: Sequence[float], *, totals: Sequence[float] | None = None) -> Any:
    """Mix scores, each divided by its sum, by shares: k arrays (n,) -> (n,). Reads nothing when `totals` are given.

    sum_k share_k score_k / total_k: the probability of a draw that takes scores k with chance share_k and then a row in
    proportion to them. Without totals the scores are computed once at the call, to be summed, and held in memory
    (8 bytes a row and score) for the mix.

    Parameters
    ----------
    scores : sequence of array_like of shape (n,)
        Scores of the same rows, such as `leverage_scores` and `influence_scores`; `np.ones(n)` for uniform draws.
    shares : sequence of float
        One for each, >= 0, with sum 1.
    totals : sequence of float, optional
        The sum of each: `factor.rank` for leverage, n for ones. Scores are not looked at then, and an estimate serves as
        well: it changes the shares, and what is drawn by them stays unbiased.

    Returns
    -------
    array of shape (n,), float64
        In the container of the first scores: lazy for Dask, Zarr and lazy xarray.

    Raises
    ------
    InputError
        If shares are negative or do not sum to 1, lengths differ, or scores are negative, not finite or all zero.
    InputTypeError
        If scores, shares or totals are no sequences.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    With a uniform share a defensive mixture (Hesterberg 1995): no weight exceeds 1 over that share times n / size.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.blend([np.array([1.0, 3.0]), np.array([1.0, 0.0])], [0.5, 0.5])
    array([0.625, 0.375])
    """
    opened = _opened(scores)
    k = len(opened)
    mixed = checked_shares(shares, k)
    arrays = [each.array.astype(np.float64) for each in opened]
    if totals is None:
        n_bytes = sum(array.nbytes for array in arrays)
        if not workers.fits_in_memory(n_bytes):
            raise InputError(
                f"{k} scores of {arrays[0].shape[0]:,} rows take {n_bytes:,} bytes, more than may be held to sum them; "
                "give totals, such as factor.rank, or scores that are stored"
            )
        arrays = [phase.held(array, "nlis-score", n_rows=array.shape[0]) for array in arrays]
        sums = [_total(array, j) for j, array in enumerate(arrays)]
    else:
        sums = _numbers("totals", totals, k)
        if not min(sums) > 0:
            raise InputError(f"totals hold {min(sums):g}; give positive sums, such as factor.rank")
    lazy = da.map_blocks(
        _mixed,
        *arrays,
        shares=mixed,
        totals=tuple(sums),
        dtype=np.float64,
        meta=np.empty(0),
        token="nlis-score",  # noqa: S106 (a label of tasks)
    )
    names = next((found for each in opened if (found := column_names(each.array)) is not None), None)
    return give_back(opened[0].container, lazy if names is None else name_columns(lazy, names), "blend", "nlis-score")


def checked_shares(shares: Any, k: int) -> tuple[float, ...]:
    """Return k shares >= 0 that sum to 1, or raise."""
    mixed = _numbers("shares", shares, k)
    if abs(sum(mixed) - 1) > _ROUNDING:
        raise InputError(f"shares sum to {sum(mixed):.9g}; give {k} shares that sum to 1")
    return tuple(mixed)


def _opened(scores: Sequence[Any]) -> list[Opened]:
    if not isinstance(scores, list | tuple) or not scores:
        what = "empty" if isinstance(scores, list | tuple) else type(scores).__name__
        raise InputTypeError(f"scores is {what}; give a list of arrays of shape (n,)")
    first = open_array("scores[0]", scores[0])
    if first.array.ndim != 1:
        raise InputError(f"scores[0] has shape {first.array.shape}; give (n,)")
    opened = [
        first,
        *(open_array(f"scores[{k}]", each, None, first.array.chunks[0]) for k, each in enumerate(scores[1:], 1)),
    ]
    for k, each in enumerate(opened):
        if each.array.ndim != 1 or each.array.shape != first.array.shape:
            raise InputError(f"scores[{k}] has shape {each.array.shape}, scores[0] {first.array.shape}; give (n,) each")
    chunks = first.array.chunks
    return [each._replace(array=each.array.rechunk(chunks, method="tasks")) for each in opened]


def _numbers(argument: str, values: Any, k: int) -> list[float]:
    if (
        isinstance(values, str)
        or not isinstance(values, Sequence | np.ndarray)
        or (isinstance(values, np.ndarray) and values.ndim != 1)
    ):
        what = f"{np.ndim(values)}-dimensional" if isinstance(values, np.ndarray) else type(values).__name__
        raise InputTypeError(f"{argument} is {what}; give {k} numbers")
    if len(values) != k:
        raise InputError(f"{argument} holds {len(values)} numbers for {k} scores; give one for each")
    for value in values:
        if not is_number(value):
            raise InputTypeError(f"{argument} holds {value!r}, a {type(value).__name__}; give {k} numbers")
        if not 0 <= as_float(value) < np.inf:
            raise InputError(f"{argument} holds {value!r}; give numbers >= 0")
    return [float(value) for value in values]


def _total(held: da.Array, k: int) -> float:
    """Sum of non-negative scores, exact and rounded once: the order of the blocks does not show."""
    first = starts(held.chunks[0])
    parts = phase.on_blocks(held, "nlis-score", _block_sums, {j: (int(first[j]),) for j in range(held.numblocks[0])})
    bad = next((row for row, _ in parts if row >= 0), None)
    if bad is not None:
        raise InputError(f"scores[{k}] is negative or not finite at row {bad}; give finite scores >= 0")
    exact = exact_sums.exact_total(exact_sums.merge_sums([sums for _, sums in parts]))
    if not 0 < exact <= np.finfo(np.float64).max:
        raise InputError(
            f"scores[{k}] sum to {'more than float64 holds' if exact else 0}; give scores with a positive, finite sum"
        )
    return float(exact)


def _block_sums(scores: np.ndarray, start: int) -> tuple[int, dict[int, tuple[int, int]]]:
    bad = ~(np.isfinite(scores) & (scores >= 0))
    if bad.any():
        return start + int(np.argmax(bad)), {}
    return -1, exact_sums.exponent_sums(scores)


def _mixed(*blocks: np.ndarray, shares: tuple[float, ...], totals: tuple[float, ...]) -> np.ndarray:
    with np.errstate(all="ignore"):
        # Divided first: a share over a total below the normal numbers is infinite.
        parts = (share * (block / total) for share, total, block in zip(shares, totals, blocks, strict=True) if share)
        return np.asarray(sum(parts))


class Share(NamedTuple):
    """What a score adds to a mixture: its share over its total; 0 leaves it out and its work with it."""

    leverage: float
    influence: float
    uniform: float


def mixture_scorer(
    dual: TallMatrix, tangent: TallMatrix | None, factors: tuple[Factor, Factor], share: Share
) -> Scorer:
    """How rows are scored by leverage, influence and a constant for rows that count, mixed.

    No tangent matrix is needed where influence has no share.
    """
    # Both forms are of one task: a mixture is one score.
    wanted = [
        wanted_form(dual, factors[0]) if share.leverage else None,
        wanted_form(tangent, factors[1]) if share.influence and tangent is not None else None,
    ]
    some = any(each is not None for each in wanted)
    arguments = {
        "job": dual.job,
        "tangent": None if tangent is None else tangent.rule,
        "whiteners": [shared_whitener(factor) for factor in factors],
        "forms": delayed(forms_of)(wanted, dask_key_name=f"nlis-whitener-form-{tokenize(wanted)}") if some else None,
        "by_pattern": [serves_by_pattern(factor) for factor in factors],
        "share": share,
        "tolerance": factors[0].score_tolerance,
    }
    return Scorer(mixture_block, arguments)


@on_device
def mixture_block(
    x: np.ndarray,
    y: np.ndarray | None,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    tangent: Tangent | None,
    whiteners: list[Whitener],
    share: Share,
    tolerance: float,
    forms: list[Form | None] | None = None,
    by_pattern: Sequence[bool] = (False, False),
) -> np.ndarray:
    """Mixed scores of one block, (m,); by activation pattern where that serves, for what it serves, grouped once."""
    device = choose(job.device)
    dual, other = (placed(pair, device) for pair in whiteners)
    known: np.ndarray | None = None
    lengths: np.ndarray | None = None
    if any(by_pattern):
        sought = [Sought(job) if share.leverage and by_pattern[0] else None, None]
        if share.influence and tangent is not None and by_pattern[1]:
            sought[1] = Sought(replace(job, rule=tangent), gradients=True)
        rows, psi = groupings(x, y, weight, int(start), sought, device)
        form, second = forms or (None, None)
        known = pattern_leverage(rows, whiteners[0], form, tolerance, int(start))
        lengths = pattern_lengths(psi, whiteners[1], second)

    def values(leaf: Leaf) -> tuple[Array, Finding]:
        xp = array_namespace(leaf.x)
        finding = leaf.finding
        out = leaf.weighted(xp.full((leaf.x.shape[0],), share.uniform, dtype=leaf.x.dtype), 0)
        if share.leverage:
            if known is None:
                rows, finding = matrix_rows(leaf, job)
                h = summed_over(leverage(rows, *dual), leaf.x.shape[0])
            else:
                h = known[leaf.place]
            out = out + share.leverage * at_most(h, tolerance, leaf.row, job.rule.each)
        if share.influence and tangent is not None:
            far = gradient_lengths(gradient_rows(leaf, tangent), *other) if lengths is None else lengths[leaf.place]
            out = out + share.influence * far
        return out, finding

    return row_values(x, y, weight, start, job, device, values)
