"""Residuals against leverage."""

import itertools
import math
from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.plots import cells as plane
from dask_nlis.plots.log_bins import LogBins, beyond
from dask_nlis.plots.palette import COLOURS, colour
from dask_nlis.plots.panel import (
    check_axes,
    counted,
    headline,
    ink,
    log_axis,
    matplotlib,
    panel,
    plain,
    plain_axis,
    points,
    quiet,
    short,
)
from dask_nlis.plots.row_influence import ROW, beside, examined, influence_of, placed, read
from dask_nlis.plots.rows import LABEL, LARGEST, one_a_row

#: Rows that are drawn as points; more are counted in cells.
_MOST_POINTS = 5_000

#: Area of a point in square points, and how much smaller or larger weights make it.
_AREA, _AREAS = 14.0, (0.5, 10.0)

#: Areas are rounded to powers of it.
_STEP = 1.2

#: Points above which a picture of lines keeps them as pixels.
_MOST_SHAPES = 1_500

#: Shares of the rows that lie beyond the curves, and rows there are at least for the second.
_SHARES, _MANY = (0.1, 0.01), 500

#: What values may be.
_ALLOWED = {
    "weights": f"finite values from 0 to {LARGEST:g}",
    "leverage": "values from 0 to 1, such as leverage_scores",
    "residuals": f"values up to {LARGEST:g} either way",
}


def residual_leverage(
    residuals: Any, leverage: Any, *, weights: Any = None, label: str = "residual", ax: Any = None
) -> Any:
    """Draw residuals (n,) against leverage (n,) -> Axes. Reads each once, in blocks.

    Up to 5,000 rows are points, of an area in proportion to their weights (to a tenth; from half of the usual area to ten
    times as much); more are counted in cells. Curves of equal |residual| sqrt(leverage), to which the influence of a row
    on a least-squares fit is proportional, have a tenth of the rows beyond them, or of the weights where there are some,
    and a hundredth where there are 500 rows.

    Rows are counted inside the tasks that compute them: a block sends at most 140 kB, and nothing of length n comes to
    the client where there are more than 5,000.

    Parameters
    ----------
    residuals : array_like of shape (n,)
        NumPy, Dask, Zarr, a path, pandas or xarray; of any sign and unit.
    leverage : array_like of shape (n,)
        `leverage_scores` of the same rows, >= 0; rows of leverage 0 have no place and are counted in the note.
    weights : array_like of shape (n,), optional
        How many rows each stands for, such as `Sample.weights`; >= 0.
    label : str, default "residual"
        What the residuals are, with their unit.
    ax : matplotlib Axes, optional
        Where to draw; a new figure, unknown to pyplot, by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError, InputTypeError
        If the arrays are not (n,) of one length, a leverage or a weight is negative, or no row with a weight has a
        place.
    MissingExtraError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ax = nlis.plots.residual_leverage(np.array([0.1, -0.3, 0.2]), np.array([0.5, 0.2, 0.3]), label="residual, EUR")
    >>> ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()
    ('leverage', 'residual, EUR', 'log')
    """
    r = one_a_row("residuals", residuals)
    h = one_a_row("leverage", leverage, r, "residuals")
    w = None if weights is None else one_a_row("weights", weights, r, "residuals")
    if not isinstance(label, str):
        raise InputTypeError(f"label is {type(label).__name__}; give a text")
    check_axes(ax)
    n = r.shape[0]
    if n <= _MOST_POINTS:
        rows = np.concatenate(phase.blocks_of(beside(r, h, w), LABEL))
        found = examined(rows, 0, False)
    else:
        rows, found = np.empty(0, dtype=ROW), read(beside(r, h, w))
    if found.bad is not None:
        argument, row = found.bad
        raise InputError(
            f"{argument} hold a value that is not allowed, first at row {row:,}; give {_ALLOWED[argument]}"
        )
    if found.n_left_out == n:
        raise InputError("leverage is 0, or residuals or leverage are not finite, in all rows; check both")
    if not (placed(rows)["weight"] if found.cells is None else found.cells.sums).any():
        raise InputError("weights are 0 in all rows that have a place; give those of the sample, or None")

    ax = panel(ax)
    if found.cells is None:
        note = _points(ax, rows, w is not None, found.influence)
    else:
        note = _cells(ax, found.cells, w is not None)
    ax.axhline(0, color=ink(), alpha=0.5, linewidth=0.8)
    log_axis(ax, "x")
    curves = _curves(ax, found.influence)
    plain_axis(ax.yaxis)
    ax.set_xlabel("leverage")
    ax.set_ylabel(short(label, points(ax)[1] / 0.8), parse_math=False)
    quiet(ax)
    left_out = f"left out: {counted(found.n_left_out, 'row')} of leverage 0 or not finite" if found.n_left_out else ""
    headline(ax, "Residuals against leverage", [f"{counted(n, 'row')}; {note}".removesuffix("; "), curves, left_out])
    return ax


