"""A problem: what is fitted, a model, a loss and a set for theta; and what theta must be for it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

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
    LossOfSeveral,
    OverOutputs,
    PoissonDeviance,
    PseudoHuber,
    SoftmaxLoss,
    SquaredError,
)
from dask_nlis.models import (
    DeepReluNetwork,
    Homogeneous,
    LayerOf,
    LayerStack,
    Linear,
    Model,
    MultilayerPerceptron,
    Numerical,
    ReluNetwork,
    SingleIndex,
)
from dask_nlis.nouns import from_dict, items, noun, to_dict

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
        link inside and go with models whose activation is `Identity()`. Of a model of several outputs it is summed
        over them, with y of shape (n, n_outputs); `SoftmaxLoss` is one of all outputs, with y of shape (n,).
    constraint : Constraint, optional
        `Ball(...)` or `Box(...)`; None leaves theta free.
    outputs : {"joint", "separate"}, default "joint"
        Rows of the dual matrix of a model of several outputs: one a data row, of the square root of its whole loss, or
        one an output, of the root of that output's loss; the leverage of a data row is then the sum over its outputs,
        between 0 and their number. Fits do not depend on it.

    Raises
    ------
    InputTypeError
        If an argument is not of its kind (a class instead of an instance, say).
    InputError
        If the loss takes the linear predictor and the model has an activation, or does not fit the model's outputs.

    Notes
    -----
    The sum of losses f_i(theta)^2 over rows, at its smallest in a set: the problem of Rajmohan & Roosta (ICML 2025), f_i
    the signed root of a row's loss, whose adjoint (Definition 3.2) `dual_matrix` makes.

    Examples
    --------
    >>> problem = Problem(Linear(), constraint=Ball(10))
    >>> problem
    Problem(model=Linear(intercept=True), loss=SquaredError(), constraint=Ball(radius=10, center=None))
    >>> problem.label_columns, problem.input_shape
    (1, None)
    """

    model: Model
    loss: Loss | SoftmaxLoss = _SQUARED
    constraint: Constraint | None = None
    outputs: Literal["joint", "separate"] = "joint"

    def __post_init__(self) -> None:
        if isinstance(self.model, FittedModel):
            fitted = self.model
            object.__setattr__(self, "model", fitted.model)
            object.__setattr__(self, "loss", fitted.loss if self.loss is _SQUARED else self.loss)
        for name, methods, example in (
            ("model", ("jacobian",), "SingleIndex(Tanh())"),
            ("loss", ("root_slope", "root_gradient"), "SquaredError()"),
            ("constraint", ("project",), "Ball(10.0)"),
        ):
            value = getattr(self, name)
            if (name != "constraint" or value is not None) and (
                isinstance(value, type) or not any(callable(getattr(value, method, None)) for method in methods)
            ):
                raise InputTypeError(f"Problem {name}={value!r} is no {name}; give one such as {example}")
        self._check_outputs()
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

    def _check_outputs(self) -> None:
        k = self.model.n_outputs
        if not isinstance(self.outputs, str) or self.outputs not in ("joint", "separate"):
            raise InputError(f"Problem outputs={self.outputs!r} is not known; give 'joint' or 'separate'")
        if not isinstance(self.loss, SoftmaxLoss):
            return
        classes = self.loss.n_classes
        if k == 1:
            remedy = "LogisticLoss()" if classes == 2 else f"a model of {classes} outputs, or {classes - 1}"
            raise InputError(f"Problem loss={self.loss!r} takes several outputs, but the model has one; give {remedy}")
        if k not in (classes, classes - 1):
            raise InputError(
                f"Problem loss={self.loss!r} has {classes} classes, but the model {k} outputs; give one of {classes}, or "
                f"of {classes - 1} for classes 1, 2, ... against class 0"
            )
        if self.outputs == "separate":
            raise InputError(
                "Problem outputs='separate': SoftmaxLoss is one loss of all outputs; give outputs='joint', or "
                "LogisticLoss() of each class against the others"
            )

    @property
    def row_loss(self) -> Loss | LossOfSeveral:
        """The loss of a whole data row: `loss`, summed over the outputs where it is one of a single prediction."""
        if isinstance(self.loss, SoftmaxLoss):
            return self.loss
        return self.loss if self.model.n_outputs == 1 else OverOutputs(self.loss, self.model.n_outputs)

    @property
    def one_loss(self) -> Loss:
        """`loss` where it is one of a single prediction, as it is but for a SoftmaxLoss."""
        assert not isinstance(self.loss, SoftmaxLoss)
        return self.loss

    @property
    def label_columns(self) -> int:
        """Columns of y: 1 for y of shape (n,)."""
        return getattr(self.row_loss, "label_columns", 1)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """What a row of X may be shaped like, where the model states it."""
        return getattr(self.model, "input_shape", None)

    def _summary(self) -> dict[str, Any]:
        return {name: value for name, value in items(self).items() if name != "outputs" or value != "joint"}

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as JSON values and arrays; users' functions have none, since files name no functions.

        Returns
        -------
        dict
            What `from_dict` takes.

        Raises
        ------
        InputTypeError
            If model, loss or activation is made of Python functions, or is none of the library's.
        """
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
        """Rebuild a problem from `to_dict`; names are looked up in a fixed table.

        Parameters
        ----------
        found : mapping
            What `to_dict` returned, its arrays as arrays or as the lists that JSON makes of them.

        Returns
        -------
        Problem
            Equal to the one that was stored.

        Raises
        ------
        InputError, InputTypeError
            If it is no problem, or of another version.

        Examples
        --------
        >>> problem = Problem(Linear(), constraint=Ball(10))
        >>> Problem.from_dict(problem.to_dict()) == problem
        True
        """
        if isinstance(found, Mapping) and isinstance(noun := found.get("noun"), str) and noun == "Problem":
            found = {"outputs": "joint", **found}  # which need not be written
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
        LayerOf,
        LayerStack,
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
        SoftmaxLoss,
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
