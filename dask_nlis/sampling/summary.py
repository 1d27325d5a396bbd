"""What the client needs to know of the scores before a draw, and keeping them while it is made."""

import tempfile
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase, workers
from dask_nlis.errors import InputError
from dask_nlis.intake import scratch_scores
from dask_nlis.kernels import exact_sums
from dask_nlis.sampling.arguments import DISTINCT
from dask_nlis.sampling.passes import Design, Part, Pass, carry_out

#: Bad rows named in the error.
_NAMED = 5


class Summary(NamedTuple):
    """What is known of the scores that a draw is made from: nothing of length n."""

    n_rows: int
    n_positive: int
    largest: float
    n_bad: int
    bad_rows: tuple[int, ...]  # the first five
    sums: dict[int, tuple[int, int]]  # by exponent, as `exact_sums.exponent_sums`
    blocks: tuple[int, ...]  # those that hold a positive score

    @property
    def total(self) -> float:
        """Sum of the scores, rounded once."""
        return float(exact_sums.exact_total(self.sums))


def hold(lazy: da.Array) -> tuple[da.Array, tempfile.TemporaryDirectory[str] | None]:
    """Compute the scores once and keep them: on the workers, in memory, or in a temporary Zarr array."""
    if workers.fits_in_memory(8 * lazy.shape[0]):
        return phase.held(lazy, "nlis-score", n_rows=lazy.shape[0]), None
    written, read, folder = scratch_scores(lazy, "nlis-score")
    try:
        phase.blocks_of(written, "nlis-score", n_rows=lazy.shape[0])
    except BaseException:
        folder.cleanup()
        raise
    return read, folder


def summarised(held: da.Array, *, sums: bool = True) -> Summary:
    """Summarise held scores (n,) in one pass over them; without their sums in half the time."""
    return carry_out(held, {0: summary_of(held.numblocks[0], sums=sums)})[0]


def summary_of(n_blocks: int, *, sums: bool = True) -> Design[Summary]:
    """Summarise the scores in one pass over all blocks."""
    total = NONE
    blocks: list[int] = []

    def add(block: int, answer: tuple[Summary, Any]) -> None:
        nonlocal total
        total = joined(total, answer)
        if answer[0].n_positive:
            blocks.append(block)

    yield Pass(block_summary, dict.fromkeys(range(n_blocks)), add, (sums,))
    return total._replace(blocks=tuple(blocks))


#: A summary of nothing.
NONE = Summary(0, 0, 0.0, 0, (), {}, ())


def joined(total: Summary, answer: tuple[Summary, Any]) -> Summary:
    """Add a block's summary; the rows of blocks come in their order."""
    part, sums = answer
    return Summary(
        n_rows=total.n_rows + part.n_rows,
        n_positive=total.n_positive + part.n_positive,
        largest=max(total.largest, part.largest),
        n_bad=total.n_bad + part.n_bad,
        bad_rows=(*total.bad_rows, *part.bad_rows)[:_NAMED],
        sums=exact_sums.merge_sums([total.sums, exact_sums.unpacked(sums)]),
        blocks=(),
    )


def block_summary(part: Part, with_sums: bool = True) -> tuple[Summary, Any]:
    """Summary of a block, its sums in little memory beside it."""
    scores = part.scores
    smallest, largest = float(scores.min(initial=np.inf)), float(scores.max(initial=0.0))
    if not (smallest >= 0 and largest < np.inf):  # nor is NaN, which both hand on
        bad = ~(np.isfinite(scores) & (scores >= 0))
        rows = tuple(part.rows(np.flatnonzero(bad)[:_NAMED]).tolist())
        return Summary(len(scores), 0, 0.0, int(bad.sum()), rows, {}, ()), exact_sums.packed({})
    n_positive = len(scores) if smallest > 0 else int(np.count_nonzero(scores > 0))
    sums = exact_sums.packed(exact_sums.exponent_sums(scores) if with_sums else {})
    return Summary(len(scores), n_positive, largest, 0, (), {}, ()), sums


def check_scores(parts: list[Summary]) -> None:
    """Raise when a score is NaN, infinite or negative, or all are zero."""
    n_bad = sum(part.n_bad for part in parts)
    if n_bad:
        rows = sorted(row for part in parts for row in part.bad_rows)[:_NAMED]
        raise InputError(
            f"scores hold {n_bad:,} NaN, infinite or negative value{'s' if n_bad > 1 else ''}, first at "
            f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows))}; give finite scores >= 0"
        )
    if not any(part.n_positive for part in parts):
        n_rows = sum(part.n_rows for part in parts)
        raise InputError(f"all {n_rows:,} scores are zero, so no row can be drawn; check the matrix behind them")


def check_enough(n_positive: int, n_draws: int, scheme: str, argument: str = "size") -> None:
    """Raise when rows are drawn once each and too few have positive scores."""
    if scheme in DISTINCT and n_draws > n_positive:
        raise InputError(
            f"{argument}={n_draws:,} exceeds the {n_positive:,} positive scores, and {scheme} draws each row "
            f"once; give {argument} <= {n_positive:,}"
        )
