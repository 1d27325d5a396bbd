"""Every loss against its definition in mpmath: value, derivatives, signed root and the slope of the root."""

import functools
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_strict
import dask.array as da
import mpmath as mp
import numpy as np
import pytest

import dask_nlis as nlis
from dask_nlis import AbsoluteError, CustomLoss, Huber, LogisticLoss, PoissonDeviance, PseudoHuber, SquaredError
from dask_nlis.matrix import Dual, Reference

EPS = np.finfo(np.float64).eps
#: Differences of roots at arguments 1e-300 apart, and 1 + 1e-300, are formed exactly enough.
DIGITS = 700


class Definition(NamedTuple):
    """A loss beside its value, its first two derivatives and the sign of its root, once more for mpf arguments."""

    loss: Any
    labels: tuple[float, ...]
    value: Callable[[Any, Any], Any]
    derivative: Callable[[Any, Any], Any]
    curvature: Callable[[Any, Any], Any]
    sign: Callable[[Any, Any], Any] = lambda p, y: mp.sign(p - y)

    def root(self, p, y):
        return self.sign(p, y) * mp.sqrt(self.value(p, y))

    def root_slope(self, a, b, y):
        """The divided difference; its limit root' = l' / (2 root) at a = b, and sqrt(l'' / 2) in the minimum."""
        if a != b:
            return (self.root(a, y) - self.root(b, y)) / (a - b)
        root = self.root(a, y)
        return self.derivative(a, y) / (2 * root) if root else mp.sqrt(self.curvature(a, y) / 2)


def _huber(delta):
    delta = mp.mpf(delta)
    return Definition(
        Huber(float(delta)),
        REAL,
        lambda p, y: (p - y) ** 2 if abs(p - y) <= delta else 2 * delta * abs(p - y) - delta**2,
        lambda p, y: 2 * (p - y) if abs(p - y) <= delta else 2 * delta * mp.sign(p - y),
        lambda p, y: mp.mpf(2) if abs(p - y) <= delta else mp.mpf(0),
    )


def _pseudo_huber(delta):
    delta = mp.mpf(delta)

    def long(p, y):
        return mp.sqrt(1 + ((p - y) / delta) ** 2)

    return Definition(
        PseudoHuber(float(delta)),
        REAL,
        lambda p, y: 2 * (p - y) ** 2 / (1 + long(p, y)),  # 2 delta^2 (S - 1), S^2 - 1 = (t / delta)^2
        lambda p, y: 2 * (p - y) / long(p, y),
        lambda p, y: 2 / long(p, y) ** 3,
    )


def _logistic(labels):
    def s(y):
        return 1 if y == labels[1] else -1

    return Definition(
        LogisticLoss(labels),
        tuple(map(float, labels)),
        lambda u, y: mp.log(1 + mp.exp(-s(y) * u)),
        lambda u, y: -s(y) / (1 + mp.exp(s(y) * u)),
        lambda u, y: 1 / (1 + mp.exp(u)) / (1 + mp.exp(-u)),
        lambda u, y: -s(y),
    )


def _deviance(u, y):
    found = 2 * (y * mp.log(y / mp.exp(u)) - y + mp.exp(u)) if y else 2 * mp.exp(u)
    return found if found > 0 else mp.mpf(0)  # the last of the digits


#: Zero, either side of a corner, huge.
REAL = (0.0, 0.3, 0.79999, 0.8, -1.7, 1.0 + 1e-12, -1000.0, 1e12, -1e200)
COUNTS = (0.0, 0.37, 1.0, 1 + 1e-12, 3.0, 1000.0, 1e-300, 1e300)


DEFINITIONS = {
    "squared": Definition(
        SquaredError(), REAL, lambda p, y: (p - y) ** 2, lambda p, y: 2 * (p - y), lambda p, y: mp.mpf(2)
    ),
    **{f"huber {delta:g}": _huber(delta) for delta in (0.8, 1e-3, 1e300, 1e-300)},
    **{f"pseudo-huber {delta:g}": _pseudo_huber(delta) for delta in (0.8, 1e150, 1e300, 1e-300)},
    "absolute": Definition(
        AbsoluteError(), REAL, lambda p, y: abs(p - y), lambda p, y: mp.sign(p - y), lambda p, y: mp.mpf(0)
    ),
    **{f"logistic {labels}": _logistic(labels) for labels in ((0, 1), (-1, 1))},
    "poisson": Definition(
        PoissonDeviance(),
        COUNTS,
        _deviance,
        lambda u, y: 2 * (mp.exp(u) - y),
        lambda u, y: 2 * mp.exp(u),
        lambda u, y: mp.sign(mp.exp(u) - y),
    ),
}
each = pytest.mark.parametrize("name", DEFINITIONS)