def _points(ax: Any, rows: np.ndarray, weighted: bool, influence: LogBins) -> str:
    """Points, those beyond the outermost curve in its colour."""
    mine = placed(rows)
    level = np.zeros(len(mine), dtype=np.int64)
    if weighted:
        relative = mine["weight"] / np.median(mine["weight"][mine["weight"] > 0])
        level = np.rint(np.log(np.clip(relative, *_AREAS)) / np.log(_STEP)).astype(np.int64)
    outside = np.zeros(len(mine), dtype=bool)
    if influence.sums.any():
        outside = influence_of(mine) > beyond(influence, _shares(influence)[-1])
    # Large points, which stand for many rows, first. Points of one size are one shape in a picture of lines.
    for which, size in itertools.product((0, 1), np.unique(level)[::-1]):
        chosen = (outside == which) & (level == size)
        if chosen.any():
            ax.scatter(
                mine["leverage"][chosen], mine["residual"][chosen], s=_AREA * _STEP**size, color=colour(which),
                alpha=(0.5, 0.9)[which], linewidths=0, rasterized=len(mine) > _MOST_SHAPES,
            )  # fmt: skip
    return "area of a point: rows it stands for" if weighted else ""


def _cells(ax: Any, found: plane.Cells, weighted: bool) -> str:
    mpl = matplotlib()
    faint = mpl.colors.LinearSegmentedColormap.from_list("rows", [(COLOURS[0], 0.22), (COLOURS[0], 1.0)])
    shown = np.ma.masked_equal(found.sums.T, 0)
    most = float(found.sums.max())
    scale = mpl.colors.LogNorm(float(shown.min()), most) if most > shown.min() else None
    ax.pcolormesh(found.across, found.up, shown, cmap=faint, norm=scale, rasterized=True, linewidth=0)
    left, right = found.across[[0, -1]].tolist()
    bottom, top = found.up[[0, -1]].tolist()
    margin = (right / left) ** 0.03
    ax.set(xlim=(left / margin, right * margin), ylim=(bottom - 0.03 * (top - bottom), top + 0.03 * (top - bottom)))
    return f"stronger colour: more {'weight' if weighted else 'rows'} in a cell, up to {plain(float(f'{most:.3g}'))}"


def _shares(influence: LogBins) -> tuple[float, ...]:
    return _SHARES if influence.n_positive >= _MANY else _SHARES[:1]


def _curves(ax: Any, influence: LogBins) -> str:
    """Curves of equal |residual| sqrt(leverage), named where they come into the picture; returns what they are."""
    if not influence.sums.any():
        return ""
    low, high = ax.get_xlim()
    bottom, top = ax.get_ylim()
    at = np.geomspace(low, high, 200)
    shares = _shares(influence)
    above = math.inf  # where the curve before comes in
    for share in reversed(shares):
        edge = beyond(influence, share)
        for side in (1, -1):
            style = (0, (5, 2)) if share == _SHARES[0] else "-"
            ax.plot(at, side * edge / np.sqrt(at), color=colour(1), linewidth=1.4, linestyle=style)
        enters = low if edge / np.sqrt(low) < top else (edge / top) ** 2
        if edge > 0 < top and enters < high:
            height = edge / np.sqrt(enters)
            close = (above - height) / (top - bottom) * points(ax)[1] < 14
            offset, va = ((7, -1), "top") if enters > low else ((5, -3), "top") if close else ((5, 3), "bottom")
            ax.annotate(_percent(share), (enters, height), offset, "data", "offset points", va=va, fontsize=9)
            above = height if enters == low else math.inf
    ax.set(xlim=(low, high), ylim=(bottom, top))
    return f"beyond the curves: {' and '.join(map(_percent, shares))}, by |residual| √leverage"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
