"""A finished run and rows that came later: these are scored beside the old ones, drawn as a stratum, and all are fitted."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics import Points, certified, summed_losses
from dask_nlis.errors import InputError, InputTypeError, NlisError
from dask_nlis.factor import Factor, factorize_together
from dask_nlis.intake import default_names, take_in
from dask_nlis.matrix import TallMatrix, dual_matrix, reference_matrix, summed_over
from dask_nlis.pipeline.design import Design, Scored, Setting, Wanted, counted
from dask_nlis.pipeline.drawn import Drawn, fit_drawn, matrix_of
from dask_nlis.pipeline.fused import way_of
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.refit import Fit
from dask_nlis.sample import Sample, concat
from dask_nlis.sampling import check_draw
from dask_nlis.scores import leverage_scorer, norm_scorer
from dask_nlis.tally import counted as tallied

#: How many times as many draws the old scores may need, against scores at the new fit, before they count as stale.
_STALE = 2.0


def extend(
    run: Run,
    X_new: Any,
    y_new: Any,
    *,
    size: int | float,
    seed: int | None = None,
    sample_weight: Any = None,
    device: str | None = None,
    block_bytes: int | None = None,
) -> Run:
    """Add rows to a finished run: X_new (m, d), y_new (m,) -> Run of old and new rows. Reads X_new 3 times, the old X never.

    The new rows are scored at the theta that the run was scored at: by leverage among all rows, with the factors of
    old and new rows merged, or by norms where the run was. They are a stratum of their own, of which `size` rows are drawn;
    the old sample stays as it is. The fit is to both. The factor takes 1 read more at a condition above 100, 2 above 1e7.

    Parameters
    ----------
    run : Run
        A finished run, from `run`, `open_run` or `extend`.
    X_new : array_like of shape (m, d)
        Rows that are not in the run, with the same columns.
    y_new : array_like of shape (m,)
        Their labels.
    size : int or float
        New rows to draw, expected (poisson), or a share of them.
    seed : int, optional
        Another one than the run's: with the same, rows at the same place would be drawn together. None draws one.
    sample_weight : array_like of shape (m,), optional
        Row weights v >= 0 of the new rows; 1 where the run has some and these have none, and the reverse.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Run
        In memory. Row i of X_new is row n + i of its sample. `scores` is None: those of old and new rows are not on one
        scale. `total_loss` is the sum over the new rows and an estimate for the old ones, by their sample. `stale` says
        when old rows ought to be scored again.

    Raises
    ------
    InputError, InputTypeError
        If columns or arguments do not fit the run, or all new rows are in it.
    NonFiniteError
        If a cell is not finite, naming row and column.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    Weighted sums over a union of strata drawn independently are unbiased for the sums over all rows, whatever the scores
    of each (Cochran 1977, section 5A). Leverage in the merged factor is that of the row among all rows.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
    >>> first = nlis.run(problem, X[:15_000], y[:15_000], size=400, seed=0)
    >>> both = nlis.extend(first, X[15_000:], y[15_000:], size=200, seed=1)
    >>> both.sample.n_rows, both.fit.ok, sum(both.reads.values()), both.stale
    (20640, True, 3, '')
    """
    if not isinstance(run, Run):
        raise InputTypeError(f"run is {type(run).__name__}; give a Run, as run() or open_run() return it")
    missing = str(run.manifest.get("missing", "raise"))
    options: dict[str, Any] = {"missing": missing, "device": device, "block_bytes": block_bytes}
    options["sample_weight"] = sample_weight
    if y_new is None:
        raise InputTypeError("y_new is None, but a fit needs labels; give an array of shape (m,)")
    called: Any = {"argument": "X_new", "labelled": "y_new", "label_columns": run.problem.label_columns}
    called["input_shape"] = run.problem.input_shape
    _check_columns(run, take_in(X_new, y_new, sample_weight, block_bytes=block_bytes, **called).names)
    matrix = _matrix(run, X_new, y_new, options)
    # Rows without names are known by their order.
    matrix = replace(matrix, source=matrix.source._replace(names=run.fit.feature_names))
    size, chosen = check_draw(size, "poisson", matrix.shape[0], seed)
    if chosen in _seeds(run):
        raise InputError(f"seed={chosen} is the run's own, so that old and new rows would be drawn alike; give another")
    with ExitStack() as scratch, _of_new_rows(), tallied() as tally:
        setting = Setting(Design(size, "poisson", chosen, None, 1, None), X_new, y_new, options, scratch)
        factor, scored, reads = _scored(run, matrix, setting, size)
        stage = scored.drawn(size)
        reads = counted(reads, "gather", stage.reads)
        taken = stage.scored.taken(stage.sample)
        both = replace(concat([run.sample, stage.sample]), feature_names=run.sample.feature_names)
        rows = _joined(run, taken)
        fit = fit_drawn(run.problem, both, rows, matrix.source.names, start=run.fit.theta)
        (loss,), n_dropped = summed_losses(matrix, run.problem, fit.theta[None])
    total = float(loss) + _estimated(run, fit)
    manifest = {name: value for name, value in run.manifest.items() if name != "way"} | {
        "reads": reads | {"total loss": 1},
        "size": both.n_draws,
        "stages": [*run.manifest["stages"], stage.sample.n_draws],
        "n_dropped": run.n_dropped + n_dropped,
        "total_loss": total,
        "devices": tally.devices(),
        "strata": [*run.manifest.get("strata", [run.sample.n_rows]), matrix.shape[0]],
        "seeds": [*_seeds(run), chosen],
        "stale": _stale(run, matrix, both, rows, fit),
    }
    return Run(
        problem=run.problem,
        factor=factor,
        scores=None,
        sample=both,
        sample_X=rows.X,
        sample_y=rows.y,
        sample_weight=rows.weight,
        fit=fit,
        pilot=run.pilot,
        certificate=None
        if factor is None
        else certified(matrix_of(matrix, rows), factor, both, Points(None, fit.theta)),
        total_loss=total,
        manifest=manifest,
        path=None,
    )


@contextmanager
def _of_new_rows() -> Iterator[None]:
    """Have what is said of X and y inside be said of X_new and y_new."""
    try:
        yield
    except NlisError as error:
        error.args = (re.sub(r"(?<![\w.'])(X|y)(?=[ ,;]|$)", r"\1_new", str(error)), *error.args[1:])
        raise


def _matrix(run: Run, X: Any, y: Any, options: dict[str, Any]) -> TallMatrix:
    """The matrix of new rows that the run's factor is of."""
    theta = run.manifest["theta"]
    if theta is None:
        return reference_matrix(run.problem, X, y, **options)
    if isinstance(theta, str):  # too long for a manifest
        if run.pilot is None or len(run.manifest["stages"]) > 2:
            raise InputError(f"run keeps no theta of {theta.partition(' ')[0]} numbers; run all rows anew")
        theta = run.pilot.theta
    return dual_matrix(run.problem, X, y, theta=theta, **options)


