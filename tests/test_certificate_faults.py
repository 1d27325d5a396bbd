"""What a certificate and the diagnostics beside it must not say: of other rows, of rows that do not count, of overflows."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from counting import rows_of
from dask.base import tokenize

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
LINEAR = nlis.Problem(nlis.Linear())
X, Y = rows_of(22, 600, 3)
THETA = np.array([0.4, -0.3, 0.2, 0.1])


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def setting(x=X, y=Y, size=150, **options):
    A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA, **options)
    factor = nlis.factorize(A)
    scores = np.asarray(nlis.leverage_scores(A, factor))
    return A, factor, scores, nlis.draw(scores, size, seed=1)


def test_a_factor_of_more_rows_or_of_other_rows_tells_no_epsilon():
    A, factor, _, sample = setting()
    B, other, *_ = setting(*rows_of(9, 500, 3))
    merged = factor.merge(other)
    taken = nlis.dual_matrix(PROBLEM, *sample.take(X, Y), theta=THETA)
    for matrix in (A, taken):
        with pytest.raises(
            nlis.MatrixMismatchError, match="factor covers 1,100 rows, but the sample was drawn from 600"
        ):
            nlis.certificate(matrix, merged, sample)
    with pytest.raises(nlis.MatrixMismatchError, match="factor covers 500 rows"):
        nlis.certificate(taken, other, sample)
    # Of a sample of both data sets the merged factor is the right one.
    second = nlis.draw(np.asarray(nlis.leverage_scores(B, merged)), 100, seed=2)
    both = nlis.concat([nlis.draw(np.asarray(nlis.leverage_scores(A, merged)), 100, seed=1), second])
    x, y = (np.concatenate(pair) for pair in zip((X, Y), rows_of(9, 500, 3), strict=True))
    whole = nlis.dual_matrix(PROBLEM, x, y, theta=THETA)
    expected = nlis.certificate(whole, nlis.factorize(whole), both).epsilon
    found = nlis.certificate(nlis.dual_matrix(PROBLEM, *both.take(x, y), theta=THETA), merged, both).epsilon
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_sketch_tells_no_epsilon():
    A, _, _, sample = setting()
    with pytest.raises(nlis.InputError, match="factor is a sketch, which does not tell epsilon"):
        nlis.certificate(A, nlis.factorize(A, method="sketch-only"), sample)


def test_the_taken_rows_may_be_all_rows():
    A, factor, scores, _ = setting(da.from_array(X, chunks=(100, 3)), da.from_array(Y, chunks=100))
    every = nlis.draw(scores, 600, scheme="systematic", seed=0)
    taken = nlis.dual_matrix(PROBLEM, *every.take(X, Y), theta=THETA)
    assert nlis.certificate(taken, factor, every) == nlis.certificate(A, factor, every)


@pytest.mark.parametrize("case", ["dropped", "weight 0"])
def test_rows_that_do_not_count_have_no_loss_in_a_sample_of_ones_own(case):
    out = np.arange(600) % 4 == 0
    x, y = X.copy(), Y.copy()
    x[out] = np.nan if case == "dropped" else 1e308
    options = {"missing": "drop"} if case == "dropped" else {"sample_weight": (~out).astype(float)}
    A, factor, scores, _ = setting(x, y, **options)
    sample = nlis.Sample.from_probabilities(np.arange(0, 600, 3), np.full(200, 1 / 3), n_rows=600, scheme="poisson")
    found = nlis.certificate(A, factor, sample, scores=scores, theta=-THETA, deep=True)
    losses = np.where(out, 0.0, (PROBLEM.model.predict(-THETA, np.where(out[:, None], 0.0, x)) - y) ** 2)
    assert found.loss == pytest.approx(3 * losses[::3].sum(), rel=1e-12)
    assert found.loss_low < found.loss < found.loss_high
    assert found.total_loss == pytest.approx(losses.sum(), rel=1e-12)


def test_a_loss_or_a_sum_of_losses_that_is_no_number_is_an_error():
    A, factor, scores, sample = setting()
    with pytest.raises(nlis.NonFiniteError, match="overflows in the model"):
        nlis.certificate(A, factor, sample, theta=1e200 * THETA)
    with pytest.raises(nlis.NonFiniteError, match="overflows in the model"):
        nlis.certificate(A, factor, sample, theta=1e200 * THETA, scores=scores, deep=True)
    y = np.full(600, 1e153)  # 600 losses of 1e306
    B = nlis.dual_matrix(LINEAR, X, y, theta=THETA)
    factor = nlis.factorize(B)
    for call in (
        lambda: nlis.certificate(B, factor, sample),
        lambda: nlis.total_loss(LINEAR, X, y, THETA),
        lambda: nlis.total_loss(LINEAR, da.from_array(X, chunks=(60, 3)), y, THETA),
        lambda: nlis.drift(LINEAR, X, y, [THETA, -THETA]),
        lambda: nlis.drift(LINEAR, X, y, [THETA, -THETA], by="loss"),
        lambda: nlis.drift(LINEAR, da.from_array(X, chunks=(60, 3)), y, [THETA, -THETA], by="norm"),
    ):
        with pytest.raises(nlis.NonFiniteError, match=r"sum overflows"):
            call()


@pytest.mark.parametrize("by", ["loss", "norm", "leverage"])
def test_drift_says_where_a_loss_overflows_and_warns_of_nothing(by):
    with pytest.raises(nlis.NonFiniteError, match="at row 0, overflows in the model"):
        nlis.drift(LINEAR, X, np.full(600, 1e160), [THETA, -THETA], by=by)


@pytest.mark.parametrize("unit", [1e308, 1e-307, 1.0])
def test_beta_of_scores_in_any_unit(unit):
    A, factor, scores, sample = setting()
    used = scores * np.linspace(0.5, 1, 600)
    expected = (used / used.sum() / (scores / factor.rank)).min()
    found = nlis.certificate(A, factor, sample, scores=used / used.max() * unit, deep=True)
    assert found.beta == pytest.approx(expected, rel=1e-9)
    used[7] = 0.0
    assert nlis.certificate(A, factor, sample, scores=used / used.max() * unit, deep=True).beta == 0.0


def test_checkpoints_may_be_a_table():
    pd = pytest.importorskip("pandas")
    table = np.array([THETA, -THETA])
    assert nlis.drift(PROBLEM, X, Y, pd.DataFrame(table, columns=list("abcd"))) == nlis.drift(PROBLEM, X, Y, table)


def test_compare_takes_tables_of_mixed_columns_and_samples_of_rows_that_do_not_count():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": X[:, 0].astype(np.float32), "b": X[:, 1] > 0, "c": np.arange(600) % 5})
    options = {"scores": {"uniform": np.ones(600)}, "sizes": 40, "seeds": 3}
    expected = nlis.compare(PROBLEM, table.to_numpy(dtype=float), Y, **options)
    assert nlis.compare(PROBLEM, table, pd.Series(Y), **options) == expected
    nullable = table.astype({"a": "Float32", "b": "boolean", "c": "Int64"})
    assert nlis.compare(PROBLEM, nullable, pd.Series(Y), **options) == expected
    weight = (np.arange(600) % 30 == 0).astype(float)
    with pytest.warns(nlis.ConvergenceWarning, match="refits did not pass their checks"):
        found = nlis.compare(PROBLEM, X, Y, {"uniform": np.ones(600)}, sizes=3, seeds=12, sample_weight=weight)
    empty = [not weight[nlis.draw(np.ones(600), 3, seed=seed).indices].any() for seed in range(12)]
    assert np.isnan(found.loss).tolist() == empty
    assert 0 < sum(empty) < 12


def test_blend_of_scores_at_the_ends_of_float64():
    ones = np.ones(4)
    tiny = nlis.blend([np.full(4, 5e-324), ones], [0.5, 0.5])
    np.testing.assert_array_equal(tiny, 0.25)
    with pytest.raises(nlis.InputError, match=r"scores\[0\] sum to more than float64 holds"):
        nlis.blend([np.full(4, 1e308), ones], [0.5, 0.5])
    np.testing.assert_array_equal(nlis.blend([np.full(4, 4e307), ones], [0.5, 0.5]), 0.25)


def test_a_union_keeps_the_digits_of_small_chances():
    rng = np.random.default_rng(0)
    chance = rng.uniform(0, 1, 5) * 1e-12
    scores = np.append(chance, np.full(40, 1.0))
    samples = [nlis.draw(scores, 40, scheme="poisson", seed=seed) for seed in (1, 2)]
    # The drawn rows are certain; chances of the others, by the scale, are those that a union would give them.
    pi = samples[0].expected_count(scores)
    exact = [float(2 * p - p * p) for p in map(np.longdouble, pi)]
    rows = np.arange(45)
    parts = [
        nlis.sample.Sample(
            **{name: getattr(part, name) for name in part.__dataclass_fields__}
            | {
                "indices": rows,
                "counts": np.ones(45, dtype=np.int64),
                "probabilities": pi,
                "weights": 1 / pi,
                "variance_weights": (1 / pi) * (1 / pi - 1),
                "draws": rows,
                "stage": np.zeros(45, dtype=np.int64),
            }
        )
        for part in samples
    ]
    union = nlis.pool(parts, [scores, scores], combine="union")
    np.testing.assert_allclose(union.probabilities, exact, rtol=1e-14)


def test_a_tangent_matrix_is_named_where_losses_are_asked_for():
    T = nlis.tangent_matrix(PROBLEM, X, Y, theta=THETA)
    with pytest.raises(nlis.InputTypeError, match="A is a tangent matrix, of which loss_scores knows no loss"):
        nlis.loss_scores(T)


FOUND = {
    "certificate": lambda A, factor, scores, sample: nlis.certificate(A, factor, sample, scores=scores, deep=True),
    "drift": lambda *_: nlis.drift(PROBLEM, X, Y, [THETA, -THETA]),
    "comparison": lambda *_: nlis.compare(PROBLEM, X, Y, {"uniform": np.ones(600)}, sizes=40, seeds=2, theta=THETA),
    "sandwich": lambda *_: nlis.sandwich(PROBLEM, X, THETA, Y),
    "sample size": lambda *_: nlis.sample_size(4, 0.5, n_rows=10**6),
    "suspects": lambda A, *_: nlis.suspects(A, k=3),
    "run": lambda *_: nlis.run(PROBLEM, X, Y, size=80, seed=1),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_is_itself_after_pickling_and_shows_itself(name):
    found = FOUND[name](*setting())
    there = pickle.loads(pickle.dumps(found))
    assert there == found
    assert hash(there) == hash(found)
    assert tokenize(there) == tokenize(found)
    assert type(found).__name__ in repr(found)
    assert "<table>" in found._repr_html_()
    assert found != object()
