"""Value, derivatives and secant of every activation against mpmath, from subnormal arguments to saturation."""

import importlib
import math
import sys
import types
from functools import cache

import array_api_strict
import mpmath as mp
import numpy as np
import pytest
import scipy.special
from tables import ACTIVATIONS

import dask_nlis as nlis
from dask_nlis.kernels import special

METHODS = ("value", "derivative", "second_derivative", "secant")

_POSITIVE = {
    np.float64: [
        *(10.0**k for k in range(-300, 4)),
        *(5e-324, 1e-320, 1e-310, 2.2250738585072009e-308),
        *np.geomspace(1e-3, 745.0, 150),  # where none of the functions is a power of t
        *(1.4e-154, 1.4916681462400413e-154, 1.5e-154, 1e-8, 0.99999999, 1.00000001),  # the secants switch at 2^-511
        *(0.7517915, math.sqrt(2), 4.493409457909064, 2.331122370414423),  # zeros of gelu's, extrema of the waves'
        *(709.782712893384, 709.7827128933841),  # the last t where exp is finite, and the next
    ],
    np.float32: [
        *(10.0**k for k in range(-37, 4)),
        *(1e-45, 1e-40, 1.0842e-19, 1.0843e-19),  # the secants switch at 2^-63
        *np.geomspace(1e-3, 100.0, 100),
    ],
}
GRID = {kind: np.array([*(-t for t in ts), 0.0, -0.0, *ts], dtype=kind) for kind, ts in _POSITIVE.items()}

every_activation = pytest.mark.parametrize("name", ACTIVATIONS)
every_method = pytest.mark.parametrize("method", METHODS)


def _exact(phi, method, t):
    """The definition at mpf t, in the precision of the context."""
    if method == "secant":
        return (phi.value(t) - phi.value(mp.mpf(0))) / t if t else phi.derivative(t)
    return getattr(phi, method)(t)


@cache
def _oracle(name, method, kind):
    """Exact values on the grid, rounded, and the condition number |t f'(t) / f(t)| by a tiny relative change of t."""
    phi = ACTIVATIONS[name]
    values, conditions = [], []
    for t in GRID[kind]:
        # phi(t) - phi(0) cancels as many digits as t has zeros, twice as many where phi'(0) = 0.
        digits = 40 + 2 * (int(-np.log10(abs(float(t)))) if 0 < abs(t) < 1 else 0)
        with mp.workdps(digits):
            exact = _exact(phi, method, mp.mpf(float(t)))
            nudged = _exact(phi, method, mp.mpf(float(t)) * (1 + mp.mpf(10) ** -15))
            values.append(float(exact))
            conditions.append(float(abs((nudged - exact) / exact) * mp.mpf(10) ** 15) if exact else 0.0)
    return np.array(values), np.array(conditions)


def _assert_as_accurate_as_its_condition_allows(name, method, kind):
    (exact, condition), t = _oracle(name, method, kind), GRID[kind].astype(np.float64)
    phi, info = ACTIVATIONS[name], np.finfo(kind)
    # Where the value overflows there is nothing to be accurate about; the test of the domain looks there.
    inside = np.maximum(np.abs(exact), np.abs(_oracle(name, "value", kind)[0])) <= info.max
    with np.errstate(all="raise", under="ignore"):
        got = getattr(phi.activation, method)(GRID[kind])
    assert got.dtype == kind
    # Where the exponential is subnormal it is known to its last unit only, and up to (steepness t)^2 multiplies that.
    steep = max(phi.steepness, 1.0)
    unit = info.smallest_subnormal * steep * (4 + steep * np.abs(t)) ** (2 if method == "second_derivative" else 1)
    allowed = 8 * info.eps * (1 + condition[inside]) * np.abs(exact[inside]) + unit[inside]
    wrong = ~(np.abs(got[inside].astype(np.float64) - exact[inside]) <= allowed)
    assert not wrong.any(), list(zip(t[inside][wrong], got[inside][wrong], exact[inside][wrong], strict=True))[:3]


