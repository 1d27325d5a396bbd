"""The refit against SciPy, statsmodels and closed forms; optimality conditions on sets; its own verdict `ok`."""

import pickle
import warnings

import numpy as np
import pytest
from dask.base import tokenize
from scipy.optimize import least_squares
from scipy.special import expit

import dask_nlis as nlis
from dask_nlis import Ball, Box
from dask_nlis.refit.objective import Objective

INF = np.inf

#: Activation, its value and its derivative, written down once more.
PHIS = {
    "identity": (nlis.Identity(), lambda t: t, lambda t: np.ones_like(t)),
    "logistic": (nlis.Logistic(), expit, lambda t: expit(t) * expit(-t)),
    "tanh": (nlis.Tanh(), np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "swish": (
        nlis.Swish(1, 2),
        lambda t: t * (1 + (np.sqrt(2) - 1) * expit(t)),
        lambda t: 1 + (np.sqrt(2) - 1) * (expit(t) + t * expit(t) * expit(-t)),
    ),
}
each_phi = pytest.mark.parametrize("phi", PHIS.values(), ids=PHIS)

TRUTH = np.array([0.8, -0.5, 0.3, 0.4])  # the last is the intercept


def rows(phi, rng, n: int = 80, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and skewed weights."""
    X = rng.standard_normal((n, 3))
    y = phi[1](X @ TRUTH[:3] + TRUTH[3]) + noise * rng.standard_normal(n)
    return X, y, rng.lognormal(size=n)


def problem(phi, constraint=None) -> nlis.Problem:
    return nlis.Problem(nlis.SingleIndex(phi[0]), constraint=constraint)


def loss(phi, X, y, w, theta) -> float:
    return float(w @ (phi[1](X @ theta[:-1] + theta[-1]) - y) ** 2)


def gradient(phi, X, y, w, theta) -> np.ndarray:
    u = X @ theta[:-1] + theta[-1]
    return 2 * np.column_stack([X, np.ones(len(X))]).T @ (w * (phi[1](u) - y) * phi[2](u))


def scipys(phi, X, y, w, **options) -> np.ndarray:
    def residual(theta):
        return np.sqrt(w) * (phi[1](X @ theta[:-1] + theta[-1]) - y)

    return least_squares(residual, TRUTH, xtol=1e-15, ftol=1e-15, gtol=1e-15, **options).x


@each_phi
def test_an_unconstrained_fit_is_scipys(phi, rng):
    X, y, w = rows(phi, rng)
    fit = nlis.refit(problem(phi), X, y, w)
    assert fit.ok
    assert (fit.reasons, fit.active, fit.n_rows) == ((), (), 80)
    np.testing.assert_allclose(fit.theta, scipys(phi, X, y, w), rtol=1e-6)
    assert fit.loss == pytest.approx(loss(phi, X, y, w, fit.theta), rel=1e-12)


def test_a_linear_fit_is_statsmodels_weighted_least_squares(rng):
    sm = pytest.importorskip("statsmodels.api")
    X, y, w = rows(PHIS["identity"], rng)
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, y, w)
    expected = sm.WLS(y, np.column_stack([X, np.ones(80)]), weights=w).fit()
    np.testing.assert_allclose(fit.theta, expected.params, rtol=1e-10)
    assert fit.loss == pytest.approx(float(w @ expected.resid**2), rel=1e-10)
    without = nlis.refit(nlis.Problem(nlis.Linear(intercept=False)), X, y, w)
    np.testing.assert_allclose(without.theta, sm.WLS(y, X, weights=w).fit().params, rtol=1e-10)


@each_phi
def test_all_rows_with_weight_1_give_the_full_fit(phi, rng):
    X, y, _ = rows(phi, rng)
    sample = nlis.draw(rng.uniform(0.5, 2, size=80), 80, scheme="poisson", seed=0)  # every row once
    fit = nlis.refit(problem(phi), *sample.take(X, y), sample)
    np.testing.assert_allclose(fit.theta, scipys(phi, X, y, np.ones(80)), rtol=1e-6)
    np.testing.assert_allclose(fit.theta, nlis.refit(problem(phi), X, y, np.ones(80)).theta, rtol=1e-10)


@each_phi
def test_weights_count_as_repeated_rows(phi, rng):
    X, y, _ = rows(phi, rng)
    counts = rng.integers(0, 4, size=80)
    weighted = nlis.refit(problem(phi), X, y, counts)
    repeated = nlis.refit(problem(phi), X.repeat(counts, axis=0), y.repeat(counts), np.ones(counts.sum()))
    np.testing.assert_allclose(weighted.theta, repeated.theta, rtol=1e-6)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-9)


def test_a_sample_brings_its_weights_and_sample_weight_multiplies_them(rng):
    phi = PHIS["tanh"]
    X, y, w = rows(phi, rng)
    sample = nlis.draw(w, 60, seed=0)
    X_s, y_s, w_s = sample.take(X, y, w)
    fit = nlis.refit(problem(phi), X_s, y_s, sample)
    alike = nlis.refit(problem(phi), X_s, y_s, sample.weights)
    np.testing.assert_array_equal(fit.theta, alike.theta)
    assert (fit.loss, fit.ok) == (alike.loss, alike.ok)
    both = nlis.refit(problem(phi), X_s, y_s, sample, sample_weight=w_s)
    np.testing.assert_array_equal(both.theta, nlis.refit(problem(phi), X_s, y_s, sample.weights * w_s).theta)
    assert np.abs(both.theta - fit.theta).max() > 1e-3


SETS = {"none": None, "ball": Ball(0.5), "box": Box([0.1, -0.2, -INF, -1.0], [0.5, 0.2, 0.1, INF])}
each_set = pytest.mark.parametrize("constraint", SETS.values(), ids=SETS)


@each_set
@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1e9])
def test_the_scale_of_the_weights_changes_no_theta(constraint, factor, rng):
    phi = PHIS["swish"]
    X, y, w = rows(phi, rng)
    fit = nlis.refit(problem(phi, constraint), X, y, w)
    scaled = nlis.refit(problem(phi, constraint), X, y, factor * w)
    assert scaled.ok
    np.testing.assert_allclose(scaled.theta, fit.theta, rtol=1e-6)
    assert scaled.loss == pytest.approx(factor * fit.loss, rel=1e-9)
    assert scaled.active == fit.active


@pytest.mark.parametrize("power", [-60, -30, 30])
@each_set
def test_the_units_of_the_labels_scale_theta_with_them(constraint, power, rng):
    X, y, w = rows(PHIS["identity"], rng)
    scaled_set = {
        type(None): lambda: None,
        Ball: lambda: Ball(np.ldexp(constraint.radius, power)),
        Box: lambda: Box(np.ldexp(constraint.lower, power), np.ldexp(constraint.upper, power)),
    }[type(constraint)]()
    fit = nlis.refit(nlis.Problem(nlis.Linear(), constraint=constraint), X, y, w)
    scaled = nlis.refit(nlis.Problem(nlis.Linear(), constraint=scaled_set), X, np.ldexp(y, power), w)
    assert scaled.ok
    np.testing.assert_allclose(np.ldexp(scaled.theta, -power), fit.theta, rtol=1e-6)


@each_phi
def test_an_active_ball_leaves_no_gradient_along_its_surface(phi, rng):
    X, y, w = rows(phi, rng)
    for ball in (Ball(0.4), Ball(0.3, [1.0, 0.0, 0.0, 0.0])):
        fit = nlis.refit(problem(phi, ball), X, y, w)
        assert fit.ok
        offset = fit.theta if ball.center is None else fit.theta - ball.center
        assert np.linalg.norm(offset) == pytest.approx(ball.radius, rel=1e-6)
        assert fit.active == (f"ball of radius {ball.radius:g}",)
        # Karush-Kuhn-Tucker: the gradient points straight into the ball.
        slope = gradient(phi, X, y, w, fit.theta)
        multiplier = -slope @ offset / ball.radius**2
        assert multiplier > 0
        np.testing.assert_allclose(slope, -multiplier * offset, atol=1e-4 * np.linalg.norm(slope))
        assert fit.loss > loss(phi, X, y, w, scipys(phi, X, y, w))


@each_phi
def test_an_active_box_leaves_gradients_that_point_outwards_only(phi, rng):
    X, y, w = rows(phi, rng)
    box = Box([-0.1, -0.2, 0.25, -INF], [0.3, INF, 0.25, INF])  # the third entry is fixed
    fit = nlis.refit(problem(phi, box), X, y, w)
    assert fit.ok
    assert box.contains(fit.theta)
    slope = gradient(phi, X, y, w, fit.theta)
    assert fit.theta[[0, 1, 2]].tolist() == [0.3, -0.2, 0.25]
    assert slope[0] < 0 < slope[1]
    assert abs(slope[3]) < 1e-4 * np.abs(slope).max()
    assert fit.active[:2] == ("x0 at its upper bound", "x1 at its lower bound")
    assert [name.split()[0] for name in fit.active] == ["x0", "x1", "x2"]


@each_phi
def test_a_set_with_the_optimum_inside_changes_nothing(phi, rng):
    X, y, w = rows(phi, rng)
    free = nlis.refit(problem(phi), X, y, w)
    for constraint in (Ball(50.0), Ball(3.0, TRUTH), Box(-40, 40), Box([0, -INF, 0, 0], INF)):
        fit = nlis.refit(problem(phi, constraint), X, y, w)
        assert fit.ok
        assert fit.active == ()
        np.testing.assert_allclose(fit.theta, free.theta, rtol=1e-6)


def starts(constraint, rng, n: int) -> list[np.ndarray]:
    """Random starts of all sizes: outside, inside and, every third, on the boundary."""
    found = [rng.standard_normal(4) * 10.0 ** rng.uniform(-2, 1.5) for _ in range(n)]
    return [constraint.project(s) if constraint is not None and k % 3 == 0 else s for k, s in enumerate(found)]


@each_phi
@each_set
def test_no_fit_ends_worse_than_its_projected_start(phi, constraint, rng):
    X, y, w = rows(phi, rng, n=12)
    for start in starts(constraint, rng, 18):
        inside = start if constraint is None else constraint.project(start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nlis.ConvergenceWarning)  # a saturated start may be stuck, and say so
            fit = nlis.refit(problem(phi, constraint), X, y, w, start=start, n_starts=1)
        assert fit.loss <= loss(phi, X, y, w, inside) * (1 + 1e-12)
        assert constraint is None or constraint.contains(fit.theta)


def test_a_start_near_a_bound_reaches_an_optimum_nearer_to_it():
    # (x - 1e-12)^2 from 1.1e-12 with x >= 0: solvers that step inside the bound come back at 1e-10.
    line = nlis.Problem(nlis.Linear(intercept=False), constraint=Box(0.0, INF))
    for start in (1.1e-12, 0.0, -5.0, 1e-30):
        fit = nlis.refit(line, [[1.0]], [1e-12], [1.0], start=[start])
        assert fit.ok
        np.testing.assert_allclose(fit.theta, [1e-12], rtol=1e-6)


UNITS = {
    "mixed": np.array([1e-6, 1.0, 1e6]),
    "growing": np.array([1e-3, 1e3, 1e6]),
    "all small": np.array([1e-6, 1e-5, 1e-6]),
    "all large": np.array([1e6, 1e5, 1e6]),
}
WIDE = {"none": None, "ball": Ball(1e8), "box": Box(-1e8, 1e8)}


@each_phi
@pytest.mark.parametrize("units", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("constraint", WIDE.values(), ids=WIDE)
def test_columns_in_any_units_give_the_same_fit_or_no_ok(phi, units, constraint, rng):
    # The optimum lies inside every set, so it is that of well-scaled columns with theta divided by the units.
    X, y, w = rows(phi, rng)
    best = scipys(phi, X, y, w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)
        fit = nlis.refit(problem(phi, constraint), X * units, y, w)
    assert not fit.ok or fit.loss <= loss(phi, X, y, w, best) * (1 + 1e-6)
    # And ok it must be: nothing but units is wrong with these rows.
    assert fit.ok
    np.testing.assert_allclose(fit.theta * [*units, 1], best, rtol=1e-3)
    assert fit.active == ()


DEGENERATE = {
    "constant column": lambda X: np.column_stack([X[:, :2], np.full(len(X), 7.0)]),  # beside the intercept
    "zero column": lambda X: np.column_stack([X[:, :2], np.zeros(len(X))]),
    "twice the same column": lambda X: X[:, [0, 1, 1]],
    "a sum of columns": lambda X: np.column_stack([X[:, :2], X[:, 0] + 1e3 * X[:, 1]]),
}


@each_phi
@each_set
@pytest.mark.parametrize("make", DEGENERATE.values(), ids=DEGENERATE)
def test_columns_without_a_unique_optimum_still_give_a_finite_fit_that_is_ok(phi, constraint, make, rng):
    X, y, w = rows(phi, rng)
    X = make(X)
    fit = nlis.refit(problem(phi, constraint), X, y, w)
    assert fit.ok
    assert np.isfinite(fit.theta).all()
    if constraint is None:
        lean = np.linalg.svd(np.column_stack([X, np.ones(80)]), full_matrices=False)
        basis = lean[0][:, lean[1] > 1e-10 * lean[1][0]]  # the same predictions with independent columns

        def residual(z):
            return np.sqrt(w) * (phi[1](basis @ z) - y)

        best = 2 * least_squares(residual, basis.T @ (X @ TRUTH[:3]), xtol=1e-15, ftol=1e-15, gtol=1e-15).cost
        assert fit.loss <= best * (1 + 1e-8)


@each_phi
def test_a_perfect_fit_is_ok(phi, rng):
    X, y, w = rows(phi, rng, noise=0.0)
    fit = nlis.refit(problem(phi), X, y, w)
    assert fit.ok
    np.testing.assert_allclose(fit.theta, TRUTH, rtol=1e-6)
    assert fit.loss <= 1e-12 * (w @ y**2)


@each_phi
@each_set
def test_one_row_is_fitted(phi, constraint):
    fit = nlis.refit(problem(phi, constraint), [[0.2, 0.1, -0.3]], [0.3], [2.0])
    assert fit.ok
    assert fit.n_rows == 1
    assert np.isfinite(fit.theta).all()


def test_more_starts_are_never_worse_and_sometimes_better(rng):
    gains = []
    for _ in range(8):
        X, y, w = rows(PHIS["tanh"], rng, n=10, noise=0.5)  # several local optima
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nlis.ConvergenceWarning)
            fits = [nlis.refit(problem(PHIS["tanh"], Ball(20.0)), X, y, w, n_starts=n) for n in (1, 5)]
        gains.append(fits[0].loss / fits[1].loss - 1)
    assert min(gains) >= -1e-9
    assert max(gains) > 1e-3


def test_the_starts_of_one_seed_are_the_same_and_no_global_state_is_touched(rng):
    X, y, w = rows(PHIS["tanh"], rng, n=10, noise=0.5)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    fits = [nlis.refit(problem(PHIS["tanh"]), X, y, w, seed=3) for _ in range(2)]
    assert fits[0] == fits[1]
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@each_phi
def test_the_local_picture_is_the_gradient_and_the_gauss_newton_matrix(phi, rng):
    X, y, w = rows(phi, rng)
    theta = rng.standard_normal(4)
    local = Objective(problem(phi), X, y, w).at(theta)
    rows_of_1 = np.column_stack([X, np.ones(80)])
    jacobian = phi[2](rows_of_1 @ theta)[:, None] * rows_of_1
    assert local.value == pytest.approx(loss(phi, X, y, w, theta), rel=1e-13)
    np.testing.assert_allclose(local.gradient, gradient(phi, X, y, w, theta), rtol=1e-10)
    np.testing.assert_allclose(local.hessian, 2 * jacobian.T @ (w[:, None] * jacobian), rtol=1e-12)


# What follows is the verdict, the refusals and the noun Fit: none of it depends on what stands above.


def tanh(constraint=None) -> nlis.Problem:
    return nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=constraint)


def taken(rng) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = rng.standard_normal((40, 3))
    return X, np.tanh(X @ [0.8, -0.5, 0.3] + 0.4) + 0.1 * rng.standard_normal(40), rng.lognormal(size=40)


class Nowhere:
    """A set that no point satisfies: its projection promises what `contains` denies."""

    def project(self, theta):
        return np.clip(theta, -0.1, 0.1)

    def contains(self, theta):
        return False

    def active(self, theta, names):
        return ()

    def minimize_quadratic(self, hessian, gradient, theta):
        return self.project(theta - gradient)

    def check(self, p):
        pass


class Stuck(Nowhere):
    """A set whose solvers never move, though its local quadratic promises a decrease."""

    def project(self, theta):
        return np.zeros_like(theta)

    def contains(self, theta):
        return True

    def minimize_quadratic(self, hessian, gradient, theta):
        return -gradient / np.trace(hessian)


@pytest.mark.parametrize(
    ("constraint", "reason"), [(Nowhere(), "outside the constraint set"), (Stuck(), "not stationary")]
)
def test_a_fit_that_fails_a_check_says_why_and_warns(constraint, reason, rng):
    X, y, w = taken(rng)
    with pytest.warns(nlis.ConvergenceWarning, match=reason):
        fit = nlis.refit(tanh(constraint), X, y, w)
    assert not fit.ok
    assert any(reason in text for text in fit.reasons)
    assert "ok=False" in repr(fit)


def test_rows_too_large_for_arithmetic_are_not_ok_and_nothing_else_is_raised():
    with pytest.warns(nlis.ConvergenceWarning, match="not finite"):
        fit = nlis.refit(nlis.Problem(nlis.Linear()), [[1e200], [-1e200]], [1.0, 2.0], [1.0, 1.0])
    assert not fit.ok


X5, Y5, W5 = np.arange(10.0).reshape(5, 2), np.arange(5.0), np.ones(5)


def spoiled(array: np.ndarray, value: float) -> np.ndarray:
    out = array.copy()
    out.flat[3] = value
    return out


SAMPLE = nlis.draw(W5, 3, scheme="poisson", seed=0)
REFUSED = {
    "X 1-D": ((X5[:, 0], Y5, W5), {}, nlis.InputError, r"X has shape \(5,\)"),
    "y short": ((X5, Y5[:4], W5), {}, nlis.InputError, r"y has shape \(4,\)"),
    "y with two columns": ((X5, X5, W5), {}, nlis.InputError, r"y has shape \(5, 2\)"),
    "weights short": ((X5, Y5, W5[:4]), {}, nlis.InputError, r"sample has shape \(4,\)"),
    "rows of another sample": ((X5, Y5, SAMPLE), {}, nlis.InputError, "X has 5 rows, but the sample has"),
    "no rows": ((X5[:0], Y5[:0], W5[:0]), {}, nlis.InputError, "no rows|0 rows"),
    "NaN in X": ((spoiled(X5, np.nan), Y5, W5), {}, nlis.NonFiniteError, "taken row 1 "),
    "infinity in y": ((X5, spoiled(Y5, INF), W5), {}, nlis.NonFiniteError, "taken row 3 "),
    "NaN weight": ((X5, Y5, spoiled(W5, np.nan)), {}, nlis.InputError, "sample|weights"),
    "infinite weight": ((X5, Y5, spoiled(W5, INF)), {}, nlis.InputError, "sample|weights"),
    "negative weight": ((X5, Y5, spoiled(W5, -1)), {}, nlis.InputError, "negative"),
    "all weights zero": ((X5, Y5, 0 * W5), {}, nlis.InputError, "all zero"),
    "negative sample_weight": ((X5, Y5, W5), {"sample_weight": spoiled(W5, -1)}, nlis.InputError, "negative"),
    # Twice negative is not positive.
    "both negative": ((X5, Y5, -W5), {"sample_weight": -W5}, nlis.InputError, "negative"),
    "no weights": ((X5, Y5, None), {}, nlis.InputTypeError, "sample"),
    "no labels": ((X5, None, W5), {}, nlis.InputTypeError, "y"),
    "text": ((X5.astype(str), Y5, W5), {}, nlis.InputTypeError, "X has dtype"),
    "start too long": ((X5, Y5, W5), {"start": np.zeros(4)}, nlis.InputError, r"shape \(4,\).*expects \(3,\)"),
    "NaN in the start": ((X5, Y5, W5), {"start": [0, np.nan, 0]}, nlis.InputError, r"\[1\]=nan"),
    "no start at all": ((X5, Y5, W5), {"n_starts": 0}, nlis.InputError, "n_starts=0"),
    "half a start": ((X5, Y5, W5), {"n_starts": 1.5}, nlis.InputError, r"n_starts=1\.5"),
    "negative seed": ((X5, Y5, W5), {"seed": -1}, nlis.InputError, "seed=-1"),
    "generator as seed": ((X5, Y5, W5), {"seed": np.random.default_rng(0)}, nlis.InputTypeError, "seed"),
}


@pytest.mark.parametrize(("arguments", "options", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_fitted_is_refused_in_one_line(arguments, options, error, match):
    with pytest.raises(error, match=match) as caught:
        nlis.refit(tanh(), *arguments, **options)
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("constraint", [Ball(1.0, [0.0, 0.0]), Box([0.0, 0.0], 1.0), Box(0.0, np.ones(4))])
def test_a_set_in_other_dimensions_is_refused(constraint):
    with pytest.raises(nlis.InputError, match="theta has 3 entries"):
        nlis.refit(tanh(constraint), X5, Y5, W5)


def test_lazy_rows_are_refused_with_the_remedy():
    da = pytest.importorskip("dask.array")
    with pytest.raises(nlis.InputTypeError, match="take"):
        nlis.refit(tanh(), da.from_array(X5), Y5, W5)


@pytest.fixture
def fit(rng) -> nlis.Fit:
    X, y, w = taken(rng)
    return nlis.refit(tanh(Ball(0.5)), X, y, w)


def test_a_fit_names_its_parameters_and_predicts(fit, rng):
    assert fit.names == ("x0", "x1", "x2", "intercept")
    assert list(fit.params) == list(fit.names)
    np.testing.assert_array_equal(list(fit.params.values()), fit.theta)
    X = rng.standard_normal((7, 3))
    np.testing.assert_allclose(fit.predict(X), np.tanh(X @ fit.theta[:3] + fit.theta[3]), rtol=1e-14)
    for wrong in (X[:, :2], X[0]):
        with pytest.raises(nlis.InputError, match="3 columns"):
            fit.predict(wrong)


def test_a_fit_keeps_the_column_names_and_refuses_others(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.standard_normal((30, 2)), columns=["age", "income"])
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, 2 * X["age"] + 1, np.ones(30))
    assert fit.params == pytest.approx({"age": 2.0, "income": 0.0, "intercept": 1.0}, abs=1e-9)
    np.testing.assert_allclose(fit.predict(X), 2 * X["age"] + 1, atol=1e-9)
    np.testing.assert_array_equal(fit.predict(X.to_numpy()), fit.predict(X))
    with pytest.raises(nlis.InputError, match="'income' where the fit has 'age'"):
        fit.predict(X[["income", "age"]])


def test_column_names_are_compared_whatever_they_are(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.standard_normal((30, 2)), columns=["x0", "pressure"])  # "x0" is also what unnamed columns get
    fit = nlis.refit(nlis.Problem(nlis.Linear()), X, X["x0"], np.ones(30))
    with pytest.raises(nlis.InputError, match="'pressure' where the fit has 'x0'"):
        fit.predict(X[["pressure", "x0"]])


def test_a_fit_is_a_noun(fit):
    for copy in (pickle.loads(pickle.dumps(fit)), nlis.Fit.from_dict(fit.to_dict())):
        assert copy == fit
        assert hash(copy) == hash(fit)
        assert tokenize(copy) == tokenize(fit)
    assert repr(fit).startswith("Fit(ok=True, loss=")
    assert "\n" not in repr(fit)
    with pytest.raises(AttributeError):
        fit.ok = False
    with pytest.raises(ValueError, match="read-only"):
        fit.theta[0] = 1
