"""Tangent matrices, influence scores and blends of scores, against their definitions and statsmodels."""

import dask
import dask.array as da
import numpy as np
import pytest
import statsmodels.api as sm
from counting import CountingArray, executed, no_compute, rows_of, same_bits
from nets import NETS, setting
from tables import LABELS, LOSSES, MODELS, allowed

import dask_nlis as nlis
from dask_nlis.factor import factorize_together
from dask_nlis.scores import Share, lazy_scores, mixture_scorer

#: A few linear indexes stand for all: they differ in their activation alone.
EVERY = {**{name: MODELS[name] for name in ("linear", "linear, no intercept", "swish 1, 2", "cos")}, **NETS}
PAIRS = [
    (model, loss)
    for model in EVERY
    for loss in LOSSES
    if loss != "absolute"
    and (LOSSES[loss].takes == "prediction" or isinstance(getattr(EVERY[model], "activation", nlis.Identity()), nlis.Identity))
]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def scored(T):
    return nlis.influence_scores(T, nlis.factorize(T))


def numeric(of, theta, rows):
    """Derivatives (rows, p) of a function (rows,) of theta by central differences."""
    out = np.empty((rows, len(theta)))
    for j in range(len(theta)):
        step = np.zeros_like(theta)
        step[j] = 1e-5 * max(1.0, abs(theta[j]))
        out[:, j] = (of(theta + step) - of(theta - step)) / (2 * step[j])
    return out


@pytest.mark.filterwarnings("ignore::dask_nlis.RankAmbiguityWarning")
@pytest.mark.parametrize(("model", "loss"), PAIRS)
def test_influence_is_the_length_of_the_gradient_in_the_metric_of_the_hessian(model, loss, rng):
    problem = nlis.Problem(EVERY[model], LOSSES[loss])
    theta, x, _ = setting(problem.model, rng, 120)
    theta, x = theta / 2, np.clip(x, -3, 3)
    y = allowed(problem.loss, LABELS["noisy"](problem.model.predict(theta, x), rng))
    prediction = problem.model.predict(theta, x)
    J = problem.model.jacobian(theta, x)
    psi = problem.loss.derivative(prediction, y)[:, None] * J
    # The gradient is that of the loss: by differences where nothing bends between them.
    by_differences = numeric(lambda t: problem.loss.value(problem.model.predict(t, x), y), theta, len(y))
    smooth = np.isclose(psi, by_differences, rtol=1e-5, atol=1e-5 * (1 + np.abs(psi).max())).all(axis=1)
    assert smooth.mean() > 0.9
    H = J.T @ (np.maximum(problem.loss.curvature(prediction, y), 0)[:, None] * J)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", psi, np.linalg.pinv(H, rcond=1e-11, hermitian=True), psi))
    T = nlis.tangent_matrix(problem, x, y, theta=theta)
    rows = T.to_dask_array().compute()
    np.testing.assert_allclose(rows.T @ rows, H, rtol=1e-10, atol=1e-10 * np.abs(H).max())
    # A row of no curvature may have a gradient outside the range of H, where it has no length in that metric.
    inside = np.abs(psi - psi @ np.linalg.pinv(rows, rcond=1e-10) @ rows).max(axis=1) <= 1e-7 * np.abs(psi).max()
    assert inside.mean() > 0.9
    np.testing.assert_allclose(scored(T)[inside], expected[inside], rtol=1e-5, atol=1e-7 * expected[inside].max())


def test_for_squared_error_it_is_the_residual_times_the_root_of_the_leverage(rng):
    X, y = rows_of(3, 500, 4)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    theta = rng.normal(size=5)
    J = problem.model.jacobian(theta, X)
    residual = problem.model.predict(theta, X) - y
    u = np.linalg.svd(J, full_matrices=False)[0]
    expected = np.sqrt(2) * np.abs(residual) * np.linalg.norm(u, axis=1)
    np.testing.assert_allclose(scored(nlis.tangent_matrix(problem, X, y, theta=theta)), expected, rtol=1e-11)


def test_for_logistic_loss_hessian_and_gradients_are_statsmodels(rng):
    X, y = rows_of(4, 400, 3)
    y = (y > np.median(y)).astype(float)
    design = np.column_stack([X, np.ones(len(X))])
    theta = rng.normal(size=4)
    model = sm.Logit(y, design)
    psi, H = model.score_obs(theta), -model.hessian(theta)
    expected = np.sqrt(np.einsum("ij,ij->i", psi @ np.linalg.inv(H), psi))
    problem = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
    np.testing.assert_allclose(scored(nlis.tangent_matrix(problem, X, y, theta=theta)), expected, rtol=1e-11)


