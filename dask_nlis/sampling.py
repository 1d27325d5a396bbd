"""Scores -> Sample. The draw depends on the scores, the size and the seed only: not on chunks or workers."""

import tempfile
from dataclasses import replace
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.errors import DataConversionWarning, InputError, InputTypeError, NlisWarning
from dask_nlis.intake import column_names, open_array, scratch_scores
from dask_nlis.kernels import draw as kernel
from dask_nlis.kernels.weights import hansen_hurwitz, horvitz_thompson
from dask_nlis.sample import Sample, Scale

SCHEMES = ("multinomial", "poisson")


def draw(scores: Any, size: int, *, scheme: str = "multinomial", seed: int | None = None) -> Sample:
    """Draw rows in proportion to their scores: (n,) -> Sample. Computes lazy scores once, reading X as they do.

    Given the same scores, rows, counts and weights are bit-identical for every chunking, scheduler and number
    of workers. Score blocks stay on their workers (8 bytes a row), or in a temporary Zarr array when they would
    not fit in memory.

    Parameters
    ----------
    scores : array_like of shape (n,)
        Non-negative scores, lazy or not: NumPy, Dask, Zarr, a path, pandas or xarray.
    size : int
        Number of draws (multinomial), or expected number of rows (poisson).
    scheme : {"multinomial", "poisson"}
        multinomial: independent draws with replacement, the scheme of the theory, Hansen-Hurwitz weights
        count / (size tau), samples of one seed nested in size. poisson: each row in or out by its own coin
        with probability min(1, c score), weights 1 / pi, distinct rows, random size.
    seed : int, optional
        Non-negative; None draws one and records it in the sample.

    Returns
    -------
    Sample

    Raises
    ------
    InputError
        If scores are NaN, infinite or negative (with how many and the first rows), all zero, or fewer positive
        ones than `size` without replacement.
    InputTypeError
        If size or seed is not an integer.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> sample = nlis.draw(np.array([0.5, 0.0, 0.25, 0.25]), 3, seed=7)
    >>> sample.indices, sample.counts, sample.weights
    (array([0, 2]), array([2, 1]), array([1.33333333, 1.33333333]))
    """
    lazy = _checked_scores(scores)
    n_draws, chosen = check_draw(size, scheme, lazy.shape[0], seed)
    return draw_stage(lazy, n_draws, scheme, chosen, stage=0)


def draw_stage(lazy: da.Array, n_draws: int, scheme: str, seed: int, stage: int) -> Sample:
    """Draw from checked scores in a stage of a design: stages of one seed are independent."""
    held, folder = _hold(lazy)
    try:
        summary = _summarise(held)
        _check_summary(summary, n_draws, scheme)
        sample = (_multinomial if scheme == "multinomial" else _poisson)(held, summary, n_draws, seed, stage)
        return replace(sample, feature_names=column_names(lazy) or ())
    finally:
        if folder is not None:
            folder.cleanup()


def check_draw(size: Any, scheme: Any, n: int, seed: Any, argument: str = "size") -> tuple[int, int]:
    """Check size, scheme and seed of a draw from n rows; return size and seed, drawing a seed for None."""
    return _checked_size(size, scheme, n, argument), _checked_seed(seed)


class Summary(NamedTuple):
    """What the client needs to know of the scores: no array of length n."""

    n_rows: int
    n_positive: int
    largest: float
    n_bad: int
    bad_rows: tuple[int, ...]  # the first five
    sums: dict[int, tuple[int, int]]


def _checked_scores(scores: Any) -> da.Array:
    array = open_array("scores", scores).array
    if array.ndim == 2 and array.shape[1] == 1:
        phase.warn(f"scores have shape {array.shape} and are read as ({array.shape[0]},)", DataConversionWarning)
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"scores have shape {array.shape}; give (n,), one score a row")
    if not array.shape[0]:
        raise InputError("scores are empty; give at least one")
    return array if array.dtype == np.float64 and array.dtype.isnative else array.astype(np.float64)


