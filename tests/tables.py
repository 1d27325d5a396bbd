"""The one table of what every law runs over. A new activation, model, loss, label mode or set is one line here."""

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
from array_api_compat import array_namespace

from dask_nlis import (
    AbsoluteError,
    AmplitudeBand,
    Arctan,
    Ball,
    Box,
    Cos,
    CustomLoss,
    Elu,
    Exp,
    Gelu,
    HalfSpaces,
    Huber,
    Identity,
    Intersection,
    LeakyRelu,
    Linear,
    Logistic,
    LogisticLoss,
    PoissonDeviance,
    Probit,
    PseudoHuber,
    Relu,
    Sin,
    SingleIndex,
    Softplus,
    SquaredError,
    SquaredRelu,
    Swish,
    Tanh,
)


class Phi(NamedTuple):
    """An activation beside its definition in mpmath; `steepness` is the factor on t inside its exponential."""

    activation: Any
    value: Callable[[Any], Any]
    derivative: Callable[[Any], Any]
    second_derivative: Callable[[Any], Any]
    steepness: float = 1.0


def _sigma(t):
    return 1 / (1 + mp.exp(-t))


def _bump(t):
    return mp.sech(t / 2) ** 2 / 4  # the derivative of sigma; 1 - sigma would cancel


def _swish(c1: float, c2: float, zeta: float = 1.0) -> Phi:
    def rise():  # formed at the precision of the call
        return mp.sqrt(c2) - mp.sqrt(c1)

    return Phi(
        Swish(c1, c2, zeta),
        lambda t: t * (mp.sqrt(c1) + rise() * _sigma(zeta * t)),
        lambda t: mp.sqrt(c1) + rise() * (_sigma(zeta * t) + zeta * t * _bump(zeta * t)),
        lambda t: rise() * zeta * _bump(zeta * t) * (2 - zeta * t * mp.tanh(zeta * t / 2)),
        abs(zeta) or 1.0,
    )


def _leaky(slope: float) -> Phi:
    return Phi(LeakyRelu(slope), lambda t: t if t > 0 else slope * t, lambda t: mp.mpf(1 if t > 0 else slope), _zero)


def _zero(t):
    return mp.mpf(0)


def _one(t):
    return mp.mpf(1)


ACTIVATIONS: dict[str, Phi] = {
    "identity": Phi(Identity(), lambda t: t, _one, _zero),
    "logistic": Phi(Logistic(), _sigma, _bump, lambda t: -_bump(t) * mp.tanh(t / 2)),  # phi(0) is not 0
    "tanh": Phi(Tanh(), mp.tanh, lambda t: mp.sech(t) ** 2, lambda t: -2 * mp.tanh(t) * mp.sech(t) ** 2),
    "softplus": Phi(Softplus(), lambda t: mp.log1p(mp.exp(t)), _sigma, _bump),
    "exp": Phi(Exp(), mp.exp, mp.exp, mp.exp),  # overflows
    "probit": Phi(Probit(), mp.ncdf, mp.npdf, lambda t: -t * mp.npdf(t)),
    "sin": Phi(Sin(), mp.sin, mp.cos, lambda t: -mp.sin(t)),  # the secant changes sign
    "cos": Phi(Cos(), mp.cos, lambda t: -mp.sin(t), lambda t: -mp.cos(t)),  # phi'(0) = 0
    "arctan": Phi(Arctan(), mp.atan, lambda t: 1 / (1 + t * t), lambda t: -2 * t / (1 + t * t) ** 2),
    "swish 1, 2": _swish(1, 2),  # the paper's experiments
    "swish 0, 1": _swish(0, 1),  # c1 = 0: the secant vanishes in the left tail
    "swish 0.5, 3, steep": _swish(0.5, 3, 40),  # a transition narrower than the grid of labels
    "swish 1, 4, falling": _swish(1, 4, -2),  # a negative zeta swaps the tails
    "swish 2, 2": _swish(2, 2),  # c1 = c2: a straight line
    "swish 1, 2, flat": _swish(1, 2, 0),  # zeta = 0: a straight line of slope (sqrt c1 + sqrt c2) / 2
    "gelu": Phi(
        Gelu(),
        lambda t: t * mp.ncdf(t),
        lambda t: mp.ncdf(t) + t * mp.npdf(t),
        lambda t: (2 - t * t) * mp.npdf(t),
    ),
    # At t = 0 the left branch holds: t > 0 strictly is the right one.
    "relu": Phi(Relu(), lambda t: t if t > 0 else _zero(t), lambda t: mp.mpf(t > 0), _zero),
    "leaky relu": _leaky(0.125),
    "leaky relu, steeper left": _leaky(3.0),
    "squared relu": Phi(
        SquaredRelu(),
        lambda t: t * t if t > 0 else _zero(t),
        lambda t: 2 * t if t > 0 else _zero(t),
        lambda t: mp.mpf(2 * (t > 0)),
    ),
    "elu": Phi(
        Elu(),
        lambda t: t if t > 0 else mp.expm1(t),
        lambda t: _one(t) if t > 0 else mp.exp(t),
        lambda t: _zero(t) if t > 0 else mp.exp(t),
    ),
}

