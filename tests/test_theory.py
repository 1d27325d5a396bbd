"""What the theory promises, against definitions: grids, dense algebra, enumeration and simulation."""

import math
from fractions import Fraction

import dask.array as da
import mpmath as mp
import numpy as np
import pytest
from tables import ACTIVATIONS, LOSSES

import dask_nlis as nlis
from dask_nlis.theory import slope_bounds
from dask_nlis.theory.slopes import steepest


def leverage(F):
    u, s, _ = np.linalg.svd(F, full_matrices=False)
    u = u[:, s > 1e-12 * s[0]]
    return (u * u).sum(axis=1)


def dual(problem, X, y, theta):
    return nlis.dual_matrix(problem, X, y, theta=theta).to_dask_array().compute(scheduler="sync")


def ratio(used, exact):
    """Definition of the measured beta, on positive scores."""
    return (used / used.sum() / (exact / exact.sum())).min()


# --- slopes -----------------------------------------------------------------------------------------------------

#: Ranges of the index on both sides of 0, away from it, and on one side.
RANGES = [(-2.0, 3.0), (-5.0, -0.5), (0.25, 9.0), (-0.75, 0.0)]
#: Losses with bounds that need labels, each with a range of labels.
LABELLED = {
    "squared": (-2.0, 1.5),
    "huber": (-2.0, 1.5),
    "pseudo-huber": (-2.0, 1.5),
    "logistic loss": (0.0, 1.0),
    "logistic loss -1, 1": (-1.0, 1.0),
    "poisson": (0.0, 6.0),
}
PROBLEMS = {
    **{name: (nlis.Problem(nlis.SingleIndex(phi.activation)), None) for name, phi in ACTIVATIONS.items()},
    **{
        f"{name}, {loss}": (nlis.Problem(nlis.SingleIndex(ACTIVATIONS[name].activation), LOSSES[loss]), labels)
        for loss, labels in LABELLED.items()
        for name in (ACTIVATIONS if LOSSES[loss].takes == "prediction" else ["identity"])
    },
}


def roots(problem, labels, u):
    """f(u) - f(0) and f for all labels, by the definition: the difference of two roots."""
    phi, loss = problem.model.activation, problem.loss
    if labels is None:
        return [phi.value(u)], [np.full_like(u, phi.at_zero)]
    ys = sorted({*labels}) if type(loss).__name__ == "LogisticLoss" else np.linspace(*labels, 13)
    at = [np.full_like(u, y) for y in ys]
    zero = np.full_like(u, phi.at_zero)
    return [loss.root(phi.value(u), y) for y in at], [loss.root(zero, y) for y in at]


@pytest.mark.parametrize("name", PROBLEMS)
def test_slopes_lie_within_their_bounds(name):
    problem, labels = PROBLEMS[name]
    # Where both ends of the slope are taken on: all but the losses whose slope depends on the whole way.
    exact = labels is None or type(problem.loss).__name__ in ("SquaredError", "LogisticLoss", "PoissonDeviance")
    for index in RANGES:
        near = np.geomspace(1e-6, 1, 500)  # the steepest transition of the table is 1 / 40 wide
        u = np.unique(np.concatenate([np.linspace(*index, 4001), near, -near]))
        u = u[(np.abs(u) >= 1e-6) & (u >= index[0]) & (u <= index[1])]
        found = np.abs([(f - zero) / u for f, zero in zip(*roots(problem, labels, u), strict=True)])
        low, high = slope_bounds(problem, index, labels)
        assert low - 1e-9 <= found.min()
        assert found.max() <= high + 1e-9
        if exact:
            assert found.min() <= low + 2e-3 * high
            assert found.max() >= high - 2e-3 * high
        top = steepest(problem, index, labels)
        u = u[np.abs(u) >= 1e-3]
        step = np.abs([np.diff(f) / np.diff(u) for f in roots(problem, labels, u)[0]])
        assert step.max() <= top * (1 + 1e-8)
        if exact and type(problem.loss).__name__ != "PoissonDeviance":
            assert step.max() >= 0.98 * top


@pytest.mark.parametrize("name", PROBLEMS)
def test_bounds_over_a_part_lie_within_those_over_the_line(name):
    problem, labels = PROBLEMS[name]
    low, high = slope_bounds(problem, (-math.inf, math.inf), labels)
    whole = steepest(problem, (-math.inf, math.inf), labels)
    for index in (*RANGES, (-40.0, 40.0), (-math.inf, 1.0), (-1.0, math.inf)):
        inner = slope_bounds(problem, index, labels)
        assert low <= inner[0] * (1 + 1e-12)
        assert inner[1] <= high * (1 + 1e-12)
        assert steepest(problem, index, labels) <= whole * (1 + 1e-12)
    assert not math.isnan(low + high + whole)