_POINTS = [0.0, 1e-300, -1e-300, 1e-17, -1e-8, 0.3, -0.3, 0.8, 1.0, -1.5, 1.6, 6.9, -30.0, 31.0, 40.0, 800.0, -800.0]


def _pairs():
    """a and b: equal, neighbours, close, of both signs, and far apart."""
    pairs = [(a, b) for a in _POINTS for b in (0.0, 1.0, -1.5, -9.0, 31.0, -800.0)]
    for a in _POINTS:
        pairs += [
            (a, a),
            (a, np.nextafter(a, 9.9)),
            (a, a * (1 + 1e-12)),
            (a, a * (1 + 1e-5) + 1e-7),
            (a, 1.3 * a + 0.1),
        ]
    return pairs


def _grid(name, arguments):
    """Arrays a, b, y (or prediction, y) of the loss, and the same as tuples of floats."""
    labels = DEFINITIONS[name].labels
    points = _pairs() if arguments == 3 else [(a,) for a in sorted({x for pair in _pairs() for x in pair})]
    rows = [(*point, y) for point in points for y in labels]
    if name == "poisson":  # the roots of log y, where the deviance has its minimum
        rows += [
            (*([u] if arguments == 2 else [u, b]), y)
            for y in COUNTS
            if y
            for u in (float(np.log(y)), float(np.log(y)) + 0.1, float(np.log(y)) - 1e-7)
            for b in ([0.0] if arguments == 2 else [0.0, float(np.log(y)) + 1e-9, float(np.log(y)) - 2.0])
        ]
    return rows


METHODS = ("value", "derivative", "curvature", "root", "root_slope")


def _oracle(name, method, part):
    """Exact values on a third of the grid with their condition: the relative change by a relative change of each argument."""
    exact = getattr(DEFINITIONS[name], method)
    rows = _grid(name, 3 if method == "root_slope" else 2)[part::3]
    values, conditions = [], []
    with mp.workdps(DIGITS):
        nudge = 1 + mp.mpf(10) ** -20
        for row in rows:
            at = [mp.mpf(float(x)) for x in row]
            value = exact(*at)
            moved = []
            for k in range(len(at) - (name.startswith("logistic"))):  # a label of a class is no number
                near = [x * nudge if j == k else x for j, x in enumerate(at)]
                if method == "root_slope" and row[0] == row[1]:
                    near[:2] = [near[0], near[0]] if k < 2 else near[:2]
                moved.append(abs(exact(*near) - value) * mp.mpf(10) ** 20)
            values.append(value)
            conditions.append(sum(moved))
    return rows, values, conditions


def _singular(name, row):
    """Absolute error has no slope between two zero residuals; a test of its own says what it gives instead."""
    return name == "absolute" and len(row) == 3 and max(abs(row[0] - row[2]), abs(row[1] - row[2])) < 2.3e-308


def _representable(value):
    return abs(value) < mp.mpf(np.finfo(float).max)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
@each
def test_agrees_with_mpmath_to_eight_eps_times_its_condition_without_a_warning(name, method, part):
    rows, values, conditions = _oracle(name, method, part)
    # A corner has no derivative; where the exact number is no float64, neither is ours.
    kept = [k for k, (row, value) in enumerate(zip(rows, values, strict=True)) if _representable(value)]
    kept = [k for k in kept if not _singular(name, rows[k])]
    if method in ("derivative", "curvature"):
        kept = [k for k in kept if not _corner(name, rows[k])]
    assert len(kept) > 0.6 * len(rows)
    arrays = [np.array(column) for column in zip(*(rows[k] for k in kept), strict=True)]
    with np.errstate(all="raise", under="ignore"):
        got = getattr(DEFINITIONS[name].loss, method)(*arrays)
    wrong = []
    with mp.workdps(50):
        for k, value in zip(kept, got, strict=True):
            allowed = 8 * EPS * (abs(values[k]) + conditions[k]) + 4 * mp.mpf(5e-324)
            if not abs(mp.mpf(float(value)) - values[k]) <= allowed:
                wrong.append((rows[k], float(value), float(values[k]), float(abs(value - values[k]) / allowed)))
    assert not wrong, (len(wrong), wrong[:4], max(w[3] for w in wrong))