def test_units_of_columns_change_no_score_and_dependent_columns_leave_them_as_they_are(rng):
    X, y = rows_of(5, 300, 3)
    problem, theta = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2))), rng.normal(size=4)
    expected = scored(nlis.tangent_matrix(problem, X, y, theta=theta))
    units = np.array([2.0**40, 2.0**-300, 8.0])
    in_units = nlis.tangent_matrix(problem, X * units, y, theta=np.append(theta[:3] / units, theta[3]))
    assert same_bits(scored(in_units), expected)
    twice = nlis.tangent_matrix(problem, np.column_stack([X, X[:, 0]]), y, theta=np.insert(theta, 3, 0.0))
    factor = nlis.factorize(twice)
    assert factor.rank == 4
    np.testing.assert_allclose(nlis.influence_scores(twice, factor), expected, rtol=1e-10)


def test_row_weights_count_as_repeated_rows_and_dropped_rows_score_zero(rng):
    X, y = rows_of(6, 200, 3)
    weight = rng.integers(0, 3, 200)
    problem, theta = nlis.Problem(nlis.Linear(), nlis.Huber(0.5)), rng.normal(size=4)
    repeated = np.repeat(np.arange(200), weight)
    once = scored(nlis.tangent_matrix(problem, X[repeated], y[repeated], theta=theta))
    weighted = scored(nlis.tangent_matrix(problem, X, y, theta=theta, sample_weight=weight))
    np.testing.assert_allclose(weighted[repeated], weight[repeated] * once, rtol=1e-11)
    assert not weighted[weight == 0].any()
    gaps = X.copy()
    gaps[17, 1] = np.nan
    T = nlis.tangent_matrix(problem, gaps, y, theta=theta, missing="drop")
    without = nlis.tangent_matrix(problem, np.delete(X, 17, 0), np.delete(y, 17), theta=theta)
    np.testing.assert_allclose(scored(T), np.insert(scored(without), 17, 0.0), rtol=1e-12)
    with pytest.raises(nlis.NonFiniteError, match="row 17"):
        scored(nlis.tangent_matrix(problem, gaps, y, theta=theta))


def test_influence_is_lazy_and_costs_one_read_and_one_task_a_block():
    values, y = rows_of(7, 3000, 3)
    X, theta = CountingArray(values), np.array([0.3, -0.2, 0.1, 0.5])
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    expected = scored(nlis.tangent_matrix(problem, values, y, theta=theta))
    with no_compute():
        T = nlis.tangent_matrix(problem, X.dask(100), da.from_array(y, 700), theta=theta)
    factor = nlis.factorize(T)
    assert X.reads() == 1
    with no_compute():
        scores = nlis.influence_scores(T, factor)
    assert executed(scores) <= 30 + 5 + 30 + 1  # y has other blocks: cut and joined beside each
    np.testing.assert_allclose(scores.compute(), expected, rtol=1e-11)
    assert X.reads() == 1
    dual = nlis.dual_matrix(problem, values, y, theta=theta)
    assert T.columns == dual.columns[:-1]
    assert (T.has_labels, T.problem, T.theta.tolist()) == (True, problem, theta.tolist())
    assert dual != T


