"""Refits of every loss against scikit-learn, statsmodels, SciPy and linear programming; fits without an optimum."""

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import least_squares, linprog
from scipy.special import expit
from tables import LOSSES, allowed

import dask_nlis as nlis
from dask_nlis import AbsoluteError, Ball, Box, CustomLoss, Huber, LogisticLoss, PoissonDeviance, PseudoHuber
from dask_nlis.refit.objective import Objective

TRUTH = np.array([0.8, -0.5, 0.3, 0.4])  # the last is the intercept
N = 300


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, 3))


@pytest.fixture
def w(rng):
    return rng.lognormal(size=N)


def ones(X):
    return np.column_stack([X, np.ones(len(X))])


def index(X):
    return ones(X) @ TRUTH


def linear(loss, constraint=None):
    return nlis.Problem(nlis.Linear(), loss, constraint=constraint)


def classes(X, rng, steepness=1.0):
    return (rng.uniform(size=len(X)) < expit(steepness * index(X))).astype(float)


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1)])
def test_a_logistic_refit_is_statsmodels_and_scikit_learns(labels, X, w, rng):
    sm = pytest.importorskip("statsmodels.api")
    from sklearn.linear_model import LogisticRegression

    y = classes(X, rng, 2.0)
    fit = nlis.refit(linear(LogisticLoss(labels)), X, y if labels == (0, 1) else 2 * y - 1, w)
    assert fit.ok
    glm = sm.GLM(y, ones(X), family=sm.families.Binomial(), freq_weights=w).fit(tol=1e-14)
    np.testing.assert_allclose(fit.theta, glm.params, rtol=1e-8)
    assert fit.loss == pytest.approx(-glm.llf, rel=1e-10)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(fit.theta, [*theirs.coef_[0], theirs.intercept_[0]], rtol=1e-5)
    # What is predicted is the probability of the second label.
    np.testing.assert_allclose(fit.predict(X), theirs.predict_proba(X)[:, 1], rtol=1e-5)
    np.testing.assert_allclose(fit.predict(X), expit(ones(X) @ fit.theta), rtol=1e-14)


@pytest.mark.parametrize("level", [0.0, 9.0, -4.0])
def test_a_poisson_refit_is_statsmodels_and_scikit_learns(level, X, w, rng):
    sm = pytest.importorskip("statsmodels.api")
    from sklearn.linear_model import PoissonRegressor

    y = rng.poisson(np.exp(index(X) + level)).astype(float)
    fit = nlis.refit(linear(PoissonDeviance()), X, y, w)
    assert fit.ok
    glm = sm.GLM(y, ones(X), family=sm.families.Poisson(), freq_weights=w).fit(tol=1e-14)
    np.testing.assert_allclose(fit.theta, glm.params, rtol=1e-8)
    assert fit.loss == pytest.approx(glm.deviance, rel=1e-10)
    theirs = PoissonRegressor(alpha=0, tol=1e-8, max_iter=1000, solver="newton-cholesky").fit(X, y, sample_weight=w)
    np.testing.assert_allclose(fit.theta, [*theirs.coef_, theirs.intercept_], rtol=1e-6)
    np.testing.assert_allclose(fit.predict(X), theirs.predict(X), rtol=1e-6)


def heavy(X, rng):
    return index(X) + 0.5 * rng.standard_t(1.5, size=len(X))


def scipys(loss, name, delta, X, y, phi=lambda u: u):
    """SciPy's theta and twice its cost, which is 1/2 sum delta^2 rho(t^2 / delta^2): half of ours."""
    tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    found = least_squares(lambda theta: phi(ones(X) @ theta) - y, TRUTH, loss=name, f_scale=delta, **tight)
    return found.x, 2 * found.cost


ROBUST = {"huber": Huber, "soft_l1": PseudoHuber}