def _corner(name, row):
    """Where the definition has a kink (absolute error) or a jump of its curvature (Huber), or rounds into one."""
    t = abs(row[0] - row[1])
    delta = {"absolute": 0.0, "huber 0.8": 0.8, "huber 1e-3": 1e-3, "huber 1e-300": 1e-300}.get(name)
    return delta is not None and abs(t - delta) <= 4 * EPS * max(abs(row[0]), abs(row[1]))


@each
def test_strict_arrays_give_the_same_numbers(name):
    loss = DEFINITIONS[name].loss
    for method in METHODS:
        rows = [row for row in _grid(name, 3 if method == "root_slope" else 2) if not _singular(name, row)]
        arrays = [np.array(column, dtype=float) for column in zip(*rows, strict=True)]
        with np.errstate(over="ignore"):
            expected = getattr(loss, method)(*arrays)
            got = getattr(loss, method)(*map(array_api_strict.asarray, arrays))
        assert type(got) is type(array_api_strict.zeros(1))
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-13)


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if not name.endswith(("300", "150"))])
def test_single_precision_stays_and_is_as_accurate_as_it_can_be(name, rng):
    loss = DEFINITIONS[name].loss
    a = np.concatenate([3 * rng.normal(size=300), np.zeros(20), 1e-8 * rng.normal(size=50)]).astype(np.float32)
    y = rng.choice([label for label in DEFINITIONS[name].labels if abs(label) < 1e6], size=len(a)).astype(np.float32)
    for method in METHODS:
        given = [a, np.zeros_like(a), y] if method == "root_slope" else [a, y]
        keep = np.array([not _singular(name, row) and not _corner(name, row) for row in zip(*given, strict=True)])
        given = [column[keep] for column in given]
        wide = [column.astype(np.float64) for column in given]
        with np.errstate(all="raise", under="ignore"):
            got = getattr(loss, method)(*given)
        exact = getattr(loss, method)(*wide)
        assert got.dtype == np.float32
        condition = np.zeros_like(exact)
        for k in range(len(wide) - name.startswith("logistic")):
            moved = [x * (1 + 1e-7) if j == k else x for j, x in enumerate(wide)]
            condition += np.abs(getattr(loss, method)(*moved) - exact) / 1e-7
        assert np.all(np.abs(got - exact) <= 8 * np.finfo(np.float32).eps * (np.abs(exact) + condition) + 1e-44)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
@each
def test_shape_and_dtype_stay(name, shape):
    loss = DEFINITIONS[name].loss
    a = np.full(shape, 0.5)
    for method in METHODS:
        got = getattr(loss, method)(*([a] * (3 if method == "root_slope" else 2)))
        assert got.shape == shape
        assert got.dtype == np.float64
    assert loss.response(a).shape == loss.singular(a, a, a).shape == shape


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name != "absolute"])
def test_every_slope_is_positive_and_finite(name):
    # A minus sign here is the slip of the paper's logistic example.
    rows = [row for row in _grid(name, 3) if max(map(abs, row)) < 1e150]
    slopes = DEFINITIONS[name].loss.root_slope(*(np.array(column) for column in zip(*rows, strict=True)))
    assert np.all(slopes > 0)
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("labels", [(0.0, 1.0), (-1.0, 1.0)])
def test_logistic_slopes_are_positive_in_the_farthest_tails(labels):
    u = np.array([0.0, 1e-300, 800.0, -800.0, 1e4, -1e4, 1e300, -1e300])
    loss = LogisticLoss(tuple(map(int, labels)))
    for y in labels:
        slope = loss.root_slope(u, np.zeros_like(u), np.full_like(u, y))
        assert np.all(slope > 0)
        np.testing.assert_allclose(slope[:2], 0.25 / np.log(2) ** 0.5, rtol=1e-15)  # sigma(0) / (2 sqrt(log 2))


