"""How steep f_i = root(phi(u), y) can be between the index 0 and u, and at u.

The adjoint of a row of an index model is slope times the gradient of the index, so bounds of the slope bound
F*'F*. Every bound here is proven for its activation and loss, not searched for on a grid.
"""

import math
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
from dask_nlis.errors import InputError
from dask_nlis.losses import (
    AbsoluteError,
    Huber,
    LogisticLoss,
    Loss,
    PoissonDeviance,
    PseudoHuber,
    SquaredError,
)
from dask_nlis.problem import Problem

Range = tuple[float, float]

#: Where the slope of sqrt(log(1 + exp(m))) is largest, and where its secant from m = 0 is: there slope equals secant.
_STEEPEST, _STEEPEST_SECANT = 0.9214225086553603, 1.4316535502443770

#: z > 0 with z tanh(z / 2) = 2, where the derivative of z / (1 + exp(-z)) turns; at -z it turns again.
_SWISH_TURN = 2.3993572805154677


def slope_bounds(problem: Problem, index: Range, labels: Range | None) -> Range:
    """Smallest and largest |secant of root(phi(u), y)| over u in `index` and y in `labels` (None: phi(u) alone)."""
    activation = _activation(problem)
    low, high = activation.secant_bounds(*index)
    low, high = (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    if labels is None:
        return low, high
    below, above = _root_secants(problem.one_loss, activation, index, labels, high)
    return _product(low, below), _product(high, above)


def steepest(problem: Problem, index: Range, labels: Range | None) -> float:
    """Upper bound of |d root(phi(u), y) / du| over u in `index` and y in `labels`."""
    return _product(_steepest_activation(_activation(problem), *index), _steepest_root(problem.one_loss, index, labels))


def _product(a: float, b: float) -> float:
    """a b, and 0 where either is 0: what is flat is flat, however steep the rest may be."""
    return a * b if a and b else 0.0


def _activation(problem: Problem) -> Activation:
    found: Activation = getattr(problem.model, "activation", Identity())
    return found


def _at(loss: Loss, a: float, b: float, y: float) -> float:
    """Slope of the root between the predictions a and b, for one label."""
    with np.errstate(over="ignore"):
        return float(loss.root_slope(*(np.array([value]) for value in (a, b, y)))[0])


def _root_secants(loss: Loss, phi: Activation, index: Range, labels: Range, secant: float) -> Range:
    """Bounds of the slope of the root between phi(0) and phi(u)."""
    if isinstance(loss, SquaredError):
        return 1.0, 1.0
    if isinstance(loss, Huber | PseudoHuber):
        # The slope is 1 at residual 0 and falls in its size, which on the way is at most this:
        reach = _product(secant, max(map(abs, index)))
        size = max(abs(phi.at_zero - y) for y in labels) + reach
        return (_at(loss, size, size, 0.0) if math.isfinite(size) else 0.0), 1.0
    if isinstance(loss, AbsoluteError):
        return 0.0, math.inf  # its root stands upright at zero loss
    if isinstance(loss, LogisticLoss):
        # The secant of sqrt(softplus) from 0 rises to its largest value and falls to 0 on both sides.
        ends, tops = [], []
        for low, high in _margins(loss, index, labels):
            ends += [_margin_slope(loss, m, 0.0) for m in (low, high)]
            top = min(max(_STEEPEST_SECANT, low), high)
            tops.append(_margin_slope(loss, top, 0.0))
        return min(ends), max(tops)
    if isinstance(loss, PoissonDeviance):
        # The root is convex in u, and its slope rises in y.
        _check_counts(labels)
        (low, high), (fewest, most) = index, labels
        return (
            0.0 if low == -math.inf else _at(loss, low, 0.0, fewest),
            math.inf if high == math.inf else _at(loss, high, 0.0, most),
        )
    raise _unknown(loss, "measured_misestimation_factor")


def _steepest_root(loss: Loss, index: Range, labels: Range | None) -> float:
    """Upper bound of the slope of the root in the prediction."""
    if labels is None or isinstance(loss, SquaredError | Huber | PseudoHuber):
        return 1.0
    if isinstance(loss, AbsoluteError):
        return math.inf
    if isinstance(loss, LogisticLoss):
        tops = [min(max(_STEEPEST, low), high) for low, high in _margins(loss, index, labels)]
        return max(_margin_slope(loss, m, m) for m in tops)
    if isinstance(loss, PoissonDeviance):
        _check_counts(labels)
        return math.inf if index[1] == math.inf else _at(loss, index[1], index[1], labels[1])
    raise _unknown(loss, "steepest=")


def _margins(loss: LogisticLoss, index: Range, labels: Range) -> list[Range]:
    """Ranges of m = -s u for the labels there are."""
    first, second = loss.labels
    if not set(labels) <= {first, second}:
        raise InputError(f"labels from {labels[0]:g} to {labels[1]:g} are not those of {loss!r}; give {loss.labels}")
    low, high = index
    return [(low, high)] * (first in labels) + [(-high, -low)] * (second in labels)


def _margin_slope(loss: LogisticLoss, m: float, n: float) -> float:
    """Slope of sqrt(log(1 + exp(m))) between m and n: that of the first class, where u = m."""
    return 0.0 if math.isinf(m) else _at(loss, m, n, loss.labels[0])


def _check_counts(labels: Range) -> None:
    if labels[0] < 0:
        raise InputError(f"labels from {labels[0]:g} are not those of PoissonDeviance; give counts or rates >= 0")


def _unknown(loss: Loss, remedy: str) -> InputError:
    return InputError(f"no bounds are known for the slope of the root of {type(loss).__name__}; use {remedy}")


#: Limits of phi' at -inf and inf, and where phi' turns, finitely often.
_TURNS: dict[type, tuple[float, float, tuple[float, ...]]] = {
    Identity: (1.0, 1.0, ()),
    Logistic: (0.0, 0.0, (0.0,)),
    Tanh: (0.0, 0.0, (0.0,)),
    Arctan: (0.0, 0.0, (0.0,)),
    Probit: (0.0, 0.0, (0.0,)),
    Softplus: (0.0, 1.0, ()),
    Exp: (0.0, math.inf, ()),
    Relu: (0.0, 1.0, ()),
    SquaredRelu: (0.0, math.inf, ()),
    Elu: (0.0, 1.0, ()),
    Gelu: (0.0, 1.0, (-math.sqrt(2), math.sqrt(2))),
}


def _steepest_activation(phi: Activation, low: float, high: float) -> float:
    """Largest |phi'(t)| over low <= t <= high: at the ends or where phi' turns."""
    turns: tuple[float, ...]
    if isinstance(phi, Sin | Cos):
        left = right = 1.0
        turns = () if math.isinf(low) else (_next_top(phi, low),)
    elif isinstance(phi, LeakyRelu):
        left, right, turns = phi.slope, 1.0, ()
    elif isinstance(phi, Swish):
        left, right, turns = _swish_turns(phi)
    elif type(phi) in _TURNS:
        left, right, turns = _TURNS[type(phi)]
    else:
        raise InputError(f"no bound is known for the slope of {type(phi).__name__}; give steepest=, that of f in u")
    met = [t for t in (low, high, *turns) if math.isfinite(t) and low <= t <= high]
    with np.errstate(over="ignore"):
        found = [abs(float(slope)) for slope in phi.derivative(np.array(met))] if met else []
    return max([*found, *[left] * (low == -math.inf), *[right] * (high == math.inf)])


def _next_top(phi: Any, low: float) -> float:
    """First t >= low with |phi'(t)| = 1, for Sin and Cos."""
    start = 0.0 if isinstance(phi, Sin) else math.pi / 2
    return start + math.pi * math.ceil((low - start) / math.pi)


def _swish_turns(phi: Swish) -> tuple[float, float, tuple[float, ...]]:
    left, right = math.sqrt(phi.c1), math.sqrt(phi.c2)
    if phi.zeta == 0:
        return (left + right) / 2, (left + right) / 2, ()
    turn = _SWISH_TURN / phi.zeta
    return (left, right, (-turn, turn)) if phi.zeta > 0 else (right, left, (turn, -turn))
