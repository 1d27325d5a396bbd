"""How scores of checkpoints serve later ones."""

from typing import Any

import numpy as np

from dask_nlis.diagnostics import Drift
from dask_nlis.errors import InputTypeError
from dask_nlis.plots.palette import colour, marker
from dask_nlis.plots.panel import check_axes, headline, name_lines, panel, plain, quiet

#: What is drawn, in words.
_MEASURES = {
    "affinity": "affinity",
    "rank_correlation": "rank correlation",
    "top_overlap": "shared top rows",
    "beta": "beta",
}


def drift(drift: Drift, *, ax: Any = None) -> Any:
    """Draw how well scores at each checkpoint serve later ones -> Axes. No read.

    Four measures, 1 where nothing changed: affinity of the sampling probabilities, rank correlation, share of the
    highest rows that both have, and the misestimation factor beta (a sample by the earlier scores is as good as one of
    beta times its size by the later ones). Solid lines: against the last checkpoint; dotted ones: against the next.

    Parameters
    ----------
    drift : Drift
        What `dask_nlis.drift` returned.
    ax : matplotlib Axes, optional
        Where to draw; a new figure, unknown to pyplot, by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputTypeError
        If drift is no Drift.
    MissingExtraError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    >>> X, y = np.arange(12.0).reshape(6, 2) / 10, np.array([0.1, 0.9, 0.2, 0.8, 0.3, 0.7])
    >>> found = nlis.drift(problem, X, y, [[0, 0, 0], [0.5, 0, 0], [0.6, 0.1, 0]], by="norm", top=3)
    >>> ax = nlis.plots.drift(found)
    >>> {line.get_label(): line.get_ydata().round(2).tolist() for line in ax.lines}["beta, last"]
    [0.88, 0.94]
    """
    if not isinstance(drift, Drift):
        raise InputTypeError(f"drift is {type(drift).__name__}; give the Drift that dask_nlis.drift returned")
    check_axes(ax)
    ax = panel(ax)
    last = len(drift.losses) - 1
    to_last = _pairs(drift, drift.pairs[:, 1] == last)
    to_next = _pairs(drift, drift.pairs[:, 1] - drift.pairs[:, 0] == 1)
    solid = []
    for k, (field, name) in enumerate(_MEASURES.items()):
        values = getattr(drift, field)
        look = {"color": colour(k), "marker": marker(k)}
        if last > 1:
            at = drift.pairs[to_next, 0]
            ax.plot(at, values[to_next], label=f"{name}, next", linestyle=":", linewidth=1.3, markersize=3, **look)
        at = drift.pairs[to_last, 0]
        solid += ax.plot(at, values[to_last], label=f"{name}, last", linewidth=2, markersize=5.5, **look)
    lowest = min(float(np.nanmin([*getattr(drift, field), 1.0])) for field in _MEASURES)
    low = np.floor(10 * lowest - 0.5) / 10
    ax.set(
        xlabel="checkpoint where rows were scored", ylabel="agreement (1: the same)", ylim=(low, 1 + 0.04 * (1 - low))
    )
    ax.set_xlim(-0.06 * max(last - 1, 1), last - 1 + 0.06 * max(last - 1, 1))
    ax.xaxis.get_major_locator().set_params(integer=True)
    quiet(ax)
    name_lines(ax, list(_MEASURES.values()), solid)
    which = "solid: agreement with the last checkpoint; dotted: with the next" if last > 1 else ""
    losses = f"loss over all rows from {plain(_rounded(drift.losses[0]))} to {plain(_rounded(drift.losses[-1]))}"
    headline(ax, f"Drift of {drift.by} scores", [which, losses])
    return ax


def _pairs(drift: Drift, chosen: np.ndarray) -> np.ndarray:
    """Positions of some pairs in the order of their earlier checkpoint."""
    found = np.flatnonzero(chosen)
    return found[np.argsort(drift.pairs[found, 0], kind="stable")]


def _rounded(loss: float) -> float:
    return float(f"{loss:.4g}")
