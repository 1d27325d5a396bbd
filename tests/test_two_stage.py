"""The two-stage job: the words it is made of, its union design, its reads, and when there is one stage."""

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, rows_of, same_bits
from datasets import load

import dask_nlis as nlis
from dask_nlis.pipeline import job as pipeline_job
from dask_nlis.sampling import Stage, draw_beside

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
FREE = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
X, Y = rows_of(31, 2000, 4)
SHARES = {60: (0.45, 0.45, 0.10), 40: (0.45, 0.45, 0.10), 400: (0.0, 0.90, 0.10)}  # ten rows a parameter: 50


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def leverage(A):
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)))


def by_words(size, first, seed, shares, x=X, y=Y, weight=None, problem=PROBLEM):
    """The job in public words, but for the size of the second stage."""
    options = {} if weight is None else {"sample_weight": weight}
    reference = leverage(nlis.reference_matrix(problem, x, y, **options))
    one = nlis.draw(reference, first, scheme="poisson", seed=seed)
    part = {} if weight is None else {"sample_weight": weight[one.indices]}
    pilot = nlis.refit(problem, *one.take(x, y), one, **part)
    A, T = (make(problem, x, y, theta=pilot.theta, **options) for make in (nlis.dual_matrix, nlis.tangent_matrix))
    tangent = nlis.factorize(T)
    influence = nlis.influence_scores(T, tangent)
    total = one.weights @ influence[one.indices]
    counts = np.ones(len(y)) if weight is None else (weight > 0).astype(float)
    scores = nlis.blend([leverage(A), influence, counts], shares, totals=[nlis.factorize(A).rank, total, counts.sum()])
    lazy = da.from_array(scores, 500)
    two = draw_beside(lazy, [Stage(one, da.from_array(reference, 500))], size - first, seed, 1)
    union = nlis.pool([one, two], [reference, scores], combine="union")
    return reference, pilot, scores, one, two, union


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [40, 400])
def test_a_two_stage_run_is_the_words_it_is_made_of(size, weighted):
    weight = np.arange(2000) % 3 + 0.0 if weighted else None
    job = nlis.run(PROBLEM, X, Y, size=size, seed=4, sample_weight=weight)
    first = max(size // 4, min(size // 2, 10 * 5), 7)  # of 5 parameters in a bounded set
    reference, pilot, scores, one, two, union = by_words(size, first, 4, SHARES[size], weight=weight)
    np.testing.assert_allclose(job.pilot.theta, pilot.theta, rtol=1e-9)
    counts = np.ones(2000, bool) if weight is None else weight > 0
    np.testing.assert_allclose(job.scores[counts], scores[counts], rtol=1e-7)
    assert same_bits(job.sample.indices, union.indices)
    np.testing.assert_allclose(job.sample.weights, union.weights, rtol=1e-7)
    # The union by its definition, and its size.
    missed = (1 - one.expected_count(reference)) * (1 - two.expected_count(job.scores))
    np.testing.assert_allclose(job.sample.weights, 1 / (1 - missed[job.sample.indices]), rtol=1e-7)
    if weight is None:
        assert (1 - missed).sum() == pytest.approx(size, rel=1e-9)
    again = nlis.refit(
        PROBLEM, job.sample_X, job.sample_y, job.sample, sample_weight=job.sample_weight, start=job.pilot.theta
    )
    assert again == job.fit
    assert job.manifest["shares"] == list(SHARES[size])
    assert job.manifest["stages"] == [first, size - first]
    assert (job.sample.scheme, job.sample.n_draws, job.why_one_stage) == ("poisson", size, "")
    options = {} if weight is None else {"sample_weight": job.sample_weight}
    taken = nlis.dual_matrix(PROBLEM, job.sample_X, job.sample_y, theta=job.pilot.theta, **options)
    certificate = nlis.certificate(taken, job.factor, job.sample, theta=job.fit.theta)
    assert job.certificate.epsilon == certificate.epsilon
    assert job.certificate.loss == pytest.approx(job.fit.loss, rel=1e-12)
    assert job.certificate.excess is None


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "systematic"])
def test_other_schemes_are_pooled_by_the_balance_heuristic(scheme):
    job = nlis.run(PROBLEM, X, Y, size=400, seed=4, scheme=scheme)
    reference = leverage(nlis.reference_matrix(PROBLEM, X, Y))
    one = nlis.draw(reference, 100, scheme=scheme, seed=4)
    assert same_bits(job.pilot.theta, nlis.refit(PROBLEM, *one.take(X, Y), one).theta)
    assert (job.sample.scheme, job.sample.n_draws, int(job.sample.counts.sum())) == ("pooled", 400, 400)
    assert job.sample.stage_schemes == (scheme, scheme)
    assert set(one.indices) <= set(job.sample.indices)
    assert job.fit.ok
    assert job.certificate.is_embedding