def test_logistic_labels_of_both_kinds_are_one_loss():
    u, y = np.linspace(-50, 50, 101), np.tile([0.0, 1.0], 51)[:101]
    for method in ("value", "derivative", "curvature", "root"):
        zero_one, signs = (getattr(LogisticLoss(labels), method) for labels in ((0, 1), (-1, 1)))
        np.testing.assert_array_equal(zero_one(u, y), signs(u, 2 * y - 1))


def test_responses_are_probabilities_and_rates_and_otherwise_the_prediction():
    u = np.array([-800.0, -1.0, 0.0, 2.0, 700.0])
    np.testing.assert_allclose(LogisticLoss().response(u), 1 / (1 + np.exp(np.clip(-u, None, 709))), atol=1e-300)
    np.testing.assert_allclose(PoissonDeviance().response(u), np.exp(u), rtol=1e-15)
    for loss in (SquaredError(), Huber(1.0), PseudoHuber(1.0), AbsoluteError()):
        np.testing.assert_array_equal(loss.response(u), u)


def test_poisson_is_infinite_without_a_warning_where_the_rate_is():
    u, y = np.array([710.0, 800.0]), np.array([0.0, 3.0])
    for method in ("value", "derivative", "curvature", "response"):
        with np.errstate(all="raise"):
            found = getattr(PoissonDeviance(), method)(*((u,) if method == "response" else (u, y)))
        assert np.all(np.isposinf(found))
    assert np.isfinite(PoissonDeviance().root(u, y)).all()


# Scores and problems.


def _scores(problem, x, y, theta):
    A = nlis.dual_matrix(problem, x, y, theta=theta)
    return nlis.leverage_scores(A, nlis.factorize(A)), nlis.norm_scores(A)


@pytest.mark.parametrize("wide", [Huber(1e300), PseudoHuber(1e300)])
@pytest.mark.parametrize("model", [nlis.Linear(), nlis.SingleIndex(nlis.Tanh()), nlis.SingleIndex(nlis.Logistic())])
def test_a_very_wide_huber_scores_as_squared_error(model, wide, rng):
    x, y, theta = rng.normal(size=(200, 3)), rng.normal(size=200), rng.normal(size=4)
    squared = _scores(nlis.Problem(model), x, y, theta)
    for got, expected in zip(_scores(nlis.Problem(model, wide), x, y, theta), squared, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1)])
def test_the_logistic_reference_matrix_ends_in_the_signed_root_of_log_2(labels, rng):
    x, s = rng.normal(size=(30, 2)), rng.choice([-1.0, 1.0], size=30)
    y = s if labels == (-1, 1) else (s + 1) / 2
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear(), LogisticLoss(labels)), x, y)
    expected = np.column_stack([x, np.ones(30), -s * np.sqrt(np.log(2))])
    np.testing.assert_allclose(A.to_dask_array().compute(), expected, rtol=1e-15)