@pytest.mark.parametrize("delta", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_refit_is_scipys_with_its_cost_doubled(name, delta, X, rng):
    y = heavy(X, rng)
    fit = nlis.refit(linear(ROBUST[name](delta)), X, y, np.ones(N))
    assert fit.ok
    theta, cost = scipys(ROBUST[name](delta), name, delta, X, y)
    assert fit.loss == pytest.approx(cost, rel=1e-10)
    np.testing.assert_allclose(fit.theta, theta, atol=2e-6)


@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_refit_of_a_curved_model_is_scipys(name, X, rng):
    y = np.tanh(index(X)) + 0.1 * rng.standard_t(1.5, size=N)
    fit = nlis.refit(nlis.Problem(nlis.SingleIndex(nlis.Tanh()), ROBUST[name](0.2)), X, y, np.ones(N))
    theta, cost = scipys(ROBUST[name](0.2), name, 0.2, X, y, np.tanh)
    assert fit.ok
    assert fit.loss == pytest.approx(cost, rel=1e-10)
    np.testing.assert_allclose(fit.theta, theta, atol=1e-6)


def test_a_start_with_all_residuals_beyond_delta_is_no_standstill(X):
    # All second derivatives are 0 there, so a plain Newton matrix promises nothing and would call it stationary.
    y = index(X) + 1e4
    for loss in (Huber(1e-2), PseudoHuber(1e-2)):
        fit = nlis.refit(linear(loss), X, y, np.ones(N))
        assert fit.ok
        np.testing.assert_allclose(fit.theta, TRUTH + 1e4 * np.eye(4)[3], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("start", [[0, 0, 0, -60.0], [30.0, 0, 0, 0], [0, 0, 0, 60.0]])
@pytest.mark.parametrize("loss", [LogisticLoss(), PoissonDeviance()])
def test_a_start_in_the_tails_comes_back(loss, start, X, w, rng):
    y = classes(X, rng) if isinstance(loss, LogisticLoss) else rng.poisson(np.exp(index(X))).astype(float)
    near = nlis.refit(linear(loss), X, y, w)
    far = nlis.refit(linear(loss), X, y, w, start=start)
    assert far.ok
    np.testing.assert_allclose(far.theta, near.theta, atol=1e-5)


def least_absolute(X, y, w):
    """Minimum of sum w |y - X theta - b| by linear programming."""
    A, n = ones(X), len(y)
    return linprog(
        np.r_[np.zeros(A.shape[1]), w, w],
        A_eq=np.c_[A, np.eye(n), -np.eye(n)],
        b_eq=y,
        bounds=[(None, None)] * A.shape[1] + [(0, None)] * (2 * n),
    )


@pytest.mark.parametrize("units", [1.0, 1e8, 1e-8])
def test_an_absolute_error_refit_is_that_of_linear_programming(units, X, w, rng):
    y = heavy(X, rng)
    fit = nlis.refit(linear(AbsoluteError()), X, units * y, w)
    assert fit.ok
    best = least_absolute(X, y, w)
    assert units * best.fun * (1 - 1e-12) <= fit.loss <= units * best.fun * (1 + 1e-8)
    np.testing.assert_allclose(fit.theta / units, best.x[:4], atol=1e-6)
    # What it reports bounds how far it is from the optimum, the smoothing included.
    assert fit.loss / (units * best.fun) - 1 <= fit.stationarity <= 1e-8


def test_an_absolute_error_refit_of_few_rows_passes_through_some(rng):
    # A vertex: p residuals are 0 at the optimum, where the loss has corners.
    X = rng.standard_normal((9, 3))
    y = rng.standard_normal(9)
    fit = nlis.refit(linear(AbsoluteError()), X, y, np.ones(9))
    assert fit.ok
    residual = np.sort(np.abs(ones(X) @ fit.theta - y))
    assert residual[3] < 1e-7 < 1e-3 < residual[4]
    assert fit.loss == pytest.approx(least_absolute(X, y, np.ones(9)).fun, rel=1e-8)
    exact = nlis.refit(linear(AbsoluteError()), X, ones(X) @ TRUTH, np.ones(9))
    assert exact.ok
    np.testing.assert_allclose(exact.theta, TRUTH, rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_an_absolute_error_refit_to_labels_that_are_all_zero_is_ok(scale, X, w):
    for constraint in (None, Box(-1.0, 2.0)):
        fit = nlis.refit(linear(AbsoluteError(), constraint), X, np.zeros(N), scale * w)
        assert fit.ok
        assert fit.loss == 0
        np.testing.assert_array_equal(fit.theta, 0)


@pytest.mark.parametrize("box", [Box(-0.3, 0.2), Box([0, -1, -1, -1], [0.25, 1, 1, 1])])
def test_an_absolute_error_refit_in_a_box_is_that_of_linear_programming(box, X, w, rng):
    y, A = heavy(X, rng), ones(X)
    bounds = np.column_stack([np.broadcast_to(box.lower, 4), np.broadcast_to(box.upper, 4)]).tolist()
    best = linprog(
        np.r_[np.zeros(4), w, w],
        A_eq=np.c_[A, np.eye(N), -np.eye(N)],
        b_eq=y,
        bounds=bounds + [(0, None)] * (2 * N),
    )
    fit = nlis.refit(linear(AbsoluteError(), box), X, y, w)
    assert fit.ok
    assert box.contains(fit.theta)
    assert fit.loss == pytest.approx(best.fun, rel=1e-8)


each_loss = pytest.mark.parametrize("loss", LOSSES)


def labels(loss, X, rng):
    if isinstance(loss, PoissonDeviance):
        return rng.poisson(np.exp(index(X))).astype(float)
    return allowed(loss, index(X) + rng.standard_normal(len(X)))


@each_loss
def test_weights_count_as_repeated_rows(loss, X, rng):
    loss = LOSSES[loss]
    y, counts = labels(loss, X, rng), rng.integers(0, 4, size=N)
    weighted = nlis.refit(linear(loss), X, y, counts)
    repeated = nlis.refit(linear(loss), X.repeat(counts, axis=0), y.repeat(counts), np.ones(counts.sum()))
    assert weighted.ok
    assert repeated.ok
    np.testing.assert_allclose(weighted.theta, repeated.theta, atol=1e-5)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-8)


@pytest.mark.parametrize("constraint", [Ball(0.4), Box(-0.2, 0.3)])
@each_loss
def test_an_active_set_leaves_no_descent_inside_it(loss, constraint, X, w, rng):
    loss = LOSSES[loss]
    y = labels(loss, X, rng)
    fit = nlis.refit(linear(loss, constraint), X, y, w)
    assert fit.ok
    assert constraint.contains(fit.theta)
    assert fit.active
    # No feasible point nearby is better, beyond what stationarity allows.
    for size in (1e-1, 1e-2, 1e-3):
        for step in rng.standard_normal((50, 4)):
            other = constraint.project(fit.theta + size * step)
            assert w @ loss.value(ones(X) @ other, y) >= fit.loss * (1 - 1e-8)


@each_loss
def test_the_local_picture_has_the_gradient_of_the_value(loss, X, w, rng):
    loss = LOSSES[loss]
    objective = Objective(linear(loss), X, labels(loss, X, rng), w)
    theta = 0.3 * rng.standard_normal(4)
    local = objective.at(theta)
    slopes = [(objective.value(theta + e) - objective.value(theta - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(local.gradient, slopes, rtol=1e-5, atol=1e-4)
    assert local.value == objective.value(theta)
    assert np.linalg.eigvalsh(local.hessian)[0] > 0


@pytest.mark.parametrize("loss", [LogisticLoss(), PoissonDeviance()])
def test_the_local_picture_of_a_likelihood_is_its_fisher_information(loss, X, w, rng):
    theta = 0.3 * rng.standard_normal(4)
    u = ones(X) @ theta
    variance = expit(u) * expit(-u) if isinstance(loss, LogisticLoss) else 2 * np.exp(u)  # the deviance is doubled
    hessian = Objective(linear(loss), X, labels(loss, X, rng), w).at(theta).hessian
    np.testing.assert_allclose(hessian, ones(X).T @ ((w * variance)[:, None] * ones(X)), rtol=1e-12)


def dummy():
    return (np.arange(N) % 10 == 0).astype(float)


#: Data without a finite optimum: (loss, X, y).
ENDLESS = {
    "separable": (LogisticLoss(), lambda X, rng: X, lambda X, rng: (index(X) > 0).astype(float)),
    "separable, -1 and 1": (LogisticLoss((-1, 1)), lambda X, rng: X, lambda X, rng: np.sign(index(X))),
    "one class": (LogisticLoss(), lambda X, rng: X, lambda X, rng: np.zeros(N)),
    "a dummy that decides": (
        LogisticLoss(),
        lambda X, rng: np.column_stack([X, dummy()]),
        lambda X, rng: np.maximum(dummy(), classes(X[:, :3], rng)),
    ),
    "no counts": (PoissonDeviance(), lambda X, rng: X, lambda X, rng: np.zeros(N)),
    "a dummy without counts": (
        PoissonDeviance(),
        lambda X, rng: np.column_stack([X, dummy()]),
        lambda X, rng: rng.poisson(np.exp(index(X[:, :3]))) * (1 - dummy()),
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_without_a_finite_optimum_the_fit_is_not_ok_and_a_ball_makes_it_so(case, X, w, rng):
    loss, make, label = ENDLESS[case]
    X = make(X, rng)
    y = label(X, rng)
    with pytest.warns(nlis.ConvergenceWarning, match=r"no finite optimum .*Ball\(10\.0\)"):
        fit = nlis.refit(linear(loss), X, y, w)
    assert not fit.ok
    assert np.isfinite(fit.theta).all()
    inside = nlis.refit(linear(loss, Ball(10.0)), X, y, w)
    assert inside.ok
    assert inside.active == ("ball of radius 10",)


def test_confident_classes_that_overlap_have_an_optimum(X, rng):
    y = (index(X) > 0).astype(float)
    y[np.argmax(index(X))] = 0.0  # one row on the wrong side, by far
    fit = nlis.refit(linear(LogisticLoss()), X, y, np.ones(N))
    assert fit.ok


def test_a_perfect_poisson_fit_is_ok(X):
    fit = nlis.refit(linear(PoissonDeviance()), X, np.exp(index(X)), np.ones(N))
    assert fit.ok
    np.testing.assert_allclose(fit.theta, TRUTH, rtol=1e-8)


@pytest.mark.parametrize("units", [[1e-6, 1.0, 1e6], [1e-3, 1e3, 1e6]])
@pytest.mark.parametrize("loss", [LogisticLoss(), PoissonDeviance(), Huber(0.3), AbsoluteError()])
def test_columns_in_any_units_give_the_same_fit(loss, units, X, w, rng):
    y = labels(loss, X, rng)
    fit = nlis.refit(linear(loss), X, y, w)
    other = nlis.refit(linear(loss), X * units, y, w)
    assert other.ok
    np.testing.assert_allclose(other.theta * [*units, 1], fit.theta, atol=1e-5)


def square(p, y):
    return (p - y) ** 2


def square_derivative(p, y):
    return 2 * (p - y)


def test_a_custom_refit_is_that_of_the_loss_it_copies(X, w, rng):
    y = heavy(X, rng)
    copy = nlis.refit(linear(CustomLoss(square, square_derivative)), X, y, w)
    assert copy.ok
    np.testing.assert_allclose(copy.theta, nlis.refit(linear(nlis.SquaredError()), X, y, w).theta, atol=1e-8)


RUNS = {
    "logistic": (nlis.Linear(), LogisticLoss()),
    "poisson": (nlis.Linear(), PoissonDeviance()),
    "huber": (nlis.SingleIndex(nlis.Swish(1, 2)), Huber(0.5)),
    "absolute": (nlis.Linear(), AbsoluteError()),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_whole_run_comes_near_the_fit_of_all_rows(case, rng, tmp_path):
    model, loss = RUNS[case]
    X = rng.standard_normal((4000, 3))
    y = labels(loss, X, rng)
    problem = nlis.Problem(model, loss, constraint=Ball(10.0))
    job = nlis.run(problem, da.from_array(X, (700, 3)), da.from_array(y, 700), size=800, seed=0, store=tmp_path / "r")
    assert job.fit.ok
    # Shares of scores over their sums, that of influence estimated on the pilot's rows; no influence without curvature.
    assert np.asarray(job.scores).sum() == pytest.approx(1, abs=1e-9 if case == "absolute" else 0.2)
    assert (job.manifest["shares"] == [0.9, 0.0, 0.1]) == (case == "absolute")
    best = nlis.refit(problem, X, y, np.ones(4000))
    assert best.loss <= job.total_loss <= 1.03 * best.loss
    again = nlis.open_run(tmp_path / "r")
    assert again.problem == problem
    np.testing.assert_array_equal(again.fit.predict(X[:9]), job.fit.predict(X[:9]))
