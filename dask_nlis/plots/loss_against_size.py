"""Loss of refits against the size of their samples."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.diagnostics import Comparison
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.plots.palette import colour, marker
from dask_nlis.plots.panel import check_axes, counted, headline, log_axis, name_lines, panel, plain_axis, points, quiet

#: Sizes that may be ticks of their own, and points of a digit.
_FEW, _DIGIT = 12, 6.4

#: Share of the axis of sizes that is left free at either end.
_MARGIN = 0.04


class Line(NamedTuple):
    """Quartiles over the seeds at each size, for one kind of scores."""

    name: str
    sizes: np.ndarray  # (k,)
    quartiles: np.ndarray  # (k, 3): lower, median, upper


def loss_against_size(comparison: Any, *, ax: Any = None) -> Any:
    """Draw the loss over all rows of refits against the size of their samples, a line for each score -> Axes. No read.

    The median over the seeds, with a band between the quartiles: of the excess over the reference loss where the
    comparison has one, else of the loss. The axes are logarithmic; that of the loss is not where a median is not
    positive.

    Parameters
    ----------
    comparison : Comparison, or sequence of Run
        What `compare` returned; or finished runs on the same rows, of which those of equal size are different seeds.
    ax : matplotlib Axes, optional
        Where to draw; a new figure, unknown to pyplot, by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError, InputTypeError
        If comparison is neither, is empty, holds no finite loss, or has runs on different numbers of rows.
    MissingExtraError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X, y = np.arange(8.0).reshape(8, 1), np.array([0.0, 2.0, 4.0, 7.0, 8.0, 10.0, 12.0, 14.0])
    >>> found = nlis.compare(nlis.Problem(nlis.Linear()), X, y, {"uniform": np.ones(8)}, sizes=[5, 7], seeds=9)
    >>> ax = nlis.plots.loss_against_size(found)
    >>> ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()
    ('rows drawn', 'loss over all rows', 'log')
    """
    check_axes(ax)
    lines, what, note = _of_comparison(comparison) if isinstance(comparison, Comparison) else _of_runs(comparison)
    values = np.concatenate([line.quartiles[:, 1] for line in lines])
    if not np.isfinite(values).any():
        raise InputError("comparison holds no finite loss; check Comparison.ok, or draw more rows")
    ax = panel(ax)
    logarithmic = bool((values[np.isfinite(values)] > 0).all())
    every = np.concatenate([line.quartiles for line in lines])
    floor = np.min(every, where=np.isfinite(every) & (every > 0), initial=np.inf) / 1.3
    drawn = []
    for k, (_, sizes, quartiles) in enumerate(lines):
        low, middle, high = np.where(np.isfinite(quartiles), quartiles, np.nan).T
        if logarithmic:
            low = np.where(low <= 0, floor / 10, low)
        drawn += ax.plot(sizes, middle, color=colour(k), marker=marker(k), markersize=5, linewidth=2)
        ax.fill_between(sizes, low, high, color=colour(k), alpha=0.14, linewidth=0)
    if logarithmic and (every <= 0).any():  # a band that goes below zero leaves the picture
        ax.set_ylim(bottom=floor)
    ax.set(xlabel="rows drawn", ylabel=what)
    _sizes(ax, np.unique(np.concatenate([line.sizes for line in lines])))
    if logarithmic:
        log_axis(ax, "y")
    else:
        plain_axis(ax.yaxis)
    quiet(ax)
    if len(lines) > 1:
        name_lines(ax, [line.name for line in lines], drawn)
    headline(ax, "Loss against sample size", [note])
    return ax


def _of_comparison(found: Comparison) -> tuple[list[Line], str, str]:
    quartiles = found.quartiles()
    lines = []
    for k, name in enumerate(found.names):
        sizes = np.unique(found.size[found.name == k])
        lines.append(Line(name, sizes, np.array([quartiles[name, size] for size in sizes.tolist()]).reshape(-1, 3)))
    if not any(len(line.sizes) for line in lines):
        raise InputError("comparison holds no refit; give what compare returned")
    what = "loss over all rows" if found.excess is None else "excess loss / reference loss"
    n_seeds = len(np.unique(found.seed))
    return lines, what, f"median and quartiles of {counted(n_seeds, 'seed')}, {found.scheme} draws"


def _of_runs(runs: Any) -> tuple[list[Line], str, str]:
    asked = "give what compare returned, or a sequence of finished runs"
    if not isinstance(runs, Sequence) or isinstance(runs, str | bytes):
        raise InputTypeError(f"comparison is {type(runs).__name__}; {asked}")
    if not runs:
        raise InputError(f"comparison is empty; {asked}")
    for run in runs:
        if not (hasattr(run, "total_loss") and hasattr(run, "sample")):
            raise InputTypeError(f"comparison holds a {type(run).__name__}; {asked}")
    rows = sorted({run.sample.n_rows for run in runs})
    if len(rows) > 1:
        raise InputError(f"comparison holds runs on {rows[0]:,} and on {rows[-1]:,} rows; give runs on the same rows")
    size = np.array([run.sample.n_draws for run in runs])
    loss = np.array([run.total_loss for run in runs], dtype=np.float64)
    sizes, counts = np.unique(size, return_counts=True)
    quartiles = np.array([np.quantile(loss[size == each], (0.25, 0.5, 0.75)) for each in sizes])
    seeds = f"median and quartiles of up to {counts.max()} seeds" if counts.max() > 1 else ""
    return (
        [Line("runs", sizes, quartiles)],
        "loss over all rows",
        f"{counted(len(runs), 'run')} on {rows[0]:,} rows" + (f"; {seeds}" if seeds else ""),
    )


def _sizes(ax: Any, sizes: np.ndarray) -> None:
    """The axis of sizes: they are its ticks where there is room for their numbers."""
    span = np.log(sizes[-1] / sizes[0]) if len(sizes) > 1 else 1.0
    ax.set_xlim(sizes[0] * np.exp(-_MARGIN * span), sizes[-1] * np.exp(_MARGIN * span))
    log_axis(ax, "x")
    texts = [f"{size:,}" for size in sizes.tolist()]
    room = np.diff(np.log(sizes)) / (span * (1 + 2 * _MARGIN)) * points(ax)[0] * 0.8
    if len(sizes) <= _FEW and all(room >= _DIGIT * max(map(len, texts)) + 6):
        ax.set_xticks(sizes, texts)
        ax.set_xticks([], minor=True)
