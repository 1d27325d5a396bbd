"""What a job does, once it is known what is asked: stages of scores and draws -> refit -> total loss and certificate."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from dask_nlis.checkpoints import recalled_noun
from dask_nlis.diagnostics import Points, certified, summed_losses
from dask_nlis.errors import InputError, NlisWarning
from dask_nlis.intake import give_back
from dask_nlis.matrix import TallMatrix
from dask_nlis.pipeline.design import Setting, counted
from dask_nlis.pipeline.drawn import fit_drawn, matrix_of
from dask_nlis.pipeline.fused import way_of
from dask_nlis.pipeline.growing import Tried, grown
from dask_nlis.pipeline.manifest import completed
from dask_nlis.pipeline.once import scored_once
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.pipeline.shelf import finish_store
from dask_nlis.pipeline.stages import serves, stages
from dask_nlis.refit import Fit
from dask_nlis.tally import Tally, apart


def carry_out(
    reference: TallMatrix,
    setting: Setting,
    scores: str,
    theta: np.ndarray | None,
    manifest: Mapping[str, Any],
    tally: Tally,
) -> Run:
    """Carry out a checked job; each step is kept in the store, if there is one, and what is kept is not done again."""
    problem, design = reference.problem, setting.design
    assert problem is not None
    way = way_of(setting, reference)
    if scores == "two-stage":
        staged = stages(reference, setting, way)
    else:
        staged = scored_once(reference, setting, way, scores, theta)
    sample, taken, more, tried = grown(staged, design)
    staged = staged._replace(reads=counted(staged.reads, "gather", more))
    fitting = partial(fit_drawn, problem, names=reference.source.names, start=staged.matrix.theta)
    fit: Fit = recalled_noun(setting.saved, "fit", partial(fitting, sample, taken), Fit)
    # Fits to the sizes before the last cost no read: their losses are summed in that of the fit.
    before = _before(tried, fitting, setting)
    thetas = np.stack([fit.theta, *(found.theta for found in before.values())])
    (loss, *losses), n_dropped = summed_losses(staged.matrix, problem, thetas, setting.saved.below("losses"))
    found = None
    if staged.factor is not None:
        with apart():  # blocks of the sample are none of the data
            found = certified(matrix_of(staged.matrix, taken), staged.factor, sample, Points(None, fit.theta))
    store = setting.store
    # Of blocks that ran before it was cut off nobody counted where.
    devices = None if store is not None and store.resumed else tally.devices()
    done_manifest = completed(dict(manifest), staged, design, sample, float(loss), n_dropped, devices)
    if tried:
        known = dict(zip(before, map(float, losses), strict=True)) | {tried[-1].size: float(loss)}
        done_manifest["way"] = [
            {"size": each.size, "rows": len(each.sample), "epsilon": each.epsilon, "loss": known.get(each.size)}
            for each in tried
        ]
    if store is not None:
        done_manifest["resumed"] = store.resumed
    kept = staged.scored.kept
    shown: Any = kept.scores  # lazy from the store, else in the container that X came in
    if store is None and setting.keep_scores:
        shown = give_back(reference.source.container, shown, scores, "nlis-score")
    done = Run(
        problem=problem,
        factor=staged.factor,
        scores=shown,
        sample=sample,
        sample_X=taken.X,
        sample_y=taken.y,
        sample_weight=taken.weight,
        fit=fit,
        pilot=staged.pilot,
        certificate=found,
        total_loss=float(loss),
        manifest=done_manifest,
        path=None if store is None else store.text,
    )
    finish_store(kept, setting, done)
    return done


def _before(tried: list[Tried], fitting: Callable[..., Fit], setting: Setting) -> dict[int, Fit]:
    """Fits to the sizes before the last, by size; those that would not serve as a start are left out."""
    fits: dict[int, Fit] = {}
    for each in tried[:-1]:
        make = partial(fitting, sample=each.sample, taken=each.taken)
        # Nobody asked for these fits: rows that one cannot be made of only leave it out. Errors of the store are no such.
        with warnings.catch_warnings(), suppress(InputError):
            warnings.simplefilter("ignore", NlisWarning)
            found: Fit = recalled_noun(setting.saved, f"fit-{each.size}", make, Fit)
            if serves(found):
                fits[each.size] = found
    return fits
