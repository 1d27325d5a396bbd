"""How scores of checkpoints serve later ones."""

from typing import Any

import numpy as np

from dask_nlis.diagnostics import Drift
from dask_nlis.errors import InputTypeError
from dask_nlis.plots.palette import colour, marker
from dask_nlis.plots.panel import headline, panel, quiet

#: What is drawn, in words.
_MEASURES = {
    "affinity": "affinity",
    "beta": "misestimation factor",
    "top_overlap": "shared top rows",
    "rank_correlation": "rank correlation",
}


def drift(drift: Drift, *, ax: Any = None) -> Any:
    """Draw how well scores at each checkpoint serve the last one -> Axes. No read.

    Four measures, 1 where nothing changed: affinity of the sampling probabilities, misestimation factor beta, share of
    the highest rows that both have, and rank correlation. A line each, against the number of the checkpoint.

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
    >>> [line.get_ydata().round(2).tolist() for line in ax.lines][1]
    [0.88, 0.94, 1.0]
    """
    if not isinstance(drift, Drift):
        raise InputTypeError(f"drift is {type(drift).__name__}; give the Drift that dask_nlis.drift returned")
    ax = panel(ax)
    last = len(drift.losses) - 1
    mine = np.flatnonzero(drift.pairs[:, 1] == last)
    mine = mine[np.argsort(drift.pairs[mine, 0], kind="stable")]
    at = np.append(drift.pairs[mine, 0], last)
    for k, name in enumerate(_MEASURES):
        values = np.append(getattr(drift, name)[mine], 1.0)
        ax.plot(at, values, color=colour(k), marker=marker(k), markersize=5, linewidth=2)
    low = min(0.0, float(np.nanmin([line.get_ydata() for line in ax.lines])))
    ax.set(xlabel="checkpoint", ylabel="agreement with the last", ylim=(low - 0.02, 1.03), xticks=at)
    quiet(ax)
    headline(ax, f"Scores of checkpoints against those of the last, by {drift.by}")
    return ax
