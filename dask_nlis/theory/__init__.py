"""What the theory promises, corrected: misestimation factors, sample sizes, bounds of the loss."""

from dask_nlis.theory.active_learning import active_learning_size
from dask_nlis.theory.loss_bounds import excess_loss_bound, lipschitz_bound
from dask_nlis.theory.misestimation import (
    measured_misestimation_factor,
    misestimation_factor,
    norm_misestimation_factor,
)
from dask_nlis.theory.size import SampleSize
from dask_nlis.theory.sizes import log_net_size, sample_size
from dask_nlis.theory.slopes import slope_bounds

__all__ = [
    "SampleSize",
    "active_learning_size",
    "excess_loss_bound",
    "lipschitz_bound",
    "log_net_size",
    "measured_misestimation_factor",
    "misestimation_factor",
    "norm_misestimation_factor",
    "sample_size",
    "slope_bounds",
]
