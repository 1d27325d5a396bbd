"""Pass 2: a tall matrix and its factor -> one score a row, one fused task a block."""

from dask_nlis.scores.blend import blend, lazy_mixture
from dask_nlis.scores.influence import gradient_lengths, influence_scores
from dask_nlis.scores.leverage import lazy_leverage, leverage_scores
from dask_nlis.scores.norms import lazy_norms, norm_scores

__all__ = [
    "blend",
    "gradient_lengths",
    "influence_scores",
    "lazy_leverage",
    "lazy_mixture",
    "lazy_norms",
    "leverage_scores",
    "norm_scores",
]
