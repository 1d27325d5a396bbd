"""Pass 2: a tall matrix (and its factor) -> one score a row, one fused task a block."""

from dask_nlis.scores.blend import Share, blend, checked_shares, mixture_scorer
from dask_nlis.scores.cross import cross_leverage_scores
from dask_nlis.scores.deletion import lazy_deletion
from dask_nlis.scores.influence import gradient_lengths, influence_scorer, influence_scores
from dask_nlis.scores.leverage import check_factor, lazy_leverage, leverage_block, leverage_scorer, leverage_scores
from dask_nlis.scores.losses import check_has_loss, lazy_losses, loss_scores
from dask_nlis.scores.norms import lazy_norms, norm_block, norm_scorer, norm_scores
from dask_nlis.scores.scorer import Scorer, lazy_scores

__all__ = [
    "Scorer",
    "Share",
    "blend",
    "check_factor",
    "check_has_loss",
    "checked_shares",
    "cross_leverage_scores",
    "gradient_lengths",
    "influence_scorer",
    "influence_scores",
    "lazy_deletion",
    "lazy_leverage",
    "lazy_losses",
    "lazy_norms",
    "lazy_scores",
    "leverage_block",
    "leverage_scorer",
    "leverage_scores",
    "loss_scores",
    "mixture_scorer",
    "norm_block",
    "norm_scorer",
    "norm_scores",
]
