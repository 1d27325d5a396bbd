"""Histogram of scores."""

from typing import Any

import numpy as np

from dask_nlis.blocks import starts
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.plots.log_bins import NONE, LogBins, histogram, joined, log_bins
from dask_nlis.plots.palette import GREY, colour
from dask_nlis.plots.panel import counted, headline, panel, quiet
from dask_nlis.plots.rows import checked_number, each_block, one_a_row
from dask_nlis.sample import Sample

#: Bars of a histogram, at most: each is made of several of the bins that were counted.
_MOST_BARS = 400


def scores(scores: Any, *, sample: Sample | None = None, bins: int = 60, ax: Any = None) -> Any:
    """Draw how the scores (n,) are distributed -> Axes. Reads the scores once, in blocks.

    A histogram, both axes logarithmic; rows that score zero or are not finite are counted in the note above it. With a
    sample, the distinct rows it drew are drawn on top: where their outline meets the bars, all rows were drawn.

    Scores are counted inside the tasks that compute them, in bins 0.1 % apart or finer where they span up to two
    octaves and so on in proportion; a block sends at most 48 kB and nothing of length n is held.

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
        If scores are not (n,), one of them is negative, sample is of other rows, or an argument is not allowed.
    ImportError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ax = nlis.plots.scores(np.array([0.0, 0.1, 0.2, 0.2, 0.5, 0.9]))
    >>> ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()
    ('log', 'score', 'rows')
    """
    array = one_a_row("scores", scores)
    n_bars = checked_number("bins", bins, _MOST_BARS)
    if sample is not None and not isinstance(sample, Sample):
        raise InputTypeError(f"sample is {type(sample).__name__}; give the Sample that was drawn, or None")
    n = array.shape[0]
    if sample is not None and sample.n_rows != n:
        raise InputError(
            f"sample is drawn from {sample.n_rows:,} rows, but there are {n:,} scores; give its own scores"
        )
    ax = panel(ax)
    whole, drawn = _counted(array, sample)
    if whole.negative is not None:
        raise InputError(f"scores hold a negative value, first at row {whole.negative:,}; give scores >= 0")
    ax.set(xlabel="score", ylabel="rows", xscale="log", yscale="log")
    quiet(ax)
    notes = []
    if whole.n_positive:
        heights, edges = histogram(whole, n_bars)
        ax.stairs(heights, edges, fill=True, color=GREY, alpha=0.55, label="all rows", baseline=0.5)
        if sample is not None and drawn.n_positive:
            ax.stairs(_at(drawn, edges), edges, color=colour(1), linewidth=1.8, label="drawn", baseline=0.5)
            notes.append(f"grey: all rows; line: the {len(sample):,} distinct rows drawn")
        ax.set_ylim(0.5, 2.0 * heights.max())
    missing = [f"{counted(whole.n_zero, 'row')} at zero"] if whole.n_zero else []
    missing += [f"{counted(whole.n_non_finite, 'row')} not finite"] if whole.n_non_finite else []
    notes += [f"not shown: {', '.join(missing)}"] if missing else []
    headline(ax, f"Scores of {counted(n, 'row')}", notes)
    return ax


def _counted(array: Any, sample: Sample | None) -> tuple[LogBins, LogBins]:
    """Bins of all scores, and of those of the drawn rows, in one read."""
    found = [NONE, NONE]

    def add(answer: tuple[LogBins, LogBins]) -> None:
        found[:] = [joined(*pair) for pair in zip(found, answer, strict=True)]

    rows = np.zeros(0, dtype=np.int64) if sample is None else sample.indices
    first = starts(array.chunks[0])
    cuts = np.searchsorted(rows, [*first.tolist(), array.shape[0]])[: array.numblocks[0] + 1]
    mine = {k: rows[cuts[k] : cuts[k + 1]] for k in range(array.numblocks[0])}
    each_block(array, _block, add, mine)
    return found[0], found[1]


def _block(values: np.ndarray, start: int, rows: np.ndarray) -> tuple[LogBins, LogBins]:
    return log_bins(values, start), log_bins(values[rows - start])


def _at(bins: LogBins, edges: np.ndarray) -> np.ndarray:
    """Counts of some of the rows between the edges of all."""
    low = bins.edges[:-1]
    return np.histogram(low, edges, weights=bins.counts)[0]