@every_method
@every_activation
def test_agrees_with_mpmath_to_eight_eps_times_its_condition_without_a_warning(name, method):
    _assert_as_accurate_as_its_condition_allows(name, method, np.float64)


@every_method
@every_activation
def test_float32_stays_float32_and_agrees_to_eight_of_its_eps_times_its_condition(name, method):
    _assert_as_accurate_as_its_condition_allows(name, method, np.float32)


@every_activation
def test_condition_is_at_most_the_square_of_t_away_from_zeros(name):
    # What is promised in the docstrings: eps times |t| (t^2 for normal tails), but for the zeros of a function.
    grid = np.abs(GRID[np.float64])
    for method in ("value", "secant"):
        _, condition = _oracle(name, method, np.float64)
        if name not in ("sin", "cos"):
            square = grid if name not in ("probit", "gelu") else grid**2
            assert np.all(condition <= 3 + ACTIVATIONS[name].steepness * square)


@every_activation
def test_definitions_in_the_table_are_derivatives_of_one_another(name):
    phi = ACTIVATIONS[name]
    with mp.workdps(40):
        for t in (-2.3, -0.4, 0.0625, 0.7, 1.9):
            assert mp.almosteq(phi.derivative(mp.mpf(t)), mp.diff(phi.value, t), rel_eps=1e-15, abs_eps=1e-15)
            assert mp.almosteq(phi.second_derivative(mp.mpf(t)), mp.diff(phi.derivative, t), 1e-15, 1e-15)


@every_activation
def test_domain_is_where_the_value_is_finite_and_beyond_it_infinity_comes_without_a_warning(name):
    activation = ACTIVATIONS[name].activation
    low, high = activation.domain
    # Functions that grow linearly lose at most their slope: 1e300 stays finite.
    ends = np.array([max(low, -1e300), min(high, 1e300)])
    beyond = np.array(
        [t for end, away in ((low, -np.inf), (high, np.inf)) for t in (np.nextafter(end, away), 1e4 * end)]
    )
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(activation.value(ends)).all()
        beyond = beyond[np.isfinite(beyond)]
        assert np.isinf(activation.value(beyond)).all()
        for method in METHODS:
            assert not np.isnan(getattr(activation, method)(beyond)).any()


@every_activation
def test_far_tails_are_finite_without_a_warning(name):
    activation = ACTIVATIONS[name].activation
    t = np.array([-1e300, -1e155, -1e15, -1e4, -800.0, 800.0, 1e4, 1e15, 1e155, 1e300])
    low, high = activation.domain
    with np.errstate(all="raise", under="ignore"):
        inside = t[(t >= low) & (t <= high)]
        assert all(np.isfinite(getattr(activation, method)(inside)).all() for method in METHODS)
        # The last floats, where even twice t overflows: slopes that stay bounded are still finite.
        largest = np.array([-1.7e308, 1.7e308])
        slopes = [getattr(activation, method)(largest) for method in ("derivative", "second_derivative", "secant")]
        assert not np.isnan(slopes).any()
        assert np.isfinite(slopes).all() or high < np.inf


@every_activation
def test_value_at_zero_and_the_limit_of_the_secant_there(name):
    activation = ACTIVATIONS[name].activation
    zero = np.zeros(1)
    assert activation.at_zero == activation.value(zero)[0]
    assert activation.secant(zero)[0] == pytest.approx(activation.derivative(zero)[0], rel=np.finfo(float).eps)


@pytest.mark.parametrize(
    ("activation", "left"), [(nlis.Relu(), 0.0), (nlis.LeakyRelu(0.25), 0.25), (nlis.SquaredRelu(), 0.0)]
)
def test_at_exactly_zero_a_rectifier_is_on_its_left_branch(activation, left):
    t = np.array([0.0, -0.0])
    assert activation.derivative(t).tolist() == activation.secant(t).tolist() == [left, left]
    assert activation.second_derivative(t).tolist() == [0.0, 0.0]


