"""Histogram of scores."""

from typing import Any

import dask.array as da
import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.plots.log_bins import NONE, LogBins, bars, joined, log_bins
from dask_nlis.plots.palette import GREY, colour
from dask_nlis.plots.panel import check_axes, counted, headline, log_axis, panel, points, quiet
from dask_nlis.plots.rows import LARGEST, checked_number, each_block, one_a_row, rows_by_block
from dask_nlis.sample import Sample

#: Bars of a histogram, at most: each is made of several of the bins that were counted.
_MOST_BARS = 400

#: Where bars begin on their log axis: below one row.
_FLOOR = 0.6

#: Ratio of the largest score to the smallest below which all rows are one bar.
_NARROW = 1.05

#: Points across in which two names stand side by side.
_WIDE = 290


def scores(scores: Any, *, sample: Sample | None = None, bins: int = 60, ax: Any = None) -> Any:
    """Draw how the scores (n,) are distributed -> Axes. Reads the scores once, in blocks.

    A histogram on logarithmic axes; rows that score zero or are not finite are counted in the note above it. With a
    sample, the distinct rows that it drew are outlined on top: where the outline meets the bars, all rows were drawn.

    Rows are counted inside the tasks that compute the scores, in up to 4,096 bins over their range, of which each bar
    takes several: its count is exact. A block sends at most 64 kB, as much again for the drawn rows, and nothing of
    length n comes to the client.

    Parameters
    ----------
    scores : array_like of shape (n,)
        NumPy, Dask, Zarr, a path, pandas or xarray; >= 0, in any unit.
    sample : Sample, optional
        Rows drawn from these n rows.
    bins : int, default 60
        Bars, 1 to 400; fewer where there are not as many distinct scores.
    ax : matplotlib Axes, optional
        Where to draw; a new figure, unknown to pyplot, by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError, InputTypeError
        If scores are not (n,), one of them is negative or beyond 1e300, sample is of other rows, or an argument is not allowed.
    MissingExtraError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ax = nlis.plots.scores(np.array([0.0, 0.1, 0.2, 0.2, 0.5, 0.9]))
    >>> ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()
    ('log', 'score', 'rows')
    """
    array = one_a_row("scores", scores)
    n = array.shape[0]
    n_bars = checked_number("bins", bins, _MOST_BARS)
    if sample is not None and not isinstance(sample, Sample):
        raise InputTypeError(f"sample is {type(sample).__name__}; give the Sample that was drawn, or None")
    if sample is not None and sample.n_rows != n:
        raise InputError(
            f"sample is drawn from {sample.n_rows:,} rows, but there are {n:,} scores; give its own scores"
        )
    check_axes(ax)
    whole, drawn = _counted(array, sample)
    if whole.negative is not None:
        raise InputError(f"scores hold a negative value, first at row {whole.negative:,}; give scores >= 0")

    if whole.n_positive and whole.edges[-2] > LARGEST:
        raise InputError(f"scores hold values beyond {LARGEST:g}, which have no place; divide them by a power of two")

    ax = panel(ax)
    ax.set(xlabel="score", ylabel="rows")
    if whole.n_positive:
        _draw(ax, whole, drawn, n_bars, n, None if sample is None else len(sample))
    quiet(ax, "y")
    missing = [f"{counted(whole.n_zero, 'row')} of score zero"] if whole.n_zero else []
    missing += [f"{counted(whole.n_non_finite, 'row')} not finite"] if whole.n_non_finite else []
    headline(ax, f"Scores of {counted(n, 'row')}", [f"besides: {', '.join(missing)}"] if missing else [])
    return ax


def _draw(ax: Any, whole: LogBins, drawn: LogBins, n_bars: int, n: int, n_drawn: int | None) -> None:
    """Bars of all rows, and the outline of those drawn where there is a sample."""
    heights, edges = bars(whole, n_bars)
    if edges[-1] < _NARROW * edges[0]:
        heights, edges = np.array([heights.sum()]), edges[0] * np.array([1.0, _NARROW])
    ax.stairs(
        heights,
        edges,
        baseline=_FLOOR,
        fill=True,
        facecolor=(GREY, 0.5),
        edgecolor=GREY,
        linewidth=1,
        label=f"all {counted(n, 'row')}",
    )
    room = 1.5
    if n_drawn is not None:
        name = f"{counted(n_drawn, 'row')} drawn"
        ax.stairs(_heights(drawn, edges), edges, baseline=_FLOOR, color=colour(1), linewidth=1.6, label=name)
        side_by_side = points(ax)[0] > _WIDE
        room = 5.0 if side_by_side else 16.0
        columns = 2 if side_by_side else 1
        ax.legend(loc="upper left", ncols=columns, frameon=False, fontsize=9, handlelength=1.4, borderaxespad=0.1)
    ax.set(xlim=_limits(edges[0], edges[-1]), ylim=(_FLOOR, max(3.0, heights.max() * room)))
    log_axis(ax, "x")
    log_axis(ax, "y")


def _limits(low: float, high: float) -> tuple[float, float]:
    """A little more than from the first bar to the last, and two octaves at least."""
    first, last = np.log2([low, high])
    margin = max(0.02 * (last - first), 1 - (last - first) / 2)
    return float(np.exp2(max(first - margin, -1074))), float(np.exp2(min(last + margin, 1023)))


def _counted(array: da.Array, sample: Sample | None) -> tuple[LogBins, LogBins]:
    """Bins of all scores, and of those of the drawn rows, in one read."""
    found = [NONE, NONE]

    def add(answer: tuple[LogBins, LogBins]) -> None:
        found[:] = [joined(*pair) for pair in zip(found, answer, strict=True)]

    each_block(array, _block, add, rows_by_block(array, np.zeros(0, np.int64) if sample is None else sample.indices))
    return found[0], found[1]


def _block(values: np.ndarray, start: int, rows: np.ndarray) -> tuple[LogBins, LogBins]:
    return log_bins(values, start), log_bins(values[rows - start])


def _heights(bins: LogBins, edges: np.ndarray) -> np.ndarray:
    """Counts of some of the rows between edges of bins of all of them, whose bins are no finer."""
    heights = np.zeros(len(edges) - 1, dtype=np.int64)
    np.add.at(heights, np.searchsorted(edges, bins.edges[:-1], side="right") - 1, bins.counts)
    return heights
