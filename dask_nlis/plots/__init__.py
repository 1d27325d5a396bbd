"""Pictures of scores, samples, fits and checkpoints: matplotlib Axes, made of at most one read of what is drawn.

Needs matplotlib (the extra `plot`), which is imported when a picture is drawn. Every function draws on the Axes it is
given or on a figure of its own, that pyplot knows nothing of: `plots.scores(scores).figure.savefig("scores.png")`.
"""

from dask_nlis.plots.drift import drift
from dask_nlis.plots.gallery import gallery
from dask_nlis.plots.lorenz import lorenz
from dask_nlis.plots.loss_against_size import loss_against_size
from dask_nlis.plots.residual_leverage import residual_leverage
from dask_nlis.plots.scores import scores

__all__ = ["drift", "gallery", "lorenz", "loss_against_size", "residual_leverage", "scores"]
