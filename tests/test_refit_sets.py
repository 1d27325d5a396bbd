"""Refits on every set: optimality by its definition, starts anywhere, ridge, scaling, weights, signs, no optimum."""

import warnings
from itertools import product

import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize, nnls
from tables import LOSSES, SETS, allowed

import dask_nlis as nlis
from dask_nlis import AmplitudeBand, Ball, Box, HalfSpaces, Intersection, LogisticLoss
from dask_nlis.constraints import piece
from dask_nlis.refit.objective import Objective

INF = np.inf
TRUTH = np.array([0.8, -0.5, 0.3, 0.4])  # the last is the intercept
N = 60
BOUNDED = {name: constraint for name, constraint in SETS.items() if constraint is not None}
each_set = pytest.mark.parametrize("name", BOUNDED)
each_loss = pytest.mark.parametrize("loss", LOSSES)


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, 3))


@pytest.fixture
def w(rng):
    return rng.lognormal(size=N)


def labels(loss, X, rng):
    u = X @ TRUTH[:3] + TRUTH[3]
    if isinstance(loss, nlis.PoissonDeviance):
        return rng.poisson(np.exp(u)).astype(float)
    return allowed(loss, u + 0.5 * rng.standard_normal(len(X)))


def linear(loss, constraint=None):
    return nlis.Problem(nlis.Linear(), loss, constraint=constraint)


def tanh(constraint=None):
    return nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=constraint)


@each_set
@each_loss
def test_no_feasible_point_near_a_fit_is_better(loss, name, X, w, rng):
    loss, constraint = LOSSES[loss], BOUNDED[name]
    y = labels(loss, X, rng)
    fit = nlis.refit(linear(loss, constraint), X, y, w, n_starts=2)
    assert fit.ok, fit.reasons
    assert constraint.contains(fit.theta)
    part = piece(constraint, fit.theta)
    design = np.column_stack([X, np.ones(N)])
    for size in (1.0, 1e-1, 1e-2, 1e-3):
        for step in rng.standard_normal((12, 4)):
            other = part.project(fit.theta + size * step)
            assert w @ loss.value(design @ other, y) >= fit.loss * (1 - 1e-8)


@each_set
def test_a_fit_on_a_set_is_scipys(name, X, w, rng):
    # Least squares in the given set from its definition, by a solver of another kind.
    constraint = BOUNDED[name]
    y = labels(nlis.SquaredError(), X, rng)
    fit = nlis.refit(linear(nlis.SquaredError(), constraint), X, y, w, n_starts=16)
    design = np.column_stack([X, np.ones(N)])

    def loss(theta):
        return w @ (design @ theta - y) ** 2

    members = constraint.sets if isinstance(constraint, Intersection) else (constraint,)
    limits, bounds, signs = [], [(-INF, INF)] * 4, [()]
    for part in members:
        if isinstance(part, Ball):
            center = 0.0 if part.center is None else part.center
            limits.append({"type": "ineq", "fun": lambda t, c=center, r=part.radius: r**2 - ((t - c) ** 2).sum()})
        elif isinstance(part, Box):
            bounds = list(zip(np.broadcast_to(part.lower, 4), np.broadcast_to(part.upper, 4), strict=True))
        elif isinstance(part, HalfSpaces):
            limits.append({"type": "ineq", "fun": lambda t, part=part: part.b - part.A @ t})
        else:
            limits.append({"type": "ineq", "fun": lambda t, part=part: part.budget - (t**2).sum()})
            signs = list(product((-1, 1), repeat=2))
    ends = []
    for sign in signs:
        for j, s in zip((0, 3), sign, strict=False):
            low = np.sqrt(constraint.lower)
            bounds[j] = (low, INF) if s > 0 else (-INF, -low)
        start = np.clip(fit.theta, *np.array(bounds).T)
        ends.append(minimize(loss, start, method="SLSQP", bounds=bounds, constraints=limits, options={"ftol": 1e-13}))
    best = min((end for end in ends if end.success), key=lambda end: end.fun)
    assert fit.ok
    np.testing.assert_allclose(fit.theta, best.x, atol=1e-4)
    assert fit.loss <= best.fun * (1 + 1e-7)


