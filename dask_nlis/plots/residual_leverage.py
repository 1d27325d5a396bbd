"""Residuals against leverage."""

from typing import Any

from dask_nlis import phase
from dask_nlis.plots.palette import colour
from dask_nlis.plots.panel import headline, panel, quiet
from dask_nlis.plots.rows import LABEL, one_a_row


def residual_leverage(
    residuals: Any, leverage: Any, *, weights: Any = None, label: str = "residual", ax: Any = None
) -> Any:
    """Draw residuals (n,) against leverage (n,) -> Axes. Reads each once.

    Parameters
    ----------
    residuals : array_like of shape (n,)
        In any unit.
    leverage : array_like of shape (n,)
        In [0, 1].
    weights : array_like of shape (n,), optional
        Of the rows.
    label : str, default "residual"
        Name of the residuals, for their axis.
    ax : matplotlib Axes, optional
        Where to draw; a new figure, unknown to pyplot, by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError, InputTypeError
        If they are not (n,).
    ImportError
        Without matplotlib.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> ax = nlis.plots.residual_leverage(np.array([0.1, -0.3, 0.2]), np.array([0.5, 0.2, 0.3]))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('leverage', 'residual')
    """
    r = one_a_row("residuals", residuals)
    h = one_a_row("leverage", leverage, r)
    ax = panel(ax)
    ax.scatter(phase.computed(h, LABEL), phase.computed(r, LABEL), s=9, color=colour(0), alpha=0.5, linewidths=0)
    ax.set(xscale="log", xlabel="leverage", ylabel=label)
    quiet(ax)
    headline(ax, "Residuals against leverage")
    return ax
