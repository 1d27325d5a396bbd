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
    `ModelOfSeveral.pullback` stands for `jacobian`. Arrays are float64, in memory or on a device; nothing is read.
    theta, its parts and what is made of x of other shapes raise an InputError.

    Notes
    -----
    What Rajmohan & Roosta (ICML 2025, section 3) ask of f_i without the loss: a value and a gradient along the ray.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> model, x = nlis.SingleIndex(nlis.Exp()), np.array([[1.0], [2.0]])
    >>> theta = model.pack(coef=[0.0], intercept=0.0)
    >>> model.form, model.n_outputs, model.n_parameters(1), model.parameter_names(["age"])
    ('index', 1, 2, ('age', 'intercept'))
    >>> model.unpack(theta)["coef"], model.inputs(x), model.at_zero(x)
    (array([0.]), array([[1., 1.],
           [2., 1.]]), array([1., 1.]))
    >>> model.predict(theta, x), model.jacobian(theta, x), model.hessian(theta, x, np.ones(2))
    (array([1., 1.]), array([[1., 1.],
           [2., 1.]]), array([[5., 3.],
           [3., 2.]]))
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
    """Several predictions a row, whose gradients are pulled back.

    Notes
    -----
    Reverse accumulation (Griewank & Walther 2008, chapter 3).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> model = nlis.MultilayerPerceptron((), n_outputs=2, bias=False)
    >>> model.pullback(np.zeros(2), np.array([[3.0]]), np.array([[1.0, -1.0]]))
    array([[ 3., -3.]])
    """

    def pullback(self, theta: Array, x: Array, cotangent: Array) -> Array:
        """Gradient in theta of the sum of each row's predictions times a cotangent, (m, n_outputs) -> (m, p)."""


class IndexModel(Model, Protocol):
    """prediction = phi(u(theta, x)), u positively homogeneous of degree `degree` in theta (Proposition 3.1).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> model, theta, x = nlis.SingleIndex(nlis.Tanh(), intercept=False), np.array([2.0]), np.array([[3.0]])
    >>> model.activation, model.degree, model.index(theta, x), model.index_gradient(theta, x)
    (Tanh(), 1.0, array([6.]), array([[3.]]))
    >>> model.index_hessian(theta, x, np.ones(1)), model.index_and_norms(theta, x)
    (array([[0.]]), (array([6.]), array([9.])))
    """

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
    """A prediction with a closed-form adjoint of its own: a sum of index models, for one (Example 3.4).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> model, theta, x = nlis.ReluNetwork(1, per_unit=True), np.array([2.0, 1.0]), np.array([[3.0]])
    >>> model.adjoint(theta, x), model.adjoint_norms(theta, x)
    (array([[1.5, 3. ]]), array([11.25]))
    """

    def adjoint(self, theta: Array, x: Array) -> Array:
        """Integral of the gradient of the prediction along the ray, shape (m, p)."""

    def adjoint_norms(self, theta: Array, x: Array, lengths: Array | None = None) -> Array:
        """Squared norms of those rows, shape (m,), without forming them; `lengths` as in `index_and_norms`."""


class LayeredModel(Model, Protocol):
    """A prediction made of affine layers with a function of each number between them (`dask_nlis.kernels.stack`).

    Notes
    -----
    Back-propagation (Rumelhart, Hinton & Williams 1986); squared norms of the gradients of rows from inputs and signals
    alone as by Goodfellow (2015).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> model, x = nlis.MultilayerPerceptron((4,)), np.ones((5, 3))
    >>> theta = np.zeros(model.n_parameters(3))
    >>> model.nodes, model.signal_width(3), len(model.layers(theta, x)), model.shaped(x).shape
    (1, 8, 2, (5, 3))
    """

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
