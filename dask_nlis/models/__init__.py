"""What is predicted: the index u(theta, x), its gradient and the activation on top of it."""

from dask_nlis.models.linear import Linear
from dask_nlis.models.protocol import Model
from dask_nlis.models.single_index import SingleIndex

__all__ = ["Linear", "Model", "SingleIndex"]