# --- beta -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_beta_bounds_the_leverage_of_the_features(name, rng):
    problem = nlis.Problem(nlis.SingleIndex(ACTIVATIONS[name].activation))
    for scale in (0.1, 1.0, 4.0):
        X = rng.standard_normal((60, 3)) * rng.exponential(size=(60, 1))
        theta = scale * rng.standard_normal(4)
        features = np.column_stack([X, np.ones(60)])
        bound = float(np.abs(features @ theta).max())
        beta = nlis.misestimation_factor(problem, index_range=bound)
        F = dual(problem, X, None, theta)[:, :-1]
        rank = np.linalg.matrix_rank(F)
        if rank == 4:
            exact = leverage(F)
            kept = exact > 1e-12
            assert ((leverage(features) / 4)[kept] / (exact / 4)[kept]).min() >= beta * (1 - 1e-9)
        else:
            assert beta < 1e-9


def test_swish_beta_is_the_ratio_of_the_constants_and_not_of_their_roots():
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2), intercept=False))
    X = np.full((401, 1), -1.0)
    X[0] = 1.0  # the one row with the steep slope
    found = nlis.measured_misestimation_factor(leverage(X), leverage(dual(problem, X, None, [50.0])[:, :-1]))
    beta = nlis.misestimation_factor(problem)
    assert beta == pytest.approx(0.5, rel=1e-15)
    assert beta <= found < 0.51 < math.sqrt(0.5)


@pytest.mark.parametrize("bound", [0.5, 2.0, 3.0, 8.0])
@pytest.mark.parametrize("zeta", [1.0, 0.5])
def test_swish_without_a_lower_constant(bound, zeta):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=0, c2=3, zeta=zeta)))
    assert nlis.misestimation_factor(problem, index_range=bound) == pytest.approx(
        math.exp(-2 * zeta * bound), rel=1e-12
    )
    assert nlis.misestimation_factor(problem) == 0.0


@pytest.mark.parametrize("bound", [1e-8, 0.5, 3.0, 50.0])
def test_logistic_beta(bound):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Logistic()))
    expected = (2 * mp.tanh(mp.mpf(bound) / 2) / bound) ** 2
    assert nlis.misestimation_factor(problem, index_range=bound) == pytest.approx(float(expected), rel=1e-13)
    assert nlis.misestimation_factor(problem, index_range=(-bound, bound / 2)) == pytest.approx(
        float(expected), rel=1e-13
    )


def test_beta_includes_the_loss_where_labels_are_given(rng):
    X = rng.standard_normal((200, 2))
    theta = np.array([1.0, -2.0, 0.5])
    features = np.column_stack([X, np.ones(200)])
    u = features @ theta
    bound = float(np.abs(u).max())
    for loss, y in (
        (nlis.LogisticLoss(), (rng.random(200) < 0.5) * 1.0),
        (nlis.PoissonDeviance(), rng.poisson(3.0, 200) * 1.0),
        (nlis.Huber(0.5), u + rng.standard_normal(200)),
        (nlis.PseudoHuber(0.5), u + rng.standard_normal(200)),
    ):
        problem = nlis.Problem(nlis.Linear(), loss)
        beta = nlis.misestimation_factor(problem, index_range=bound, labels=y)
        assert 0 < beta < 1
        assert ratio(leverage(features), leverage(dual(problem, X, y, theta)[:, :-1])) >= beta
        assert nlis.misestimation_factor(problem, index_range=bound) == 1.0
    absolute = nlis.Problem(nlis.Linear(), nlis.AbsoluteError())
    assert nlis.misestimation_factor(absolute, index_range=1.0, labels=(0, 1)) == 0.0


def test_with_labels_the_features_alone_fall_far_below_beta(rng):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
    X, theta = rng.standard_normal((500, 3)), np.array([1.0, 0.5, -1.0, 0.2])
    y = X.sum(axis=1)
    y[7] = 200.0
    exact = leverage(dual(problem, X, y, theta))
    features = np.column_stack([X, np.ones(500)])
    beta = nlis.misestimation_factor(problem)
    assert nlis.measured_misestimation_factor(leverage(features), exact) < 0.05 < beta
    # The reference matrix carries the label, and does not; that is an observation.
    assert nlis.measured_misestimation_factor(leverage(np.column_stack([features, -y])), exact) > beta


