"""Residuals against leverage."""

from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.plots import cells as plane
from dask_nlis.plots.log_bins import NONE, LogBins, beyond, joined, log_bins
from dask_nlis.plots.palette import COLOURS, colour
from dask_nlis.plots.panel import check_axes, counted, headline, log_axis, matplotlib, panel, plain, quiet
from dask_nlis.plots.rows import LABEL, each_block, one_a_row

#: Rows that are drawn as points; more are counted in cells.
_MOST_POINTS = 5_000

#: Points above which a picture of lines keeps them as pixels.
_MOST_SHAPES = 2_000

#: Shares of the rows that lie beyond the curves, and rows there are at least for the second.
_SHARES, _MANY = (0.1, 0.01), 500

#: Beyond it matplotlib cannot place anything.
_LARGEST = 1e300

#: What values may be.
_ALLOWED = {
    "weights": f"finite values from 0 to {_LARGEST:g}",
    "leverage": "values from 0 to 1, such as leverage_scores",
    "residuals": f"values up to {_LARGEST:g} either way",
}

_ROW = np.dtype([("residual", np.float64), ("leverage", np.float64), ("weight", np.float64)])


class Found(NamedTuple):
    """What one read finds: rows by |residual| sqrt(leverage), by cells where they are many, and those left out."""

    influence: LogBins
    cells: plane.Cells | None
    n_left_out: int
    bad: tuple[str, int] | None  # argument and row of the first value that is not allowed


_NOTHING = Found(NONE, None, 0, None)


def residual_leverage(
    residuals: Any, leverage: Any, *, weights: Any = None, label: str = "residual", ax: Any = None
) -> Any:
    """Draw residuals (n,) against leverage (n,) -> Axes. Reads each once, in blocks.

    Up to 5,000 rows are points, of an area in proportion to their weights; more are counted in cells. Curves of equal
    |residual| sqrt(leverage), to which the influence of a row on a least-squares fit is proportional, have a tenth of
    the rows beyond them, or of the weights where there are some, and a hundredth where there are 500 rows.

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
        If the arrays are not (n,) of one length, a leverage or a weight is negative, or no row has a place.
    ImportError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ax = nlis.plots.residual_leverage(np.array([0.1, -0.3, 0.2]), np.array([0.5, 0.2, 0.3]), label="residual, EUR")
    >>> ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()
    ('leverage', 'residual, EUR', 'log')
    """
    r = one_a_row("residuals", residuals)
    h = one_a_row("leverage", leverage, r)
    w = None if weights is None else one_a_row("weights", weights, r)
    if not isinstance(label, str):
        raise InputTypeError(f"label is {type(label).__name__}; give a text")
    check_axes(ax)
    n = r.shape[0]
    if n <= _MOST_POINTS:
        rows = np.concatenate(phase.blocks_of(_rows(r, h, w), LABEL))
        found = _block(rows, 0, False)
    else:
        rows, found = np.empty(0, dtype=_ROW), _read(_rows(r, h, w))
    if found.bad is not None:
        argument, row = found.bad
        raise InputError(
            f"{argument} hold a value that is not allowed, first at row {row:,}; give {_ALLOWED[argument]}"
        )
    if not found.influence.n_positive and (found.n_left_out == n):
        raise InputError("leverage is 0, or residuals or leverage are not finite, in all rows; check both")

    ax = panel(ax)
    note = _points(ax, rows, w is not None) if found.cells is None else _cells(ax, found.cells, w is not None)
    ax.axhline(0, color=matplotlib().rcParams["text.color"], alpha=0.5, linewidth=0.8)
    log_axis(ax, "x")
    _curves(ax, found.influence)
    ax.set_xlabel("leverage")
    ax.set_ylabel(label, parse_math=False)
    quiet(ax)
    left_out = f"left out: {counted(found.n_left_out, 'row')} of leverage 0 or not finite" if found.n_left_out else ""
    headline(ax, f"Residual and leverage of {counted(n, 'row')}", [note, left_out])
    return ax


def _rows(r: da.Array, h: da.Array, w: da.Array | None) -> da.Array:
    """The three numbers of each row side by side, in one task a block."""
    given = [r, h] if w is None else [r, h, w]
    return da.map_blocks(_beside, *given, dtype=_ROW, meta=np.empty(0, dtype=_ROW), token="nlis-plot")  # noqa: S106 (a label of tasks)