def _extremes(secant, lower, upper):
    """Smallest and largest secant found on lower <= t <= upper, by a grid that is refined twice around both."""
    around = [t for t in (-1e-3, 0.0, np.nextafter(0.0, 1.0), 1e-3) if lower <= t <= upper]
    t = np.unique(
        np.concatenate(
            [
                np.linspace(lower, upper, 4001),
                around,
                np.clip(np.geomspace(1e-3, 1e3, 2001), lower, upper),
                np.clip(-np.geomspace(1e-3, 1e3, 2001), lower, upper),
            ]
        )
    )
    for _ in range(2):
        found = secant(t)
        places = {int(found.argmin()), int(found.argmax())}
        pieces = [np.linspace(t[max(k - 1, 0)], t[min(k + 1, len(t) - 1)], 2001) for k in places]
        t = np.unique(np.concatenate([t, *pieces]))
    found = secant(t)
    return found.min(), found.max()


def _assert_tight(name, lower, upper):
    activation = ACTIVATIONS[name].activation
    low, high = activation.secant_bounds(lower, upper)
    assert type(low) is type(high) is float
    smallest, largest = _extremes(activation.secant, lower, upper)
    rounding = 4 * np.finfo(float).eps
    assert smallest >= low - rounding * abs(low), (lower, upper)
    assert largest <= high + rounding * abs(high), (lower, upper)
    assert smallest - low <= 1e-6 * min(abs(low), 1.0) + 1e-12, (lower, upper)
    assert high - largest <= 1e-6 * abs(high) + 1e-12, (lower, upper)


@every_activation
def test_secant_bounds_of_random_intervals_are_never_violated_and_attained(name, rng):
    top = min(ACTIVATIONS[name].activation.domain[1], 1e3)
    for _ in range(60):
        ends = np.sort(rng.normal(size=2) * 10 ** rng.uniform(-3, 3, size=2))
        _assert_tight(name, *np.minimum(ends, top))
    for lower, upper in [(0.0, 2.0), (-2.0, 0.0), (0.0, 0.0), (-3.0, -3.0), (3.0, 3.0), (-30.0, 30.0), (100.0, 103.0)]:
        _assert_tight(name, lower, upper)


@every_activation
def test_secant_bounds_of_half_lines_and_of_the_line_are_limits_of_long_intervals(name, rng):
    activation = ACTIVATIONS[name].activation
    far = min(activation.domain[1], 1e9)
    for end in (-3.0, 0.0, 0.7, *rng.normal(scale=5, size=5)):
        for open_end, long in (
            ((-np.inf, end), (-1e9, end)),
            ((end, np.inf), (end, far)),
            ((-np.inf, np.inf), (-1e9, far)),
        ):
            low, high = activation.secant_bounds(*open_end)
            near_low, near_high = activation.secant_bounds(*long)
            assert low == pytest.approx(near_low, rel=1e-6, abs=2e-9)
            assert high == (pytest.approx(near_high, rel=1e-6, abs=2e-9) if near_high < 1e8 else np.inf)
    assert activation.secant_bounds() == activation.secant_bounds(-np.inf, np.inf)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (nlis.Sin(), (mp.cos(mp.findroot(lambda t: mp.tan(t) - t, 4.49)), 1)),
        (nlis.Cos(), tuple(s * mp.sin(h) ** 2 / h for s in (-1, 1) for h in [mp.findroot(lambda h: mp.tan(h) - 2 * h, 1.16)])),
        (nlis.Swish(1, 4), (1, 2)),
        (nlis.Swish(1, 4, -3), (1, 2)),
        (nlis.Probit(), (0, 1 / mp.sqrt(2 * mp.pi))),
        (nlis.Exp(), (0, mp.inf)),
        (nlis.LeakyRelu(3.0), (1, 3)),
    ],
)  # fmt: skip
def test_secant_bounds_of_the_line(activation, expected):
    assert activation.secant_bounds() == pytest.approx([float(e) for e in expected], rel=1e-15)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name not in ("sin", "cos")])