def network(rng, phi, unit, labels, n=300, m=2, per_unit=False):
    band = nlis.AmplitudeBand(1.0, 6.0)
    model = nlis.ReluNetwork(m, activation=phi, unit=unit, per_unit=per_unit)
    problem = nlis.Problem(model, constraint=band)
    X = rng.standard_normal((n, 3)) * rng.exponential(size=(n, 1))
    placed = nlis.AmplitudeBand(1.0, 6.0, tuple(range(0, 4 * m, 4)))
    theta = placed.project(rng.standard_normal(4 * m) * 2)
    y = rng.standard_normal(n) * labels
    return problem, X, y, theta


@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("unit", [nlis.Relu(), nlis.LeakyRelu(0.3), nlis.LeakyRelu(2.0)])
@pytest.mark.parametrize("phi", [nlis.Identity(), nlis.Swish(0.5, 2), nlis.Swish(3, 4)])
def test_beta_of_networks_bounds_norm_scores_of_active_rows(phi, unit, per_unit, rng):
    for labels in (0.01, 1.0, 100.0):
        problem, X, y, theta = network(rng, phi, unit, labels, per_unit=per_unit)
        F = dual(problem, X, y, theta)
        active = (F[:, :-1] != 0).any(axis=1)
        F, reference = F[active], np.column_stack([X, y])[active]
        beta = nlis.misestimation_factor(problem)
        assert 0 < beta <= 1
        assert ratio((reference**2).sum(axis=1), (F**2).sum(axis=1)) >= beta


def test_beta_of_networks_needs_the_quarter_and_active_rows():
    problem = nlis.Problem(nlis.ReluNetwork(1), constraint=nlis.AmplitudeBand(1.0, 1.21))
    X, y = np.full((1000, 1), 1.0), np.zeros(1000)
    y[0] = 3.0
    reference = X[:, 0] ** 2 + y**2
    theta = np.array([1.0, 1e-3])
    found = nlis.measured_misestimation_factor(reference, (dual(problem, X, y, theta) ** 2).sum(axis=1))
    assert nlis.misestimation_factor(problem) == 0.25
    assert 0.25 <= found < 0.3 < 1 / 1.21  # the paper's bound
    # Rows without an active unit have no slope at all: with many of them the others fall below.
    X[1:] = -1.0
    dead = nlis.measured_misestimation_factor(reference, (dual(problem, X, y, theta) ** 2).sum(axis=1))
    assert dead < 0.02


def test_beta_of_leaky_networks_takes_the_flatter_side():
    def beta(slope, lower, budget):
        model = nlis.ReluNetwork(1, unit=nlis.LeakyRelu(slope))
        return nlis.misestimation_factor(nlis.Problem(model, constraint=nlis.AmplitudeBand(lower, budget)))

    assert beta(0.5, 1.0, 10.0) == pytest.approx(0.25 / 10)  # (0.25 / 4) / (10 / 4)
    assert beta(2.0, 1.0, 10.0) == pytest.approx(1 / 40)
    # All but one row on the flat side, which leaves them a quarter of a quarter of their norm.
    problem = nlis.Problem(nlis.ReluNetwork(1, unit=nlis.LeakyRelu(0.5)), constraint=nlis.AmplitudeBand(1.0, 1.01))
    X, y = np.full((1000, 1), -1.0), np.zeros(1000)
    y[0] = 3.0
    found = nlis.measured_misestimation_factor(X[:, 0] ** 2 + y**2, (dual(problem, X, y, [1.0, 1e-3]) ** 2).sum(axis=1))
    assert nlis.misestimation_factor(problem) <= found < 0.1


def test_beta_of_networks_is_0_without_a_lower_bound():
    model = nlis.ReluNetwork(2)
    assert nlis.misestimation_factor(nlis.Problem(model)) == 0.0
    assert nlis.misestimation_factor(nlis.Problem(model, constraint=nlis.Ball(2.0))) == 0.0
    elsewhere = nlis.AmplitudeBand(1.0, 10.0, (0, 1))  # positions that are not those of the outer weights
    assert nlis.misestimation_factor(nlis.Problem(model, constraint=elsewhere)) == 0.0
    there = nlis.AmplitudeBand(1.0, 10.0, (0, 4))
    assert nlis.misestimation_factor(nlis.Problem(model, constraint=there)) == 0.1