def _beside(residual: np.ndarray, leverage: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    rows = np.empty(len(residual), dtype=_ROW)
    rows["residual"], rows["leverage"], rows["weight"] = residual, leverage, 1.0 if weight is None else weight
    return rows


def _read(rows: da.Array) -> Found:
    found = [_NOTHING]

    def add(part: Found) -> None:
        whole = found[0]
        found[0] = Found(
            joined(whole.influence, part.influence),
            plane.joined(whole.cells, part.cells),
            whole.n_left_out + part.n_left_out,
            whole.bad or part.bad,
        )

    each_block(rows, _block, add)
    return found[0]


def _placed(rows: np.ndarray) -> np.ndarray:
    """Rows that have a place in the picture."""
    return rows[np.isfinite(rows["residual"]) & np.isfinite(rows["leverage"]) & (rows["leverage"] > 0)]


def _block(rows: np.ndarray, start: int, in_cells: bool = True) -> Found:
    residual, leverage, weight = (rows[name] for name in ("residual", "leverage", "weight"))
    wrong = {
        "weights": ~((weight >= 0) & (weight <= _LARGEST)),
        "leverage": (leverage < 0) | (np.isfinite(leverage) & (leverage > _LARGEST)),
        "residuals": np.isfinite(residual) & (np.abs(residual) > _LARGEST),
    }
    bad = next(((name, start + int(np.flatnonzero(rows)[0])) for name, rows in wrong.items() if rows.any()), None)
    mine = _placed(rows)
    with np.errstate(over="ignore"):  # such a row lies beyond all curves
        influence = np.abs(mine["residual"]) * np.sqrt(mine["leverage"])
    return Found(
        log_bins(influence, beside=mine["weight"]),
        plane.cells(mine["leverage"], mine["residual"], mine["weight"]) if in_cells and bad is None else None,
        len(rows) - len(mine),
        bad,
    )


def _points(ax: Any, rows: np.ndarray, weighted: bool) -> str:
    mine = _placed(rows)
    area = np.full(len(mine), 14.0)
    if weighted and mine["weight"].any():
        area *= np.clip(mine["weight"] / np.median(mine["weight"][mine["weight"] > 0]), 0.2, 12.0)
    ax.scatter(
        mine["leverage"], mine["residual"], s=area, color=colour(0), alpha=0.55, linewidths=0,
        rasterized=len(mine) > _MOST_SHAPES,
    )  # fmt: skip
    return "area of a point: the rows it stands for" if weighted else ""


def _cells(ax: Any, found: plane.Cells, weighted: bool) -> str:
    mpl = matplotlib()
    faint = mpl.colors.LinearSegmentedColormap.from_list("rows", [(COLOURS[0], 0.22), (COLOURS[0], 1.0)])
    shown = np.ma.masked_equal(found.sums.T, 0)
    most = float(found.sums.max())
    scale = mpl.colors.LogNorm(float(shown.min()), most) if most > shown.min() else None
    ax.pcolormesh(found.across, found.up, shown, cmap=faint, norm=scale, rasterized=True, linewidth=0)
    return f"stronger colour: more {'weight' if weighted else 'rows'} in a cell, up to {plain(float(f'{most:.3g}'))}"


def _curves(ax: Any, influence: LogBins) -> None:
    """Curves of equal |residual| sqrt(leverage), named where they leave the picture."""
    if not influence.sums.any():
        return
    low, high = ax.get_xlim()
    bottom, top = ax.get_ylim()
    for k, share in enumerate(_SHARES if influence.n_positive >= _MANY else _SHARES[:1]):
        at = np.geomspace(low, high, 200)
        residual = beyond(influence, share) / np.sqrt(at)
        for side in (residual, -residual):
            ax.plot(at, side, color=colour(1), linewidth=1.4, linestyle="-" if k else (0, (5, 2)))
        end = float(residual[-1])
        if bottom < end < top:
            ax.annotate(
                f"{share:.0%}", (high, end), (5, 0), "data", "offset points", color=colour(1), va="center", fontsize=9,
                annotation_clip=False,
            )  # fmt: skip
    ax.set(xlim=(low, high), ylim=(bottom, top))
