"""Inside a task of a fused stage: score a block, and keep what a Poisson draw of its rows may need."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.checkpoints import Checkpoints, kinds_of
from dask_nlis.intake import ScoreRecord, block_name
from dask_nlis.kernels.candidates import Cut, candidates
from dask_nlis.kernels.draw import row_uniforms
from dask_nlis.matrix import Job
from dask_nlis.matrix.on_device import on_device
from dask_nlis.sample import Scale
from dask_nlis.sampling.beside import block_sums, missed_by
from dask_nlis.sampling.passes import Part
from dask_nlis.sampling.summary import Summary, block_summary

#: Scores a block is drawn from, in tasks: x, y, weight, start -> (m,).
BlockScores = Callable[..., np.ndarray]


class Sieve(NamedTuple):
    """Which rows of a block are kept: those whose key is below the cut, and of these so many at most."""

    key: np.ndarray  # of the stream of uniform numbers
    cut: Cut
    size: float  # rows of the draw, expected
    n_rows: int  # rows of all blocks
    spread: float  # times its part of the size, by number of rows, that a block keeps at most
    capped: bool = True

    def most(self, length: int) -> int | None:
        """How many rows of a block are kept at most.

        No more than it could be asked for, were all drawn rows its own; and where c is not known, no more than `spread`
        times its part, so that all blocks together keep no more than that either.
        """
        return upper(min(self.size, self.spread * self.size * length / self.n_rows)) if self.capped else None


def upper(expected: float) -> int:
    """What a Poisson number of this mean does not exceed, but for less than one case in 10^15."""
    return int(np.ceil(expected + 8 * np.sqrt(expected))) + 64


class Record(NamedTuple):
    """What travels of a block: its summary, its candidates by number, and how far they reach."""

    summary: tuple[Summary, Any]
    shared: Any  # `block_sums`; None where there are no earlier stages
    cut: Cut
    rows: np.ndarray  # (m,) int64, ascending
    scores: np.ndarray  # (m,)
    coins: np.ndarray  # (m,) uniform numbers
    before: np.ndarray  # (k, m), what earlier stages drew them by
    stored: ScoreRecord | None  # of the scores of all rows, where they were written


class Box(NamedTuple):
    """What a block leaves behind: its record, the data of its candidates, and its scores where they are kept."""

    record: Record
    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    scores: np.ndarray | None


@on_device
def sieve_block(
    x: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    start: int,
    *,
    job: Job,
    blocks: Sequence[BlockScores],
    arguments: Sequence[Mapping[str, Any]],
    scales: Sequence[tuple[Scale, int]],
    drawn: np.ndarray,
    sieve: Sieve,
    write: Callable[[np.ndarray, int], ScoreRecord] | None,
    holds: bool,
    saved: Checkpoints,
) -> Box:
    """Score one block and keep the candidates among its rows, besides those that earlier stages drew; in `saved` as well.

    `job` is that of the matrix of this stage. The first of `blocks` and `arguments` scores for this stage, the others as
    the earlier ones did.
    """
    scores, *before = (block(x, y, weight, start, **given) for block, given in zip(blocks, arguments, strict=True))
    start = int(start)
    whole = Part(scores, start, len(scores), None)
    summary = block_summary(whole)
    shared: Any = None
    if scales and not summary[0].n_bad:
        shared = block_sums(whole._replace(missed=missed_by(scales, before, len(scores))))
    coins = row_uniforms(sieve.key, start, len(scores))
    places, cut = np.empty(0, dtype=np.int64), sieve.cut
    if not summary[0].n_bad:
        places, cut = candidates(scores, coins, cut, sieve.most(len(scores)))
    mine = drawn[slice(*np.searchsorted(drawn, (start, start + len(scores))))] - start
    places = np.union1d(places, mine)
    record = Record(
        summary,
        shared,
        cut,
        start + places,
        scores[places],
        coins[places],
        np.array([values[places] for values in before]).reshape(len(before), len(places)),
        None if write is None else write(scores, start),
    )
    box = Box(record, x[places], y[places], None if weight is None else weight[places], None)
    # Last, so that a box that is kept says that the scores of its block are written.
    saved.save(block_name(start, len(scores)), box)
    return box._replace(scores=scores) if holds else box


def load_box(saved: Checkpoints, name: str, is_there: Callable[[ScoreRecord], bool] | None) -> Box | None:
    """A box that was kept; None where it is damaged, or where the scores are not there that it says were written."""
    box: Box | None = saved.load(name, KINDS)
    if box is None or is_there is None:
        return box
    return box if box.record.stored is not None and is_there(box.record.stored) else None


#: What a kept box is made of.
KINDS = kinds_of(Box, Record, Summary, ScoreRecord)