def test_measured_beta_is_the_smallest_ratio(rng):
    used, exact = rng.integers(1, 9, 40), rng.integers(0, 9, 40)
    total = [Fraction(int(part.sum())) for part in (used, exact)]
    expected = min(int(a) / total[0] / (int(b) / total[1]) for a, b in zip(used, exact, strict=True) if b)
    for scale in (1.0, 2.0**1000, 2.0**-1070):
        assert nlis.measured_misestimation_factor(used * scale, exact) == pytest.approx(float(expected), rel=1e-14)
    assert nlis.measured_misestimation_factor(exact, exact * 3.0) == 1.0
    assert nlis.measured_misestimation_factor([1.0, 0.0], [1.0, 1.0]) == 0.0
    # A row of small score, and one of none.
    assert nlis.measured_misestimation_factor([1.0, 1e-12, 0.0], [1.0, 1e-9, 0.0]) == pytest.approx(1e-3, rel=1e-8)


@pytest.mark.parametrize("kind", ["plain", "steep", "deficient", "scaled", "scaled deficient", "few rows"])
def test_norm_beta_is_proven_and_equal_to_its_definition(kind, rng):
    F = rng.standard_normal((200, 4))
    if kind == "steep":
        F = F @ np.linalg.qr(rng.standard_normal((4, 4)))[0] @ np.diag([1, 1e-1, 1e-2, 1e-4])
        F = F @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    if "scaled" in kind:
        F *= np.array([1.0, 1e-3, 30.0, 1e-5])
    if "deficient" in kind:
        F[:, 3] = F[:, 0] - 2 * F[:, 1]
    if kind == "few rows":
        F = F[:3]
    factor = nlis.factorize(F)
    s = np.linalg.svd(F, compute_uv=False)[: factor.rank]
    beta = nlis.norm_misestimation_factor(factor)
    assert beta == pytest.approx(factor.rank * s[-1] ** 2 / (F**2).sum(), rel=1e-7)
    assert ratio((F**2).sum(axis=1), leverage(F)) >= beta * (1 - 1e-9)


def test_norm_beta_keeps_its_digits_where_columns_have_other_units(rng):
    Q = np.linalg.qr(rng.standard_normal((50, 3)))[0]
    F = Q * np.array([1.0, 1e-30, 1.0])  # sigma_r is 1e-30, far below the rounding of the others
    assert nlis.norm_misestimation_factor(nlis.factorize(F)) == pytest.approx(3e-60 / 2, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-308, 1e-295, 1e300])
@pytest.mark.parametrize("deficient", [False, True])
def test_norm_beta_does_not_depend_on_one_unit_for_all_columns(scale, deficient, rng):
    F = rng.standard_normal((50, 3))
    F = np.column_stack([F, F[:, 0] + F[:, 1]]) if deficient else F
    expected = nlis.norm_misestimation_factor(nlis.factorize(F))
    assert nlis.norm_misestimation_factor(nlis.factorize(F * scale)) == pytest.approx(expected, rel=1e-6)


# --- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, 0.3, 1.0, 7.0, 1e300])
def test_log_net_size_is_its_formula(epsilon):
    expected = 12 * mp.log1p(2 / mp.mpf(epsilon))
    assert nlis.log_net_size(12, epsilon) == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.35, 0.6, 1.0])
def test_a_net_of_that_size_exists_and_needs_its_power(p, epsilon):
    grid = np.linspace(-1, 1, {1: 2001, 2: 101, 3: 27}[p])
    points = np.stack(np.meshgrid(*[grid] * p), axis=-1).reshape(-1, p)
    points = points[(points**2).sum(axis=1) <= 1]
    left, size = points, 0
    while len(left):  # a largest set of points epsilon apart is a net
        left = left[((left - left[0]) ** 2).sum(axis=1) > epsilon**2]
        size += 1
    reach = epsilon + math.sqrt(p) * (grid[1] - grid[0])  # what lies between points of the grid is covered within this
    assert p * math.log(1 / reach) <= math.log(size) <= nlis.log_net_size(p, epsilon)


def test_the_exponent_is_that_of_the_chernoff_bound():
    for epsilon in np.linspace(0.01, 0.99, 50):
        e = mp.mpf(epsilon)
        used = e**2 / (2 + 2 * e / 3)
        assert used <= (1 + e) * mp.log(1 + e) - e  # too many
        assert used <= (1 - e) * mp.log(1 - e) + e  # too few
        assert used >= 0.97 * ((1 + e) * mp.log(1 + e) - e)


