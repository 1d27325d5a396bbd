"""Residual, leverage and weight of rows side by side: what one read of them finds."""

from typing import NamedTuple

import dask.array as da
import numpy as np

from dask_nlis.plots import cells as plane
from dask_nlis.plots.log_bins import NONE, LogBins, joined, log_bins
from dask_nlis.plots.rows import LARGEST, each_block

#: A row: its three numbers.
ROW = np.dtype([("residual", np.float64), ("leverage", np.float64), ("weight", np.float64)])


class Found(NamedTuple):
    """What one read finds: rows by |residual| sqrt(leverage), by cells where they are many, and those left out."""

    influence: LogBins
    cells: plane.Cells | None
    n_left_out: int
    bad: tuple[str, int] | None  # argument and row of the first value that is not allowed


_NOTHING = Found(NONE, None, 0, None)


def beside(r: da.Array, h: da.Array, w: da.Array | None) -> da.Array:
    """The three numbers of each row side by side, in one task a block."""
    given = [r, h] if w is None else [r, h, w]
    return da.map_blocks(_joined_block, *given, dtype=ROW, meta=np.empty(0, dtype=ROW), token="nlis-plot")  # noqa: S106 (a label of tasks)


def _joined_block(residual: np.ndarray, leverage: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    rows = np.empty(len(residual), dtype=ROW)
    rows["residual"], rows["leverage"], rows["weight"] = residual, leverage, 1.0 if weight is None else weight
    return rows


def read(rows: da.Array) -> Found:
    """What all blocks of rows side by side hold, each read once."""
    found = [_NOTHING]

    def add(part: Found) -> None:
        whole = found[0]
        found[0] = Found(
            joined(whole.influence, part.influence),
            plane.joined(whole.cells, part.cells),
            whole.n_left_out + part.n_left_out,
            whole.bad or part.bad,
        )

    each_block(rows, examined, add)
    return found[0]


def placed(rows: np.ndarray) -> np.ndarray:
    """Rows that have a place in the picture."""
    return rows[np.isfinite(rows["residual"]) & np.isfinite(rows["leverage"]) & (rows["leverage"] > 0)]


def influence_of(rows: np.ndarray) -> np.ndarray:
    """|residual| sqrt(leverage) of each row."""
    with np.errstate(over="ignore"):  # such a row lies beyond all curves
        return np.abs(rows["residual"]) * np.sqrt(rows["leverage"])


def examined(rows: np.ndarray, start: int, in_cells: bool = True) -> Found:
    """What a block of rows holds, the first of them being row `start`."""
    residual, leverage, weight = (rows[name] for name in ("residual", "leverage", "weight"))
    wrong = {
        "weights": ~((weight >= 0) & (weight <= LARGEST)),
        "leverage": (leverage < 0) | (np.isfinite(leverage) & (leverage > LARGEST)),
        "residuals": np.isfinite(residual) & (np.abs(residual) > LARGEST),
    }
    bad = next(((name, start + int(np.flatnonzero(at)[0])) for name, at in wrong.items() if at.any()), None)
    mine = placed(rows)
    return Found(
        log_bins(influence_of(mine), beside=mine["weight"]),
        plane.cells(mine["leverage"], mine["residual"], mine["weight"]) if in_cells and bad is None else None,
        len(rows) - len(mine),
        bad,
    )