def starts(constraint, rng, n: int) -> list[np.ndarray]:
    """Random starts of all sizes: outside, inside and, every third, in the set, so mostly on its boundary."""
    found = [rng.standard_normal(4) * 10.0 ** rng.uniform(-2, 1.5) for _ in range(n)]
    return [constraint.project(s) if k % 3 == 0 else s for k, s in enumerate(found)]


@pytest.mark.parametrize("n", [8, pytest.param(200, marks=pytest.mark.slow)])
@each_set
def test_no_start_ends_worse_than_the_projected_start(name, n, X, w, rng):
    constraint = BOUNDED[name]
    y = np.tanh(X @ TRUTH[:3] + TRUTH[3]) + 0.3 * rng.standard_normal(N)
    rows, targets, weights = X[:12], y[:12], w[:12]  # few rows: several local optima
    for start in starts(constraint, rng, n):
        inside = constraint.project(start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nlis.ConvergenceWarning)  # a saturated start may be stuck, and say so
            fit = nlis.refit(tanh(constraint), rows, targets, weights, start=start, n_starts=1)
        there = weights @ (np.tanh(rows @ inside[:3] + inside[3]) - targets) ** 2
        assert fit.loss <= there * (1 + 1e-12)
        assert constraint.contains(fit.theta)


def test_a_fit_goes_on_from_its_start_and_not_from_another_point(rng):
    # Labels of +-1 at random under a steep tanh: many local optima. From the end of a fit no other one is reached.
    X, y = rng.standard_normal((16, 3)), rng.choice([-1.0, 1.0], size=16)
    for constraint in (Ball(20.0), Intersection(Ball(20.0), Box(-15.0, INF)), AmplitudeBand(0.01, 400.0, (0,))):
        losses = []
        for _ in range(5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", nlis.ConvergenceWarning)
                start = 5 * rng.standard_normal(4)
                fit = nlis.refit(tanh(constraint), X, y, np.ones(16), start=start, n_starts=1)
                again = nlis.refit(tanh(constraint), X, y, np.ones(16), start=fit.theta, n_starts=1)
            assert again.loss <= fit.loss * (1 + 1e-12)
            losses.append(again.loss)
        assert max(losses) > 1.1 * min(losses)


# What other solvers call a success.


def power(theta, x):
    """0.05 t_0^0.64 + 0.4 t_1^0.36, from whose middle SLSQP does not move (scipy#10081)."""
    return np.full(len(x), 0.05 * max(theta[0], 0.0) ** 0.64 + 0.4 * max(theta[1], 0.0) ** 0.36)


def power_gradient(theta, x):
    with np.errstate(divide="ignore"):
        return np.tile([0.032 * theta[0] ** -0.36, 0.144 * theta[1] ** -0.64], (len(x), 1))


@pytest.mark.parametrize("start", [(2500.0, 2500.0), (4999.0, 1.0), (100.0, 4900.0), (1e9, -1e9)])
def test_a_badly_scaled_problem_on_an_equation_moves_from_the_middle(start):
    line = Intersection(HalfSpaces([[1.0, 1.0], [-1.0, -1.0]], [5000.0, -5000.0]), Box(1e-3, 5000.0))
    problem = nlis.Problem(nlis.Numerical(power, power_gradient, 2), constraint=line)
    with warnings.catch_warnings():
        # The Gauss-Newton matrix has no curvature along the line, so the verdict is as strict as rounding allows.
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)
        fit = nlis.refit(problem, [[0.0]], [20.0], [1.0], start=start, n_starts=1)  # 20 is out of reach
    # On the line the slope in t_0 vanishes: 0.032 t_0^-0.36 = 0.144 (5000 - t_0)^-0.64.
    t = np.linspace(1, 4999, 2_000_000)
    best = t[np.argmax(0.05 * t**0.64 + 0.4 * (5000 - t) ** 0.36)]
    assert fit.ok or fit.stationarity < 1e-6
    assert fit.theta.sum() == pytest.approx(5000, rel=1e-12)
    assert fit.theta[0] == pytest.approx(best, rel=1e-5)
    assert "half-space 0: 1 theta[0] + 1 theta[1] <= 5000" in fit.active


