"""The certificate against dense computations, its interval against repeated draws, its reads and its refusals."""

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, rows_of

import dask_nlis as nlis
from dask_nlis.diagnostics.bootstrap import interval
from dask_nlis.refit.design import scatter

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
X, Y = rows_of(21, 900, 3)
THETA = np.array([0.4, -0.3, 0.2, 0.1])
WEIGHT = np.arange(900) % 3 + 0.5
SCHEMES = ("multinomial", "stratified", "poisson", "systematic")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def setting(scheme="multinomial", size=200, seed=2, **options):
    A = nlis.dual_matrix(PROBLEM, X, Y, theta=THETA, **options)
    factor = nlis.factorize(A)
    return A, factor, nlis.draw(nlis.leverage_scores(A, factor), size, scheme=scheme, seed=seed)


def dense_epsilon(F, sample):
    """The definition, on an orthonormal basis from an SVD."""
    u, s, _ = np.linalg.svd(F, full_matrices=False)
    basis = u[:, s > 1e-10 * s[0]][sample.indices]
    return np.abs(np.linalg.eigvalsh(basis.T @ (sample.weights[:, None] * basis)) - 1).max()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_epsilon_is_that_of_a_dense_computation(scheme, weighted):
    options = {"sample_weight": WEIGHT} if weighted else {}
    A, factor, sample = setting(scheme, **options)
    F = A.to_dask_array().compute()
    found = nlis.certificate(A, factor, sample)
    assert found.epsilon == pytest.approx(dense_epsilon(F, sample), rel=1e-10)
    # The largest relative error of any quadratic form of F: the extreme one is attained, others are below.
    G, H = F.T @ F, F[sample.indices].T @ (sample.weights[:, None] * F[sample.indices])
    for z in np.random.default_rng(0).normal(size=(200, 5)):
        assert abs(z @ H @ z / (z @ G @ z) - 1) <= found.epsilon * (1 + 1e-10)
    taken = [*sample.take(X, Y)]
    part = {"sample_weight": WEIGHT[sample.indices]} if weighted else {}
    again = nlis.certificate(nlis.dual_matrix(PROBLEM, *taken, theta=THETA, **part), factor, sample)
    assert again == found
    assert (found.rank, found.n_sample, found.n_rows) == (5, len(sample), 900)
    assert found.largest_weight == sample.weights.max() / sample.weights.sum()
    assert found.effective_size == sample.effective_size
    losses = (PROBLEM.model.predict(THETA, X) - Y) ** 2 * (WEIGHT if weighted else 1)
    assert found.loss == pytest.approx(sample.weights @ losses[sample.indices], rel=1e-12)
    assert found.loss_low < found.loss < found.loss_high
    theorem = nlis.sample_size(4, found.epsilon, 0.05, rank=5, guarantee="embedding")
    assert found.theorem_size == theorem.size
    assert found.beta_norm == nlis.norm_misestimation_factor(factor)
    assert found.is_embedding
    assert found.verdict.startswith(f"quadratic forms of all 5 directions are kept within {found.epsilon:.0%} by")
    assert str(found) == found.verdict


def test_too_few_rows_and_lost_directions_are_no_embedding():
    A, factor, _ = setting()
    few = nlis.Sample.from_probabilities([0, 1, 2], [0.5, 0.5, 0.5], n_rows=900, scheme="poisson")
    found = nlis.certificate(A, factor, few)
    assert found.epsilon == pytest.approx(dense_epsilon(A.to_dask_array().compute(), few), rel=1e-10)
    assert found.epsilon >= 1
    assert not found.is_embedding
    assert found.theorem_size is None
    assert found.verdict.startswith("not an embedding: 3 rows cannot span 5 directions; draw more")
    heavy = nlis.Sample.from_probabilities(np.arange(90), np.full(90, 0.01), n_rows=900, scheme="poisson")
    assert nlis.certificate(A, factor, heavy).verdict.startswith("not an embedding (epsilon ")


