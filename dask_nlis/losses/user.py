"""A loss of the user's own, from its value and its derivative."""

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.calls import called, name_of
from dask_nlis.losses import protocol
from dask_nlis.nouns import noun

Array = Any
Function = Callable[[Array, Array], Array]

_EPS = float(np.finfo(np.float64).eps)

#: Below this step a difference of two roots that are both 0 says nothing (their squares may have underflowed), and
#: below the second one no difference does.
_UNDERFLOWN, _NONE = 1e-100, 1e-290


def _gauss_legendre(n: int) -> tuple[tuple[float, float], ...]:
    """Nodes in (0, 1) and weights of sum 1."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return tuple((float(x + 1) / 2, float(w) / 2) for x, w in zip(nodes, weights, strict=True))


#: Two rules; their difference estimates the error of the first and so bounds that of the second.
_COARSE, _FINE = _gauss_legendre(6), _gauss_legendre(12)


@noun
class CustomLoss:
    """Loss given by functions of (prediction, y), each elementwise on arrays of one shape.

    Its root is sign(prediction - y) sqrt(value), so value should be smallest, and is best 0, at prediction = y.
    Where a GPU is used the functions must keep to the array API (operators, `array_api_compat`).

    Parameters
    ----------
    value : callable
        l(prediction, y) >= 0. Negative values are refused; one within rounding, 8 eps (1 + |prediction| + |y|), is 0.
    derivative : callable
        First derivative in the prediction.
    curvature : callable, optional
        Second derivative in the prediction; central differences of the derivative by default, good to about 1e-9.

    Raises
    ------
    InputTypeError
        If an argument is not callable, or cannot travel to a worker, as lambdas and inner functions cannot.
    InputError
        When evaluated, if a value is negative or a result has another shape than the prediction.

    Notes
    -----
    The slope of the root between a and b is the quotient of differences where the two roots differ enough, otherwise
    the mean of the derivative over [a, b] (Gauss-Legendre) over the sum of the roots; row by row whichever has the
    smaller estimate of its error. l enters as the square of a root, as in Rajmohan & Roosta (ICML 2025). Functions are not written to files: a problem with a CustomLoss has no dictionary.

    Examples
    --------
    Bound methods and functions of a module travel; here those of a loss that exists already.

    >>> import numpy as np
    >>> from dask_nlis import PseudoHuber
    >>> inner = PseudoHuber(2.0)
    >>> loss = CustomLoss(inner.value, inner.derivative)
    >>> a, b, y = np.array([1.0]), np.array([1.0 + 1e-9]), np.array([0.5])
    >>> np.abs(loss.root_slope(a, b, y) - inner.root_slope(a, b, y)) < 1e-15
    array([ True])
    """

    functions: tuple[Function, Function, Function | None]

    takes = "prediction"
    check_labels = protocol.any_label
    may_be_singular = False
    singular = protocol.never_singular
    response = protocol.as_predicted

    def __init__(self, value: Function, derivative: Function, curvature: Function | None = None) -> None:
        for name, function in (("value", value), ("derivative", derivative), ("curvature", curvature)):
            if name != "curvature" or function is not None:
                _check_travels(name, function)
        object.__setattr__(self, "functions", (value, derivative, curvature))

    def _summary(self) -> dict[str, Any]:
        names = ("value", "derivative", "curvature")
        return {k: name_of(f) for k, f in zip(names, self.functions, strict=True) if f is not None}

    def value(self, prediction: Array, y: Array) -> Array:
        """Return the user's value, refused where it is negative."""
        xp = array_namespace(prediction)
        found = self._call(0, prediction, y)
        negative = found < -8 * _EPS * (1 + xp.abs(prediction) + xp.abs(y))
        if bool(xp.any(negative)):
            place = int(xp.argmax(xp.astype(negative, xp.int8)))

            def at(values: Array) -> float:
                return float(xp.reshape(values, (-1,))[place])

            raise InputError(
                f"CustomLoss value {name_of(self.functions[0])} returned {at(found):.6g} at prediction {at(prediction):.6g}, "
                f"y {at(y):.6g}; losses must be >= 0: give a deviance in place of a log-likelihood",
                row=place,
            )
        return xp.where(found < 0, xp.zeros_like(found), found)

    def derivative(self, prediction: Array, y: Array) -> Array:
        """Return the user's derivative."""
        return self._call(1, prediction, y)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """Return the user's curvature, or central differences of the derivative."""
        if self.functions[2] is not None:
            return self._call(2, prediction, y)
        step = _EPS ** (1 / 3) * (1 + array_namespace(prediction).abs(prediction))
        up, down = prediction + step, prediction - step
        return (self.derivative(up, y) - self.derivative(down, y)) / (up - down)

    def root(self, prediction: Array, y: Array) -> Array:
        """sign(prediction - y) sqrt(value)."""
        xp = array_namespace(prediction)
        return xp.sign(prediction - y) * xp.sqrt(self.value(prediction, y))

    def root_slope(self, a: Array, b: Array, y: Array) -> Array:
        """Quotient of differences, or mean derivative over the sum of roots; sqrt(curvature / 2) at zero loss."""
        xp = array_namespace(a)
        value_a, value_b = self.value(a, y), self.value(b, y)
        root_a, root_b = xp.sign(a - y) * xp.sqrt(value_a), xp.sign(b - y) * xp.sqrt(value_b)
        step = a - b
        still = xp.abs(step) < _NONE
        safe = xp.where(still, xp.ones_like(step), step)
        rise, size = root_a - root_b, xp.abs(root_a) + xp.abs(root_b)
        quotient = rise / safe
        if bool(xp.all(~still & (size <= 4 * xp.abs(rise)))):
            return quotient
        doubt = xp.where(still, xp.inf * xp.ones_like(size), _EPS * size / xp.abs(safe))
        empty = size == 0
        whole = xp.where(empty, xp.ones_like(size), size)
        fine, coarse = self._mean_derivative(_FINE, a, b, y), self._mean_derivative(_COARSE, a, b, y)
        # Two rules may agree and yet both miss a corner next to an end; the difference of values does not.
        missed = xp.abs(fine * step - (value_a - value_b)) - 4 * _EPS * (value_a + value_b)
        error = xp.abs(fine - coarse) + xp.where(missed > 0, missed, xp.zeros_like(missed)) / xp.abs(safe)
        # Roots of opposite sign keep the quotient: its doubt is no more than its own rounding, eps |quotient|.
        better = error / whole + _EPS * xp.abs(quotient) < doubt
        slope = xp.where(better, xp.sign(a - y) * fine / whole, quotient)
        bottom = empty & (xp.abs(step) < _UNDERFLOWN)
        if not bool(xp.any(bottom)):
            return slope
        bend = self.curvature(b, y) / 2
        return xp.where(bottom, xp.sqrt(xp.where(bend > 0, bend, xp.zeros_like(bend))), slope)

    def _mean_derivative(self, rule: tuple[tuple[float, float], ...], a: Array, b: Array, y: Array) -> Array:
        """Mean of the derivative over [b, a] by a quadrature rule."""
        return functools.reduce(
            lambda total, part: total + part,
            (weight * self.derivative(b + node * (a - b), y) for node, weight in rule),
        )

    def _call(self, which: int, prediction: Array, y: Array) -> Array:
        function = self.functions[which]
        assert function is not None  # the caller has looked
        label = f"CustomLoss {('value', 'derivative', 'curvature')[which]}"
        return called(label, function, prediction, y, shape=tuple(prediction.shape))


def _check_travels(name: str, function: Any) -> None:
    """Raise unless the function is found by its name, as pickling by reference needs; said before any work."""
    if not callable(function):
        raise InputTypeError(f"CustomLoss {name}={function!r} is no function; give one of (prediction, y)")
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    owner = getattr(inner, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        inner = type(owner)
    if not isinstance(inner, np.ufunc) and not _importable(inner if hasattr(inner, "__qualname__") else type(inner)):
        raise InputTypeError(
            f"CustomLoss {name}={name_of(function)} cannot be pickled, so no worker could call it; "
            "give a function defined with def at the top level of a module"
        )


def _importable(thing: Any) -> bool:
    found: Any = sys.modules.get(getattr(thing, "__module__", None) or "")
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing
