"""Value, derivative and secant of every activation against mpmath, from subnormal arguments to saturation."""

from functools import cache

import mpmath as mp
import numpy as np
import pytest
from tables import ACTIVATIONS

EPS = np.finfo(np.float64).eps
METHODS = ("value", "derivative", "secant")

_DECADES = [10.0**k for k in range(-300, 4)]
_SUBNORMAL = [5e-324, 1e-320, 1e-310, 2.2250738585072009e-308]
_CURVED = list(np.geomspace(1e-3, 745.0, 150))  # where none of the functions is a power of t
_SWITCH = [9.9e-9, np.nextafter(1e-8, 0), 1e-8, np.nextafter(1e-8, 1), 1.1e-8, 3e-8]  # near-zero branch of the secants
_POSITIVE = np.array([*_DECADES, *_SUBNORMAL, *_CURVED, *_SWITCH])
GRID = np.concatenate([-_POSITIVE, [0.0, -0.0], _POSITIVE])


def _exact(phi, method, t):
    """The definition at mpf t, in the precision of the context."""
    if method == "secant":
        return (phi.value(t) - phi.value(mp.mpf(0))) / t if t else phi.derivative(t)
    return getattr(phi, method)(t)


@cache
def _oracle(name: str, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Exact values on the grid, rounded, and the condition number |t f'(t) / f(t)| by a tiny relative change of t."""
    phi = ACTIVATIONS[name]
    values, conditions = [], []
    for t in GRID:
        digits = 40 + (int(-np.log10(abs(t))) if 0 < abs(t) < 1 else 0)  # phi(t) - phi(0) cancels that many
        with mp.workdps(digits):
            exact = _exact(phi, method, mp.mpf(float(t)))
            nudged = _exact(phi, method, mp.mpf(float(t)) * (1 + mp.mpf(10) ** -15))
            values.append(float(exact))
            conditions.append(float(abs((nudged - exact) / exact) * mp.mpf(10) ** 15) if exact else 0.0)
    return np.array(values), np.array(conditions)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_agrees_with_mpmath_to_eight_eps_times_its_condition_without_a_warning(name, method):
    exact, condition = _oracle(name, method)
    with np.errstate(all="raise", under="ignore"):
        got = getattr(ACTIVATIONS[name].activation, method)(GRID)
    # Where the logistic function is subnormal it is known to its last unit only, and t multiplies that.
    allowed = 8 * EPS * (1 + condition) * np.abs(exact) + (4 + np.abs(GRID)) * 5e-324
    wrong = ~(np.abs(got - exact) <= allowed)
    assert not wrong.any(), list(zip(GRID[wrong], got[wrong], exact[wrong], strict=True))[:3]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_secant_lies_within_its_bounds_and_comes_near_both(name):
    activation = ACTIVATIONS[name].activation
    lower, upper = activation.secant_bounds()
    secant = activation.secant(GRID)
    assert np.all(secant >= lower * (1 - EPS))
    assert np.all(secant <= upper * (1 + EPS))
    assert secant.min() <= lower + 0.01 * (upper - lower)
    assert secant.max() >= upper - 0.01 * (upper - lower)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_value_at_zero_and_the_limit_of_the_secant_there(name):
    activation = ACTIVATIONS[name].activation
    zero = np.zeros(1)
    assert activation.at_zero == activation.value(zero)[0]
    assert activation.secant(zero)[0] == pytest.approx(activation.derivative(zero)[0], rel=EPS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_far_tails_are_finite_without_a_warning(name):
    t = np.array([-1e15, -1e4, -800.0, 800.0, 1e4, 1e15])
    activation = ACTIVATIONS[name].activation
    with np.errstate(all="raise", under="ignore"):
        assert all(np.isfinite(getattr(activation, method)(t)).all() for method in METHODS)


def test_logistic_secant_is_positive_everywhere():
    # The paper's example has a minus sign here.
    t = np.concatenate([GRID, [-1e4, 1e4, -1e300, 1e300]])
    assert np.all(ACTIVATIONS["logistic"].activation.secant(t) > 0)


@pytest.mark.parametrize("t", [0.0, 1e-300, 1e-17, 1e-12, 1e-8])
def test_logistic_secant_near_zero_is_a_quarter(t):
    # The quotient (phi(t) - phi(0)) / t is 0 at 1e-17 and off by 9e-5 at 1e-12.
    secant = ACTIVATIONS["logistic"].activation.secant(np.array([t, -t]))
    np.testing.assert_allclose(secant, 0.25, rtol=1e-15)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_shape_and_dtype_stay(name, method):
    for shape in [(), (0,), (5,), (2, 3)]:
        got = getattr(ACTIVATIONS[name].activation, method)(np.full(shape, 0.5))
        assert got.shape == shape
        assert got.dtype == np.float64
