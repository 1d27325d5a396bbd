"""A problem is a model, a loss and a set for theta; here the model and the loss become one scalar g of u.

f_i(theta) = g_i(u_i(theta)), u_i homogeneous of degree alpha: the adjoint is
f*_i = (secant(g_i, u_i) / alpha) grad u_i and f_i(theta) = f_i(0) + <theta, f*_i(theta)> (Proposition 3.1).
The secant of g = root(phi(u), y) is composed by divided differences,
root_slope(phi(u), phi(0), y) * phi.secant(u), so that nothing is 0/0 at u = 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from dask_nlis.activations import (
    Activation,
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
from dask_nlis.constraints import AmplitudeBand, Ball, Box, Constraint, HalfSpaces, Intersection
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.fitted import FittedModel
from dask_nlis.kernels.joined import joined
from dask_nlis.kernels.linalg import squared_row_norms
from dask_nlis.kernels.numbers import real_array
from dask_nlis.losses import (
    AbsoluteError,
    CustomLoss,
    Huber,
    LogisticLoss,
    Loss,
    PoissonDeviance,
    PseudoHuber,
    SquaredError,
)
from dask_nlis.models import (
    DeepReluNetwork,
    Homogeneous,
    Linear,
    Model,
    MultilayerPerceptron,
    Numerical,
    ReluNetwork,
    SingleIndex,
    is_adjoint,
    is_index,
    is_layered,
)
from dask_nlis.nouns import from_dict, noun, to_dict
from dask_nlis.rays import Ray, RayNorms, along_ray, norms_along_ray

Array = Any

#: The loss where none is given; one that is given is another object, even if it is equal.
_SQUARED = SquaredError()


@noun
class Problem:
    """What is fitted: a model, a loss and a set for theta.

    Parameters
    ----------
    model : Model
        `Linear`, `SingleIndex`, `ReluNetwork`, `DeepReluNetwork`, `MultilayerPerceptron`, `Homogeneous` or `Numerical`;
        or a `FittedModel`, whose model it keeps.
    loss : Loss, default SquaredError()
        Of a `FittedModel` its own by default.
        Per-row loss; the objective is its weighted sum over rows. `LogisticLoss` and `PoissonDeviance` have their
        link inside and go with models whose activation is `Identity()`.
    constraint : Constraint, optional
        `Ball(...)` or `Box(...)`; None leaves theta free.

    Raises
    ------
    InputTypeError
        If an argument is not of its kind (a class instead of an instance, say).
    InputError
        If the loss takes the linear predictor and the model has an activation, or the model has several outputs.

    Examples
    --------
    >>> Problem(Linear(), constraint=Ball(10))
    Problem(model=Linear(intercept=True), loss=SquaredError(), constraint=Ball(radius=10, center=None))
    """

    model: Model
    loss: Loss = _SQUARED
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, FittedModel):
            fitted = self.model
            object.__setattr__(self, "model", fitted.model)
            object.__setattr__(self, "loss", fitted.loss if self.loss is _SQUARED else self.loss)
        for name, method, example in (
            ("model", "jacobian", "SingleIndex(Tanh())"),
            ("loss", "root_slope", "SquaredError()"),
            ("constraint", "project", "Ball(10.0)"),
        ):
            value = getattr(self, name)
            if (name != "constraint" or value is not None) and (
                isinstance(value, type) or not callable(getattr(value, method, None))
            ):
                raise InputTypeError(f"Problem {name}={value!r} is no {name}; give one such as {example}")
        if self.model.n_outputs != 1:
            raise InputError(
                f"Problem model has n_outputs={self.model.n_outputs!r}, and losses take one number a row; give a model of "
                "one output, or a problem for each"
            )
        activation = _activation(self.model)
        if self.loss.takes == "linear predictor" and not isinstance(activation, Identity):
            raise InputError(
                f"Problem loss={self.loss!r} has its link inside, but the model has activation={activation!r}; "
                "give Linear() or activation=Identity()"
            )
        if isinstance(self.constraint, AmplitudeBand) and self.constraint.amplitudes is None:
            if not isinstance(self.model, ReluNetwork | DeepReluNetwork):
                raise InputError(
                    f"Problem constraint=AmplitudeBand(...): {type(self.model).__name__} has no outer weights to bound; "
                    "give amplitudes=, their positions in theta"
                )
            self.constraint.check_count(
                self.model.n_hidden if isinstance(self.model, ReluNetwork) else self.model.widths[-1]
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON values and arrays; users' functions have none, since files name no functions."""
        for name, part in (("model", self.model), ("loss", self.loss)):
            if isinstance(part, Homogeneous | Numerical | CustomLoss):
                raise InputTypeError(
                    f"Problem {name} is a {type(part).__name__} of Python functions, which no file may name; use one of "
                    "the library, or store=None"
                )
        parts: dict[str, object] = {"model": self.model, "loss": self.loss, "activation": _activation(self.model)}
        for name, used in parts.items():
            if type(used) not in _KNOWN.values():
                raise InputTypeError(
                    f"Problem {name} is a {type(used).__name__}, which no file may name; use one of the library, or "
                    "store=None"
                )
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Problem":
        """Rebuild a problem from `to_dict`; names are looked up in a fixed table."""
        problem = from_dict(found, _KNOWN)
        if not isinstance(problem, Problem):
            raise InputError(f"noun={found['noun']!r} is no Problem; give what Problem.to_dict() returned")
        return problem


