"""Importance sampling for nonlinear models on data sets too large for memory.

Five words: matrix -> scores -> draw -> take -> refit; `run` does them as one job.
"""

from dask_nlis import datasets
from dask_nlis.activations import (
    Arctan,
    Cos,
    Elu,
    Exp,
    Gelu,
    Identity,
    LeakyRelu,
    Logistic,
    Probit,
    Relu,
    Sin,
    Softplus,
    SquaredRelu,
    Swish,
    Tanh,
)
from dask_nlis.constraints import AmplitudeBand, Ball, Box, HalfSpaces, Intersection
from dask_nlis.diagnostics import RowTable, bottom_rows, top_rows, total_loss
from dask_nlis.errors import (
    ClusterError,
    ConvergenceWarning,
    DataConversionWarning,
    DeviceError,
    IdentityResidualError,
    IncompleteRunError,
    InputError,
    InputTypeError,
    MatrixMismatchError,
    MissingDataError,
    NlisError,
    NlisWarning,
    NonFiniteError,
    NotHomogeneousError,
    PerformanceWarning,
    RankAmbiguityWarning,
    ScaleWarning,
    StoreExistsError,
    ZeroLossSingularityError,
)
from dask_nlis.factor import Factor, factorize
from dask_nlis.intake import Standardization, Standardized, open_rows, standardize
from dask_nlis.losses import (
    AbsoluteError,
    CustomLoss,
    Huber,
    LogisticLoss,
    PoissonDeviance,
    PseudoHuber,
    SquaredError,
)
from dask_nlis.matrix import TallMatrix, dual_matrix, reference_matrix
from dask_nlis.models import DeepReluNetwork, Homogeneous, Linear, Numerical, ReluNetwork, SingleIndex
from dask_nlis.pipeline import Run, open_run, pilot, run
from dask_nlis.problem import Problem
from dask_nlis.refit import Fit, refit
from dask_nlis.sample import Sample, concat, pool
from dask_nlis.sampling import draw
from dask_nlis.scores import leverage_scores, norm_scores

__version__ = "0.1.0"

__all__ = [
    "AbsoluteError",
    "AmplitudeBand",
    "Arctan",
    "Ball",
    "Box",
    "ClusterError",
    "ConvergenceWarning",
    "Cos",
    "CustomLoss",
    "DataConversionWarning",
    "DeepReluNetwork",
    "DeviceError",
    "Elu",
    "Exp",
    "Factor",
    "Fit",
    "Gelu",
    "HalfSpaces",
    "Homogeneous",
    "Huber",
    "Identity",
    "IdentityResidualError",
    "IncompleteRunError",
    "InputError",
    "InputTypeError",
    "Intersection",
    "LeakyRelu",
    "Linear",
    "Logistic",
    "LogisticLoss",
    "MatrixMismatchError",
    "MissingDataError",
    "NlisError",
    "NlisWarning",
    "NonFiniteError",
    "NotHomogeneousError",
    "Numerical",
    "PerformanceWarning",
    "PoissonDeviance",
    "Probit",
    "Problem",
    "PseudoHuber",
    "RankAmbiguityWarning",
    "Relu",
    "ReluNetwork",
    "RowTable",
    "Run",
    "Sample",
    "ScaleWarning",
    "Sin",
    "SingleIndex",
    "Softplus",
    "SquaredError",
    "SquaredRelu",
    "Standardization",
    "Standardized",
    "StoreExistsError",
    "Swish",
    "TallMatrix",
    "Tanh",
    "ZeroLossSingularityError",
    "bottom_rows",
    "concat",
    "datasets",
    "draw",
    "dual_matrix",
    "factorize",
    "leverage_scores",
    "norm_scores",
    "open_rows",
    "open_run",
    "pilot",
    "pool",
    "reference_matrix",
    "refit",
    "run",
    "standardize",
    "top_rows",
    "total_loss",
]
