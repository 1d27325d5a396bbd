"""Where the scores of a job are kept: in the run store, block by block, or in memory."""

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import row_chunks
from dask_nlis.errors import NlisError
from dask_nlis.factor import Factor
from dask_nlis.intake import create_scores, open_stored, regular, with_names, write_scores
from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.design import Kept, Setting
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.store import Group, create, finish, stored_array, write_array, write_noun, write_records


def open_store(setting: Setting) -> Group | None:
    """Create the store of a job, manifest first; None where there is none."""
    return None if setting.path is None else create(setting.path, setting.manifest)


def keep(lazy: da.Array, matrix: TallMatrix, setting: Setting) -> Kept:
    """Compute the scores once: block by block into the store of the job, or held in memory without one."""
    source, group = matrix.source, open_store(setting)
    if group is None:
        held = phase.held(lazy, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
        return Kept(with_names(held, source.names), [], None)
    lazy = regular(lazy)
    target = create_scores(group.store, "scores", lazy.chunks[0])
    written = write_scores(lazy, target, "nlis-score")
    blocks = phase.blocks_of(written, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
    return Kept(with_names(stored_scores(group), source.names), [block[0] for block in blocks], group)


def stored_scores(group: Group) -> da.Array:
    """Scores of a run as a lazy Dask array, one block a stored chunk."""
    array = stored_array(group, "scores")
    return open_stored(array, row_chunks(array.shape[0], array.chunks[0]))


def finish_store(kept: Kept, setting: Setting, done: Run) -> None:
    """Write the nouns and the drawn rows, and the marker last; nothing without a store."""
    if kept.group is None or setting.path is None:
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
    finish(kept.group, setting.path, done.manifest, kept.records)


def check_total(total: float, factor: Factor) -> None:
    """Leverage sums to the rank; anything else means that the data changed between the reads."""
    tolerance = max(1e-6, 100 * factor.condition * np.finfo(np.float64).eps)
    if abs(total - factor.rank) > tolerance * factor.rank:
        raise NlisError(
            f"leverage sums to {total:.9g} where the rank is {factor.rank}: X or y changed between the reads; run again"
        )