def _check_columns(run: Run, given: tuple[str, ...]) -> None:
    known = run.fit.feature_names
    if len(given) != len(known):
        raise InputError(f"X_new has {len(given)} columns, but the run has {len(known)}; give the same ones")
    if given not in (known, default_names(len(known))):
        other = next((pair for pair in zip(given, known, strict=True) if pair[0] != pair[1]), None)
        assert other is not None
        raise InputError(f"X_new has column {other[0]!r} where the run has {other[1]!r}; give the same, in their order")


def _seeds(run: Run) -> list[int]:
    return list(run.manifest.get("seeds", [run.manifest["seed"]]))


def _scored(run: Run, matrix: TallMatrix, setting: Setting, size: int) -> tuple[Factor | None, Scored, dict[str, int]]:
    way = way_of(setting, matrix)
    if run.factor is None:
        return None, way(setting, Wanted(matrix, norm_scorer(matrix), size, 0, last=True)), {"scores": 1}
    ((new,), reads) = factorize_together([matrix])
    merged = run.factor.merge(new)
    # Their leverage among all rows sums to what their factor says.
    total = float(np.sum((new.r @ merged.whitener) ** 2))
    wanted = Wanted(matrix, leverage_scorer(matrix, merged), size, 0, total=total, last=True)
    return merged, way(setting, wanted), {"factor": reads, "scores": 1}


def _joined(run: Run, taken: Drawn) -> Drawn:
    """Old and new drawn rows."""
    weight = None
    if run.sample_weight is not None or taken.weight is not None:
        old, new = (
            np.ones(n) if each is None else each
            for each, n in ((run.sample_weight, len(run.sample_y)), (taken.weight, len(taken.y)))
        )
        weight = np.concatenate([old, new])
    return Drawn(np.concatenate([run.sample_X, taken.X]), np.concatenate([run.sample_y, taken.y]), weight)


def _estimated(run: Run, fit: Fit) -> float:
    """Loss of a fit over the rows of a run, estimated by its sample."""
    predictions = run.problem.model.predict(fit.theta, run.sample_X)
    losses = run.problem.row_loss.value(predictions, run.sample_y)
    weights = run.sample.weights if run.sample_weight is None else run.sample.weights * run.sample_weight
    return float(weights @ losses)


def _stale(run: Run, matrix: TallMatrix, sample: Sample, rows: Drawn, fit: Fit) -> str:
    """Why the rows ought to be scored again, at the new fit; empty where they need not.

    With h the leverage of a row among the drawn ones, by their weights w, a sample as good as this one takes in proportion
    to sum (w h)^2 / (sum w h)^2 draws. That at the new fit is compared with that at the theta of the scores.
    """
    if run.manifest["theta"] is None:  # scores that know no theta do not age
        return ""
    options: dict[str, Any] = {"sample_weight": rows.weight, "missing": matrix.missing, "device": matrix.device}
    later = dual_matrix(run.problem, rows.X, rows.y, theta=fit.theta, **options)
    now, then = (_draws_needed(each, sample) for each in (later, matrix_of(matrix, rows)))
    if now <= _STALE * then:
        return ""
    return (
        f"the fit has moved since the rows were scored: as good a sample would take {then / now:.0%} of the draws by scores at "
        "the new fit; run all rows anew"
    )


def _draws_needed(matrix: TallMatrix, sample: Sample) -> float:
    rows = np.concatenate(phase.blocks_of(matrix.to_dask_array(), "nlis-certificate"))
    weighted = rows * np.repeat(np.sqrt(sample.weights), matrix.rule.each)[:, None]
    u, s, _ = np.linalg.svd(weighted, full_matrices=False)
    kept = s > s[0] * max(rows.shape) * np.finfo(np.float64).eps
    shares = summed_over(np.sum(u[:, kept] ** 2, axis=1), len(sample))  # w h
    return float(np.sum(shares**2) / np.sum(shares) ** 2)
