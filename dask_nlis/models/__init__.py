"""What is predicted, and whether its adjoint has a closed form."""

from dask_nlis.models.deep_relu import DeepReluNetwork
from dask_nlis.models.kinds import has_rectifiers, slopes_only
from dask_nlis.models.layer_stack import LayerOf, LayerStack
from dask_nlis.models.linear import Linear
from dask_nlis.models.perceptron import MultilayerPerceptron
from dask_nlis.models.protocol import IndexModel, LayeredModel, Model, is_adjoint, is_index, is_layered, pulls_back
from dask_nlis.models.relu_network import ReluNetwork
from dask_nlis.models.single_index import SingleIndex
from dask_nlis.models.user import Homogeneous, Numerical

__all__ = [
    "DeepReluNetwork",
    "Homogeneous",
    "IndexModel",
    "LayerOf",
    "LayerStack",
    "LayeredModel",
    "Linear",
    "Model",
    "MultilayerPerceptron",
    "Numerical",
    "ReluNetwork",
    "SingleIndex",
    "has_rectifiers",
    "is_adjoint",
    "is_index",
    "is_layered",
    "pulls_back",
    "slopes_only",
]