@pytest.mark.parametrize("units", [[1e-6, 1.0, 1e6], [1e-3, 1e3, 1e6]])
@pytest.mark.parametrize("make", ["half-spaces", "intersection"])
def test_columns_in_any_units_give_the_same_fit_in_sets_that_follow(make, units, X, w, rng):
    # The rows of A are divided by what the columns are multiplied with, so the set is the same one in other units.
    y = X @ TRUTH[:3] + TRUTH[3] + 0.1 * rng.standard_normal(N)
    A, b = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]), np.array([0.3, 0.2, 0.9])

    def fitted(scale):
        rows = HalfSpaces(A * [*scale, 1.0], b)
        lower, upper = np.array([-1.0, -0.4, -1, -1]) / [*scale, 1.0], np.array([0.5, 1, 1, 1]) / [*scale, 1.0]
        constraint = rows if make == "half-spaces" else Intersection(rows, Box(lower, upper))
        return nlis.refit(tanh(constraint), X * scale, np.tanh(y), w)

    plain, other = fitted(np.ones(3)), fitted(np.array(units))
    assert plain.ok
    assert other.ok
    np.testing.assert_allclose(other.theta * [*units, 1], plain.theta, atol=1e-5)
    assert len(plain.active) == len(other.active) > 0


@each_loss
@pytest.mark.parametrize(
    "name", ["none", "ball", "ball, box and an equation", pytest.param("amplitude band", marks=pytest.mark.slow)]
)
def test_weights_count_as_repeated_rows_to_a_millionth(loss, name, X, rng):
    loss = LOSSES[loss]
    y, counts = labels(loss, X, rng), rng.integers(0, 4, size=N)
    counts[0] = 1
    problem = linear(loss, SETS[name])
    weighted = nlis.refit(problem, X, y, counts)
    repeated = nlis.refit(problem, X.repeat(counts, axis=0), y.repeat(counts), np.ones(counts.sum()))
    assert weighted.ok
    assert repeated.ok
    np.testing.assert_allclose(weighted.theta, repeated.theta, atol=1e-6)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-8)


# Ridge.


def test_a_ridge_is_scikit_learns(X, w, rng):
    from sklearn.linear_model import LogisticRegression, Ridge

    y = X @ TRUTH[:3] + 5.0 + rng.standard_normal(N)  # a large intercept, which must not shrink
    for ridge in (0.1, 10.0, 1e4):
        fit = nlis.refit(linear(nlis.SquaredError()), X, y, w, ridge=ridge)
        theirs = Ridge(alpha=ridge, solver="cholesky").fit(X, y, sample_weight=w)
        np.testing.assert_allclose(fit.theta, [*theirs.coef_, theirs.intercept_], rtol=1e-8, atol=1e-10)
        assert fit.loss == pytest.approx(w @ (y - theirs.predict(X)) ** 2, rel=1e-8)  # without the penalty
        classes = (y > np.quantile(y, 0.3)).astype(float)
        logistic = nlis.refit(linear(LogisticLoss()), X, classes, w, ridge=ridge)
        theirs = LogisticRegression(C=1 / (2 * ridge), tol=1e-12, max_iter=10_000).fit(X, classes, sample_weight=w)
        assert logistic.ok
        np.testing.assert_allclose(logistic.theta, [*theirs.coef_[0], theirs.intercept_[0]], atol=1e-6)


@each_loss
def test_a_ridge_fit_has_no_slope_left_in_loss_plus_penalty(loss, X, w, rng):
    loss = LOSSES[loss]
    y = labels(loss, X, rng)
    fit = nlis.refit(linear(loss), X, y, w, ridge=5.0)
    assert fit.ok
    design = np.column_stack([X, np.ones(N)])

    def total(theta):
        return w @ loss.value(design @ theta, y) + 5.0 * (theta[:3] ** 2).sum()

    for size in (1e-1, 1e-2, 1e-3):
        for step in rng.standard_normal((20, 4)):
            assert total(fit.theta + size * step) >= total(fit.theta) * (1 - 1e-8)


