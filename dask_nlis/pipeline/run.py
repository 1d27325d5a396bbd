"""One job from data to fit: pilot -> dual matrix -> factor -> scores -> draw -> take -> refit -> total loss."""

import math
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.diagnostics import summed_losses
from dask_nlis.errors import InputError, InputTypeError, NlisError
from dask_nlis.factor import Factor, factorize
from dask_nlis.intake import ScoreRecord, create_scores, give_back, regular, score_record, write_scores
from dask_nlis.matrix import TallMatrix, dual_matrix, reference_matrix
from dask_nlis.pipeline.opening import named_scores, stored_scores
from dask_nlis.pipeline.pilot import fit_drawn, rough_fit, take_drawn
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.problem import Problem
from dask_nlis.refit import Fit
from dask_nlis.sampling import check_draw, draw_stage
from dask_nlis.scores import lazy_leverage, lazy_norms
from dask_nlis.store import FORMAT, Group, check_free, create, finish, write_array, write_noun, write_records

SCORES = ("leverage", "norm")


def run(
    problem: Problem,
    X: Any,
    y: Any,
    *,
    size: int | float,
    seed: int | None = None,
    store: str | os.PathLike[str] | None = None,
    theta: Any = None,
    scores: str = "leverage",
    scheme: str = "poisson",
    pilot_size: int | float | None = None,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> Run:
    """Score, draw and refit in one job: X (n, d), y (n,) -> Run. Computes.

    Reads X 5 times: 2 for the pilot, 2 for factor and scores, 1 for the total loss (3 in all when theta is
    given; 1 less for norm scores), plus the blocks of the drawn rows; each factor 1 more at a condition above 100 or for
    dependent columns, 2 more above 1e7.
    `Run.reads` says how many there were. Scores go to the store block by block.

    The pilot is stage 0 of the seed and the sample stage 1, so that the two are independent; with `theta` given
    the sample is that of `draw(scores, size, scheme=scheme, seed=seed)`.

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,)
        Labels.
    size : int or float
        Rows to draw: expected number (poisson), number (systematic) or draws (multinomial, stratified); a float in
        (0, 1] is a share of the rows.
    seed : int, optional
        Seed of the draws; None draws one and records it.
    store : path, optional
        New folder for the run store; None keeps the run in memory.
    theta : array_like of shape (p,), optional
        Where to score; a pilot fit by reference leverage finds one by default.
    scores : {"leverage", "norm"}
        Leverage or squared row norms of the dual matrix.
    scheme : {"poisson", "multinomial", "stratified", "systematic"}
        As in `draw`.
    pilot_size : int or float, optional
        Rows of the pilot, drawn besides `size`; the larger of size / 4 and 5 p by default.
    sample_weight : array_like of shape (n,), optional
        Row weights v >= 0: a row counts sqrt(v) times in the matrices and v times in the losses; 0 is never drawn.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Run

    Raises
    ------
    StoreExistsError
        If something is at `store`; nothing is overwritten.
    InputError, InputTypeError
        If an argument is not allowed; before anything is read or written.
    NonFiniteError
        If a cell is not finite, naming row and column.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
    >>> job = nlis.run(problem, X, y, size=500, seed=0)
    >>> job.fit.ok, job.factor.rank, sum(job.reads.values())
    (True, 10, 5)
    """
    options: dict[str, Any] = {"missing": missing, "device": device, "block_bytes": block_bytes}
    options["sample_weight"] = sample_weight
    if scores not in SCORES:
        raise InputError(f"scores={scores!r} is not known; give one of {', '.join(map(repr, SCORES))}")
    if y is None:
        raise InputTypeError("y is None, but a fit needs labels; give an array of shape (n,)")
    reference = reference_matrix(problem, X, y, **options)
    n, names = reference.source.n_rows, reference.source.names
    p = problem.model.n_parameters(reference.source.n_columns)
    if problem.constraint is not None:
        problem.constraint.check(p)
    size, seed = check_draw(size, scheme, n, seed)
    rough_size = (
        min(n, max(size // 4, 5 * p))
        if pilot_size is None
        else check_draw(pilot_size, scheme, n, seed, "pilot_size")[0]
    )
    path = None if store is None else check_free(store)
    if path is not None:
        problem.to_dict()  # raises for users' functions, which could not be stored at the end

    reads: dict[str, int] = {}
    first: Fit | None = None
    if theta is None:
        first, used = rough_fit(reference, X, y, sample_weight, rough_size, scheme=scheme, seed=seed)
        theta, reads["pilot"] = first.theta, used
    matrix = dual_matrix(problem, X, y, theta=theta, **options)
    factor: Factor | None = None
    if scores == "leverage":
        factor = factorize(matrix)
        reads["factor"] = factor.reads
    manifest = _manifest(matrix, size, seed, scheme, scores, None if first is None else rough_size)
    group = None if path is None else create(path, manifest)
    lazy = lazy_norms(matrix) if factor is None else lazy_leverage(matrix, factor)
    values, records = _score(lazy, matrix, group)
    values = named_scores(values, names)
    reads["scores"] = 1
    if factor is not None:
        _check_total(records, factor)
    # The pilot was stage 0 of the same seed, so that its rows and these are drawn independently.
    sample = draw_stage(values, size, scheme, seed, stage=0 if first is None else 1)
    if not len(sample):
        raise InputError(f"size={size} gave an empty sample at seed={seed}; give a larger size")
    taken = take_drawn(sample, X, y, sample_weight)
    fit = fit_drawn(problem, sample, taken, names, start=matrix.theta)
    (loss,), n_dropped = summed_losses(matrix, problem, fit.theta[None])
    reads["total loss"] = 1
    manifest |= {"state": "complete", "reads": reads, "n_dropped": n_dropped, "total_loss": float(loss)}
    manifest |= {"finished": _now()}
    done = Run(
        problem=problem,
        factor=factor,
        scores=values if path is not None else give_back(matrix.source.container, values, scores, "nlis-score"),
        sample=sample,
        sample_X=taken.X,
        sample_y=taken.y,
        sample_weight=taken.weight,
        fit=fit,
        pilot=first,
        total_loss=float(loss),
        manifest=manifest,
        path=None if path is None else os.fspath(path),
    )
    if group is not None and path is not None:
        _write(group, path, done, records)
    return done


def _score(lazy: da.Array, matrix: TallMatrix, group: Group | None) -> tuple[da.Array, Sequence[ScoreRecord]]:
    """Compute the scores once: block by block into the store, or held in memory; with one record a block."""
    source = matrix.source
    if group is None:
        held = phase.held(lazy, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
        first = starts(held.chunks[0])
        tasks = {k: (int(first[k]),) for k in range(held.numblocks[0])}
        return held, phase.on_blocks(held, "nlis-score", score_record, tasks)
    lazy = regular(lazy)
    target = create_scores(group.store, "scores", lazy.chunks[0])
    written = write_scores(lazy, target, "nlis-score")
    records = phase.blocks_of(written, "nlis-score", n_rows=source.n_rows, n_bytes=source.n_bytes)
    return stored_scores(group), [block[0] for block in records]


def _check_total(records: Sequence[ScoreRecord], factor: Factor) -> None:
    """Leverage sums to the rank; anything else means that the data changed between the reads."""
    total = math.fsum(record.total for record in records)
    tolerance = max(1e-6, 100 * factor.condition * np.finfo(np.float64).eps)
    if abs(total - factor.rank) > tolerance * factor.rank:
        raise NlisError(
            f"leverage sums to {total:.9g} where the rank is {factor.rank}: X or y changed between the reads; run again"
        )


def _manifest(
    matrix: TallMatrix, size: int, seed: int, scheme: str, scores: str, pilot_size: int | None
) -> dict[str, Any]:
    source = matrix.source
    return {
        "format": FORMAT,
        "state": "running",
        "data": {
            "n_rows": source.n_rows,
            "n_columns": source.n_columns,
            "dtype": str(source.x.dtype),
            "feature_names": list(source.names),
            "token": source.token,
            "block_rows": max(source.chunks),
            "n_blocks": len(source.chunks),
        },
        "problem": repr(matrix.problem),
        "theta": None if matrix.theta is None else [float(v) for v in matrix.theta],
        "size": size,
        "seed": seed,
        "scheme": scheme,
        "scores": scores,
        "pilot_size": pilot_size,
        "missing": matrix.missing,
        "device": matrix.device,
        "versions": {name: version(name) for name in ("dask-nlis", "dask", "distributed", "numpy", "scipy", "zarr")}
        | {"python": platform.python_version()},
        "started": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(group: Group, path: Path, done: Run, records: Sequence[ScoreRecord]) -> None:
    for name, part in (("factor", done.factor), ("sample", done.sample), ("fit", done.fit), ("pilot", done.pilot)):
        if part is not None:
            write_noun(group, name, part.to_dict())
    data = group.create_group("data")
    write_array(data, "X", done.sample_X)
    write_array(data, "y", done.sample_y)
    if done.sample_weight is not None:
        write_array(data, "sample_weight", done.sample_weight)
    write_records(group, records)
    finish(group, path, done.manifest, records)
