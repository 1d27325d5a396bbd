"""The table of the fit: a line for each parameter, its interval also as a bar on one axis."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: Parameters that the table shows, and width of the bars' axis.
SHOWN, WIDTH = 100, 240


class Line(NamedTuple):
    """A parameter; where it has an interval, its place on the axis."""

    place: int
    name: str
    estimate: float
    error: float
    low: float
    high: float
    x: float
    left: float
    right: float
    clear: bool  # whether the interval leaves out 0


class Parameters(NamedTuple):
    """Lines of the table, the place of 0 on the axis, how many parameters there are, and by what some were chosen."""

    lines: list[Line]
    zero: float
    n_all: int
    chosen: str


def parameters_of(run: "Run") -> Parameters:
    """The parameters of a fit: all of them, or those furthest from 0."""
    fit = run.fit
    low, high = fit.confidence_interval()
    errors = fit.standard_errors
    known = bool(np.isfinite(errors).all())
    chosen, places = "", np.arange(len(fit.theta))
    if len(places) > SHOWN:
        sizes = np.abs(fit.theta) / np.where(errors > 0, errors, np.inf) if known else np.abs(fit.theta)
        chosen = "the furthest from 0 in standard errors" if known else "the furthest from 0"
        places = np.sort(np.argsort(-sizes, kind="stable")[:SHOWN])
    ends = np.concatenate([fit.theta[places], *((low[places], high[places]) if known else ()), [0.0]])
    first, last = float(np.nanmin(ends)), float(np.nanmax(ends))
    scale = WIDTH / ((last - first) or 1.0)

    def on_axis(value: float) -> float:
        return round((value - first) * scale, 2)

    names = fit.names
    lines = []
    for k in places.tolist():
        estimate, error, lower, upper = (float(array[k]) for array in (fit.theta, errors, low, high))
        left, right = (on_axis(lower), on_axis(upper)) if known else sorted((on_axis(0.0), on_axis(estimate)))
        clear = known and (lower > 0 or upper < 0)
        lines.append(Line(k, names[k], estimate, error, lower, upper, on_axis(estimate), left, right, clear))
    return Parameters(lines, on_axis(0.0), len(fit.theta), chosen)
