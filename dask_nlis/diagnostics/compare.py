"""Which scores make the better samples: refits on many of them, judged on all rows."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics.comparison import Comparison
from dask_nlis.diagnostics.row_tables import check_count
from dask_nlis.diagnostics.total_loss import total_loss
from dask_nlis.errors import ConvergenceWarning, InputError, InputTypeError, NlisWarning
from dask_nlis.intake import Rows, take_in
from dask_nlis.problem import Problem, check_theta
from dask_nlis.refit import refit
from dask_nlis.sample import Sample, take_rows
from dask_nlis.sample.take import MAX_TAKE_BYTES
from dask_nlis.sampling import draw_stage
from dask_nlis.sampling.arguments import check_scheme, checked_mix, checked_scores, checked_seed, checked_size
from dask_nlis.sampling.summary import hold


class _Drawn(NamedTuple):
    """A sample, by which scores, of which size."""

    name: int
    size: int
    seed: int
    sample: Sample


#: Most seeds that `seeds=` counts up to: draws tell seeds apart by 32 bits.
_MOST_SEEDS = 2**32


def compare(
    problem: Problem,
    X: Any,
    y: Any,
    scores: Mapping[str, Any],
    *,
    sizes: Any,
    seeds: Any = 20,
    scheme: str = "multinomial",
    mix: float = 0.0,
    theta: Any = None,
    ridge: float = 0.0,
    start: Any = None,
    n_starts: int = 5,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
    max_bytes: int = MAX_TAKE_BYTES,
) -> Comparison:
    """Refit on samples drawn by each score: X (n, d), y (n,) -> Comparison. Reads X once for all losses.

    Besides, lazy scores are computed once each, as `draw` does, and the blocks that hold a drawn row are read once
    for all samples together. `draw`, `take` and `refit` for every name, size and seed; then `total_loss` of all
    fits in one read.

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,) or (n, n_outputs)
        Labels; a column an output where a loss is summed over several.
    scores : mapping of str to array_like of shape (n,)
        What to draw by, lazy or not, by name; `np.ones(n)` for uniform sampling.
    sizes : int or float, or a sequence of them
        Sizes of samples, as in `draw`: counts or shares of the rows.
    seeds : int or sequence of int, default 20
        Seeds of the draws, or how many: 0, 1, ...
    scheme : {"multinomial", "stratified", "poisson", "systematic"}
        How rows are drawn.
    mix : float, default 0.0
        Share of the draws that is uniform.
    theta : array_like of shape (p,), optional
        A reference, the fit on all rows say: the comparison then has the excess over its loss.
    ridge, start, n_starts : optional
        As in `refit`.
    sample_weight : array_like of shape (n,), optional
        Row weights >= 0 of the data, in refits and losses; the scores should have them inside.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity; with "drop" their scores must be 0.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.
    max_bytes : int
        Rows drawn by all samples together that take more are refused.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError, InputTypeError
        If scores is no mapping of (n,) arrays to names, sizes or seeds are not allowed, or the drawn rows take more
        than max_bytes.
    NonFiniteError
        If a cell is not finite, naming the row.
    MissingDataError
        If a path was given and nothing is stored there.

    Warns
    -----
    ConvergenceWarning
        Once, if refits did not pass their checks; `Comparison.ok` says which.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X, y = np.arange(8.0).reshape(8, 1), np.array([0.0, 2.0, 4.0, 7.0, 8.0, 10.0, 12.0, 14.0])
    >>> problem = nlis.Problem(nlis.Linear())
    >>> best = nlis.refit(problem, X, y, np.ones(8)).theta
    >>> found = nlis.compare(problem, X, y, {"uniform": np.ones(8)}, sizes=[6, 7], seeds=9, theta=best)
    >>> print(found.summary())
    median [quartiles] of the excess over the reference loss 0.869048, 9 seeds, multinomial draws
    scores                          6                         7
    ───────────────────────────────────────────────────────────
    uniform   0.1507 [0.1507, 0.3859]   0.1507 [0.1507, 0.5736]
    """
    if not isinstance(problem, Problem):
        raise InputTypeError(f"problem is {type(problem).__name__}; give Problem(model, loss)")
    check_scheme(scheme)
    if y is None:
        raise InputTypeError(f"y is None, but {type(problem.loss).__name__} needs labels; give an array of shape (n,)")
    shape: Any = {"label_columns": problem.label_columns, "input_shape": problem.input_shape}
    data = take_in(X, y, sample_weight, block_bytes=block_bytes, **shape)
    n, d = data.n_rows, data.n_columns
    by_name = _scores(scores, n)
    counts, numbers, blend = _sizes(sizes, scheme, n), _seeds(seeds), checked_mix(mix)
    reference = None if theta is None else check_theta(problem, theta, d, data.names)
    first = None if start is None else check_theta(problem, start, d, data.names, "start")

    drawn = _drawn(by_name, counts, numbers, scheme, blend)
    rows = np.unique(np.concatenate([each.sample.indices for each in drawn]))
    x_rows, y_rows, own = _taken(data, rows, max_bytes)
    thetas = np.full((len(drawn), problem.model.n_parameters(d)), np.nan)
    ok = np.zeros(len(drawn), dtype=bool)
    for k, each in enumerate(drawn):
        if not len(each.sample):
            continue
        place = np.searchsorted(rows, each.sample.indices)
        weights = None if own is None else own[place]
        if weights is not None and not weights.any():
            continue  # rows that do not count
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
            fit = refit(
                problem,
                x_rows[place],
                y_rows[place],
                each.sample.weights,
                ridge=ridge,
                sample_weight=weights,
                start=first,
                n_starts=n_starts,
            )
        thetas[k], ok[k] = fit.theta, fit.ok
    options = {"sample_weight": sample_weight, "missing": missing, "device": device, "block_bytes": block_bytes}
    loss, best = _losses(problem, X, y, thetas, reference, options)
    if not ok.all():
        phase.warn(
            f"{(~ok).sum()} of {len(ok)} refits did not pass their checks; see Comparison.ok", ConvergenceWarning
        )
    return Comparison(
        names=tuple(by_name),
        name=np.array([each.name for each in drawn], dtype=np.int64),
        size=np.array([each.size for each in drawn], dtype=np.int64),
        seed=np.array([each.seed for each in drawn], dtype=np.int64),
        n_distinct=np.array([len(each.sample) for each in drawn], dtype=np.int64),
        ok=ok,
        loss=loss,
        excess=None if best is None else _excess(loss, best),
        reference_loss=best,
        thetas=thetas,
        scheme=scheme,
    )


def _drawn(
    by_name: Mapping[str, da.Array], sizes: list[int], seeds: list[int], scheme: str, mix: float
) -> list[_Drawn]:
    """All samples; each scores are computed once and held meanwhile."""
    drawn = []
    for k, lazy in enumerate(by_name.values()):
        with ExitStack() as stack:
            held, folder = hold(lazy)
            if folder is not None:
                stack.callback(folder.cleanup)
            for size in sizes:
                for seed in seeds:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", "no row was drawn", NlisWarning)  # its loss is NaN
                        drawn.append(_Drawn(k, size, seed, draw_stage(held, size, scheme, seed, 0, mix)))
    return drawn


def _taken(data: Rows, rows: np.ndarray, max_bytes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows of X, y and the row weights, or None, out of their columns as numbers."""
    assert data.y is not None
    x, y = (
        np.asarray(take_rows(name, part, rows, data.n_rows, max_bytes)) for name, part in (("X", data.x), ("y", data.y))
    )
    if data.weight is None:
        return x, y, None
    weights = take_rows("sample_weight", data.weight, rows, data.n_rows, max_bytes)
    return x, y, np.asarray(weights, dtype=np.float64).reshape(-1)