def _activation(model: Model) -> Activation:
    """Activation of a model; a Numerical one predicts what the loss takes."""
    activation: Activation = getattr(model, "activation", Identity())
    return activation


_KNOWN: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Problem,
        Linear,
        SingleIndex,
        ReluNetwork,
        DeepReluNetwork,
        MultilayerPerceptron,
        Identity,
        Logistic,
        Tanh,
        Swish,
        Arctan,
        Cos,
        Elu,
        Exp,
        Gelu,
        LeakyRelu,
        Probit,
        Relu,
        Sin,
        Softplus,
        SquaredRelu,
        SquaredError,
        Huber,
        PseudoHuber,
        AbsoluteError,
        LogisticLoss,
        PoissonDeviance,
        AmplitudeBand,
        Ball,
        Box,
        HalfSpaces,
        Intersection,
    )
}


def check_theta(problem: Problem, theta: object, d: int, names: Sequence[str], argument: str = "theta") -> np.ndarray:
    """Return a read-only copy of theta as float64 of shape (p,), or raise with p and the names."""
    p = problem.model.n_parameters(d)
    # -0.0 is 0.0, which has the same rows and the same token
    array = real_array(argument, theta, f"{p} real numbers, such as pilot(...).theta") + 0.0
    if array.shape != (p,):
        parameters = problem.model.parameter_names(names)
        listed = ", ".join(parameters[:4]) + (", ..." if p > 4 else "")
        raise InputError(
            f"{argument} has shape {array.shape}, but this model expects ({p},) for the {d} columns of X: {listed}; give "
            "pilot(...).theta, or pack() its parts"
        )
    if not np.isfinite(array).all():
        where = int(np.argmin(np.isfinite(array)))
        raise InputError(f"{argument}[{where}]={array[where]} is not finite; give finite numbers")
    array.setflags(write=False)
    return array


def set_for(problem: Problem, d: int) -> Constraint | None:
    """Return the problem's set for d features, checked: not empty, in p dimensions, its amplitudes' positions known."""
    constraint = problem.constraint
    p = problem.model.n_parameters(d)
    if isinstance(constraint, AmplitudeBand) and constraint.amplitudes is None:
        outer = problem.model.unpack(np.arange(p))["a"]
        constraint = AmplitudeBand(constraint.lower, constraint.budget, tuple(map(int, outer)))
    if constraint is not None:
        constraint.check(p)
    return constraint


def at_zero(problem: Problem, y: Array | None, x: Array) -> Array:
    """f_i(0): the root of the loss at the prediction for theta = 0, or that prediction itself without labels; (m,)."""
    prediction = problem.model.at_zero(x)
    return prediction if y is None else problem.loss.root(prediction, y)


def slope(problem: Problem, phi: Activation, u: Array, y: Array | None) -> Array:
    """secant(g_i, u_i) of g = root(phi(u), y), shape (m,), by divided differences; NaN where u has overflowed.

    Activations that level off have a finite value and a secant of 0 there, which would pass for a row of zeros.
    """
    xp = array_namespace(u)
    inner, known = phi.secant(u), xp.isfinite(u)
    if not (is_numpy_array(u) and known.all()):
        inner = xp.where(known, inner, xp.nan * xp.ones_like(u))
    if y is None or isinstance(problem.loss, SquaredError):  # whose root has slope 1
        return inner
    return problem.loss.root_slope(phi.value(u), xp.full(u.shape, phi.at_zero, dtype=u.dtype), y) * inner


def has_closed_form(problem: Problem, labelled: bool) -> bool:
    """Whether the adjoint is a formula: one index, or a sum of them under a root that is linear in the prediction."""
    linear_root = isinstance(problem.loss, SquaredError) or not labelled
    return is_index(problem.model) or (is_adjoint(problem.model) and linear_root)


def adjoint(problem: Problem, theta: Array, x: Array, y: Array | None) -> Array:
    """Adjoint f*_i at theta, x (m, d) -> (m, p): closed form where there is one, else along the ray."""
    model = problem.model
    if is_index(model):
        factor = slope(problem, model.activation, model.index(theta, x), y) / model.degree
        return factor[:, None] * model.index_gradient(theta, x)
    if is_adjoint(model) and has_closed_form(problem, y is not None):
        return model.adjoint(theta, x)
    return along_ray(model, problem.loss, theta, x, y).rows


def singular(problem: Problem, theta: Array, x: Array, y: Array) -> Array:
    """Mask (m,) of rows whose root has no slope between the prediction at 0 and theirs, so that they have no adjoint."""
    return problem.loss.singular(problem.model.predict(theta, x), problem.model.at_zero(x), y)