@pytest.mark.parametrize("guarantee", ["uniform", "embedding", "loss"])
def test_sample_size_is_the_smallest_that_fails_rarely_enough(guarantee):
    for p, epsilon, delta, beta, rank in (
        (10, 0.5, 0.1, 1.0, None),
        (3, 0.07, 1e-6, 0.25, 2),
        (900, 0.9, 0.5, 1e-9, None),
    ):
        found = nlis.sample_size(p, epsilon, delta, beta=beta, rank=rank, guarantee=guarantee)
        r, e = rank or p + 1, mp.mpf(epsilon)
        events = {"uniform": (1 + 2 / e) ** p + 1 + r, "embedding": r, "loss": 1}[guarantee]

        def failing(s, r=r, e=e, beta=beta, events=events):
            return 2 * events * mp.exp(-s * mp.mpf(beta) / r * e**2 / (2 + 2 * e / 3))

        assert type(found.size) is int
        slack = 1 + 1e-12
        assert failing(found.size * slack) <= delta
        assert failing((found.size - 1) / slack) > delta
        assert found.log_net == (nlis.log_net_size(p, epsilon) if guarantee == "uniform" else 0)


def draws_of(rng, tau, s):
    rows = rng.choice(len(tau), size=s, p=tau)
    return rows, 1 / (s * tau[rows])


def test_embedding_holds_as_often_as_it_says(rng):
    F = rng.standard_t(3, size=(3000, 5))
    Q = np.linalg.qr(F)[0]
    tau = 0.4 * (Q**2).sum(axis=1) / 5 + 0.6 / 3000
    beta = nlis.measured_misestimation_factor(tau, (Q**2).sum(axis=1))
    size = nlis.sample_size(4, 0.5, 0.2, beta=beta, rank=5, guarantee="embedding").size
    # 300 draws; were the chance of failing 0.2, 4 standard errors above it are 88.
    failed = 0
    for _ in range(300):
        rows, weights = draws_of(rng, tau, size)
        values = np.linalg.eigvalsh((Q[rows].T * weights) @ Q[rows])
        failed += np.abs(values - 1).max() > 0.5
    assert failed <= 88


def test_one_theta_is_cheaper_than_all_and_does_not_pay_for_them(rng):
    p = 30
    Q = np.linalg.qr(rng.standard_normal((4000, p)))[0]
    tau = (Q**2).sum(axis=1) / p
    fixed = rng.standard_normal(p)
    size = nlis.sample_size(p, 0.9, 0.5, rank=p, guarantee="loss").size
    every = nlis.sample_size(p, 0.9, 0.5, rank=p).size
    one = all_of_them = uniform = 0
    for _ in range(60):
        rows, weights = draws_of(rng, tau, size)
        gram = (Q[rows].T * weights) @ Q[rows]
        one += abs(fixed @ gram @ fixed / (fixed @ fixed) - 1) > 0.9
        all_of_them += np.abs(np.linalg.eigvalsh(gram) - 1).max() > 0.9
        rows, weights = draws_of(rng, tau, every)
        uniform += np.abs(np.linalg.eigvalsh((Q[rows].T * weights) @ Q[rows]) - 1).max() > 0.9
    assert one <= 30
    assert all_of_them >= 50  # the size without the net fails for some theta nearly always
    assert uniform == 0


def test_sizes_grow_and_become_vacuous():
    sizes = [nlis.sample_size(10, 0.5, guarantee=kind).size for kind in ("loss", "embedding", "uniform")]
    assert sizes == sorted(sizes)
    big = nlis.sample_size(1010, 0.5, 0.1, n_rows=100_000)  # the paper's network on pixels
    assert big.vacuous
    assert nlis.sample_size(8, 0.5, n_rows=20_640).vacuous is False
    assert nlis.sample_size(8, 0.5).vacuous is None
    edge = nlis.sample_size(8, 0.5).size
    assert nlis.sample_size(8, 0.5, n_rows=edge).vacuous
    assert not nlis.sample_size(8, 0.5, n_rows=edge + 1).vacuous
    assert nlis.sample_size(8, 0.5, beta=0.0, n_rows=10**9).size == math.inf
    assert nlis.sample_size(8, 1e-300).size == math.inf
    assert "vacuous=True" in repr(big)
    assert "vacuous" not in repr(nlis.sample_size(8, 0.5))


