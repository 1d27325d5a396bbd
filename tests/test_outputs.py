"""Models of several outputs: losses of a whole row, joint and separate rows, scores, fits and jobs of them."""

import array_api_strict
import dask
import dask.array as da
import mpmath
import numpy as np
import pytest
import statsmodels.api as sm
from counting import CountingArray, same_bits
from scipy.integrate import quad_vec

import dask_nlis as nlis
from dask_nlis.losses import OverOutputs
from dask_nlis.problem import dual_ray_norms, dual_rows, loss_gradients, pulled, tangent_rows

D, K, N = 3, 3, 240

NET = nlis.MultilayerPerceptron((4,), n_outputs=K)
FLAT = nlis.MultilayerPerceptron((), n_outputs=K)
SMOOTH = nlis.MultilayerPerceptron((3,), unit=nlis.Tanh(), n_outputs=K)
LOSSES = {
    "squared": nlis.SquaredError(),
    "huber": nlis.Huber(0.5),
    "pseudo-huber": nlis.PseudoHuber(0.5),
    "absolute": nlis.AbsoluteError(),
    "logistic": nlis.LogisticLoss(),
    "poisson": nlis.PoissonDeviance(),
    "softmax": nlis.SoftmaxLoss(K),
    "softmax, reference": nlis.SoftmaxLoss(K + 1),
}
MODELS = {"net": NET, "linear": FLAT, "tanh": SMOOTH}

pytestmark = [
    pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning"),
    pytest.mark.filterwarnings("ignore::dask_nlis.RankAmbiguityWarning"),
]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def made(model, loss, rng, n=N):
    """Problem, theta, X and labels that it allows, near the model's."""
    problem = nlis.Problem(MODELS[model], LOSSES[loss])
    X = rng.normal(size=(n, D))
    theta = rng.normal(size=problem.model.n_parameters(D))
    near = problem.model.predict(theta, X) + rng.normal(size=(n, K))
    if loss.startswith("softmax"):
        return problem, theta, X, rng.integers(0, problem.loss.n_classes, n).astype(float)
    if loss == "logistic":
        return problem, theta, X, (near > 0).astype(float)
    return problem, theta, X, rng.poisson(np.exp(np.clip(near, -3, 3))).astype(float) if loss == "poisson" else near


# --- losses


def exact_softmax(u, y):
    with mpmath.workdps(1300):
        return mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(v) - mpmath.mpf(u[y])) for v in u))