def dual_rows(problem: Problem, theta: Array, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
    """Rows [f*_i ; f_i(0)] of the dual matrix (Definition 3.2), x (m, d) -> (m, p + 1); `out` as in `joined`."""
    model, xp = problem.model, array_namespace(x)
    if isinstance(model, Linear | SingleIndex):
        factor, last = dual_parts(problem, theta, x, y)
        return joined(x, factor, last, constant=model.intercept, out=out)
    return xp.concat([adjoint(problem, theta, x, y), at_zero(problem, y, x)[:, None]], axis=1)


def dual_parts(problem: Problem, theta: Array, x: Array, y: Array | None) -> tuple[Array, Array]:
    """Factor s (m,) and last entry g (m,) of the rows [s (x, 1) | g] that `dual_rows` has for a model of one index."""
    model = problem.model
    assert isinstance(model, Linear | SingleIndex)  # of degree 1
    return slope(problem, model.activation, model.index(theta, x), y), at_zero(problem, y, x)


def dual_squared_norms(
    problem: Problem, theta: Array, x: Array, y: Array | None, lengths: Array | None = None
) -> Array:
    """Squared norms of the rows of `dual_rows`, (m, d) -> (m,), from those of x if given; not formed where possible."""
    model, xp = problem.model, array_namespace(x)
    last = at_zero(problem, y, x)
    if is_index(model):
        u, squares = model.index_and_norms(theta, x, lengths)
        # Squared last: the factor alone may be too small for its square where the row is not.
        lengths = slope(problem, model.activation, u, y) / model.degree * xp.sqrt(squares)
        return lengths * lengths + last * last
    if is_adjoint(model) and has_closed_form(problem, y is not None):
        return model.adjoint_norms(theta, x, lengths) + last * last
    return squared_row_norms(dual_rows(problem, theta, x, y))


def dual_ray(problem: Problem, theta: Array, x: Array, y: Array | None) -> Ray:
    """Rows of `dual_rows` by quadrature, with the nodes it took and how well f(theta) = f(0) + <theta, f*> holds."""
    found = along_ray(problem.model, problem.loss, theta, x, y)
    last = at_zero(problem, y, x)[:, None]
    return found._replace(rows=array_namespace(x).concat([found.rows, last], axis=1))


def dual_ray_norms(problem: Problem, theta: Array, x: Array, y: Array | None) -> RayNorms:
    """Squared norms of the rows of `dual_ray` of a model made of layers, without forming them."""
    assert is_layered(problem.model)
    found = norms_along_ray(problem.model, problem.loss, theta, x, y)
    last = at_zero(problem, y, x)
    return found._replace(norms=found.norms + last * last)


def tangent_rows(problem: Problem, theta: Array, x: Array, y: Array, out: np.ndarray | None = None) -> Array:
    """Rows sqrt(max(l''_i, 0)) J_i, J the gradient of the prediction, (m, d) -> (m, p): H = sum max(l''_i, 0) J_i J_i'."""
    model = problem.model
    if isinstance(model, Linear | SingleIndex):
        u = model.index(theta, x)
        root = root_of_curvature(problem.loss, model.activation.value(u), y)
        return joined(x, root * model.activation.derivative(u), None, constant=model.intercept, out=out)
    return root_of_curvature(problem.loss, model.predict(theta, x), y)[:, None] * model.jacobian(theta, x)


def root_of_curvature(loss: Loss, prediction: Array, y: Array) -> Array:
    """sqrt(max(l'', 0)) at a prediction, (m,)."""
    xp, bend = array_namespace(prediction), loss.curvature(prediction, y)
    return xp.sqrt(xp.where(bend > 0, bend, xp.zeros_like(bend)))


def loss_gradients(problem: Problem, theta: Array, x: Array, y: Array) -> Array:
    """Gradients psi_i = l'_i J_i of the loss of each row in theta, (m, d) -> (m, p)."""
    slopes = problem.loss.derivative(problem.model.predict(theta, x), y)
    return slopes[:, None] * problem.model.jacobian(theta, x)


def reference_rows(problem: Problem, x: Array, y: Array | None, out: np.ndarray | None = None) -> Array:
    """Rows [x_i, 1 | f_i(0)] of the reference matrix: every slope replaced by its sign, (m, d) -> (m, q + 1)."""
    return joined(x, None, at_zero(problem, y, x), constant=_has_bias(problem.model, x), out=out)


def _has_bias(model: Model, x: Array) -> bool:
    """Whether the model sees [x, 1] in place of x."""
    return model.inputs(x[:1, :]).shape[1] > x.shape[1]


def reference_squared_norms(problem: Problem, x: Array, y: Array | None, lengths: Array | None = None) -> Array:
    """Squared norms of the rows of `reference_rows`, (m, d) -> (m,), from those of x if given."""
    lengths = squared_row_norms(x) if lengths is None else lengths
    last = at_zero(problem, y, x)
    return lengths + int(_has_bias(problem.model, x)) + last * last