def test_sizes_of_active_learning():
    for d, epsilon, constant in ((10, 0.5, 1.0), (7, 0.03, 2.5)):
        e = mp.mpf(epsilon)
        old = nlis.active_learning_size(d, epsilon, paper="gajjar-2023", constant=constant)
        new = nlis.active_learning_size(d, epsilon, constant=constant, n_rows=10**9)
        assert old.size == int(mp.ceil(constant * d**2 * mp.log(1 / e) / e**4))
        assert new.size == int(mp.ceil(constant * d / e**2 - mp.mpf("1e-9")))
        assert new.vacuous is False
        assert "up to a constant" in repr(new)
    assert nlis.active_learning_size(3, 1e-200).size == math.inf
    assert nlis.active_learning_size(1, 1 - 1e-16, paper="gajjar-2023").size == 1


def test_fewer_rows_than_parameters_warn():
    with pytest.warns(nlis.UnderdeterminedWarning, match="n=9 rows are fewer than p=10") as seen:
        nlis.sample_size(10, 0.5, n_rows=9)
    assert seen[0].filename == __file__
    nlis.sample_size(10, 0.5, n_rows=10)
    with pytest.warns(nlis.UnderdeterminedWarning):
        nlis.active_learning_size(10, 0.5, n_rows=9)


# --- bounds of the loss -----------------------------------------------------------------------------------------


def test_excess_loss_is_twice_epsilon_and_the_bound_is_reached(rng):
    for epsilon in (0.01, 0.3, 0.9):
        for _ in range(200):
            losses = rng.exponential(size=50) + 1
            sampled = losses * (1 + epsilon * rng.choice([-1, 1], size=50))
            excess = losses[np.argmin(sampled)] - losses.min()
            assert excess <= nlis.excess_loss_bound(losses.min(), epsilon) * (1 + 1e-12)
        # theta* rated too high, another theta too low: within epsilon at every theta, and beyond epsilon L(theta*).
        losses = np.array([1.0, (1 + epsilon) / (1 - epsilon) * (1 - 1e-9)])
        sampled = losses * np.array([1 + epsilon, 1 - epsilon])
        excess = losses[np.argmin(sampled)] - 1
        assert excess > 1.9 * epsilon
        assert excess == pytest.approx(nlis.excess_loss_bound(1.0, epsilon), rel=1e-6)


def test_excess_loss_bound_is_its_formula_without_cancellation():
    for best, e, G, R, S in ((3.0, 0.2, 4.0, 0.5, 9.0), (1e16, 1e-9, 1e-9, 1.0, None), (0.0, 0.5, 2.0, 3.0, None)):
        with mp.workdps(60):
            x = mp.mpf(e)
            sampled = mp.sqrt(1 + x) * G if S is None else S
            root = mp.sqrt((1 + x) / (1 - x) * best) + x * R * (G + sampled / mp.sqrt(1 - x))
            expected = float(root**2 - best)
        found = nlis.excess_loss_bound(best, e, lipschitz=G, radius=R, sampled_lipschitz=S)
        assert found == pytest.approx(expected, rel=1e-13)


def test_the_whole_chain_bounds_fits_to_samples(rng):
    """Tanh in one dimension, minimised on a grid: scores -> size -> excess loss, 40 samples of the stated size."""
    n, radius, epsilon = 20_000, 2.0, 0.4
    X = rng.standard_normal((n, 1))
    y = np.tanh(0.8 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh(), intercept=False))
    thetas = np.linspace(-radius, radius, 401)
    roots = np.tanh(X * thetas) - y[:, None]
    tau = leverage(np.column_stack([X, -y]))
    tau /= tau.sum()
    # beta at every theta of the grid, measured: what the uniform guarantee asks for.
    slopes = [dual(problem, X, y, [theta]) for theta in thetas[::40]]
    beta = min(nlis.measured_misestimation_factor(tau, leverage(F)) for F in slopes)
    found = nlis.sample_size(1, epsilon, 0.1, beta=beta, n_rows=n)
    assert not found.vacuous
    G = nlis.lipschitz_bound(problem, float(np.linalg.norm(X)))
    full = (roots**2).sum(axis=0)
    bound = nlis.excess_loss_bound(full.min(), epsilon, lipschitz=G, radius=radius)
    for _ in range(40):
        rows, weights = draws_of(rng, tau, found.size)
        sampled = weights @ roots[rows] ** 2
        assert full[np.argmin(sampled)] - full.min() <= bound