LINEAR = nlis.Problem(nlis.Linear())
REFUSED = {
    "no labels": (lambda X, y: nlis.tangent_matrix(LINEAR, X, None, theta=np.ones(4)), "y is None"),
    "no curvature": (
        lambda X, y: nlis.tangent_matrix(nlis.Problem(nlis.Linear(), nlis.AbsoluteError()), X, y, theta=np.ones(4)),
        "leverage",
    ),
    "theta too short": (lambda X, y: nlis.tangent_matrix(LINEAR, X, y, theta=np.ones(3)), r"\(4,\)"),
    "a dual matrix": (
        lambda X, y: nlis.influence_scores(A := nlis.dual_matrix(LINEAR, X, y, theta=np.ones(4)), nlis.factorize(A)),
        "dual matrix; give tangent_matrix",
    ),
    "rows": (lambda X, y: nlis.influence_scores(X, nlis.factorize(X)), "ndarray; give tangent_matrix"),
    "another factor": (
        lambda X, y: nlis.influence_scores(
            nlis.tangent_matrix(LINEAR, X, y, theta=np.ones(4)),
            nlis.factorize(nlis.tangent_matrix(LINEAR, X, y, theta=np.zeros(4), sample_weight=np.ones(len(y)))),
        ),
        "another matrix",
    ),
    "no scores": (lambda X, y: nlis.blend([], []), "scores is empty"),
    "one array": (lambda X, y: nlis.blend(y, [1.0]), "ndarray; give a list"),
    "shares below 1": (lambda X, y: nlis.blend([y**2, y**2], [0.5, 0.4]), "sum to 0.9"),
    "a negative share": (lambda X, y: nlis.blend([y**2, y**2], [1.5, -0.5]), "shares holds -0.5|shares hold"),
    "shares as text": (lambda X, y: nlis.blend([y**2, y**2], "ab"), "shares is str"),
    "a share as text": (lambda X, y: nlis.blend([y**2, y**2], ["a", 0.5]), "shares"),
    "one share": (lambda X, y: nlis.blend([y**2, y**2], [1.0]), "1 numbers for 2"),
    "a total of zero": (lambda X, y: nlis.blend([y**2], [1.0], totals=[0.0]), "totals hold 0"),
    "other lengths": (lambda X, y: nlis.blend([y**2, y[:5] ** 2], [0.5, 0.5]), r"scores\[1\] has shape \(5,\)"),
    "negative scores": (lambda X, y: nlis.blend([y**2, y], [0.5, 0.5]), r"scores\[1\] is negative .* row"),
    "zero scores": (lambda X, y: nlis.blend([y**2, 0 * y], [0.5, 0.5]), r"scores\[1\] sum to 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_scored_is_refused_in_one_line(case):
    call, match = REFUSED[case]
    with pytest.raises(nlis.NlisError, match=match) as refused:
        call(*rows_of(8, 60, 3))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 300


@pytest.mark.parametrize("chunks", [1, 7, 1000])
def test_a_blend_mixes_scores_over_their_sums_the_same_for_all_chunks(chunks, rng):
    first, second = rng.lognormal(sigma=3, size=300), rng.uniform(size=300)
    expected = 0.3 * first / first.sum() + 0.6 * second / second.sum() + 0.1 / 300
    mixed = nlis.blend([first, second, np.ones(300)], [0.3, 0.6, 0.1])
    np.testing.assert_allclose(mixed, expected, rtol=1e-13)
    lazy = nlis.blend([da.from_array(first, chunks), da.from_array(second, 11), np.ones(300)], [0.3, 0.6, 0.1])
    assert isinstance(lazy, da.Array)
    assert same_bits(lazy.compute(), mixed)


def test_a_blend_with_totals_is_lazy_and_reads_once():
    values, y = rows_of(9, 400, 3)
    X, theta = CountingArray(values), np.array([0.3, -0.2, 0.1, 0.5])
    A = nlis.dual_matrix(LINEAR, X.dask(100), y, theta=theta)
    factor = nlis.factorize(A)
    leverage = nlis.leverage_scores(A, factor)
    assert X.reads() == 1
    with no_compute():
        mixed = nlis.blend([leverage, da.ones(400, chunks=100)], [0.9, 0.1], totals=[factor.rank, 400])
    found = mixed.compute()
    assert X.reads() == 1
    np.testing.assert_allclose(found, 0.9 * leverage.compute() / factor.rank + 0.1 / 400, rtol=1e-13)
    assert X.reads() == 1
    nlis.blend([leverage, da.ones(400, chunks=100)], [0.9, 0.1]).compute()
    assert X.reads() == 1


@pytest.mark.parametrize("hard", [False, True], ids=["well conditioned", "ill conditioned"])
def test_two_factors_of_the_same_rows_share_their_reads_and_are_what_each_alone_is(hard):
    values, y = rows_of(10, 900, 3)
    values[:, 2] = values[:, 0] + (1e-4 if hard else 1.0) * values[:, 2]
    X, theta = CountingArray(values), np.array([0.3, -0.2, 0.1, 0.5])
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
    A = nlis.dual_matrix(problem, X.dask(100), y, theta=theta)
    T = nlis.tangent_matrix(problem, X.dask(100), y, theta=theta)
    (dual, tangent), reads = factorize_together([A, T])
    assert (X.reads(), reads) == (2 if hard else 1,) * 2
    assert dual == nlis.factorize(A)
    assert tangent == nlis.factorize(T)


def test_a_mixture_in_one_task_is_the_blend_of_its_parts():
    values, y = rows_of(11, 900, 3)
    weight = np.arange(900) % 3
    X, theta = CountingArray(values), np.array([0.3, -0.2, 0.1, 0.5])
    problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
    options = {"theta": theta, "sample_weight": weight}
    A, T = (make(problem, X.dask(100), y, **options) for make in (nlis.dual_matrix, nlis.tangent_matrix))
    factors = nlis.factorize(A), nlis.factorize(T)
    leverage, influence = nlis.leverage_scores(A, factors[0]).compute(), nlis.influence_scores(T, factors[1]).compute()
    assert X.reads() == 4
    found = lazy_scores(A, mixture_scorer(A, T, factors, Share(0.5, 2.0, 0.125)))
    np.testing.assert_allclose(found.compute(), 0.5 * leverage + 2 * influence + 0.125 * (weight > 0), rtol=1e-13)
    assert X.reads() == 1
    alone = lazy_scores(A, mixture_scorer(A, T, factors, Share(0.0, 2.0, 0.0)))
    np.testing.assert_allclose(alone.compute(), 2 * influence, rtol=1e-13)