def test_the_union_has_the_size_asked_for_and_estimates_sums_without_bias():
    x, y = X[:300], Y[:300]
    jobs = [nlis.run(PROBLEM, x, y, size=40, seed=seed) for seed in range(60)]
    sizes = np.array([len(job.sample) for job in jobs])
    assert abs(sizes.mean() - 40) < 4 * sizes.std() / np.sqrt(60)
    sums = np.array([job.sample.weights.sum() for job in jobs])
    assert abs(sums.mean() - 300) < 4 * sums.std() / np.sqrt(60)


@pytest.mark.parametrize(("rounds", "reads", "sizes"), [(1, 3, [200]), (2, 5, [50, 150]), (3, 7, [50, 75, 75])])
def test_a_stage_takes_two_reads_and_the_loss_one(rounds, reads, sizes):
    counted = CountingArray(X)
    job = nlis.run(PROBLEM, counted.dask(2), Y, size=200, seed=1, rounds=rounds)
    assert sum(job.reads.values()) == reads
    assert counted.reads() == reads
    assert job.manifest["stages"] == sizes
    assert job.sample.n_draws == 200


ONE = {
    "too small for a pilot": (PROBLEM, Y, {"size": 13}, "size=13 leaves no room for a pilot of 7 rows"),
    "too small without a bounded set": (FREE, Y, {"size": 49}, "size=49 leaves no room for a pilot of 25 rows"),
    "separable": (
        nlis.Problem(nlis.Linear(), nlis.LogisticLoss()),
        (X[:, 0] > 0).astype(float),
        {"size": 400},
        "the pilot fit is not ok: ",
    ),
    "a network and separable labels": (
        nlis.Problem(nlis.ReluNetwork(1), nlis.LogisticLoss()),
        (X[:, 0] > 0).astype(float),
        {"size": 400},
        "the pilot fit is not ok: no finite optimum",
    ),
    "one class": (
        nlis.Problem(nlis.Linear(), nlis.LogisticLoss(), constraint=nlis.Ball(3.0)),
        np.zeros(2000),
        {"size": 40},
        "the pilot drew rows of one class only",
    ),
    "no row": (PROBLEM, Y, {"size": 40, "pilot_size": 1, "seed": 0}, "the pilot drew no row"),
}


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")  # of the last fit to separable rows
@pytest.mark.parametrize("case", ONE)
def test_one_stage_by_reference_leverage_where_two_cannot_be(case):
    problem, y, options, why = ONE[case]
    job = nlis.run(problem, X, y, **{"seed": 4} | options)
    assert job.why_one_stage.startswith(why)
    assert why[:20] in repr(job)
    A = nlis.reference_matrix(problem, X, y)
    reference = leverage(A)
    np.testing.assert_allclose(job.scores, reference, rtol=1e-10)
    assert job.sample == nlis.draw(reference, options["size"], scheme="poisson", seed=job.sample.seed)
    assert (job.pilot, job.manifest["shares"], job.manifest["theta"]) == (None, None, None)
    # Where there was a pilot to try, rows for it were kept, and not enough for all.
    assert job.reads == {"factor": job.factor.reads, "scores": 1 + ("pilot" in why[:9]), "total loss": 1}
    assert job.factor == nlis.factorize(A)
    taken = nlis.reference_matrix(problem, job.sample_X, job.sample_y)
    assert job.certificate == nlis.certificate(taken, job.factor, job.sample, theta=job.fit.theta)


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")
def test_a_network_fit_that_ends_in_a_kink_serves_as_a_pilot():
    model = nlis.ReluNetwork(3)
    theta = np.random.default_rng(5).normal(size=model.n_parameters(4))
    y = model.predict(theta, X) + 0.3 * Y
    problem = nlis.Problem(model, constraint=nlis.Ball(8.0))
    jobs = [nlis.run(problem, X, y, size=300, seed=seed) for seed in range(3)]
    assert not all(job.pilot.ok for job in jobs)
    assert [job.why_one_stage for job in jobs] == [""] * 3
    assert all(np.linalg.norm(job.pilot.theta) <= 8 * (1 + 1e-9) for job in jobs)