@pytest.mark.parametrize("gap", [0.0, 1e-9, 1.0, 30.0, 40.0, 300.0, 1400.0])
@pytest.mark.parametrize("y", [0, 1, 2])
def test_softmax_its_root_and_its_slopes_keep_their_digits_wherever_the_classes_lie(gap, y):
    loss, u = nlis.SoftmaxLoss(3), np.array([[0.25, gap, -gap / 2]])
    label = np.array([float(y)])
    exact = exact_softmax(u[0], y)
    assert loss.root(u, label)[0] == pytest.approx(float(mpmath.sqrt(exact)), rel=1e-13)
    if exact > 1e-300:
        assert loss.value(u, label)[0] == pytest.approx(float(exact), rel=1e-13)
    with mpmath.workdps(1300):
        weights = [mpmath.exp(mpmath.mpf(v) - mpmath.mpf(max(u[0]))) for v in u[0]]
        shares = [w / mpmath.fsum(weights) for w in weights]
        own = [-mpmath.fsum(s for c, s in enumerate(shares) if c != k) if k == y else shares[k] for k in range(3)]
        slopes = [float(each / (2 * mpmath.sqrt(exact))) for each in own]
    np.testing.assert_allclose(loss.root_gradient(u, label)[0], slopes, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(loss.derivative(u, label)[0], [float(each) for each in own], rtol=1e-12, atol=1e-300)


def test_softmax_of_two_classes_is_the_logistic_loss(rng):
    u, y = rng.normal(size=(50, 2)) * 5, rng.integers(0, 2, 50).astype(float)
    two, logistic = nlis.SoftmaxLoss(2), nlis.LogisticLoss()
    np.testing.assert_allclose(two.value(u, y), logistic.value(u[:, 1] - u[:, 0], y), rtol=1e-13)
    np.testing.assert_allclose(two.derivative(u, y)[:, 1], logistic.derivative(u[:, 1] - u[:, 0], y), rtol=1e-12)
    np.testing.assert_allclose(two.response(u)[:, 1], logistic.response(u[:, 1] - u[:, 0]), rtol=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_and_curvatures_of_a_row_are_derivatives_of_its_loss(loss, rng):
    problem, theta, X, y = made("linear", loss, rng, n=20)
    whole, u = problem.row_loss, problem.model.predict(theta, X)
    np.testing.assert_allclose(whole.root(u, y) ** 2, whole.value(u, y), rtol=1e-12)
    assert (whole.root(u, y) >= 0).all()
    step = 1e-6
    half = whole.curvature_root(u, y)
    bend = np.swapaxes(half, 1, 2) @ half
    for c in range(K):
        e = step * (np.arange(K) == c)
        slope = (whole.value(u + e, y) - whole.value(u - e, y)) / (2 * step)
        np.testing.assert_allclose(whole.derivative(u, y)[:, c], slope, atol=1e-6)
        root = (whole.root(u + e, y) - whole.root(u - e, y)) / (2 * step)
        np.testing.assert_allclose(whole.root_gradient(u, y)[:, c], root, atol=1e-6)
        if loss != "absolute":
            second = (whole.derivative(u + e, y) - whole.derivative(u - e, y)) / (2 * step)
            np.testing.assert_allclose(bend[:, c, :], second, atol=1e-5)
    assert not whole.curvature_root(u, y, -1).any()


def test_lengths_of_residuals_neither_over_nor_underflow_and_nothing_has_no_slope():
    whole = OverOutputs(nlis.SquaredError(), 2)
    residuals = np.array([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    np.testing.assert_allclose(whole.root(residuals, np.zeros((3, 2))), [5e200, 5e-200, 0.0])
    np.testing.assert_allclose(whole.root_gradient(residuals, np.zeros((3, 2))), [[0.6, 0.8], [0.6, 0.8], [0, 0]])


# --- rows and scores


@pytest.mark.parametrize(("model", "loss"), [(m, one) for m in MODELS for one in LOSSES if one != "absolute"])
def test_joint_rows_are_the_mean_gradient_of_the_root_of_the_whole_loss(model, loss, rng):
    problem, theta, X, y = made(model, loss, rng, n=6)
    A = nlis.dual_matrix(problem, X, y, theta=theta)
    rows = A.to_dask_array().compute()
    assert rows.shape == (6, len(theta) + 1)
    for i in range(6):
        row, label = X[i : i + 1], y[i : i + 1]

        def slope(t, row=row, label=label):
            slopes = problem.row_loss.root_gradient(problem.model.predict(t * theta, row), label)
            return pulled(problem.model, t * theta, row, slopes)[0]

        mean, _ = quad_vec(slope, 0, 1, epsabs=1e-9, epsrel=1e-9, limit=2000)
        np.testing.assert_allclose(rows[i, :-1], mean, atol=1e-7)
    zero, here = problem.model.at_zero(X), problem.model.predict(theta, X)
    np.testing.assert_allclose(rows[:, -1], problem.row_loss.root(zero, y), rtol=1e-14)
    reached = rows[:, -1] + rows[:, :-1] @ theta
    np.testing.assert_allclose(reached, problem.row_loss.root(here, y), atol=1e-11)


@pytest.mark.parametrize("close", [1e-1, 1e-4, 0.0])
def test_residuals_that_nearly_vanish_together_on_the_ray_are_followed(close, rng):
    model = nlis.MultilayerPerceptron((6,), n_outputs=2)
    problem, X = nlis.Problem(model), rng.normal(size=(60, D))
    theta = rng.normal(size=model.n_parameters(D))
    y = model.predict(0.6 * theta, X) + close * rng.normal(size=(60, 2))
    factor = nlis.factorize(nlis.dual_matrix(problem, X, y, theta=theta))
    assert factor.identity_residual <= 1e-12
    assert factor.nodes <= 32


@pytest.mark.parametrize(("model", "loss"), [("net", "squared"), ("tanh", "huber"), ("linear", "logistic")])
def test_separate_rows_are_those_of_each_output_by_itself(model, loss, rng):
    joint, theta, X, y = made(model, loss, rng)
    problem = nlis.Problem(joint.model, joint.loss, outputs="separate")
    rows = nlis.dual_matrix(problem, X, y, theta=theta).to_dask_array().compute().reshape(N, K, -1)
    last = "W2" if problem.model.widths else "W1"
    alone = nlis.MultilayerPerceptron(problem.model.widths, unit=problem.model.unit)
    for c in range(K):
        parts = problem.model.unpack(theta)
        parts[last], parts[f"b{last[1]}"] = parts[last][c : c + 1], parts[f"b{last[1]}"][c : c + 1]
        single = nlis.dual_matrix(nlis.Problem(alone, joint.loss), X, y[:, c], theta=alone.pack(**parts))
        its = single.to_dask_array().compute()
        place = problem.model.unpack(np.arange(len(theta)))
        place[last], place[f"b{last[1]}"] = place[last][c], place[f"b{last[1]}"][c]
        mine = np.concatenate([np.ravel(place[name]) for name in parts])
        np.testing.assert_allclose(rows[:, c, mine], its[:, :-1], atol=1e-12)
        others = np.setdiff1d(np.arange(len(theta)), mine)
        assert not rows[:, c, others].any()
        np.testing.assert_allclose(rows[:, c, -1], its[:, -1], rtol=1e-14)
    unlabelled = nlis.dual_matrix(problem, X, theta=theta)
    reached = unlabelled.to_dask_array().compute() @ [*theta, 1.0]
    np.testing.assert_allclose(reached.reshape(N, K), problem.model.predict(theta, X), atol=1e-11)


@pytest.mark.parametrize("outputs", ["joint", "separate"])
@pytest.mark.parametrize(("model", "loss"), [("net", "squared"), ("tanh", "squared"), ("linear", "logistic")])
def test_scores_are_those_of_the_dense_rows_summed_over_each_data_row(model, loss, outputs, rng):
    joint, theta, X, y = made(model, loss, rng)
    problem = nlis.Problem(joint.model, joint.loss, outputs=outputs)
    each = K if outputs == "separate" else 1
    A = nlis.dual_matrix(problem, da.from_array(X, (70, D)), y, theta=theta)
    rows = A.to_dask_array().compute()
    assert A.shape == (N, len(theta) + 1)
    assert rows.shape == (N * each, len(theta) + 1)
    assert same_bits(A.block(1).compute(), rows[70 * each : 140 * each])
    left, values, _ = np.linalg.svd(rows / np.linalg.norm(rows, axis=0), full_matrices=False)
    kept = left[:, values > 1e-10 * values[0]]
    for method in ("auto", "tsqr"):
        factor = nlis.factorize(A, method=method)
        h = nlis.leverage_scores(A, factor).compute()
        assert factor.rank == kept.shape[1]
        assert factor.n_rows == N
        np.testing.assert_allclose(h, (kept**2).sum(axis=1).reshape(N, each).sum(axis=1), atol=1e-9)
        assert h.sum() == pytest.approx(factor.rank, abs=1e-8)
        assert h.max() <= each
    np.testing.assert_allclose(
        nlis.norm_scores(A).compute(), (rows**2).sum(axis=1).reshape(N, each).sum(axis=1), rtol=1e-11
    )
    np.testing.assert_allclose(nlis.norm_scores(A, log2_scale=3).compute() * 64, nlis.norm_scores(A).compute())

    v = rng.integers(0, 3, size=N)
    owner = np.repeat(np.arange(N), v)
    weighted = nlis.dual_matrix(problem, X, y, theta=theta, sample_weight=v)
    repeated = nlis.dual_matrix(problem, X[owner], y[owner], theta=theta)
    there, here = (nlis.leverage_scores(M, nlis.factorize(M, method="tsqr")) for M in (weighted, repeated))
    np.testing.assert_allclose(there, np.bincount(owner, here, minlength=N), atol=1e-9)
    assert (there[v == 0] == 0).all()


def test_leverage_of_several_linear_outputs_is_that_of_the_hat_matrix_for_each(rng):
    _, theta, X, y = made("linear", "squared", rng)
    T = nlis.tangent_matrix(nlis.Problem(FLAT), X, y, theta=theta)
    h = nlis.leverage_scores(T, nlis.factorize(T))
    X1 = np.column_stack([X, np.ones(N)])
    np.testing.assert_allclose(h, K * np.einsum("ij,ji->i", X1, np.linalg.pinv(X1)), atol=1e-12)


@pytest.mark.parametrize(("model", "loss"), [("linear", "softmax, reference"), ("net", "squared"), ("tanh", "huber")])
def test_influence_is_its_definition(model, loss, rng):
    problem, theta, X, y = made(model, loss, rng)
    T = nlis.tangent_matrix(problem, X, y, theta=theta)
    factor = nlis.factorize(T)
    found = nlis.influence_scores(T, factor)
    u, step, p = problem.model.predict(theta, X), 1e-6, len(theta)
    J = np.empty((N, K, p))
    for j in range(p):
        e = step * (np.arange(p) == j)
        J[:, :, j] = (problem.model.predict(theta + e, X) - problem.model.predict(theta - e, X)) / (2 * step)
    half = problem.row_loss.curvature_root(u, y)
    rows = (half @ J).reshape(-1, p)
    psi = np.einsum("ic,icp->ip", problem.row_loss.derivative(u, y), J)
    expected = np.sqrt(np.einsum("ip,pq,iq->i", psi, np.linalg.pinv(rows.T @ rows, rcond=1e-9), psi))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_reference_row_ends_with_the_root_of_the_whole_loss(rng):
    problem, _, X, y = made("net", "softmax", rng)
    rows = nlis.reference_matrix(problem, X, y).to_dask_array().compute()
    np.testing.assert_allclose(rows[:, :D], X)
    np.testing.assert_allclose(rows[:, D:], np.column_stack([np.ones(N), np.full(N, np.sqrt(np.log(K)))]))


@pytest.mark.parametrize(("loss", "outputs"), [("squared", "joint"), ("huber", "separate"), ("softmax", "joint")])
@pytest.mark.parametrize("model", ["net", "tanh"])
def test_rows_and_norms_are_those_of_every_namespace(model, loss, outputs, rng):
    joint, theta, X, y = made(model, loss, rng, n=12)
    if loss != "softmax":
        y = joint.model.predict(0.6 * theta, X) + 1e-3 * rng.normal(size=(12, K))  # pieces of the ray are halved
    problem = nlis.Problem(joint.model, joint.loss, outputs=outputs)
    there = [array_api_strict.asarray(part) for part in (theta, X, y)]
    for rows in (dual_rows, tangent_rows, loss_gradients):
        np.testing.assert_allclose(np.from_dlpack(rows(problem, *there)), rows(problem, theta, X, y), atol=1e-12)
    norms = np.from_dlpack(dual_ray_norms(problem, *there).norms)
    np.testing.assert_allclose(norms, dual_ray_norms(problem, theta, X, y).norms, rtol=1e-11)


def test_several_outputs_take_no_more_tasks_and_reads_than_one(rng):
    X, reads = rng.normal(size=(N, D)), {}
    for name, problem, y in (
        ("one", nlis.Problem(nlis.MultilayerPerceptron((4,))), np.zeros(N)),
        ("joint", nlis.Problem(NET), np.zeros((N, K))),
        ("separate", nlis.Problem(NET, outputs="separate"), np.zeros((N, K))),
    ):
        stored = CountingArray(X)
        theta = np.random.default_rng(0).normal(size=problem.model.n_parameters(D))
        A = nlis.dual_matrix(problem, stored.dask(60), y, theta=theta)
        scores = nlis.leverage_scores(A, nlis.factorize(A, method="tsqr"))
        tasks = len(dict(scores.__dask_graph__()))
        scores.compute()
        reads[name] = tasks, stored.reads()
    assert reads["one"] == reads["joint"] == reads["separate"]


# --- fits


def test_multinomial_fits_are_those_of_statsmodels(rng):
    X = rng.normal(size=(600, 2))
    u = np.column_stack([np.zeros(600), X @ [1.0, -0.5], X @ [-0.5, 1.0] + 0.3])
    y = (u + rng.gumbel(size=u.shape)).argmax(axis=1)
    v = rng.integers(1, 3, 600)
    problem = nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=2), nlis.SoftmaxLoss(3))
    fit = nlis.refit(problem, X, y, v.astype(float))
    assert fit.ok, fit.reasons
    owner = np.repeat(np.arange(600), v)
    rival = sm.MNLogit(y[owner], sm.add_constant(X[owner], prepend=False)).fit(disp=0, tol=1e-12)
    parts = problem.model.unpack(fit.theta)
    np.testing.assert_allclose(np.column_stack([parts["W1"], parts["b1"]]), rival.params.T, atol=1e-6)
    assert fit.loss == pytest.approx(-rival.llf, rel=1e-9)
    np.testing.assert_allclose(
        fit.predict(X[:5]), rival.predict(sm.add_constant(X[:5], prepend=False, has_constant="add")), atol=1e-6
    )

    robust = sm.MNLogit(y, sm.add_constant(X, prepend=False)).fit(disp=0, cov_type="HC0")
    even = nlis.refit(problem, X, y, np.ones(600))
    errors = np.sqrt(np.diagonal(even.population_covariance))
    order = problem.model.unpack(np.arange(6))
    np.testing.assert_allclose(
        errors[np.column_stack([order["W1"], order["b1"]])],
        np.reshape(robust.bse, (2, 3)) if robust.bse.ndim == 1 else robust.bse.T,
        rtol=1e-3,
    )


def test_targets_fitted_together_are_those_fitted_apart(rng):
    X, y = rng.normal(size=(200, D)), rng.normal(size=(200, K))
    fit = nlis.refit(nlis.Problem(FLAT), X, y, np.ones(200))
    X1 = np.column_stack([X, np.ones(200)])
    best, residual, *_ = np.linalg.lstsq(X1, y, rcond=None)
    parts = FLAT.unpack(fit.theta)
    np.testing.assert_allclose(np.column_stack([parts["W1"], parts["b1"]]), best.T, atol=1e-8)
    assert fit.loss == pytest.approx(residual.sum())
    assert fit.predict(X).shape == (200, K)
    # The errors are those of each target by its own fit, each row's residual over 1 - h, h its leverage there.
    psi = np.einsum("ic,ij->icj", 2 * (X1 @ best - y), X1).reshape(200, -1)
    H = np.kron(np.eye(K), 2 * X1.T @ X1)
    scaled = psi / (1 - np.einsum("ij,ji->i", X1, np.linalg.pinv(X1)))[:, None]
    scaled -= scaled.mean(axis=0)
    expected = np.linalg.solve(H, np.linalg.solve(H, scaled.T @ scaled * 200 / 199).T)
    order = np.column_stack([FLAT.unpack(np.arange(len(fit.theta)))[name].reshape(K, -1) for name in ("W1", "b1")])
    sample = nlis.draw(np.ones(200), 150, seed=0)
    taken = sample.take(X, y)
    drawn = nlis.refit(nlis.Problem(FLAT), *taken, sample)
    assert drawn.ok
    assert np.isfinite(drawn.standard_errors).all()
    np.testing.assert_allclose(
        fit.population_covariance[np.ix_(order.ravel(), order.ravel())],
        np.linalg.solve(H, np.linalg.solve(H, psi.T @ psi).T),
        rtol=1e-6,
        atol=1e-12,
    )
    np.testing.assert_allclose(fit.covariance[np.ix_(order.ravel(), order.ravel())], expected, rtol=1e-6, atol=1e-12)


def test_a_softmax_of_all_classes_has_no_unique_optimum_and_a_ridge_does_not_free_its_biases(rng):
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 3, 300)
    problem = nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=3), nlis.SoftmaxLoss(3))
    fit = nlis.refit(problem, X, y, np.ones(300))
    assert fit.ok, fit.reasons
    assert "not unique" in fit.withheld
    np.testing.assert_allclose(fit.predict(X).sum(axis=1), 1.0)


