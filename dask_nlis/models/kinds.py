"""What refits ask of a model besides its numbers."""

import numpy as np

from dask_nlis.activations import LeakyRelu, Relu
from dask_nlis.models.deep_relu import DeepReluNetwork
from dask_nlis.models.linear import Linear
from dask_nlis.models.perceptron import MultilayerPerceptron
from dask_nlis.models.protocol import Model
from dask_nlis.models.relu_network import ReluNetwork
from dask_nlis.models.single_index import SingleIndex


def has_rectifiers(model: Model) -> bool:
    """Whether units have a kink, and can be rescaled against the weights of their outputs: no optimum is unique."""
    if isinstance(model, MultilayerPerceptron):
        return bool(model.widths) and isinstance(model.unit, Relu | LeakyRelu)
    return isinstance(model, ReluNetwork | DeepReluNetwork)


def slopes_only(model: Model, d: int) -> np.ndarray:
    """1 for each entry of theta that a ridge shrinks, 0 for an intercept or the bias of a unit, (p,).

    A user's model has no intercept that we could know of: all of its entries are shrunk.
    """
    shrunk = np.ones(model.n_parameters(d))
    if isinstance(model, Linear | SingleIndex) and model.intercept:
        shrunk[-1] = 0.0
    if isinstance(model, ReluNetwork) and model.hidden_bias:
        shrunk[model.unpack(np.arange(len(shrunk)))["b"][:, -1]] = 0.0
    if isinstance(model, MultilayerPerceptron) and model.bias:
        for name, place in model.unpack(np.arange(len(shrunk))).items():
            shrunk[place] *= not name.startswith("b")
    return shrunk