def test_secant_is_never_negative(name):
    # The reference matrix replaces every secant by its sign, 1.
    activation = ACTIVATIONS[name].activation
    assert activation.secant_bounds()[0] >= 0
    assert np.all(activation.secant(GRID[np.float64]) >= 0)


@pytest.mark.parametrize(
    ("lower", "upper", "error"),
    [(1.0, 0.0, ValueError), (np.nan, 1.0, ValueError), (np.inf, np.inf, ValueError), ("0", 1.0, TypeError), (0, None, TypeError)],
)  # fmt: skip
@every_activation
def test_ends_that_are_no_interval_are_refused_in_one_line(name, lower, upper, error):
    with pytest.raises(error, match=r"^secant_bounds .*; give .*$"):
        ACTIVATIONS[name].activation.secant_bounds(lower, upper)


@pytest.mark.parametrize("slope", [-0.1, np.inf, np.nan, "0.1", None, True])
def test_leaky_relu_refuses_a_slope_that_is_no_slope(slope):
    with pytest.raises(nlis.InputError, match=r"^LeakyRelu slope=.* is not allowed; give a finite number >= 0"):
        nlis.LeakyRelu(slope)


def test_logistic_secant_is_positive_everywhere():
    # The paper's example has a minus sign here.
    t = np.concatenate([GRID[np.float64], [-1e4, 1e4, -1e300, 1e300]])
    assert np.all(nlis.Logistic().secant(t) > 0)


@pytest.mark.parametrize("t", [0.0, 1e-300, 1e-17, 1e-12, 1e-8])
def test_logistic_secant_near_zero_is_a_quarter(t):
    # The quotient (phi(t) - phi(0)) / t is 0 at 1e-17 and off by 9e-5 at 1e-12.
    np.testing.assert_allclose(nlis.Logistic().secant(np.array([t, -t])), 0.25, rtol=1e-15)


@every_method
@every_activation
def test_shape_and_dtype_stay(name, method):
    for shape in [(), (0,), (5,), (2, 3)]:
        got = getattr(ACTIVATIONS[name].activation, method)(np.full(shape, 0.5))
        assert got.shape == shape
        assert got.dtype == np.float64


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@every_method
@every_activation
def test_array_api_strict_gives_the_numbers_of_numpy(name, method, kind):
    function = getattr(ACTIVATIONS[name].activation, method)
    got = function(array_api_strict.asarray(GRID[kind]))
    assert got.dtype == getattr(array_api_strict, np.dtype(kind).name)
    np.testing.assert_array_equal(np.asarray(got), function(GRID[kind]))


def test_special_functions_of_a_device_array_are_computed_there(monkeypatch):
    calls = []
    on_device = types.SimpleNamespace(
        **{name: lambda t, name=name: calls.append(name) or getattr(scipy.special, name)(t) for name in ("erf", "ndtr")}
    )
    for name, module in (
        ("cupyx", types.ModuleType("cupyx")),
        ("cupyx.scipy", types.SimpleNamespace(special=on_device)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(special, "is_numpy_array", lambda t: False)
    monkeypatch.setattr(special, "is_cupy_array", lambda t: True)
    assert special.erf(np.array([0.5]))[0] == math.erf(0.5)
    assert special.normal_cdf(np.array([0.0]))[0] == 0.5
    assert calls == ["erf", "ndtr"]


def test_names_are_importable_from_the_room_as_before():
    room = importlib.import_module("dask_nlis.activations")
    assert {"Activation", "expit"} <= set(room.__all__)
    for name in set(room.__all__) - {"Activation", "expit"}:
        assert getattr(room, name) is getattr(nlis, name)
