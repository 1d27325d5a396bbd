"""A Poisson stage in one read: rows are scored, drawn and taken by the same tasks.

The tasks do not know c of pi = min(1, c score), which follows from all scores. But they know a cut above it, and keep
the rows whose key u / score lies below, with their data. From the exact sums of all scores and those candidates c
follows as from all scores, in every bit (`kernels.candidates.reaches` has the proof), and with it the sample and its
rows. Where the cut was too low after all, blocks are read once more under one that cannot be.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask._task_spec import Alias, Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase, workers
from dask_nlis.blocks import locate, starts
from dask_nlis.checkpoints import NOWHERE, Checkpoints, with_kept
from dask_nlis.intake import Rows, ScoreRecord, block_name
from dask_nlis.kernels import draw as kernel, exact_sums
from dask_nlis.kernels.candidates import EVERYTHING, cut_of, reaches
from dask_nlis.matrix import TallMatrix, map_boxes
from dask_nlis.matrix.tall import without_column_axis
from dask_nlis.sample import Sample, Scale, union_rows
from dask_nlis.sampling.beside import Shared, beside, missed_by, unpacked
from dask_nlis.sampling.passes import Part, carry_out_on
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.poisson import poisson
from dask_nlis.sampling.sieve import Box, Record, Sieve, load_box, sieve_block
from dask_nlis.sampling.summary import NONE, Summary, check_enough, check_scores, joined
from dask_nlis.scores import Scorer

#: Candidates for each row that is drawn.
SAFETY = 4

#: By how much the cut of a second read exceeds the largest c there can be.
_ABOVE = 1 + 2.0**-8


class Room(NamedTuple):
    """How many candidates a draw keeps, and the bytes of their data, numbers, scores and uniform numbers."""

    n_rows: int
    n_bytes: int


def room_of_candidates(source: Rows, size: int) -> Room:
    """What the candidates of a draw of `size` rows take, all blocks together."""
    n_rows = min(SAFETY * size, source.n_rows)
    read = [array for array in (source.x, source.y, source.weight) if array is not None]
    return Room(n_rows, n_rows * (24 + sum(array.dtype.itemsize * math.prod(array.shape[1:]) for array in read)))


class Boxes(NamedTuple):
    """What some blocks left behind: in memory without a cluster, else on the workers."""

    places: Mapping[int, int]  # of the blocks among the boxes
    here: Sequence[Box]
    held: da.Array | None
    records: Sequence[Record | None]  # None of blocks that are not among the places

    def ask(self, task: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """What a task gives for the boxes of some blocks, in the order of these."""
        asked = {self.places[block]: arguments[block] for block in sorted(arguments)}
        if self.held is not None:
            return phase.on_blocks(self.held, "nlis-draw", task, asked)
        return [task(self.here[place], *given) for place, given in asked.items()]


class Before(NamedTuple):
    """An earlier Poisson stage: its sample, and how the rows were scored that it was drawn from."""

    sample: Sample
    scorer: Scorer


class Sifted(NamedTuple):
    """Rows scored for a stage, of which the candidates are kept."""

    matrix: TallMatrix
    scorer: Scorer
    earlier: tuple[Before, ...]
    sieve: Sieve
    seed: int
    stage: int
    boxes: tuple[Boxes, ...]  # blocks that were read again are in the last
    summary: Summary

    @property
    def records(self) -> list[Record]:
        """The record of each block."""
        found: dict[int, Any] = {}
        for boxes in self.boxes:
            found |= {block: boxes.records[place] for block, place in boxes.places.items()}
        return [found[block] for block in range(len(found))]


def sift(
    matrix: TallMatrix,
    scorer: Scorer,
    size: int,
    seed: int,
    stage: int,
    *,
    c: float,
    exact: bool = False,
    earlier: Sequence[Before] = (),
    write: Callable[[np.ndarray, int], ScoreRecord] | None = None,
    is_there: Callable[[ScoreRecord], bool] | None = None,
    holds: bool = False,
    saved: Checkpoints = NOWHERE,
) -> Sifted:
    """Score all rows and keep candidates for a stage of `size` rows. Reads X once, but for blocks that are in `saved`.

    Parameters
    ----------
    matrix : TallMatrix
        What is scored.
    scorer : Scorer
        How.
    size : int
        Rows of the stage, expected, besides those of earlier ones.
    seed, stage : int
        Of the stream of uniform numbers.
    c : float
        What c is expected to be, near enough: up to four times as much is provided for. 0 where nothing is known: then
        each block keeps four times its part of the rows, by its length.
    exact : bool
        Whether c follows from a sum that is known, and is no estimate. Rows may lie in blocks as unevenly as they do then.
    earlier : sequence of Before
        Stages that the rows are drawn beside. Tasks score their rows as these did once more, which gives the same
        bits and takes arithmetic, but neither a read nor memory for all scores.
    write : callable, optional
        Writes the scores of a block that begins at a row, and returns their record.
    is_there : callable, optional
        Whether the scores that a record describes are still there, written.
    holds : bool
        Whether the scores of all rows are kept with the boxes, for `sifted_scores`.
    saved : Checkpoints
        Where tasks keep what they make of a block; what is there already is not made again.
    """
    key = kernel.stream_key(seed, stage, "poisson")
    cut = cut_of(SAFETY * c) if c else EVERYTHING
    spread = np.inf if exact else SAFETY**2 if c else SAFETY
    sieve = Sieve(key, cut, size, matrix.shape[0], spread)
    boxes = [_read(matrix, scorer, earlier, sieve, write, is_there, holds, saved)]
    lost = sorted(set(range(len(matrix.source.chunks))) - boxes[0].places.keys())
    if lost:  # damaged where they were kept
        boxes.append(_read(matrix, scorer, earlier, sieve, write, holds=holds, saved=saved, some=lost))
    sifted = Sifted(matrix, scorer, tuple(earlier), sieve, seed, stage, tuple(boxes), NONE)
    summary = NONE
    for record in sifted.records:
        summary = joined(summary, record.summary)
    return sifted._replace(summary=summary)


def _read(
    matrix: TallMatrix,
    scorer: Scorer,
    earlier: Sequence[Before],
    sieve: Sieve,
    write: Callable[[np.ndarray, int], ScoreRecord] | None = None,
    is_there: Callable[[ScoreRecord], bool] | None = None,
    holds: bool = False,
    saved: Checkpoints = NOWHERE,
    some: Sequence[int] | None = None,
) -> Boxes:
    """Read all blocks that are not kept, or some whether they are or not; what is kept but damaged is left out."""
    source = matrix.source
    scorers = [scorer, *(each.scorer for each in earlier)]
    drawn = union_rows([each.sample for each in earlier]) if earlier else np.empty(0, dtype=np.int64)
    lazy = map_boxes(
        matrix,
        sieve_block,
        "nlis-score",
        blocks=[each.block for each in scorers],
        arguments=[dict(each.arguments) for each in scorers],
        scales=[(each.sample.scale, each.sample.n_draws) for each in earlier],
        drawn=drawn,
        sieve=sieve,
        write=write,
        holds=holds,
        saved=saved,
    )
    lazy = without_column_axis(lazy)
    n_rows, n_bytes = source.n_rows, source.n_bytes
    blocks: Sequence[int] = range(lazy.numblocks[0])
    if some is not None:
        lazy, blocks, n_rows, n_bytes = _only(lazy, some), some, 0, 0
    else:
        kept = _kept(source, saved)
        lazy = with_kept(lazy, load_box, {k: (saved, name, is_there) for k, name in kept.items()})
        n_rows -= sum(source.chunks[k] for k in kept)
        n_bytes = round(n_bytes * n_rows / source.n_rows)
    if workers.client_in_force() is None:
        here = phase.blocks_of(lazy, "nlis-score", n_rows=n_rows, n_bytes=n_bytes)
        held, records = None, [None if box is None else box.record for box in here]
    else:
        here = []
        held = phase.held(lazy, "nlis-score", n_rows=n_rows, n_bytes=n_bytes)
        records = phase.on_blocks(held, "nlis-draw", _record, dict.fromkeys(range(len(blocks)), ()))
    places = {block: place for place, block in enumerate(blocks) if records[place] is not None}
    return Boxes(places, here, held, records)


def _kept(source: Rows, saved: Checkpoints) -> dict[int, str]:
    """Blocks that are kept, and their names."""
    known = saved.names()
    chunks = source.chunks
    names = (block_name(*pair) for pair in zip(starts(chunks).tolist(), chunks, strict=True)) if known else ()
    return {k: name for k, name in enumerate(names) if name in known}


def _only(lazy: da.Array, some: Sequence[int]) -> da.Array:
    """Some blocks of a lazy (n,) array."""
    name = f"nlis-gather-{tokenize(lazy.name, some)}"
    graph = {(name, k): Alias((name, k), (lazy.name, block)) for k, block in enumerate(some)}
    layers = HighLevelGraph.from_collections(name, graph, dependencies=[lazy])
    return da.Array(layers, name, chunks=((1,) * len(some),), meta=lazy._meta)


def draw_sifted(sifted: Sifted, n_draws: int, argument: str = "size") -> tuple[Sample, Sifted]:
    """Draw as `draw_held` does by the scores of all rows, or `draw_beside`: from the candidates, in the same bits.

    Where these do not reach far enough, blocks are read again, of X at most all: what comes back then has more boxes.
    """
    check_scores([sifted.summary])
    if not sifted.earlier:
        check_enough(sifted.summary.n_positive, n_draws, "poisson", argument)
    sample, scale, reached = _drawn(sifted, n_draws)
    if not reached:
        # The bin in which certainty begins is known from the sums: its lower edge is below 1 / c.
        bin_ = scale.exponent
        again = [k for k, each in enumerate(sifted.records) if not reaches(each.cut, cut_of(1.0, 1 - bin_))]
        sieve = sifted.sieve._replace(cut=cut_of(_ABOVE, 1 - bin_), capped=False)
        boxes = _read(sifted.matrix, sifted.scorer, sifted.earlier, sieve, some=again)
        sifted = sifted._replace(boxes=(*sifted.boxes, boxes))
        sample, _, reached = _drawn(sifted, n_draws)
        assert reached
    return sample, sifted


def _drawn(sifted: Sifted, n_draws: int) -> tuple[Sample, Scale, bool]:
    """Draw from the candidates, and tell whether they are all that could be drawn."""
    plan = Plan("poisson", n_draws, 0.0, sifted.seed, sifted.stage, sifted.summary._replace(blocks=(0,)))
    part = candidates_of(sifted)
    if sifted.earlier:
        shared: Shared = exact_sums.merge_sums([unpacked(each.shared) for each in sifted.records])
        sample = carry_out_on(part, beside(plan, shared))
    else:
        sample = carry_out_on(part, poisson(plan))
    scale = sample.scale
    assert isinstance(scale, Scale)
    c = cut_of(scale.factor, -scale.exponent)
    return sample, scale, all(reaches(each.cut, c) for each in sifted.records)


def candidates_of(sifted: Sifted) -> Part:
    """The candidates of all blocks, in the order of the rows."""
    records = sifted.records
    rows, scores, coins = (
        np.concatenate([getattr(each, field) for each in records]) for field in ("rows", "scores", "coins")
    )
    part = Part(scores, 0, sifted.summary.n_rows, rows, None, coins)
    if not sifted.earlier:
        return part
    before = np.concatenate([each.before for each in records], axis=1)
    scales = [(each.sample.scale, each.sample.n_draws) for each in sifted.earlier]
    return part._replace(missed=missed_by(scales, list(before), len(rows)))


def scores_at(sifted: Sifted, rows: np.ndarray) -> list[np.ndarray]:
    """Scores of drawn rows (m,), ascending, in each of the earlier stages and in this one."""
    records = sifted.records
    places = np.searchsorted(np.concatenate([each.rows for each in records]), rows)
    before = np.concatenate([each.before for each in records], axis=1)
    return [*(values[places] for values in before), np.concatenate([each.scores for each in records])[places]]


def take_sifted(sifted: Sifted, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X (m, d), y and row weights of drawn rows (m,), ascending, of this stage and earlier ones: out of the boxes."""
    if not len(rows):
        return _nothing(sifted)
    wanted = {block: (rows[a:b],) for block, a, b in locate(rows, sifted.matrix.source.chunks)}
    found: dict[int, Any] = {}
    for boxes in reversed(sifted.boxes):
        mine = {block: given for block, given in wanted.items() if block in boxes.places and block not in found}
        found |= dict(zip(sorted(mine), boxes.ask(_picked, mine), strict=True))
    x, y, weight = zip(*(found[block] for block in sorted(found)), strict=True)
    return np.concatenate(x), np.concatenate(y), None if weight[0] is None else np.concatenate(weight)


