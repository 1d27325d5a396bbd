"""The interface of a model: prediction = phi(u(theta, x)), u positively homogeneous in theta."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dask_nlis.activations import Activation

Array = Any


class Model(Protocol):
    """A scalar function phi of one index u, homogeneous of degree `degree` in theta.

    In all methods theta has shape (p,), x (m, d); arrays share one array API namespace.
    """

    @property
    def activation(self) -> Activation:
        """Phi, applied to the index."""

    @property
    def degree(self) -> float:
        """Degree alpha > 0 of homogeneity of the index in theta."""

    @property
    def n_outputs(self) -> int:
        """Predictions a row."""

    def n_parameters(self, d: int) -> int:
        """Length of theta for d features."""

    def parameter_names(self, feature_names: Sequence[str]) -> tuple[str, ...]:
        """Name every entry of theta."""

    def unpack(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """Split theta into named arrays."""

    def pack(self, **parts: object) -> np.ndarray:
        """Join named arrays into theta: the inverse of `unpack`."""

    def inputs(self, x: Array) -> Array:
        """x as the model sees it, a 1 appended where there is an intercept: (m, q)."""

    def index(self, theta: Array, x: Array) -> Array:
        """u(theta, x), shape (m,)."""

    def index_gradient(self, theta: Array, x: Array) -> Array:
        """Gradient of u in theta, shape (m, p)."""

    def index_gradient_norms(self, theta: Array, x: Array) -> Array:
        """Squared norms of the rows of `index_gradient`, shape (m,), without forming them."""