def test_separable_classes_are_told():
    X = np.arange(30.0).reshape(30, 1)
    problem = nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=2), nlis.SoftmaxLoss(3))
    with pytest.warns(nlis.ConvergenceWarning):
        fit = nlis.refit(problem, X, np.arange(30) // 10, np.ones(30))
    assert not fit.ok


# --- verbs and jobs


def test_losses_of_rows_and_of_all_are_the_definition(rng):
    problem, theta, X, y = made("net", "squared", rng)
    expected = ((problem.model.predict(theta, X) - y) ** 2).sum(axis=1)
    A = nlis.dual_matrix(problem, X, y, theta=theta)
    np.testing.assert_allclose(nlis.loss_scores(A), expected, rtol=1e-12)
    assert nlis.total_loss(problem, X, y, theta) == pytest.approx(expected.sum(), rel=1e-12)
    found = nlis.drift(problem, X, y, [theta, 1.1 * theta])
    assert found.losses[0] == pytest.approx(expected.sum(), rel=1e-12)


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")
@pytest.mark.parametrize("outputs", ["joint", "separate"])
def test_the_whole_job_is_stored_resumed_and_extended(outputs, rng, tmp_path):
    X = rng.normal(size=(3000, D))
    model = nlis.MultilayerPerceptron((), n_outputs=2)
    y = X @ rng.normal(size=(D, 2)) + 0.1 * rng.normal(size=(3000, 2))
    problem = nlis.Problem(model, constraint=nlis.Ball(50.0), outputs=outputs)
    path = tmp_path / "run.zarr"
    job = nlis.run(problem, da.from_array(X, (500, D)), da.from_array(y, (500, 1)), size=400, seed=0, store=path)
    assert job.fit.ok
    assert job.sample_y.shape == (len(job.sample), 2)
    again = nlis.open_run(path)
    assert again == job
    assert again.problem == problem
    assert job.certificate.epsilon < 1
    assert job.fit.loss == pytest.approx(job.total_loss, rel=0.2)
    best = nlis.refit(problem, X, y, np.ones(3000))
    assert job.total_loss <= 1.05 * best.loss
    more = nlis.extend(job, X[:500] + 0.01, y[:500], size=60, seed=5)
    assert more.sample.n_rows == 3500
    unfused = nlis.run(problem, X, y, size=400, seed=0, scheme="multinomial")
    assert unfused.fit.ok
    A = nlis.dual_matrix(problem, X, y, theta=job.fit.theta)
    factor = nlis.factorize(A)
    scores = nlis.leverage_scores(A, factor)
    sample = nlis.draw(scores, 600, seed=1)
    deep = nlis.certificate(A, factor, sample, scores=scores, deep=True)
    assert deep.identity_residual < 1e-11
    assert deep.beta == pytest.approx(1.0, rel=1e-6)
    rows = A.to_dask_array().compute().reshape(3000, -1, A.shape[1])[sample.indices]
    W = factor.whitener
    G = sum(w * (r @ W).T @ (r @ W) for w, r in zip(sample.weights, rows, strict=True))
    assert deep.epsilon == pytest.approx(np.abs(np.linalg.eigvalsh(G) - 1).max(), rel=1e-9)


def test_a_pilot_that_misses_a_class_is_none(rng):
    X, y = rng.normal(size=(2000, D)), np.minimum(np.arange(2000), 2)  # one row each of two classes
    problem = nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=2), nlis.SoftmaxLoss(3), constraint=nlis.Ball(20.0))
    job = nlis.run(problem, X, y, size=200, seed=0)
    assert job.pilot is None
    assert job.why_one_stage == "the pilot drew rows of 1 of 3 classes"