def test_without_curvature_leverage_takes_the_share_of_influence():
    problem = nlis.Problem(nlis.Linear(), nlis.AbsoluteError(on_singular="zero"), constraint=nlis.Ball(10.0))
    job = nlis.run(problem, X, Y, size=400, seed=1)
    assert job.manifest["shares"] == [0.9, 0.0, 0.1]
    A = nlis.dual_matrix(problem, X, Y, theta=job.pilot.theta)
    factor = nlis.factorize(A)
    expected = nlis.blend([leverage(A), np.ones(2000)], [0.9, 0.1], totals=[factor.rank, 2000])
    np.testing.assert_allclose(job.scores, expected, rtol=1e-10)


def test_size_auto_doubles_until_the_certificate_has_the_epsilon_and_reads_no_more_for_it():
    counted = CountingArray(X)
    job = nlis.run(PROBLEM, counted.dask(5), Y, size="auto", epsilon=0.3, seed=0)
    assert job.certificate.epsilon <= 0.3
    assert sum(job.reads.values()) == counted.rows.min() == 5
    assert job.manifest["shares"] == [0.45, 0.45, 0.10]
    size = job.sample.n_draws
    assert size > 100  # twenty rows a parameter was not enough
    assert job.certificate.theorem_size > size
    smaller = nlis.run(PROBLEM, X, Y, size=size // 2, pilot_size=50, shares=(0.45, 0.45, 0.10), seed=0)
    assert smaller.certificate.epsilon > 0.3
    assert set(smaller.sample.indices) < set(job.sample.indices)
    same = nlis.run(PROBLEM, X, Y, size=size, pilot_size=50, shares=(0.45, 0.45, 0.10), seed=0)
    assert same.sample.indices.tolist() == job.sample.indices.tolist()
    np.testing.assert_allclose(same.fit.theta, job.fit.theta, rtol=1e-5)
    with pytest.warns(nlis.NlisWarning, match=r"ends at 1,000 rows, half of all, with epsilon .* above 0.001"):
        job = nlis.run(PROBLEM, X, Y, size="auto", epsilon=0.001, seed=0)
    assert job.sample.n_draws == 1000


def test_a_store_that_fails_in_a_fit_on_the_way_is_told(monkeypatch, tmp_path):
    real = pipeline_job.recalled_noun

    def fails(saved, name, make, kind):
        if name.removeprefix("fit-").isdigit():
            raise nlis.StoreWriteError("no space is left")
        return real(saved, name, make, kind)

    monkeypatch.setattr(pipeline_job, "recalled_noun", fails)
    with pytest.raises(nlis.StoreWriteError, match="no space is left"):
        nlis.run(PROBLEM, X, Y, size="auto", epsilon=0.3, seed=0, store=tmp_path / "run.zarr")


def test_influence_alone_is_scored_at_theta_or_at_a_pilot():
    theta = np.array([0.3, -0.2, 0.1, 0.4, 0.05])
    T = nlis.tangent_matrix(PROBLEM, X, Y, theta=theta)
    expected = np.asarray(nlis.influence_scores(T, nlis.factorize(T)))
    job = nlis.run(PROBLEM, X, Y, size=200, seed=1, theta=theta, scores="influence")
    np.testing.assert_allclose(job.scores, expected, rtol=1e-10)
    assert job.sample == nlis.draw(job.scores, 200, scheme="poisson", seed=1)
    assert job.reads == {"factor": job.factor.reads, "scores": 1, "total loss": 1}
    assert job.factor == nlis.factorize(nlis.dual_matrix(PROBLEM, X, Y, theta=theta))
    assert sum(nlis.run(PROBLEM, X, Y, size=200, seed=1, scores="influence").reads.values()) == 5


@pytest.mark.parametrize("name", ["california", "diamonds", "insurance"])
def test_size_auto_reaches_an_epsilon_of_0_3_on_real_data_far_below_the_theorems_size(name):
    x, y = load(name)
    job = nlis.run(PROBLEM, x, y, size="auto", epsilon=0.3, seed=0)
    assert job.certificate.epsilon <= 0.3
    assert job.sample.n_draws < len(y) / 2
    assert job.certificate.theorem_size > 2 * job.sample.n_draws
    assert f"would ask for {job.certificate.theorem_size:,} draws" in job.certificate.verdict
    assert job.fit.ok