@pytest.mark.parametrize("name", PROBLEMS)
def test_lipschitz_bound_holds_between_any_two_thetas(name, rng):
    problem, labels = PROBLEMS[name]
    X = rng.standard_normal((40, 2))
    features = np.column_stack([X, np.ones(40)])
    y = None if labels is None else rng.choice(labels, 40)
    thetas = rng.uniform(-1, 1, (60, 3))
    bound = float(np.abs(features @ thetas.T).max())
    G = nlis.lipschitz_bound(problem, nlis.factorize(features), index_range=bound, labels=labels)
    phi = problem.model.activation

    def root(theta):
        value = phi.value(features @ theta)
        return value if y is None else problem.loss.root(value, y)

    for a, b in zip(thetas[::2], thetas[1::2], strict=True):
        assert np.linalg.norm(root(a) - root(b)) <= G * np.linalg.norm(a - b) * (1 + 1e-12)


@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("unit", [nlis.Relu(), nlis.LeakyRelu(2.0)])
def test_lipschitz_bound_of_networks(unit, per_unit, rng):
    model = nlis.ReluNetwork(3, activation=nlis.Tanh(), unit=unit, per_unit=per_unit, hidden_bias=True)
    problem = nlis.Problem(model)
    X = rng.standard_normal((30, 2))
    factor = nlis.factorize(np.column_stack([X, np.ones(30)]))
    G = nlis.lipschitz_bound(problem, factor, radius=1.5)
    for _ in range(200):
        a, b = (1.5 * v / np.linalg.norm(v) * rng.random() for v in rng.standard_normal((2, 12)))
        b = a + 1e-3 * (b - a) if rng.random() < 0.5 else b
        assert np.linalg.norm(model.predict(a, X) - model.predict(b, X)) <= G * np.linalg.norm(a - b)
    J = model.jacobian(1.5 * np.eye(12)[0], X)
    assert np.linalg.norm(J, 2) <= G


def test_lipschitz_bound_takes_the_norm_that_belongs_to_the_model(rng):
    F = rng.standard_normal((30, 4))
    factor = nlis.factorize(F)
    single = nlis.Problem(nlis.SingleIndex(nlis.Logistic()))
    assert nlis.lipschitz_bound(single, factor) == pytest.approx(np.linalg.norm(F, 2) / 4, rel=1e-13)
    net = nlis.Problem(nlis.ReluNetwork(2))
    assert nlis.lipschitz_bound(net, factor, radius=3.0) == pytest.approx(3 * np.linalg.norm(F), rel=1e-13)


def test_lipschitz_bound_of_what_is_not_known():
    class Cube:
        at_zero, domain = 0.0, (-math.inf, math.inf)

        def secant_bounds(self, lower=-math.inf, upper=math.inf):
            return 0.0, math.inf

        value = derivative = second_derivative = secant = None

    problem = nlis.Problem(nlis.SingleIndex(Cube.__new__(Cube)))
    with pytest.raises(nlis.InputError, match="Cube; give steepest="):
        nlis.lipschitz_bound(problem, 2.0)
    assert nlis.lipschitz_bound(problem, 2.0, steepest=3.0) == 6.0
    assert nlis.lipschitz_bound(nlis.Problem(nlis.SingleIndex(nlis.Exp())), 2.0) == math.inf