def test_fewer_rows_than_directions_may_hold_them_all_where_a_row_is_several(rng):
    X, y = rng.normal(size=(6, D)), rng.normal(size=(6, K))
    problem = nlis.Problem(FLAT, outputs="separate")
    A = nlis.dual_matrix(problem, X, y, theta=rng.normal(size=FLAT.n_parameters(D)))
    factor = nlis.factorize(A)
    every = nlis.Sample.from_probabilities(np.arange(6), np.ones(6), n_rows=6, scheme="poisson")
    found = nlis.certificate(A, factor, every)
    assert found.n_sample < found.rank
    assert found.epsilon < 1e-12
    assert found.verdict.startswith(f"quadratic forms of all {found.rank} directions are kept")


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_suspects_are_found_by_the_loss_of_the_whole_row(loss, rng):
    problem, theta, X, y = made("linear", loss, rng)
    A = nlis.dual_matrix(problem, X, y, theta=theta)
    table = nlis.suspects(A, k=5, by="loss")
    expected = problem.row_loss.value(problem.model.predict(theta, X), y)
    np.testing.assert_array_equal(table.indices, np.argsort(-expected, kind="stable")[:5])
    deletion = nlis.suspects(A, nlis.factorize(A), k=5, by="deletion")
    assert (deletion.scores >= table.scores.min()).any()