MODELS: dict[str, Any] = {
    "linear": Linear(),
    "linear, no intercept": Linear(intercept=False),
    **{name: SingleIndex(phi.activation) for name, phi in ACTIVATIONS.items()},
    "logistic, no intercept": SingleIndex(Logistic(), intercept=False),
    "swish, no intercept": SingleIndex(Swish(1, 2), intercept=False),
}


def bounded(prediction, y):
    """Geman-McClure: t^2 / (1 + t^2), which is not convex; t / hypot(1, t) squares nothing large."""
    t = prediction - y
    ratio = t / array_namespace(t).hypot(t * 0 + 1, t)
    return ratio * ratio


def bounded_derivative(prediction, y):
    t = prediction - y
    long = array_namespace(t).hypot(t * 0 + 1, t)
    return 2 * (t / long) / long / long / long


def bounded_curvature(prediction, y):
    t = prediction - y
    long = array_namespace(t).hypot(t * 0 + 1, t)
    return (2 / long / long - 6 * (t / long) ** 2) / long**4


LOSSES: dict[str, Any] = {
    "squared": SquaredError(),
    "huber": Huber(0.8),  # a corner of the slope inside the data
    "pseudo-huber": PseudoHuber(0.8),
    "absolute": AbsoluteError(on_singular="zero"),  # a vertical tangent at zero loss
    "logistic loss": LogisticLoss(),
    "logistic loss -1, 1": LogisticLoss(labels=(-1, 1)),
    "poisson": PoissonDeviance(),
    "custom": CustomLoss(bounded, bounded_derivative, bounded_curvature),
}

#: Losses whose root has two derivatives: quadrature converges.
SMOOTH = [name for name in LOSSES if name not in ("huber", "absolute")]

#: Labels from (prediction, generator); None leaves the loss out.
LABELS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray | None]] = {
    "no labels": lambda f, rng: None,
    "noisy": lambda f, rng: f + rng.normal(size=f.shape),
    "huge": lambda f, rng: 1e12 * rng.normal(size=f.shape),  # f vanishes beside f(0)
    "beyond squaring": lambda f, rng: 1e200 * rng.normal(size=f.shape),  # y^2 overflows
    "zero": lambda f, rng: np.zeros_like(f),  # f(0) = 0 wherever phi(0) = 0
    "equal to f": lambda f, rng: f.copy(),  # the residual is exactly 0
}


def allowed(loss: Any, y: np.ndarray | None) -> np.ndarray | None:
    """Labels made into such as the loss allows: classes for logistic loss, sizes for Poisson deviance."""
    if y is None:
        return None
    if isinstance(loss, LogisticLoss):
        return np.where(y > np.median(y), *map(float, reversed(loss.labels)))
    return np.abs(y) if isinstance(loss, PoissonDeviance) else y


#: Names of models and losses that go together: a loss with its link inside wants the linear predictor.
PAIRS = [
    (model, loss)
    for model in MODELS
    for loss in LOSSES
    if LOSSES[loss].takes == "prediction" or isinstance(MODELS[model].activation, Identity)
]

#: Sets of theta of length 4.
SETS: dict[str, Any] = {
    "none": None,
    "ball": Ball(0.7),
    "ball off the origin": Ball(0.5, [1.0, -1.0, 0.0, 2.0]),  # the origin lies outside
    "box": Box(-0.3, 0.2),
    "box with open sides": Box([0.0, -np.inf, -1.0, -np.inf], [np.inf, 0.5, 1.0, np.inf]),
    "box with a fixed entry": Box([0.25, -1.0, -1.0, -1.0], [0.25, 1.0, 1.0, 1.0]),
    "half-spaces": HalfSpaces([[1.0, -1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]], [0.1, 0.3]),
    "ball, box and an equation": Intersection(
        Ball(0.8), Box(-0.5, np.inf), HalfSpaces([[1.0, 1.0, 1.0, 0.0], [-1.0, -1.0, -1.0, 0.0]], [0.2, -0.2])
    ),
    "amplitude band": AmplitudeBand(0.04, 0.5, (0, 3)),
}


def slope_scale(model: Any) -> float:
    """Steepness of the model's activation, 1 where the table has none."""
    return next((phi.steepness for phi in ACTIVATIONS.values() if phi.activation == model.activation), 1.0)
