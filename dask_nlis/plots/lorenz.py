"""Lorenz curve of scores."""

import math
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import InputError, NonFiniteError
from dask_nlis.plots.log_bins import NONE, LogBins, joined, log_bins
from dask_nlis.plots.palette import colour
from dask_nlis.plots.panel import check_axes, counted, headline, ink, panel, plain, quiet
from dask_nlis.plots.rows import each_block, one_a_row


class Curve(NamedTuple):
    """Points of a Lorenz curve and what is read off it."""

    rows: np.ndarray  # share of the rows, lowest scores first
    carried: np.ndarray  # share of the sum that these rows carry
    gini: float
    half: float  # smallest share of the rows, highest scores first, that carries half of the sum

    def points(self, most: int = 500) -> tuple[np.ndarray, np.ndarray]:
        """Points of the curve for a picture: so many at most, as far apart along it as can be."""
        along = self.rows + self.carried
        place = np.unique(np.searchsorted(along, np.linspace(0, along[-1], most)).clip(max=len(along) - 1))
        return self.rows[place], self.carried[place]


def lorenz(scores: Any, *, ax: Any = None) -> Any:
    """Draw which share of the sum of the scores (n,) which share of the rows carries -> Axes. Reads them once, in blocks.

    The Lorenz curve, rows in ascending order of their scores, with the Gini coefficient (0: all scores are equal;
    near 1: few rows carry everything) and the share of the rows that carries half of the sum. Rows that score zero
    count; rows that are not finite do not, and the note tells how many.

    Scores are summed inside the tasks that compute them, in up to 4,096 bins over their range. Those in one bin count as
    equal, which lowers the coefficient by at most a quarter of a bin's relative width: 0.002 where scores span twenty
    octaves, and in practice far less. A block sends at most 64 kB, and nothing of length n comes to the client.

    Parameters
    ----------
    scores : array_like of shape (n,)
        NumPy, Dask, Zarr, a path, pandas or xarray; >= 0, in any unit.
    ax : matplotlib Axes, optional
        Where to draw; a new figure, unknown to pyplot, by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError, InputTypeError
        If scores are not (n,), one of them is negative, or none is positive.
    NonFiniteError
        If their sum is above the largest float64.
    MissingExtraError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ax = nlis.plots.lorenz(np.array([1.0, 1.0, 1.0, 5.0]))
    >>> print(ax.texts[-1].get_text())
    Gini coefficient 0.38
    """
    array = one_a_row("scores", scores)
    check_axes(ax)
    bins = _summed(array)
    if bins.negative is not None:
        raise InputError(f"scores hold a negative value, first at row {bins.negative:,}; give scores >= 0")
    if not bins.n_positive:
        raise InputError(
            f"scores hold no positive finite value in {array.shape[0]:,} rows; check the matrix behind them"
        )
    found, n = curve_of(bins), bins.n_zero + bins.n_positive
    ax = panel(ax, 5.2, 4.8)
    blue, orange = colour(0), colour(1)
    ax.plot([0, 1], [0, 1], color=ink(), alpha=0.45, linewidth=1, linestyle=(0, (4, 3)), label="equal scores")
    rows, carried = found.points()
    ax.plot(rows, carried, color=blue, linewidth=2.2, solid_capstyle="round", label="scores")
    ax.fill_between(rows, carried, rows, color=blue, alpha=0.14, linewidth=0)
    corner = 1 - found.half
    ax.plot([corner, corner, 1], [0, 0.5, 0.5], color=orange, linewidth=1.3, label="half of the sum")
    ax.plot([corner], [0.5], color=orange, marker="o", markersize=6, clip_on=False)
    ax.text(
        0.3, 0.31, "if all scores were equal", rotation=45, rotation_mode="anchor", transform_rotates_text=True,
        va="bottom", fontsize=8.5, alpha=0.75,
    )  # fmt: skip
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="share of rows, lowest scores first", ylabel="share of the sum of scores")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    quiet(ax)
    ax.text(0.05, 0.93, f"Gini coefficient {found.gini:.2f}", va="top", fontsize=10.5)
    left_out = f"{counted(bins.n_non_finite, 'row')} not finite, left out" if bins.n_non_finite else ""
    headline(ax, f"{_percent(_whole(found.half, n))} of rows carry half the sum", [left_out])
    return ax


def _whole(share: float, n: int) -> float:
    """A share as one of whole rows."""
    return math.ceil(share * n * (1 - 1e-9)) / n


def _percent(share: float) -> str:
    """A share as a percentage with two digits, also of the smallest."""
    return f"{plain(float(f'{100 * share:.2g}'))} %"


def _summed(array: Any) -> LogBins:
    found = [NONE]

    def add(part: LogBins) -> None:
        found[0] = joined(found[0], part)

    each_block(array, log_bins, add)
    return found[0]


def curve_of(bins: LogBins) -> Curve:
    """The curve of binned scores: straight within a bin, where all scores count as equal."""
    with np.errstate(over="ignore"):
        total = bins.sums.sum()
    if not np.isfinite(total):
        raise NonFiniteError("scores have a sum above the largest float64; divide them by a power of two")
    n = bins.n_zero + bins.counts.sum()
    held = bins.counts > 0
    rows = np.concatenate([[0.0, bins.n_zero / n], (bins.n_zero + np.cumsum(bins.counts[held])) / n])
    carried = np.concatenate([[0.0, 0.0], np.cumsum(bins.sums[held]) / total])
    carried[-1] = 1.0
    # Twice the area between the diagonal and the curve.
    gini = 1 - float(np.sum(np.diff(rows) * (carried[1:] + carried[:-1])))
    return Curve(rows, carried, gini, 1 - float(np.interp(0.5, carried, rows)))
