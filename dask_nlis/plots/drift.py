"""How scores of checkpoints serve later ones."""

from typing import Any

import numpy as np

from dask_nlis.diagnostics import Drift
from dask_nlis.errors import InputTypeError
from dask_nlis.plots.palette import colour, marker
from dask_nlis.plots.panel import check_axes, headline, name_at_end, panel, quiet

#: What is drawn, in words.
_MEASURES = {
    "affinity": "affinity",
    "rank_correlation": "rank correlation",
    "top_overlap": "shared top rows",
    "beta": "beta",
}

#: Checkpoints whose losses fit below the axis.
_FEW = 8


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
    ImportError
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
    for k, (field, name) in enumerate(_MEASURES.items()):
        values = getattr(drift, field)
        look = {"color": colour(k), "marker": marker(k)}
        if last > 1:
            at = drift.pairs[to_next, 0]
            ax.plot(at, values[to_next], label=f"{name}, next", linestyle=":", linewidth=1.3, markersize=3, **look)
        ax.plot(drift.pairs[to_last, 0], values[to_last], label=f"{name}, last", linewidth=2, markersize=5.5, **look)
    low = min(0.0, float(np.nanmin([*drift.rank_correlation, 0.0])))
    low, high = low - 0.03, 1.04
    ax.set(xlabel="checkpoint where rows were scored", ylabel="agreement", ylim=(low, high))
    ax.set_xticks(range(last), _ticks(drift) if last <= _FEW else None)
    quiet(ax)
    ends = np.nan_to_num([getattr(drift, field)[to_last[-1]] for field in _MEASURES], nan=low)
    name_at_end(ax, list(_MEASURES.values()), ((ends - low) / (high - low)).tolist(), [colour(k) for k in range(4)])
    what = "solid: with the last checkpoint; dotted: with the next" if last > 1 else ""
    headline(ax, f"How scores by {drift.by} serve later checkpoints", [what])
    return ax


def _pairs(drift: Drift, chosen: np.ndarray) -> np.ndarray:
    """Positions of some pairs in the order of their earlier checkpoint."""
    found = np.flatnonzero(chosen)
    return found[np.argsort(drift.pairs[found, 0], kind="stable")]


def _ticks(drift: Drift) -> list[str]:
    """Checkpoints and their losses."""
    return [f"{k}\n{'loss ' if k == 0 else ''}{loss:.3g}" for k, loss in enumerate(drift.losses[:-1])]
