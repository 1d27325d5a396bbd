"""What is predicted, and whether its adjoint has a closed form."""

from dask_nlis.models.deep_relu import DeepReluNetwork
from dask_nlis.models.linear import Linear
from dask_nlis.models.protocol import IndexModel, Model, is_adjoint, is_index
from dask_nlis.models.relu_network import ReluNetwork
from dask_nlis.models.single_index import SingleIndex
from dask_nlis.models.user import Homogeneous, Numerical

__all__ = [
    "DeepReluNetwork",
    "Homogeneous",
    "IndexModel",
    "Linear",
    "Model",
    "Numerical",
    "ReluNetwork",
    "SingleIndex",
    "is_adjoint",
    "is_index",
]
