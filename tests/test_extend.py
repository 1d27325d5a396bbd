"""Rows that come after a run: scored among all rows, a stratum of their own, fitted with the old ones, old data unread."""

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, rows_of

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))
X = rows_of(11, 3000, 3)[0]
Y = np.tanh(X @ [0.5, -0.2, 1.0] + 0.1) + 0.2 * np.random.default_rng(1).normal(size=3000)
OLD, NEW = slice(0, 2000), slice(2000, 3000)


@pytest.fixture(scope="module")
def first():
    """A run of the rows that came first."""
    return nlis.run(PROBLEM, da.from_array(X[OLD], chunks=(250, 3)), Y[OLD], size=300, seed=0)


def test_new_rows_are_read_three_times_and_drawn_by_their_leverage_among_all(first):
    counted = CountingArray(X[NEW])
    found = nlis.extend(first, counted.dask(100), Y[NEW], size=150, seed=1)
    assert found.reads == {"factor": 1, "scores": 1, "total loss": 1}
    assert counted.reads() == 3
    # The oracle: leverage in the matrix of all rows at the theta of the scores, by a dense SVD.
    rows = np.asarray(nlis.dual_matrix(PROBLEM, X, Y, theta=first.manifest["theta"]).to_dask_array())
    leverage = np.sum(np.linalg.svd(rows, full_matrices=False)[0] ** 2, axis=1)
    expected = nlis.draw(leverage[NEW], 150, scheme="poisson", seed=1)
    mine = found.sample.indices >= 2000
    np.testing.assert_array_equal(found.sample.indices[mine] - 2000, expected.indices)
    np.testing.assert_allclose(found.sample.weights[mine], expected.weights, rtol=1e-9)
    np.testing.assert_array_equal(found.sample.indices[~mine], first.sample.indices)
    np.testing.assert_array_equal(found.sample.weights[~mine], first.sample.weights)
    np.testing.assert_array_equal(found.sample_X, X[found.sample.indices])
    np.testing.assert_array_equal(found.sample_y, Y[found.sample.indices])
    np.testing.assert_allclose(found.factor.r.T @ found.factor.r, rows.T @ rows, rtol=1e-9, atol=1e-9)
    assert found.factor.n_rows == found.sample.n_rows == 3000


def test_the_fit_is_to_all_rows(first):
    found = nlis.extend(first, X[NEW], Y[NEW], size=150, seed=1)
    full = nlis.refit(PROBLEM, X, Y, np.ones(3000))
    assert found.fit.ok
    assert np.abs(found.fit.theta - full.theta).max() < 6 * found.fit.standard_errors.max()
    exact = nlis.total_loss(PROBLEM, X, Y, found.fit.theta)
    assert found.total_loss == pytest.approx(exact, rel=0.2)
    assert found.stale == ""
    assert found.certificate.n_rows == 3000
    assert found.certificate.epsilon < 0.6


def test_weighted_sums_are_unbiased_over_both_strata(first):
    target = float(np.sum(np.abs(X[:, 0])))
    estimates = []
    for seed in range(60):
        start = nlis.run(PROBLEM, X[OLD], Y[OLD], size=200, seed=2 * seed, rounds=1, keep_scores=False)
        sample = nlis.extend(start, X[NEW], Y[NEW], size=100, seed=2 * seed + 1).sample
        estimates.append(float(sample.weights @ np.abs(X[sample.indices, 0])))
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - target) < 4 * error
    assert error < 0.02 * target


