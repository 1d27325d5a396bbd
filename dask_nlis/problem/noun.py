"""A problem: what is fitted, a model, a loss and a set for theta; and what theta must be for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
)
from dask_nlis.nouns import from_dict, noun, to_dict

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