def test_the_poisson_reference_matrix_ends_in_the_deviance_residual_at_rate_1(rng):
    sm = pytest.importorskip("statsmodels.api")
    x, y = rng.normal(size=(30, 2)), rng.poisson(2.0, size=30).astype(float)
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear(), PoissonDeviance()), x, y)
    residual = sm.families.Poisson().resid_dev(y, np.ones(30))  # of the sign of y - mu
    np.testing.assert_allclose(A.to_dask_array().compute()[:, -1], -residual, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", [LogisticLoss(), PoissonDeviance()])
def test_losses_with_their_link_inside_refuse_an_activation(loss):
    nlis.Problem(nlis.SingleIndex(nlis.Identity()), loss)
    for activation in (nlis.Logistic(), nlis.Tanh(), nlis.Swish(1, 2)):
        with pytest.raises(nlis.InputError, match=r"link inside.*give Linear\(\)") as caught:
            nlis.Problem(nlis.SingleIndex(activation), loss)
        _one_line(caught.value)


def _one_line(error):
    assert "\n" not in str(error)
    assert len(str(error)) <= 300


REFUSED = {
    "huber 0": (lambda: Huber(0), nlis.InputError, "Huber delta=0 "),
    "huber negative": (lambda: Huber(-1.0), nlis.InputError, r"Huber delta=-1\.0 "),
    "huber infinite": (lambda: Huber(np.inf), nlis.InputError, "Huber delta=inf"),
    "huber NaN": (lambda: Huber(np.nan), nlis.InputError, "Huber delta=nan"),
    "huber text": (lambda: Huber("1"), nlis.InputTypeError, "Huber delta='1' is str"),
    "huber bool": (lambda: Huber(True), nlis.InputTypeError, "delta=True"),
    "pseudo-huber 0": (lambda: PseudoHuber(0), nlis.InputError, "PseudoHuber delta=0 "),
    "labels 1, 2": (lambda: LogisticLoss((1, 2)), nlis.InputError, r"labels=\(1, 2\).*\(0, 1\) or \(-1, 1\)"),
    "labels reversed": (lambda: LogisticLoss((1, 0)), nlis.InputError, r"labels=\(1, 0\)"),
    "labels as text": (lambda: LogisticLoss("01"), nlis.InputError, "labels='01'"),
    "one label": (lambda: LogisticLoss(1), nlis.InputError, "labels=1 "),
    "on_singular": (lambda: AbsoluteError("skip"), nlis.InputError, "on_singular='skip'.*'raise' or 'zero'"),
    "no loss": (lambda: nlis.Problem(nlis.Linear(), LogisticLoss), nlis.InputTypeError, "loss=.*is no loss"),
}


@pytest.mark.parametrize(("call", "kind", "says"), REFUSED.values(), ids=REFUSED)
def test_arguments_that_make_no_loss_are_refused_in_one_line(call, kind, says):
    with pytest.raises(kind, match=says) as caught:
        call()
    _one_line(caught.value)


def test_labels_may_come_as_a_list_and_are_kept_as_a_tuple_of_integers():
    assert LogisticLoss([0.0, 1.0]) == LogisticLoss()
    assert LogisticLoss([-1, 1]).labels == (-1, 1)


# Labels seen in the data.

X = np.random.default_rng(5).normal(size=(60, 2))
CLASSES = (X[:, 0] > 0).astype(float)


def _spoiled(y, *changes):
    y = y.copy()
    for row, value in changes:
        y[row] = value
    return y


LABELLED = {
    "2 among 0 and 1": (
        LogisticLoss(),
        _spoiled(CLASSES, (17, 2), (40, 7)),
        r"outside \{0, 1\} first at row 17 \(value 2, also 7; 2 rows.*labels=\(-1, 1\)",
    ),
    "0 and 1 for -1 and 1": (LogisticLoss((-1, 1)), CLASSES, r"outside \{-1, 1\} first at row \d+ \(value 0; "),
    "-1 and 1 for 0 and 1": (LogisticLoss(), 2 * CLASSES - 1, r"outside \{0, 1\} .*\(value -1; "),
    "1 and 2": (LogisticLoss(), 1 + CLASSES, r"value 2; "),
    "many": (
        LogisticLoss(),
        _spoiled(CLASSES, *((k, k) for k in range(20, 40))),
        "value 20, also 21, 22, 23, 24; 20 rows",
    ),
    "a half": (LogisticLoss(), _spoiled(CLASSES, (3, 0.5)), r"row 3 \(value 0\.5; 1 row"),
    "a negative count": (PoissonDeviance(), _spoiled(CLASSES, (59, -1e-300)), r"below 0 first at row 59 .*>= 0"),
}


@pytest.mark.parametrize("case", LABELLED)
def test_labels_that_the_loss_does_not_allow_are_named_with_their_row(case):
    loss, y, says = LABELLED[case]
    problem = nlis.Problem(nlis.Linear(), loss)
    lazy = da.from_array(X, (15, 2)), da.from_array(y, 15)
    calls = [
        lambda: nlis.factorize(nlis.reference_matrix(problem, *lazy)),
        lambda: nlis.factorize(nlis.dual_matrix(problem, X, y, theta=np.ones(3))),
        lambda: nlis.total_loss(problem, *lazy, np.ones(3)),
        lambda: nlis.norm_scores(nlis.reference_matrix(problem, X, y, missing="drop")),
        lambda: nlis.run(problem, *lazy, size=20, seed=0),
    ]
    for call in calls:
        with pytest.raises(nlis.InputError, match=says) as caught:
            call()
        assert type(caught.value) is nlis.InputError
        _one_line(caught.value)
    with pytest.raises(nlis.InputError, match="taken row") as caught:
        nlis.refit(problem, X, y, np.ones(60))
    _one_line(caught.value)


def test_without_labels_there_is_nothing_to_check_and_zero_counts_are_counts():
    nlis.factorize(nlis.reference_matrix(nlis.Problem(nlis.Linear(), LogisticLoss()), X))
    nlis.factorize(nlis.reference_matrix(nlis.Problem(nlis.Linear(), PoissonDeviance()), X, CLASSES))


@pytest.mark.parametrize("loss", [LogisticLoss((-1, 1)), PoissonDeviance(), AbsoluteError()])
def test_dropped_rows_and_rows_of_weight_0_need_no_allowed_label_of_their_own(loss):
    # Such rows are computed with a stand-in, and 0 is no label of (-1, 1) and a singular row of absolute error.
    y = 2 * CLASSES - 1 if isinstance(loss, LogisticLoss) else 1 + CLASSES
    gap, weight = _spoiled(y, (7, np.nan)), np.where(np.arange(60) == 9, 0.0, 1.0)
    problem = nlis.Problem(nlis.Linear(intercept=False), loss)
    kept = np.arange(60) != 7
    A = nlis.dual_matrix(problem, X, gap, theta=[0.3, -0.2], missing="drop")
    B = nlis.dual_matrix(problem, X[kept], y[kept], theta=[0.3, -0.2])
    for score in (lambda M: nlis.leverage_scores(M, nlis.factorize(M)), nlis.norm_scores):
        np.testing.assert_allclose(score(A)[kept], score(B), rtol=1e-12)
        assert score(A)[7] == 0
    zero = _spoiled(y, (9, 0.0)) if isinstance(loss, AbsoluteError) else y
    at_nine = np.where(np.arange(60)[:, None] == 9, 0.0, X)
    C = nlis.dual_matrix(problem, at_nine, zero, theta=[0.3, -0.2], sample_weight=weight)
    assert nlis.norm_scores(C)[9] == 0
    assert nlis.leverage_scores(C, nlis.factorize(C))[9] == 0


def test_a_label_out_of_range_counts_also_where_other_rows_are_dropped():
    y = _spoiled(CLASSES, (3, np.nan), (20, 5.0), (30, np.inf))
    problem = nlis.Problem(nlis.Linear(), LogisticLoss())
    with pytest.raises(nlis.InputError, match=r"row 20 \(value 5; 1 row in all\)"):
        nlis.factorize(nlis.reference_matrix(problem, X, y, missing="drop"))
    with pytest.raises(nlis.NonFiniteError, match=r"row 3 \(3 rows in all\)"):
        nlis.factorize(nlis.reference_matrix(problem, X, y))


# Absolute error where it has no slope.


def test_two_zero_residuals_have_no_slope():
    a = np.array([0.3, 0.3, 0.3, 0.3, 1e-308, 0.0])
    b = np.array([0.3, 0.3, 0.1, 0.5, 0.0, 0.0])
    y = np.array([0.3, 0.2, 0.3, 0.3, 0.0, 1e-300])
    np.testing.assert_array_equal(AbsoluteError().singular(a, b, y), [True, False, False, False, True, False])
    slope = AbsoluteError().root_slope(a, b, y)
    np.testing.assert_array_equal(np.isposinf(slope), AbsoluteError().singular(a, b, y))
    forgiven = AbsoluteError("zero").root_slope(a, b, y)
    np.testing.assert_array_equal(forgiven, np.where(np.isinf(slope), 0.0, slope))
    for loss in (SquaredError(), Huber(1.0), PseudoHuber(1.0), LogisticLoss(), PoissonDeviance()):
        assert not loss.singular(a, b, y).any()


@pytest.mark.parametrize("chunk", [60, 20])
def test_singular_rows_raise_with_their_first_row_and_number(chunk):
    y = _spoiled(CLASSES + 1, (25, 0.0), (31, 0.0))
    theta = [0.0, 0.0]
    problem = nlis.Problem(nlis.Linear(intercept=False), AbsoluteError())
    A = nlis.dual_matrix(problem, da.from_array(X, (chunk, 2)), da.from_array(y, chunk), theta=theta)
    calls = [lambda: nlis.factorize(A), lambda: nlis.norm_scores(A).compute(), lambda: A.to_dask_array().compute()]
    for call in calls:
        with pytest.raises(nlis.ZeroLossSingularityError, match=r"at row 25 \(2 of \d+ rows") as caught:
            call()
        _one_line(caught.value)
        assert isinstance(caught.value, nlis.InputError)
    # Off that theta, without an adjoint at all, or when told so, the same data are fine.
    nlis.factorize(nlis.dual_matrix(problem, X, y, theta=[1e-200, 0.0]))
    nlis.factorize(nlis.reference_matrix(problem, X, y))
    assert nlis.total_loss(problem, X, y, theta) == pytest.approx(np.abs(y).sum())
    zero = nlis.dual_matrix(nlis.Problem(nlis.Linear(intercept=False), AbsoluteError("zero")), X, y, theta=theta)
    assert nlis.norm_scores(zero)[25] == 0


# A loss of the user's own. These functions stand at the top level, where a worker finds them.


def quartic(p, y):
    return (p - y) ** 2 + (p - y) ** 4


def quartic_derivative(p, y):
    return 2 * (p - y) + 4 * (p - y) ** 3


def quartic_curvature(p, y):
    return 2 + 12 * (p - y) ** 2


def scaled(p, y, factor):
    return factor * (p - y) ** 2


def gaussian(p, y):
    return (p - y) ** 2 - 1.0  # a log-likelihood up to constants


def deviance(p, y):
    return 2 * (y * np.log(y / p) - y + p)


def deviance_derivative(p, y):
    return 2 * (1 - y / p)


def total(p, y):
    return ((p - y) ** 2).sum()


def dead_zone(p, y):
    t = np.maximum(np.abs(p - y) - 1, 0.0)
    return t * t


def dead_zone_derivative(p, y):
    return 2 * np.sign(p - y) * np.maximum(np.abs(p - y) - 1, 0.0)


def _quartic_oracle(a, b, y):
    def root(p):
        return mp.sign(p - y) * mp.sqrt((p - y) ** 2 + (p - y) ** 4)

    t = a - y
    return (root(a) - root(b)) / (a - b) if a != b else (1 + 2 * t**2) / mp.sqrt(1 + t**2)


@pytest.mark.parametrize("curvature", [quartic_curvature, None])
def test_a_custom_root_slope_is_stable_from_equal_arguments_to_distant_ones(curvature):
    loss = CustomLoss(quartic, quartic_derivative, curvature)
    steps = [0.0, 5e-324, 1e-300, 1e-17, 1e-14, 1e-11, 1e-8, 1e-5, 1e-3, 0.1, 0.7, 3.0, 50.0]
    rows = [(b + s * d, b, y) for b in (0.0, 0.3, -2.0, 40.0) for d in steps for s in (1, -1) for y in (0.0, 0.5, -3.0)]
    a, b, y = (np.array(column) for column in zip(*rows, strict=True))
    with np.errstate(all="raise", under="ignore"):
        got = loss.root_slope(a, b, y)
    with mp.workdps(400):
        exact = np.array([float(_quartic_oracle(*map(mp.mpf, row))) for row in zip(a, b, y, strict=True)])
    # The user's (p - y)^2 underflows for the residuals of 1e-300; their slope is that of the curvature, 1.
    np.testing.assert_allclose(got, exact, rtol=1e-13 if curvature else 1e-9)
    np.testing.assert_allclose(loss.curvature(b, y), quartic_curvature(b, y), rtol=1e-8)


def test_a_custom_loss_that_is_one_of_ours_scores_as_ours(rng):
    x, y, theta = rng.normal(size=(90, 3)), rng.normal(size=90), rng.normal(size=4)
    model = nlis.SingleIndex(nlis.Tanh())
    for ours in (SquaredError(), PseudoHuber(0.7), Huber(0.7)):
        theirs = CustomLoss(ours.value, ours.derivative, ours.curvature)
        expected = _scores(nlis.Problem(model, ours), x, y, theta)
        for got, one in zip(_scores(nlis.Problem(model, theirs), x, y, theta), expected, strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-10, atol=1e-12)


def test_a_loss_that_is_flat_around_its_minimum_has_slope_0_there():
    loss = CustomLoss(dead_zone, dead_zone_derivative)
    a, b, y = np.array([0.2, 0.2, 0.2]), np.array([0.2, -0.3, 3.0]), np.zeros(3)
    np.testing.assert_allclose(loss.root_slope(a, b, y), [0.0, 0.0, 2.0 / 2.8], rtol=1e-14)


def test_rounding_below_zero_is_zero_and_more_is_refused():
    rng = np.random.default_rng(0)
    y = rng.uniform(0.1, 3.0, size=1000)
    loss = CustomLoss(deviance, deviance_derivative)
    nearly = y * (1 + 1e-8 * rng.normal(size=1000))
    assert deviance(nearly, y).min() < 0  # the textbook form cancels
    assert loss.value(nearly, y).min() == 0
    bad = CustomLoss(gaussian, quartic_derivative)
    for call in (
        lambda: bad.value(np.zeros(2), np.zeros(2)),
        lambda: nlis.factorize(nlis.reference_matrix(nlis.Problem(nlis.Linear(), bad), X, CLASSES)),
        lambda: nlis.total_loss(nlis.Problem(nlis.Linear(), bad), X, CLASSES, np.zeros(3)),
        lambda: nlis.refit(nlis.Problem(nlis.Linear(), bad), X, CLASSES, np.ones(60)),
    ):
        with pytest.raises(nlis.InputError, match=r"value gaussian returned -.*>= 0.*deviance") as caught:
            call()
        _one_line(caught.value)


def test_a_result_of_another_shape_is_refused():
    with pytest.raises(nlis.InputError, match=r"value total returned .*shape \(60,\).*one number a row") as caught:
        nlis.factorize(nlis.reference_matrix(nlis.Problem(nlis.Linear(), CustomLoss(total, total)), X, CLASSES))
    _one_line(caught.value)


def _inner():
    def inner(p, y):
        return (p - y) ** 2

    return inner


NOT_TRAVELLING = {
    "lambda": lambda p, y: (p - y) ** 2,
    "inner function": _inner(),
    "partial of a lambda": functools.partial(lambda p, y, k: k * (p - y) ** 2, k=2),
    "number": 3.0,
    "nothing": None,
}


@pytest.mark.parametrize("case", NOT_TRAVELLING)
def test_functions_that_no_worker_could_call_are_refused_when_given(case):
    bad = NOT_TRAVELLING[case]
    arguments = [(bad, quartic_derivative), (quartic, bad)]
    arguments += [] if bad is None else [(quartic, quartic_derivative, bad)]
    for given in arguments:
        with pytest.raises(nlis.InputTypeError, match=r"CustomLoss (value|derivative|curvature)=") as caught:
            CustomLoss(*given)
        _one_line(caught.value)


class Callable2:
    def __call__(self, p, y):
        return (p - y) ** 2

    def method(self, p, y):
        return (p - y) ** 2


@pytest.mark.parametrize(
    "function",
    [quartic, functools.partial(scaled, factor=2.0), Huber(1.0).value, Callable2(), Callable2().method, np.hypot],
)
def test_functions_that_travel_are_accepted_and_do(function):
    loss = CustomLoss(function, quartic_derivative)
    there = pickle.loads(pickle.dumps(loss))
    np.testing.assert_array_equal(there.value(X[:, 0], X[:, 1]), loss.value(X[:, 0], X[:, 1]))


def test_a_custom_loss_is_a_noun_without_a_dictionary():
    loss = CustomLoss(quartic, quartic_derivative)
    assert loss == pickle.loads(pickle.dumps(loss))
    assert loss != CustomLoss(quartic, quartic_derivative, quartic_curvature)
    assert repr(loss) == "CustomLoss(value='quartic', derivative='quartic_derivative')"
    with pytest.raises(nlis.InputTypeError, match="no file may name") as caught:
        nlis.Problem(nlis.Linear(), loss).to_dict()
    _one_line(caught.value)


def test_rows_of_every_loss_are_finite_at_both_rules_for_the_largest_features():
    x = np.array([[1e100], [-1e100], [0.0]])
    for name, definition in DEFINITIONS.items():
        if name == "poisson":
            continue
        y = np.full(3, definition.labels[-1] if name.startswith("logistic") else 0.5)
        problem = nlis.Problem(nlis.Linear(intercept=False), definition.loss)
        with np.errstate(all="raise", under="ignore"):
            for rule in (Reference(problem), Dual(problem, np.array([1.0]))):
                assert np.isfinite(rule.rows(x, y)).all()