@pytest.mark.parametrize(
    "options",
    [
        {"scores": "norm"},
        {"scores": "influence"},
        {"theta": [0.3, 0.1, -0.2, 0.0]},
        {"rounds": 1},
        {"rounds": 3},
        {"scheme": "systematic"},
        {"scheme": "stratified"},
        {"sample_weight": 1.0 + np.arange(2000) % 3},
        {"missing": "drop"},
    ],
)
def test_runs_of_every_kind_are_extended_and_extended_again(options, tmp_path):
    store = tmp_path / "run.zarr"
    nlis.run(PROBLEM, X[OLD], Y[OLD], size=300, seed=0, store=store, **options)
    opened = nlis.open_run(store)
    later = X[2500:].copy()
    if options.get("missing"):
        later[7, 1] = np.nan
    once = nlis.extend(opened, X[2000:2500], Y[2000:2500], size=80, seed=1)
    twice = nlis.extend(once, later, Y[2500:], size=60, seed=2, sample_weight=np.full(500, 2.0))
    assert twice.sample.n_rows == 3000
    assert twice.manifest["strata"] == [2000, 500, 500]
    assert (twice.factor is None) == (options.get("scores") == "norm")
    assert twice.n_dropped == (1 if options.get("missing") else 0)
    assert twice.fit.ok
    expected = np.concatenate(
        [np.asarray(options.get("sample_weight", np.ones(2000))), np.ones(500), np.full(500, 2.0)]
    )
    np.testing.assert_array_equal(twice.sample_weight, expected[twice.sample.indices])
    fit = nlis.refit(PROBLEM, twice.sample_X, twice.sample_y, twice.sample, sample_weight=twice.sample_weight)
    np.testing.assert_allclose(fit.theta, twice.fit.theta, atol=1e-6)


def test_a_fit_that_moved_far_makes_the_scores_stale():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4000, 3))
    values[:, 2] = 3 * rng.standard_t(2, size=4000)  # a few rows far out, which tanh flattens while the column matters
    labels = np.tanh(values @ [0.5, -0.2, 2.0]) + 0.1 * rng.normal(size=4000)
    before = nlis.run(PROBLEM, values[:2000], labels[:2000], size=200, seed=0)
    alike = nlis.extend(before, values[2000:], labels[2000:], size=200, seed=1)
    assert alike.stale == ""
    moved = 10 * np.tanh(values[2000:] @ [0.5, -0.2, 0.0])
    other = nlis.extend(before, values[2000:], moved, size=200, seed=1)
    assert "run all rows anew" in other.stale
    assert other.stale in repr(other)
    assert len(other.stale) <= 300


def test_what_does_not_fit_the_run_is_refused_in_one_line(first):
    for change, message in (
        ({"seed": 0}, "seed=0 is the run's own"),
        ({"X_new": X[NEW][:, :2]}, "X_new has 2 columns, but the run has 3"),
        ({"y_new": None}, "y_new is None"),
        ({"run": first.fit}, "run is Fit; give a Run"),
        ({"size": 0}, "size"),
        ({"X_new": X[OLD], "y_new": Y[OLD]}, "both factors cover the same matrix"),
    ):
        given = {"run": first, "X_new": X[NEW], "y_new": Y[NEW], "size": 50, "seed": 1} | change
        if "X_new" in change and len(given["X_new"]) == 2000:
            given["X_new"] = da.from_array(X[OLD], chunks=(250, 3))
        with pytest.raises(nlis.NlisError, match=message) as caught:
            nlis.extend(given.pop("run"), given.pop("X_new"), given.pop("y_new"), **given)
        assert len(str(caught.value)) <= 300


def test_new_rows_without_names_are_known_by_their_order():
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("abc"))
    first = nlis.run(PROBLEM, frame[:400], Y[:400], size=60, seed=0)
    named = nlis.extend(first, frame[400:], Y[400:], size=40, seed=1)
    bare = nlis.extend(first, X[400:], Y[400:], size=40, seed=1)
    assert bare.sample == named.sample
    assert bare.factor.columns == named.factor.columns
    assert bare.fit.feature_names == named.fit.feature_names == ("a", "b", "c")
    assert np.array_equal(bare.fit.theta, named.fit.theta)
    with pytest.raises(nlis.errors.InputError, match="column 'z' where the run has 'a'"):
        nlis.extend(first, frame.rename(columns={"a": "z"})[400:], Y[400:], size=40, seed=1)