def _nothing(sifted: Sifted) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    source = sifted.matrix.source
    assert source.y is not None
    weight = None if source.weight is None else np.empty(0, dtype=source.weight.dtype)
    return np.empty((0, source.n_columns), dtype=source.x.dtype), np.empty(0, dtype=source.y.dtype), weight


def sifted_scores(sifted: Sifted) -> da.Array:
    """The scores (n,) of all rows that were kept with the boxes, held."""
    boxes, chunks = sifted.boxes[0], sifted.matrix.source.chunks
    name = f"nlis-score-{tokenize(sifted.matrix.token, chunks, sifted.scorer)}"
    if boxes.held is None:
        graph: Any = {(name, k): box.scores for k, box in enumerate(boxes.here)}
        return da.Array(graph, name, chunks=(chunks,), meta=np.empty(0))
    graph = {(name, k): Task((name, k), _scores, TaskRef((boxes.held.name, k))) for k in range(len(chunks))}
    layers = HighLevelGraph.from_collections(name, graph, dependencies=[boxes.held])
    return phase.held(da.Array(layers, name, chunks=(chunks,), meta=np.empty(0)), "nlis-score")


def _record(box: Box | None) -> Record | None:
    return None if box is None else box.record


def _scores(box: Box) -> np.ndarray:
    assert box.scores is not None
    return box.scores


def _picked(box: Box, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    places = np.searchsorted(box.record.rows, rows)
    return box.x[places], box.y[places], None if box.weight is None else box.weight[places]