def _losses(
    problem: Problem, X: Any, y: Any, thetas: np.ndarray, reference: np.ndarray | None, options: Mapping[str, Any]
) -> tuple[np.ndarray, float | None]:
    """Losses of all fits, and of the reference, in one read; NaN where there was no row to fit."""
    fitted = ~np.isnan(thetas).any(axis=1)
    table = thetas[fitted] if reference is None else np.vstack([thetas[fitted], reference])
    loss = np.full(len(thetas), np.nan)
    if not len(table):
        return loss, None
    found = total_loss(problem, X, y, table, **options)
    loss[fitted] = found[: int(fitted.sum())]
    return loss, None if reference is None else float(found[-1])


def _excess(loss: np.ndarray, best: float) -> np.ndarray:
    """Relative to a reference without loss any loss is infinitely more, and none is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(loss == best, 0.0, (loss - best) / best)


def _scores(scores: Any, n: int) -> dict[str, da.Array]:
    if not isinstance(scores, Mapping):
        raise InputTypeError(f"scores is {type(scores).__name__}; give a mapping of names to scores of shape (n,)")
    if not scores:
        raise InputError("scores is empty; give a mapping of names to scores of shape (n,)")
    found = {}
    for name, value in scores.items():
        if not isinstance(name, str):
            raise InputTypeError(f"scores has the key {name!r} of type {type(name).__name__}; give names")
        found[name] = checked_scores(value)
        if found[name].shape != (n,):
            raise InputError(f"scores[{name!r}] have shape {found[name].shape}, but X has {n} rows; give ({n},)")
    return found


def _sizes(sizes: Any, scheme: str, n: int) -> list[int]:
    found = [checked_size(size, scheme, n, "sizes") for size in _several("sizes", sizes, "sizes of samples")]
    return _distinct("sizes", found)


def _seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, Sequence | np.ndarray):
        return _distinct("seeds", [checked_seed(seed, "seeds") for seed in _several("seeds", seeds, "seeds")])
    check_count("seeds", seeds)
    if seeds > _MOST_SEEDS:
        raise InputError(f"seeds={seeds} is not allowed; give a number of seeds up to {_MOST_SEEDS:,}")
    return list(range(int(seeds)))


def _several(argument: str, value: Any, what: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give one or a sequence of {what}")
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise InputError(f"{argument} has shape {value.shape}; give one or a sequence of {what}")
    several = list(value) if isinstance(value, Sequence | np.ndarray) else [value]
    if not several:
        raise InputError(f"{argument} is empty; give one or a sequence of {what}")
    return several


def _distinct(argument: str, values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise InputError(f"{argument} hold the same value twice: {values[:6]}; give distinct ones")
    return values