# --- arguments --------------------------------------------------------------------------------------------------

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
CUSTOM = nlis.Problem(nlis.Linear(), LOSSES["custom"])
BAD = {
    "p not whole": lambda: nlis.log_net_size(2.0, 0.1),
    "p bool": lambda: nlis.log_net_size(True, 0.1),
    "p zero": lambda: nlis.log_net_size(0, 0.1),
    "p text": lambda: nlis.sample_size("10", 0.1),
    "epsilon zero": lambda: nlis.log_net_size(2, 0),
    "epsilon inf": lambda: nlis.log_net_size(2, math.inf),
    "epsilon nan": lambda: nlis.sample_size(2, math.nan),
    "epsilon one": lambda: nlis.sample_size(2, 1.0),
    "epsilon bool": lambda: nlis.sample_size(2, True),
    "epsilon negative": lambda: nlis.excess_loss_bound(1.0, -0.1),
    "delta zero": lambda: nlis.sample_size(2, 0.1, 0.0),
    "delta one": lambda: nlis.sample_size(2, 0.1, 1),
    "delta text": lambda: nlis.sample_size(2, 0.1, "0.1"),
    "beta above 1": lambda: nlis.sample_size(2, 0.1, beta=1.1),
    "beta nan": lambda: nlis.sample_size(2, 0.1, beta=math.nan),
    "rank": lambda: nlis.sample_size(2, 0.1, rank=0),
    "n_rows": lambda: nlis.sample_size(2, 0.1, n_rows=1.5),
    "guarantee": lambda: nlis.sample_size(2, 0.1, guarantee="all"),
    "guarantee list": lambda: nlis.sample_size(2, 0.1, guarantee=["uniform"]),
    "paper": lambda: nlis.active_learning_size(2, 0.1, paper="2023"),
    "constant": lambda: nlis.active_learning_size(2, 0.1, constant=0),
    "loss": lambda: nlis.excess_loss_bound(-1.0, 0.1),
    "lipschitz": lambda: nlis.excess_loss_bound(1.0, 0.1, lipschitz=math.nan),
    "radius": lambda: nlis.excess_loss_bound(1.0, 0.1, radius=None),
    "problem": lambda: nlis.misestimation_factor(nlis.Linear()),
    "model": lambda: nlis.misestimation_factor(nlis.Problem(nlis.DeepReluNetwork((2, 2)))),
    "squared units": lambda: nlis.misestimation_factor(nlis.Problem(nlis.ReluNetwork(2, unit=nlis.SquaredRelu()))),
    "index text": lambda: nlis.misestimation_factor(SWISH, index_range="3"),
    "index negative": lambda: nlis.misestimation_factor(SWISH, index_range=-1),
    "index nan": lambda: nlis.misestimation_factor(SWISH, index_range=math.nan),
    "index bool": lambda: nlis.misestimation_factor(SWISH, index_range=True),
    "index swapped": lambda: nlis.misestimation_factor(SWISH, index_range=(1, -1)),
    "index three": lambda: nlis.misestimation_factor(SWISH, index_range=(1, 2, 3)),
    "index of objects": lambda: nlis.misestimation_factor(SWISH, index_range=(None, 2)),
    "labels none": lambda: nlis.misestimation_factor(SWISH, labels=[]),
    "labels nan": lambda: nlis.misestimation_factor(SWISH, labels=[math.nan]),
    "labels lazy": lambda: nlis.misestimation_factor(SWISH, labels=da.zeros(3)),
    "labels of another loss": lambda: nlis.misestimation_factor(
        nlis.Problem(nlis.Linear(), nlis.LogisticLoss()), labels=(-1, 1)
    ),
    "labels below 0": lambda: nlis.misestimation_factor(
        nlis.Problem(nlis.Linear(), nlis.PoissonDeviance()), labels=(-1, 1)
    ),
    "custom loss": lambda: nlis.misestimation_factor(CUSTOM, labels=(0, 1)),
    "custom loss, Lipschitz": lambda: nlis.lipschitz_bound(CUSTOM, 1.0, labels=(0, 1)),
    "scores negative": lambda: nlis.measured_misestimation_factor([1.0, -1.0], [1.0, 1.0]),
    "scores nan": lambda: nlis.measured_misestimation_factor([1.0, 1.0], [1.0, math.nan]),
    "scores zero": lambda: nlis.measured_misestimation_factor([0.0, 0.0], [1.0, 1.0]),
    "scores unequal": lambda: nlis.measured_misestimation_factor([1.0], [1.0, 1.0]),
    "scores lazy": lambda: nlis.measured_misestimation_factor(da.ones(2), [1.0, 1.0]),
    "scores a table": lambda: nlis.measured_misestimation_factor(np.ones((2, 1)), [1.0, 1.0]),
    "factor": lambda: nlis.norm_misestimation_factor(np.eye(3)),
    "features": lambda: nlis.lipschitz_bound(SWISH, np.eye(3)),
    "features zero": lambda: nlis.lipschitz_bound(SWISH, 0.0),
    "Lipschitz model": lambda: nlis.lipschitz_bound(nlis.Problem(nlis.DeepReluNetwork((2, 2))), 1.0),
    "Lipschitz radius": lambda: nlis.lipschitz_bound(nlis.Problem(nlis.ReluNetwork(2)), 1.0),
    "steepest": lambda: nlis.lipschitz_bound(SWISH, 1.0, steepest=-1),
    "per unit with a loss": lambda: nlis.misestimation_factor(
        nlis.Problem(nlis.ReluNetwork(2, per_unit=True), nlis.Huber(1.0)), labels=(0, 1)
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_get_one_line(case):
    with pytest.raises((nlis.InputError, nlis.InputTypeError)) as caught:
        BAD[case]()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) <= 300
    assert "; give " in message or "; use " in message