def _checked_size(size: Any, scheme: str, n: int, argument: str) -> int:
    if scheme not in SCHEMES:
        raise InputError(f"scheme={scheme!r} is not known; give one of {', '.join(map(repr, SCHEMES))}")
    if isinstance(size, bool) or not isinstance(size, int | np.integer):
        raise InputTypeError(f"{argument}={size!r} is {type(size).__name__}; give a positive integer")
    if size < 1:
        raise InputError(f"{argument}={size} is not allowed; give a positive integer")
    if size > n:
        if scheme == "poisson":
            raise InputError(
                f"{argument}={size:,} exceeds the {n:,} rows, and poisson draws each once; give {argument} <= {n:,}"
            )
        phase.warn(f"{argument}={size:,} exceeds the {n:,} rows; rows are drawn repeatedly", NlisWarning)
    return int(size)


def _checked_seed(seed: Any) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    if isinstance(seed, np.random.Generator | np.random.RandomState | np.random.BitGenerator):
        raise InputTypeError(
            f"seed is a {type(seed).__name__}, whose state is not recorded; give an integer, such as int(rng.integers(2**32))"
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputTypeError(f"seed={seed!r} is {type(seed).__name__}; give a non-negative integer or None")
    if seed < 0:
        raise InputError(f"seed={seed} is negative; give a non-negative integer or None")
    return int(seed)


def _hold(lazy: da.Array) -> tuple[da.Array, tempfile.TemporaryDirectory[str] | None]:
    """Compute the scores once and keep them: on the workers, in memory, or in a temporary Zarr array."""
    if phase.fits_in_memory(8 * lazy.shape[0]):
        return phase.held(lazy, "nlis-score", n_rows=lazy.shape[0]), None
    written, read, folder = scratch_scores(lazy, "nlis-score")
    phase.blocks_of(written, "nlis-score", n_rows=lazy.shape[0])
    return read, folder


def _summarise(held: da.Array) -> Summary:
    first = starts(held.chunks[0])
    parts = phase.on_blocks(held, "nlis-draw", _block_summary, {k: (int(first[k]),) for k in range(held.numblocks[0])})
    return Summary(
        n_rows=sum(p.n_rows for p in parts),
        n_positive=sum(p.n_positive for p in parts),
        largest=max(p.largest for p in parts),
        n_bad=sum(p.n_bad for p in parts),
        bad_rows=tuple(row for p in parts for row in p.bad_rows)[:5],
        sums=kernel.merge_sums([p.sums for p in parts]),
    )


def _block_summary(scores: np.ndarray, start: int) -> Summary:
    bad = ~(np.isfinite(scores) & (scores >= 0))
    if bad.any():
        rows = tuple(int(start + row) for row in np.flatnonzero(bad)[:5])
        return Summary(len(scores), 0, 0.0, int(bad.sum()), rows, {})
    positive = int((scores > 0).sum())
    return Summary(len(scores), positive, float(scores.max(initial=0.0)), 0, (), kernel.exponent_sums(scores))


def _check_summary(summary: Summary, n_draws: int, scheme: str) -> None:
    if summary.n_bad:
        listed = ", ".join(map(str, summary.bad_rows))
        raise InputError(
            f"scores hold {summary.n_bad:,} NaN, infinite or negative value{'s' if summary.n_bad > 1 else ''}, first at "
            f"row{'s' if len(summary.bad_rows) > 1 else ''} {listed}; give finite scores >= 0"
        )
    if not summary.n_positive:
        raise InputError(
            f"all {summary.n_rows:,} scores are zero, so no row can be drawn; check the matrix behind them"
        )
    if scheme == "poisson" and n_draws > summary.n_positive:
        raise InputError(
            f"size={n_draws:,} exceeds the {summary.n_positive:,} positive scores, and poisson draws each row once; "
            f"give size <= {summary.n_positive:,}"
        )


def _multinomial(held: da.Array, summary: Summary, n_draws: int, seed: int, stage: int) -> Sample:
    exponent = kernel.largest_exponent(summary.largest)
    totals = phase.on_blocks(held, "nlis-draw", _block_total, {k: (exponent,) for k in range(held.numblocks[0])})
    total = sum(totals)
    targets = kernel.multinomial_targets(total, n_draws, kernel.stream_key(seed, stage, "multinomial"))
    order = sorted(range(n_draws), key=targets.__getitem__)
    wanted, base, position = {}, 0, 0
    for block, part in enumerate(totals):
        mine = []
        while position < n_draws and targets[order[position]] < base + part:
            mine.append(targets[order[position]] - base)
            position += 1
        base += part
        if mine:
            wanted[block] = (exponent, mine)
    found = phase.on_blocks(held, "nlis-draw", _block_rows, wanted)
    first = starts(held.chunks[0])
    rows = np.concatenate([first[block] + part[0] for block, part in zip(sorted(wanted), found, strict=True)])
    scores = np.concatenate([part[1] for part in found])
    by_draw = np.empty(n_draws, dtype=np.int64)
    by_draw[order] = rows
    indices, where, draws, counts = np.unique(by_draw, return_index=True, return_inverse=True, return_counts=True)
    ordered = np.empty(n_draws)
    ordered[order] = scores
    scale = Scale("multinomial", exponent=exponent, total=total)
    probabilities = scale.probabilities(ordered[where])
    weights = hansen_hurwitz(counts, n_draws, probabilities)
    return Sample(
        indices=indices,
        counts=counts.astype(np.int64),
        probabilities=probabilities,
        weights=weights,
        variance_weights=weights**2 / counts,
        draws=draws.astype(np.int64),
        stage=np.full(n_draws, stage, dtype=np.int64),
        scale=scale,
        n_draws=n_draws,
        n_rows=summary.n_rows,
        scheme="multinomial",
        seed=seed,
    )


def _block_total(scores: np.ndarray, exponent: int) -> int:
    return kernel.limb_sum(kernel.quantise(scores, exponent))


def _block_rows(scores: np.ndarray, exponent: int, targets: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rows = kernel.locate_targets(kernel.quantise(scores, exponent), targets)
    return rows, scores[rows]


def _poisson(held: da.Array, summary: Summary, n_draws: int, seed: int, stage: int) -> Sample:
    blocks = range(held.numblocks[0])
    boundary, some_certain = kernel.boundary_bin(summary.sums, n_draws)
    inside = np.empty(0)
    if some_certain:
        inside = np.concatenate(phase.on_blocks(held, "nlis-draw", _block_inside, {k: (boundary,) for k in blocks}))
    exponent = kernel.largest_exponent(summary.largest)
    factor = kernel.poisson_scale(summary.sums, n_draws, boundary, inside, exponent)
    scale = Scale("poisson", exponent=exponent, factor=factor)
    key = kernel.stream_key(seed, stage, "poisson")
    first = starts(held.chunks[0])
    found = phase.on_blocks(held, "nlis-draw", _block_coins, {k: (int(first[k]), scale, key) for k in blocks})
    indices = np.concatenate([part[0] for part in found])
    probabilities = scale.probabilities(np.concatenate([part[1] for part in found]))
    weights = horvitz_thompson(probabilities)
    if not len(indices):
        phase.warn(f"no row was drawn (expected {n_draws}); give a larger size", NlisWarning)
    return Sample(
        indices=indices,
        counts=np.ones(len(indices), dtype=np.int64),
        probabilities=probabilities,
        weights=weights,
        variance_weights=weights * (weights - 1),
        draws=np.arange(len(indices), dtype=np.int64),
        stage=np.full(len(indices), stage, dtype=np.int64),
        scale=scale,
        n_draws=n_draws,
        n_rows=summary.n_rows,
        scheme="poisson",
        seed=seed,
    )


def _block_inside(scores: np.ndarray, boundary: int) -> np.ndarray:
    return scores[(scores > 0) & (np.frexp(scores)[1] == boundary)]


def _block_coins(scores: np.ndarray, start: int, scale: Scale, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.flatnonzero(kernel.row_uniforms(key, start, len(scores)) < scale.probabilities(scores))
    return (start + rows).astype(np.int64), scores[rows]
