"""Importance sampling for nonlinear models on data sets too large for memory.

Five words: matrix -> scores -> draw -> take -> refit; `run` does them as one job.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dask_nlis import cluster, datasets
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
from dask_nlis.adapters import (
    Encoded,
    Encoding,
    JaxModel,
    TorchModel,
    XarrayRows,
    from_dataframe,
    from_jax,
    from_sklearn,
    from_torch,
    from_xarray,
    ingest,
)
from dask_nlis.constraints import AmplitudeBand, Ball, Box, HalfSpaces, Intersection
from dask_nlis.diagnostics import (
    Certificate,
    Comparison,
    Drift,
    RowTable,
    Sandwich,
    bottom_rows,
    certificate,
    compare,
    drift,
    sandwich,
    suspects,
    top_rows,
    total_loss,
)
from dask_nlis.errors import (
    ChangedDataError,
    ClusterError,
    ConvergenceWarning,
    DamagedDataError,
    DataConversionWarning,
    DeadlineError,
    DeviceError,
    FingerprintMismatchError,
    IdentityResidualError,
    IncompleteRunError,
    InputError,
    InputTypeError,
    MatrixMismatchError,
    MemoryLimitError,
    MissingDataError,
    MissingDataWarning,
    MissingExtraError,
    NlisError,
    NlisWarning,
    NonFiniteError,
    NotHomogeneousError,
    NotWritableError,
    PerformanceWarning,
    RankAmbiguityWarning,
    ReadError,
    ScaleWarning,
    StoreExistsError,
    StoreLockedError,
    StoreWriteError,
    UnderdeterminedWarning,
    ZeroLossSingularityError,
)
from dask_nlis.factor import Factor, factorize
from dask_nlis.fitted import FittedModel
from dask_nlis.intake import Standardization, Standardized, open_rows, standardize
from dask_nlis.losses import (
    AbsoluteError,
    CustomLoss,
    Huber,
    LogisticLoss,
    PoissonDeviance,
    PseudoHuber,
    SoftmaxLoss,
    SquaredError,
)
from dask_nlis.matrix import TallMatrix, dual_matrix, reference_matrix, tangent_matrix
from dask_nlis.models import (
    DeepReluNetwork,
    Homogeneous,
    LayerStack,
    Linear,
    MultilayerPerceptron,
    Numerical,
    ReluNetwork,
    SingleIndex,
)
from dask_nlis.monitor import monitor
from dask_nlis.pipeline import Run, extend, open_run, pilot, plan, run
from dask_nlis.planner import Plan
from dask_nlis.problem import Problem
from dask_nlis.refit import Fit, refit, refit_with
from dask_nlis.report import Report
from dask_nlis.sample import Sample, concat, pool
from dask_nlis.sampling import draw
from dask_nlis.scores import (
    blend,
    cross_leverage_scores,
    influence_scores,
    leverage_scores,
    loss_scores,
    norm_scores,
)
from dask_nlis.theory import (
    SampleSize,
    active_learning_size,
    excess_loss_bound,
    lipschitz_bound,
    log_net_size,
    measured_misestimation_factor,
    misestimation_factor,
    norm_misestimation_factor,
    sample_size,
)

if TYPE_CHECKING:
    from dask_nlis import plots
    from dask_nlis.adapters.leverage_sampler import NonlinearLeverageSampler

__version__ = "0.1.0"

__all__ = [
    "AbsoluteError",
    "AmplitudeBand",
    "Arctan",
    "Ball",
    "Box",
    "Certificate",
    "ChangedDataError",
    "ClusterError",
    "Comparison",
    "ConvergenceWarning",
    "Cos",
    "CustomLoss",
    "DamagedDataError",
    "DataConversionWarning",
    "DeadlineError",
    "DeepReluNetwork",
    "DeviceError",
    "Drift",
    "Elu",
    "Encoded",
    "Encoding",
    "Exp",
    "Factor",
    "FingerprintMismatchError",
    "Fit",
    "FittedModel",
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
    "JaxModel",
    "LayerStack",
    "LeakyRelu",
    "Linear",
    "Logistic",
    "LogisticLoss",
    "MatrixMismatchError",
    "MemoryLimitError",
    "MissingDataError",
    "MissingDataWarning",
    "MissingExtraError",
    "MultilayerPerceptron",
    "NlisError",
    "NlisWarning",
    "NonFiniteError",
    "NonlinearLeverageSampler",
    "NotHomogeneousError",
    "NotWritableError",
    "Numerical",
    "PerformanceWarning",
    "Plan",
    "PoissonDeviance",
    "Probit",
    "Problem",
    "PseudoHuber",
    "RankAmbiguityWarning",
    "ReadError",
    "Relu",
    "ReluNetwork",
    "Report",
    "RowTable",
    "Run",
    "Sample",
    "SampleSize",
    "Sandwich",
    "ScaleWarning",
    "Sin",
    "SingleIndex",
    "SoftmaxLoss",
    "Softplus",
    "SquaredError",
    "SquaredRelu",
    "Standardization",
    "Standardized",
    "StoreExistsError",
    "StoreLockedError",
    "StoreWriteError",
    "Swish",
    "TallMatrix",
    "Tanh",
    "TorchModel",
    "UnderdeterminedWarning",
    "XarrayRows",
    "ZeroLossSingularityError",
    "active_learning_size",
    "blend",
    "bottom_rows",
    "certificate",
    "cluster",
    "compare",
    "concat",
    "cross_leverage_scores",
    "datasets",
    "draw",
    "drift",
    "dual_matrix",
    "excess_loss_bound",
    "extend",
    "factorize",
    "from_dataframe",
    "from_jax",
    "from_sklearn",
    "from_torch",
    "from_xarray",
    "influence_scores",
    "ingest",
    "leverage_scores",
    "lipschitz_bound",
    "log_net_size",
    "loss_scores",
    "measured_misestimation_factor",
    "misestimation_factor",
    "monitor",
    "norm_misestimation_factor",
    "norm_scores",
    "open_rows",
    "open_run",
    "pilot",
    "plan",
    "plots",
    "pool",
    "reference_matrix",
    "refit",
    "refit_with",
    "run",
    "sample_size",
    "sandwich",
    "standardize",
    "suspects",
    "tangent_matrix",
    "top_rows",
    "total_loss",
]

if find_spec("sklearn") is None:  # nor would `from dask_nlis import *` find it
    __all__.remove("NonlinearLeverageSampler")

if not TYPE_CHECKING:  # a type checker knows the name from above, and no name besides

    def __getattr__(name: str) -> Any:
        """Pictures on first use, and the sampler: it is a subclass of scikit-learn's, which is not imported before."""
        if name == "plots":
            return import_module("dask_nlis.plots")
        if name != "NonlinearLeverageSampler":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from dask_nlis.adapters.leverage_sampler import NonlinearLeverageSampler
        except ImportError as cause:
            raise MissingExtraError(f"{name} needs scikit-learn; pip install 'dask-nlis[sklearn]'") from cause
        return NonlinearLeverageSampler

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