def test_dependent_columns_count_by_their_rank():
    table = np.column_stack([X, X[:, 0] + X[:, 1]])
    factor = nlis.factorize(table)
    sample = nlis.draw(nlis.leverage_scores(table, factor), 100, seed=0)
    found = nlis.certificate(table, factor, sample)
    assert found.rank == 3
    assert found.epsilon == pytest.approx(dense_epsilon(table, sample), rel=1e-9)
    assert (found.loss, found.loss_low, found.excess) == (None, None, None)


def test_a_sample_of_all_rows_has_nothing_to_lose():
    A, factor, _ = setting()
    every = nlis.Sample.from_probabilities(np.arange(900), np.ones(900), n_rows=900, scheme="poisson")
    found = nlis.certificate(A, factor, every, theta=np.zeros(4))
    assert found.epsilon < 1e-12
    assert found.loss == found.loss_low == found.loss_high == pytest.approx((Y**2).sum(), rel=1e-12)
    loss = ((PROBLEM.model.predict(THETA, X) - Y) ** 2).sum()
    assert found.excess == pytest.approx((Y**2).sum() / loss - 1, rel=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_interval_is_as_wide_as_the_variance_of_the_design_says(scheme):
    *_, sample = setting(scheme, size=500)
    values = np.random.default_rng(1).uniform(1, 2, len(sample))
    low, high = interval(sample, values)
    deviation = np.sqrt(scatter(sample, values[:, None])[0, 0])
    # Nearly normal at so many rows: 2 x 1.96 deviations, to what 1,999 replicates tell of two quantiles.
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.08)


@pytest.mark.parametrize("scheme", ["multinomial", "poisson"])
def test_the_interval_of_the_loss_covers_that_of_all_rows(scheme):
    A, factor, _ = setting()
    scores = np.asarray(nlis.leverage_scores(A, factor))
    losses = (PROBLEM.model.predict(THETA, X) - Y) ** 2
    covered = []
    for seed in range(400):
        sample = nlis.draw(scores, 150, scheme=scheme, seed=seed)
        low, high = interval(sample, losses[sample.indices])
        covered.append(low <= losses.sum() <= high)
    # Standard error at 95 %: 1.1 %.
    assert 0.91 < np.mean(covered) < 0.985
    assert interval(sample, losses[sample.indices]) == (low, high)  # of the seed alone


def test_deep_measures_what_only_all_rows_tell_in_one_read():
    counted = CountingArray(X)
    A = nlis.dual_matrix(PROBLEM, counted.dask(3), Y, theta=THETA)
    factor = nlis.factorize(A)
    h = nlis.leverage_scores(A, factor).compute()
    scores = h * np.random.default_rng(3).uniform(0.3, 1, 900)
    scores[[5, 77]] = 0.0
    sample = nlis.draw(scores, 200, seed=1)
    fit = nlis.refit(PROBLEM, *sample.take(X, Y), sample)
    assert counted.reads() == 2
    found = nlis.certificate(A, factor, sample, scores=scores, theta=fit.theta, deep=True)
    assert counted.rows.min() == 1  # the drawn rows' blocks besides
    assert counted.rows.max() == 2
    assert found.beta == 0.0
    at = {name: (PROBLEM.model.predict(theta, X) - Y) ** 2 for name, theta in (("A", THETA), ("fit", fit.theta))}
    assert found.total_loss == pytest.approx(at["fit"].sum(), rel=1e-12)
    assert found.excess == pytest.approx(at["fit"].sum() / at["A"].sum() - 1, rel=1e-9)
    assert found.unreachable_rows == 2
    assert found.unreachable_loss == pytest.approx(at["fit"][[5, 77]].sum(), rel=1e-12)
    assert found.identity_residual < 1e-14
    assert "2 rows with loss" in found.verdict
    full = h * np.linspace(0.5, 1, 900)
    again = nlis.certificate(A, factor, nlis.draw(full, 200, seed=1), scores=da.from_array(full, 333), deep=True)
    assert again.beta == pytest.approx((full / full.sum() / (h / factor.rank)).min(), rel=1e-10)
    assert again.beta == pytest.approx(nlis.measured_misestimation_factor(full, h), rel=1e-10)


