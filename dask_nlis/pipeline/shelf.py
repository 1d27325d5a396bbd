"""Where what a job makes is kept: in the run store, or in memory."""

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import row_chunks
from dask_nlis.errors import NlisError
from dask_nlis.factor import Factor
from dask_nlis.failures import writing
from dask_nlis.intake import create_scores, open_stored, regular, with_names, written_scores
from dask_nlis.pipeline.design import Kept, Setting, Wanted
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.store import Group, stored_array, write_array, write_noun


def keep(lazy: da.Array, wanted: Wanted, setting: Setting) -> Kept:
    """Compute the scores of a stage once, the last, and keep them: block by block in the store, or in memory without one."""
    source, store = wanted.matrix.source, setting.store
    if store is None:
        held = phase.held(lazy, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
        return Kept(with_names(held, source.names), [])
    lazy = regular(lazy)
    target = create_scores(store.group.store, "scores", lazy.chunks[0])
    saved = setting.saved.below(wanted.name)
    records = written_scores(lazy, target, "nlis-score", saved, source.n_bytes)
    return Kept(with_names(stored_scores(store.group), source.names), records)


def hold_stored(lazy: da.Array, wanted: Wanted, setting: Setting) -> da.Array:
    """Compute the scores of a stage once and hold them in the store while the job is under way."""
    assert setting.store is not None
    lazy = regular(lazy)
    target = create_scores(*setting.store.scores_of(wanted.name), lazy.chunks[0])
    written_scores(lazy, target, "nlis-score", setting.saved.below(wanted.name), wanted.matrix.source.n_bytes)
    return open_stored(target, lazy.chunks[0])


def stored_scores(group: Group) -> da.Array:
    """Scores of a run as a lazy Dask array, one block a stored chunk."""
    array = stored_array(group, "scores")
    return open_stored(array, row_chunks(array.shape[0], array.chunks[0]))


def finish_store(kept: Kept, setting: Setting, done: Run) -> None:
    """Write the nouns and the drawn rows, and the marker last; nothing without a store."""
    if setting.store is None:
        return
    group = setting.store.group
    with writing("the results"):
        for name in ("factor", "sample", "fit", "pilot", "certificate"):
            part = getattr(done, name)
            if part is not None:
                write_noun(group, name, part.to_dict())
        data = group.create_group("data", overwrite=True)
        write_array(data, "X", done.sample_X)
        write_array(data, "y", done.sample_y)
        if done.sample_weight is not None:
            write_array(data, "sample_weight", done.sample_weight)
    setting.store.finish(done.manifest, kept.records)


def check_total(total: float, factor: Factor) -> None:
    """Leverage sums to the rank; anything else means that the data changed between the reads."""
    tolerance = max(1e-6, 100 * factor.condition * np.finfo(np.float64).eps)
    if abs(total - factor.rank) > tolerance * factor.rank:
        raise NlisError(
            f"leverage sums to {total:.9g} where the rank is {factor.rank}: X or y changed between the reads; run again"
        )
