"""Where the scores of a job are kept: in the run store, block by block, or in memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.errors import NlisError
from dask_nlis.factor import Factor
from dask_nlis.intake import ScoreRecord, create_scores, regular, score_record, write_scores
from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.opening import named_scores, stored_scores
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.store import Group, create, finish, write_array, write_noun, write_records


class Kept(NamedTuple):
    """The scores of a job, computed once, with one record a block; and the group of its store, where it has one."""

    scores: da.Array
    records: list[ScoreRecord]
    group: Group | None


#: Computes lazy scores of a matrix and keeps them.
Keep = Callable[[da.Array, TallMatrix], Kept]


def keep(lazy: da.Array, matrix: TallMatrix, *, path: Path | None, manifest: Mapping[str, Any]) -> Kept:
    """Compute the scores once: block by block into a new store at `path`, or held in memory without one."""
    source = matrix.source
    if path is None:
        held = phase.held(lazy, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
        return Kept(named_scores(held, source.names), records_of(held), None)
    group = create(path, manifest)
    lazy = regular(lazy)
    target = create_scores(group.store, "scores", lazy.chunks[0])
    written = write_scores(lazy, target, "nlis-score")
    blocks = phase.blocks_of(written, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
    return Kept(named_scores(stored_scores(group), source.names), [block[0] for block in blocks], group)


def finish_store(kept: Kept, path: Path | None, done: Run) -> None:
    """Write the nouns and the drawn rows, and the marker last; nothing without a store."""
    if kept.group is None or path is None:
        return
    for name in ("factor", "sample", "fit", "pilot", "certificate"):
        part = getattr(done, name)
        if part is not None:
            write_noun(kept.group, name, part.to_dict())
    data = kept.group.create_group("data")
    write_array(data, "X", done.sample_X)
    write_array(data, "y", done.sample_y)
    if done.sample_weight is not None:
        write_array(data, "sample_weight", done.sample_weight)
    write_records(kept.group, kept.records)
    finish(kept.group, path, done.manifest, kept.records)


def records_of(held: da.Array) -> list[ScoreRecord]:
    """Records of held scores, one a block."""
    first = starts(held.chunks[0])
    tasks = {k: (int(first[k]),) for k in range(held.numblocks[0])}
    return phase.on_blocks(held, "nlis-score", score_record, tasks)


class Look(NamedTuple):
    """What is to be known of a block of scores that no store keeps."""

    total: float
    n_positive: int


def look_at(held: da.Array) -> list[Look]:
    """Look at held scores, block by block."""
    return phase.on_blocks(held, "nlis-score", _look, {k: () for k in range(held.numblocks[0])})


def _look(scores: np.ndarray) -> Look:
    return Look(float(scores.sum()), int((scores > 0).sum()))


def check_total(parts: Sequence[Look | ScoreRecord], factor: Factor) -> None:
    """Leverage sums to the rank; anything else means that the data changed between the reads."""
    total = math.fsum(part.total for part in parts)
    tolerance = max(1e-6, 100 * factor.condition * np.finfo(np.float64).eps)
    if abs(total - factor.rank) > tolerance * factor.rank:
        raise NlisError(
            f"leverage sums to {total:.9g} where the rank is {factor.rank}: X or y changed between the reads; run again"
        )