def test_the_picture_with_a_ridge_has_the_gradient_and_the_curvature_of_its_value(X, w, rng):
    ridge = np.array([1.0, 2.0, 3.0, 0.0])
    objective = Objective(linear(nlis.SquaredError()), X, X[:, 0], w, ridge)
    theta = rng.standard_normal(4)
    local = objective.at(theta)
    assert local.value == objective.value(theta)
    slopes = [(objective.value(theta + e) - objective.value(theta - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(local.gradient, slopes, rtol=1e-6, atol=1e-4)
    design = np.column_stack([X, np.ones(N)])
    np.testing.assert_allclose(local.hessian, 2 * design.T @ (w[:, None] * design) + 2 * np.diag(ridge), rtol=1e-12)


def test_the_biases_of_units_are_left_out_of_a_ridge(rng):
    model = nlis.ReluNetwork(1, hidden_bias=True)
    X = rng.standard_normal((40, 1))
    y = np.maximum(X[:, 0] + 3.0, 0.0)
    fit = nlis.refit(nlis.Problem(model), X, y, np.ones(40), start=[1.0, 1.0, 3.0], n_starts=1, ridge=1.0)
    a, (slope, bias) = fit.theta[0], fit.theta[1:]
    active = X[:, 0] * slope + bias > 0
    left = a * (X[active, 0] * slope + bias) - y[active]
    # The normal equations, written down with no penalty on the bias.
    assert fit.ok
    assert 2 * (left * (X[active, 0] * slope + bias)).sum() + 2 * a == pytest.approx(0, abs=1e-3)
    assert 2 * a * (left * X[active, 0]).sum() + 2 * slope == pytest.approx(0, abs=1e-3)
    assert 2 * a * left.sum() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("ridge", [-1.0, np.nan, INF, "1", True, None])
def test_a_ridge_that_is_none_is_refused(ridge, X, w):
    with pytest.raises(nlis.NlisError, match="ridge="):
        nlis.refit(tanh(), X, X[:, 0], w, ridge=ridge)


def test_twice_the_rows_with_twice_the_ridge_is_the_same_fit(X, w, rng):
    y = labels(nlis.SquaredError(), X, rng)
    once = nlis.refit(tanh(), X, np.tanh(y), w, ridge=1.0)
    twice = nlis.refit(tanh(), np.vstack([X, X]), np.tanh([*y, *y]), np.r_[w, w], ridge=2.0)
    np.testing.assert_allclose(twice.theta, once.theta, atol=1e-6)


# No finite optimum.


def separable(X):
    return (X @ TRUTH[:3] + TRUTH[3] > 0).astype(float)


@pytest.mark.parametrize(
    ("constraint", "length", "named"),
    [
        (Ball(10.0), 10.0, "ball of radius 10"),
        (Intersection(Ball(7.0), Box(-INF, INF)), 7.0, "ball of radius 7"),
        (Intersection(Ball(7.0), HalfSpaces([[-1.0, 0.0, 0.0, 0.0]], 0.0)), 7.0, "ball of radius 7"),
        (AmplitudeBand(0.01, 25.0, (0,)), 5.0, "|theta|^2 at the budget 25"),
    ],
)
def test_separable_labels_go_to_the_sphere_which_is_named(constraint, length, named, X, w):
    fit = nlis.refit(linear(LogisticLoss(), constraint), X, separable(X), w)
    assert fit.ok
    assert named in fit.active
    assert np.linalg.norm(fit.theta) == pytest.approx(length, rel=1e-6)


@pytest.mark.parametrize(
    "constraint", [None, HalfSpaces([[-1.0, 0.0, 0.0, 0.0]], 0.0), Intersection(Box(-INF, INF)), Box(-INF, INF)]
)
def test_separable_labels_in_an_unbounded_set_are_not_ok_and_say_why(constraint, X, w):
    with pytest.warns(nlis.ConvergenceWarning, match="no finite optimum"):
        fit = nlis.refit(linear(LogisticLoss(), constraint), X, separable(X), w)
    assert not fit.ok
    assert "separable labels" in fit.reasons[0]
    ridged = nlis.refit(linear(LogisticLoss(), constraint), X, separable(X), w, ridge=0.1)
    assert ridged.ok


# Signs.


def test_several_starts_find_the_signs_of_a_linear_problem(X, w, rng):
    y = X @ [-0.8, 0.6, -0.3] - 0.5 + 0.05 * rng.standard_normal(N)
    constraint = AmplitudeBand(0.09, 100.0, (0, 1, 2, 3))
    design = np.sqrt(w)[:, None] * np.column_stack([X, np.ones(N)])
    best = min(
        2 * lsq_linear(design, np.sqrt(w) * y, tuple(np.array(sides).T), method="bvls", tol=1e-14).cost
        for sides in product([(-INF, -0.3), (0.3, INF)], repeat=4)
    )
    assert nlis.refit(linear(nlis.SquaredError(), constraint), X, y, w, n_starts=1).loss > 1.1 * best
    fit = nlis.refit(linear(nlis.SquaredError(), constraint), X, y, w, n_starts=64)
    assert fit.ok
    assert fit.loss == pytest.approx(best, rel=1e-8)
    assert set(fit.active) == {"x2^2 at its lower bound 0.09"} or not fit.active


def stationary(problem, constraint, fit, X, y, w) -> float:
    """Share of the slope that no normal of the band explains, by Karush-Kuhn-Tucker."""
    theta = fit.theta
    left = problem.model.predict(theta, X) - y
    slope = 2 * problem.model.jacobian(theta, X).T @ (w * left)
    at = problem.model.unpack(np.arange(len(theta)))["a"]
    normals = [-np.sign(theta[j]) * np.eye(len(theta))[j] for j in at if theta[j] ** 2 <= constraint.lower * (1 + 1e-6)]
    if theta @ theta >= constraint.budget * (1 - 1e-6):
        normals.append(theta / np.linalg.norm(theta))
    residual = nnls(np.array(normals).T, -slope)[1] if normals else np.linalg.norm(slope)
    return float(residual / np.linalg.norm(np.abs(problem.model.jacobian(theta, X)).T @ (w * np.abs(left))))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "model",
    [
        nlis.ReluNetwork(2, hidden_bias=True),
        pytest.param(nlis.ReluNetwork(3), marks=pytest.mark.slow),
        pytest.param(nlis.DeepReluNetwork((4, 2)), marks=pytest.mark.slow),
    ],
)
def test_a_network_is_fitted_in_its_band(model, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 3))
    y = np.maximum(X @ [1.0, -1.0, 0.5], 0) - np.maximum(X @ [0.0, 1.0, 1.0], 0) + 0.1 * rng.standard_normal(120)
    w, constraint = rng.lognormal(size=120), AmplitudeBand(0.25, 4.0)
    problem = nlis.Problem(model, constraint=constraint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)  # an optimum may lie in a kink
        fit = nlis.refit(problem, X, y, w)
    outer = model.unpack(fit.theta)["a"]
    assert (outer**2 >= 0.25 * (1 - 1e-8)).all()
    assert fit.theta @ fit.theta <= 4.0 * (1 + 1e-8)
    assert fit.problem == problem  # the positions are the fit's business
    if fit.ok:
        assert stationary(problem, constraint, fit, X, y, w) <= 1e-3
    assert fit.loss < 0.5 * (w @ y**2)


@pytest.mark.parametrize(
    "problem",
    [
        linear(nlis.SquaredError(), SETS["ball, box and an equation"]),
        linear(nlis.SquaredError(), SETS["half-spaces"]),
        nlis.Problem(nlis.ReluNetwork(1), constraint=AmplitudeBand(0.1, 9.0)),
    ],
    ids=["intersection", "half-spaces", "band"],
)
def test_a_run_keeps_its_set(problem, tmp_path, rng):
    X = rng.standard_normal((500, 3))
    y = np.maximum(X @ TRUTH[:3], 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.ConvergenceWarning)
        job = nlis.run(problem, X, y, size=200, seed=0, store=tmp_path / "run")
    again = nlis.open_run(tmp_path / "run")
    assert again.problem == problem
    assert again.fit == job.fit
