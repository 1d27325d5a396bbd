"""Which function of the user made a row of the matrix not finite, for the message."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from dask_nlis.kernels.calls import name_of
from dask_nlis.losses import CustomLoss
from dask_nlis.matrix.rules import Modelled, Reference, Rule, array_like
from dask_nlis.models import Homogeneous, Numerical
from dask_nlis.problem import Problem

Array = Any


class Spoiled(NamedTuple):
    """Rows (m,), as a mask, in which a function returned NaN though its arguments are finite, and its name."""

    rows: Array
    by: str


def spoiled(rule: Rule, x: Array, y: Array | None, rows: Array) -> Spoiled | None:
    """Find the user's function behind rows that are not finite; None where there is none, or it returned no NaN."""
    if not isinstance(rule, Modelled):
        return None
    problem = rule.problem
    if not isinstance(problem.model, Homogeneous | Numerical) and not isinstance(problem.loss, CustomLoss):
        return None
    xp = array_namespace(rows)
    bad = ~xp.all(xp.isfinite(rows), axis=1)
    if rule.each > 1:
        bad = xp.any(xp.reshape(bad, (-1, rule.each)), axis=1)
    if not bool(xp.any(bad)):
        return None
    theta = xp.zeros((problem.model.n_parameters(x.shape[1]),), dtype=x.dtype)
    for point in (theta,) if isinstance(rule, Reference) else (array_like(rule.theta, x), theta):
        for name, mask in _nan(problem, point, x, y):
            if bool(xp.any(mask & bad)):
                return Spoiled(mask & bad, name)
    return None


def _nan(problem: Problem, theta: Array, x: Array, y: Array | None) -> Iterator[tuple[str, Array]]:
    """Each of the user's functions in the order of their use, with a mask of the rows in which it returns NaN."""
    xp = array_namespace(x)
    model, loss = problem.model, problem.loss
    if isinstance(model, Homogeneous | Numerical):
        kind = type(model).__name__
        value, gradient = (
            (model.index, model.index_gradient) if isinstance(model, Homogeneous) else (model.predict, model.jacobian)
        )
        found = value(theta, x)
        yield f"{kind} value {name_of(model.value)}", xp.isnan(found)
        # Beside a value that overflows NaN is no wonder.
        nan = xp.isfinite(found) & xp.any(xp.isnan(gradient(theta, x)), axis=1)
        yield f"{kind} gradient {name_of(model.gradient)}", nan
    if isinstance(loss, CustomLoss) and y is not None:
        prediction = model.predict(theta, x)
        for number, method in enumerate((loss.value, loss.derivative)):
            nan = xp.isfinite(prediction) & xp.isnan(method(prediction, y))
            kind = ("value", "derivative")[number]
            yield f"CustomLoss {kind} {name_of(loss.functions[number])}", xp.any(nan, axis=1) if nan.ndim > 1 else nan