def test_an_integrated_adjoint_shows_its_identity_residual():
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), nlis.PseudoHuber(0.5))
    numerical = nlis.Problem(nlis.Numerical(lambda t, x: np.tanh(x @ t) ** 2 + t[0] ** 3, lambda t, x: 2 * (np.tanh(x @ t) / np.cosh(x @ t) ** 2)[:, None] * x + np.array([3 * t[0] ** 2, 0, 0]), 3))  # fmt: skip
    for each, theta in ((problem, THETA), (numerical, THETA[:3])):
        A = nlis.dual_matrix(each, X, Y, theta=theta)
        factor = nlis.factorize(A)
        scores = nlis.leverage_scores(A, factor)
        found = nlis.certificate(A, factor, nlis.draw(scores, 100, seed=0), scores=scores, deep=True)
        assert 0 < found.identity_residual < 1e-8


A0, FACTOR0, SAMPLE0 = setting()
REFUSED = {
    "no factor": ((A0, None, SAMPLE0), {}, "factor is NoneType"),
    "no sample": ((A0, FACTOR0, SAMPLE0.weights), {}, "sample is ndarray"),
    "another matrix": ((nlis.dual_matrix(PROBLEM, X + 1, Y, theta=THETA), FACTOR0, SAMPLE0), {}, "another matrix"),
    "another theta": (
        (nlis.dual_matrix(PROBLEM, *SAMPLE0.take(X, Y), theta=THETA + 1), FACTOR0, SAMPLE0),
        {},
        "another problem or theta",
    ),
    "other rows": ((nlis.dual_matrix(PROBLEM, X[:7], Y[:7], theta=THETA), FACTOR0, SAMPLE0), {}, "A has 7 rows"),
    "deep without scores": ((A0, FACTOR0, SAMPLE0), {"deep": True}, "needs scores="),
    "deep as text": ((A0, FACTOR0, SAMPLE0), {"deep": "yes"}, "deep='yes' is str"),
    "deep of taken rows": (
        (nlis.dual_matrix(PROBLEM, *SAMPLE0.take(X, Y), theta=THETA), FACTOR0, SAMPLE0),
        {"deep": True, "scores": np.ones(900)},
        "needs A of all rows",
    ),
    "scores of other rows": ((A0, FACTOR0, SAMPLE0), {"deep": True, "scores": np.ones(5)}, r"scores have shape \(5,\)"),
    "negative scores": (
        (A0, FACTOR0, SAMPLE0),
        {"deep": True, "scores": -np.ones(900)},
        "negative or not finite at row",
    ),
    "scores for nothing": ((A0, FACTOR0, SAMPLE0), {"scores": np.ones(900)}, "only deep=True reads them"),
    "theta too short": ((A0, FACTOR0, SAMPLE0), {"theta": [1.0]}, r"\(4,\)"),
    "theta without labels": (
        ((B := nlis.dual_matrix(PROBLEM, X, theta=THETA)), nlis.factorize(B), SAMPLE0),
        {"theta": THETA},
        "has no labels",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_certified_is_refused_in_one_line(case):
    arguments, options, match = REFUSED[case]
    with pytest.raises(nlis.NlisError, match=match) as refused:
        nlis.certificate(*arguments, **options)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 300


def test_an_empty_sample_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.NlisWarning)
        draws = (nlis.draw(np.ones(900), 1, scheme="poisson", seed=seed) for seed in range(99))
        empty = next(sample for sample in draws if not len(sample))
    with pytest.raises(nlis.InputError, match="sample is empty"):
        nlis.certificate(A0, FACTOR0, empty)
