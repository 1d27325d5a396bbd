"""The interfaces of a model, from the general one to those with a closed form.

A closed form of the adjoint needs one scalar function of one homogeneous index ("index"), or a loss whose root is
linear in a prediction that has one ("adjoint"); everything else is integrated along the ray, between kinks where the
model is made of layers ("layers"), from its gradient alone otherwise ("ray").
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeGuard

import numpy as np

from dask_nlis.activations import Activation
from dask_nlis.kernels.stack import Layer

Array = Any
Form = Literal["index", "adjoint", "layers", "ray"]


class Model(Protocol):
    """A prediction for each row, or several; theta has shape (p,), x (m, d), in one array API namespace.

    Where there are several, `predict` and `at_zero` give (m, n_outputs), `hessian` takes weights of that shape, and
    `ModelOfSeveral.pullback` stands for `jacobian`.
    """

    @property
    def form(self) -> Form:
        """How the adjoint is computed: "index", "adjoint", "layers" or "ray"."""

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
        """x as the model sees it, a 1 appended where there is any bias: (m, q)."""

    def predict(self, theta: Array, x: Array) -> Array:
        """Prediction, shape (m,)."""

    def jacobian(self, theta: Array, x: Array) -> Array:
        """Gradient of the prediction in theta, shape (m, p)."""

    def hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Weighted sum over rows of the second derivatives of the prediction in theta, weights (m,) -> (p, p)."""

    def at_zero(self, x: Array) -> Array:
        """Prediction at theta = 0, shape (m,)."""


class ModelOfSeveral(Model, Protocol):
    """Several predictions a row, whose gradients are pulled back."""

    def pullback(self, theta: Array, x: Array, cotangent: Array) -> Array:
        """Gradient in theta of the sum of each row's predictions times a cotangent, (m, n_outputs) -> (m, p)."""


class IndexModel(Model, Protocol):
    """prediction = phi(u(theta, x)), u positively homogeneous of degree `degree` in theta (Proposition 3.1)."""

    @property
    def activation(self) -> Activation:
        """phi, applied to the index."""

    @property
    def degree(self) -> float:
        """Degree alpha > 0 of homogeneity of the index in theta."""

    def index(self, theta: Array, x: Array) -> Array:
        """u(theta, x), shape (m,)."""

    def index_gradient(self, theta: Array, x: Array) -> Array:
        """Gradient of u in theta, shape (m, p)."""

    def index_hessian(self, theta: Array, x: Array, weights: Array) -> Array:
        """Weighted sum over rows of the second derivatives of u in theta, weights (m,) -> (p, p)."""

    def index_and_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> tuple[Array, Array]:
        """u and the squared norms of the rows of `index_gradient`, (m,) each, without forming them where possible.

        `lengths` are the squared row norms of x (m,), where they are known.
        """


class AdjointModel(Model, Protocol):
    """A prediction with a closed-form adjoint of its own: a sum of index models, for one."""

    def adjoint(self, theta: Array, x: Array) -> Array:
        """Integral of the gradient of the prediction along the ray, shape (m, p)."""

    def adjoint_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> Array:
        """Squared norms of those rows, shape (m,), without forming them; `lengths` as in `index_and_norms`."""


class LayeredModel(Model, Protocol):
    """A prediction made of affine layers with a function of each number between them (`dask_nlis.kernels.stack`)."""

    @property
    def nodes(self) -> int | None:
        """Nodes a piece that make the integral of the gradient along the ray exact; None where none do."""

    def signal_width(self, d: int) -> int:
        """Numbers that a row of d features is in all layers."""

    def layers(self, theta: Array, x: Array) -> list[Layer]:
        """The layers at theta, in the namespace of x."""

    def shaped(self, x: Array) -> Array:
        """Rows (m, d) as the first layer takes them, (m, *in)."""


def pulls_back(model: Model) -> TypeGuard[ModelOfSeveral]:
    """Whether the model has several outputs, and gradients only pulled back from all of them."""
    return model.n_outputs != 1


def is_index(model: Model) -> TypeGuard[IndexModel]:
    """Whether the model is one activation of one homogeneous index."""
    return model.form == "index"


def is_adjoint(model: Model) -> TypeGuard[AdjointModel]:
    """Whether the model's prediction has a closed-form adjoint."""
    return model.form == "adjoint"


def is_layered(model: Model) -> TypeGuard[LayeredModel]:
    """Whether the model's prediction is made of layers."""
    return model.form == "layers"