def test_comparisons_and_cross_leverage_take_several_outputs(rng):
    problem, theta, X, y = made("linear", "squared", rng)
    apart = nlis.Problem(problem.model, outputs="separate")
    A = nlis.dual_matrix(apart, X, y, theta=theta)
    factor = nlis.factorize(A)
    np.testing.assert_allclose(nlis.cross_leverage_scores(A, factor), nlis.leverage_scores(A, factor), atol=1e-12)
    np.testing.assert_allclose(factor.outside(A), 0.0, atol=1e-12)
    found = nlis.compare(problem, X, y, {"leverage": nlis.leverage_scores(A, factor)}, sizes=[60], seeds=3)
    assert np.isfinite(found.loss).all()


# --- what is refused


def refused(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


X6, Y6 = np.arange(18.0).reshape(6, 3) ** 0.5, np.ones((6, K))
THETA = np.ones(FLAT.n_parameters(3))
MISTAKES = {
    "y of one column": (lambda: nlis.dual_matrix(nlis.Problem(FLAT), X6, Y6[:, 0], theta=THETA), nlis.InputError, r"y has shape \(6,\); give \(6, 3\), one column an output"),
    "y of two columns": (lambda: nlis.reference_matrix(nlis.Problem(FLAT), X6, Y6[:, :2]), nlis.InputError, r"y has shape \(6, 2\); give \(6, 3\)"),
    "y of classes in columns": (lambda: nlis.reference_matrix(nlis.Problem(FLAT, nlis.SoftmaxLoss(3)), X6, Y6), nlis.InputError, r"y has shape \(6, 3\); give \(6,\)"),
    "no y": (lambda: nlis.dual_matrix(nlis.Problem(FLAT), X6, theta=THETA), nlis.InputTypeError, "y is None, but the row of 3 outputs.*outputs='separate'"),
    "other classes": (lambda: nlis.Problem(FLAT, nlis.SoftmaxLoss(5)), nlis.InputError, "has 5 classes, but the model 3 outputs; give one of 5, or of 4"),
    "one output": (lambda: nlis.Problem(nlis.Linear(), nlis.SoftmaxLoss(2)), nlis.InputError, r"the model has one; give LogisticLoss\(\)"),
    "one output, more classes": (lambda: nlis.Problem(nlis.Linear(), nlis.SoftmaxLoss(4)), nlis.InputError, "give a model of 4 outputs, or 3"),
    "separate classes": (lambda: nlis.Problem(FLAT, nlis.SoftmaxLoss(3), outputs="separate"), nlis.InputError, "SoftmaxLoss is one loss of all outputs"),
    "outputs of no kind": (lambda: nlis.Problem(FLAT, outputs="both"), nlis.InputError, "outputs='both' is not known; give 'joint' or 'separate'"),
    "classes of no number": (lambda: nlis.SoftmaxLoss(2.5), nlis.InputError, "n_classes=2.5 is not allowed; give an integer above 1"),
    "one class": (lambda: nlis.SoftmaxLoss(1), nlis.InputError, "n_classes=1 is not allowed"),
    "deletion of separate rows": (lambda: nlis.suspects(nlis.dual_matrix(nlis.Problem(FLAT, outputs="separate"), X6, Y6, theta=THETA), k=3, by="deletion"), nlis.InputError, "outputs='joint'"),
    "refit, y of one column": (lambda: nlis.refit(nlis.Problem(FLAT), X6, Y6[:, 0], np.ones(6)), nlis.InputError, r"y has shape \(6,\); give \(6, 3\)"),
    "refit, a class too many": (lambda: nlis.refit(nlis.Problem(FLAT, nlis.SoftmaxLoss(3)), X6, np.arange(6) % 4, np.ones(6)), nlis.InputError, r"y holds labels that are none of 0, ..., 2 first at taken row 3 \(value 3"),
    "refit, a bad cell": (lambda: nlis.refit(nlis.Problem(FLAT), X6, np.where(np.arange(18).reshape(6, 3) == 10, np.nan, 1.0), np.ones(6)), nlis.NonFiniteError, "not finite at taken row 3"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_one_line(mistake):
    refused(*MISTAKES[mistake])


def test_bad_labels_are_named_with_their_row_and_dropped_on_request(rng):
    problem, theta, X, y = made("linear", "squared", rng)
    spoilt = y.copy()
    spoilt[100, 2] = np.nan
    A = nlis.dual_matrix(problem, da.from_array(X, (70, D)), spoilt, theta=theta)
    refused(lambda: nlis.factorize(A), nlis.NonFiniteError, "y is not finite, .*at row 100 ")
    dropped = nlis.dual_matrix(problem, X, spoilt, theta=theta, missing="drop")
    h = nlis.leverage_scores(dropped, nlis.factorize(dropped))
    kept = np.delete(np.arange(N), 100)
    without = nlis.dual_matrix(problem, X[kept], y[kept], theta=theta)
    assert h[100] == 0
    np.testing.assert_allclose(h[kept], nlis.leverage_scores(without, nlis.factorize(without)), atol=1e-12)
    labels = (rng.random((N, K)) > 0.5).astype(float)
    labels[7, 1] = 3.0
    logistic = nlis.Problem(FLAT, nlis.LogisticLoss())
    refused(
        lambda: nlis.factorize(nlis.dual_matrix(logistic, X, labels, theta=theta)),
        nlis.InputError,
        r"outside \{0, 1\} first at row 7 \(value 3",
    )


def test_problems_of_several_outputs_are_told_apart_and_come_back(rng):
    joint, apart = nlis.Problem(FLAT), nlis.Problem(FLAT, outputs="separate")
    assert joint != apart
    assert "outputs=" not in repr(joint).replace("n_outputs", "")
    assert "outputs='separate'" in repr(apart)
    for problem in (joint, apart, nlis.Problem(FLAT, nlis.SoftmaxLoss(4))):
        assert nlis.Problem.from_dict(problem.to_dict()) == problem
    X, y, theta = rng.normal(size=(50, D)), rng.normal(size=(50, K)), np.ones(FLAT.n_parameters(D))
    A, B = (nlis.dual_matrix(problem, X, y, theta=theta) for problem in (joint, apart))
    with pytest.raises(nlis.MatrixMismatchError):
        nlis.leverage_scores(A, nlis.factorize(B))
