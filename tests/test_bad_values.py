"""Bad inputs, third part: what only the data show, named by its row in the whole of X, and bad scores (case A11).

Blocks are of 3, 9 and 8 rows and the bad row is 14, so that a row of a block would be named wrongly.
"""

import dask.array as da
import numpy as np
import pytest
import zarr
from refusals import BAD, LAZY, LINEAR, NON_FINITE, TYPE, VALUE, X, Y, at_bad, lazy, matrix, refused

import dask_nlis as nlis
from dask_nlis.intake import create_scores, write_scores

LOGISTIC = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())
POISSON = nlis.Problem(nlis.Linear(), nlis.PoissonDeviance())
EXPONENTIAL = nlis.Problem(nlis.SingleIndex(nlis.Exp()))
SIGNS = np.where(np.arange(20) < BAD, 1.0, -1.0)


def read(problem, x, y):
    return nlis.factorize(nlis.reference_matrix(problem, x, y))


def residual(prediction, y):
    return prediction - y


def negative(prediction, y):
    return np.where(y == Y[BAD], -1.5, 1.0)


def short(prediction, y):
    return np.ones(3)


def words(prediction, y):
    return np.array(["a"] * len(y))


def nothing(prediction, y):
    return np.where(y == Y[BAD], np.nan, 1.0)


def square(theta, x):
    return (x @ theta) ** 2


def slope_of_square(theta, x):
    return 2 * (x @ theta)[:, None] * x


def custom(value):
    return nlis.Problem(nlis.Linear(), nlis.CustomLoss(value, residual))


def not_linear():
    problem = nlis.Problem(nlis.Homogeneous(square, slope_of_square, degree=1, n_params=3))
    return nlis.factorize(nlis.dual_matrix(problem, LAZY, Y, theta=np.ones(3)))


def frame(column):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"a": X[:, 0], "b": column(pd)})


#: Number and name: (call, error, what the message must say).
ONCE_SEEN = {
    "5 all rows filtered away": (lambda: matrix(LAZY[LAZY[:, 0] > 99]), VALUE, r"X has shape \(0, 3\): no rows"),
    "18 infinite float16": (
        lambda: nlis.factorize(lazy(at_bad(X, np.inf)).astype("f2")),
        NON_FINITE,
        "column 1 .*row 14 ",
    ),
    "22 NaN": (
        lambda: nlis.factorize(lazy(at_bad(X, np.nan))),
        NON_FINITE,
        r"X, column 1 \('x1'\).*row 14 \(1 row in all",
    ),
    "22 two rows": (
        lambda: nlis.factorize(lazy(np.where(np.arange(20)[:, None] % 14 == 4, np.nan, X))),
        NON_FINITE,
        r"column 0 .*row 4 \(2 rows in all",
    ),
    "22 lazy scores": (lambda: nlis.norm_scores(lazy(at_bad(X, np.nan))).compute(), NON_FINITE, "column 1 .*row 14 "),
    "23 infinity": (lambda: nlis.factorize(lazy(at_bad(X, np.inf))), NON_FINITE, "column 1 .*row 14 "),
    "23 minus infinity": (lambda: nlis.norm_scores(at_bad(X, -np.inf)), NON_FINITE, "column 1 .*row 14 "),
    "24 NaN in y": (lambda: read(LINEAR, LAZY, at_bad(Y, np.nan)), NON_FINITE, "y is not finite.*row 14 "),
    "24 infinity in y": (lambda: read(LINEAR, LAZY, lazy(at_bad(Y, np.inf))), NON_FINITE, "y is not finite.*row 14 "),
    "24 total loss": (lambda: nlis.total_loss(LINEAR, LAZY, at_bad(Y, np.nan), np.ones(4)), NON_FINITE, "y .*row 14 "),
    "26 overflow in the model": (
        lambda: nlis.factorize(nlis.dual_matrix(EXPONENTIAL, lazy(at_bad(X, 1e4)), theta=np.ones(4))),
        NON_FINITE,
        "X, finite at row 14, overflows in the model",
    ),
    "38 {-1, 1} for {0, 1}": (
        lambda: read(LOGISTIC, LAZY, SIGNS),
        VALUE,
        r"outside \{0, 1\}.*row 14 \(value -1.*labels=",
    ),
    "38 {0, 1} for {-1, 1}": (
        lambda: read(nlis.Problem(nlis.Linear(), nlis.LogisticLoss(labels=(-1, 1))), LAZY, SIGNS > 0),
        VALUE,
        r"outside \{-1, 1\}.*row 14 \(value 0; 6 rows in all",
    ),
    "39 {1, 2}": (lambda: read(LOGISTIC, LAZY, np.where(SIGNS > 0, 1, 2)), VALUE, r"row 14 \(value 2; 6 rows"),
    "39 many": (
        lambda: read(LOGISTIC, LAZY, np.maximum(np.arange(20) - 12, 0)),
        VALUE,
        r"row 14 \(value 2, also 3, 4, 5, 6; 6 rows",
    ),
    "40 text that looks like labels": (lambda: read(LOGISTIC, LAZY, SIGNS.astype(str)), TYPE, "y has dtype <U32"),
    "42 negative count": (lambda: read(POISSON, LAZY, at_bad(Y**2, -3)), VALUE, r"y .*below 0 .*row 14 \(value -3"),
    "46 missing value of pandas": (
        lambda: nlis.factorize(frame(lambda pd: pd.array([1] * 14 + [None] * 6, dtype="Int64"))),
        NON_FINITE,
        "'b'.*row 14 ",
    ),
    "59 NaN score": (lambda: nlis.draw(lazy(at_bad(Y**2, np.nan)), 2), VALUE, "scores hold 1 NaN.*row 14;"),
    "59 negative score": (lambda: nlis.draw([1, 2, -1e-300], 2), VALUE, "scores hold 1 .*row 2;"),
    "59 infinite score": (lambda: nlis.draw([np.inf, 1, np.inf], 2), VALUE, "scores hold 2 .*rows 0, 2;"),
    "59 zero scores": (lambda: nlis.draw(np.zeros(3), 2), VALUE, "all 3 scores are zero"),
    "60 a sample of other rows": (lambda: nlis.draw(np.ones(9), 3, seed=0).take(LAZY), VALUE, "20 rows.* 9"),
    "64 not homogeneous": (not_linear, nlis.NotHomogeneousError, r"not homogeneous of degree 1 .*measured 2 "),
    "66 negative loss": (
        lambda: read(custom(negative), LAZY, Y),
        VALUE,
        r"row 14: .*value negative returned -1\.5",
    ),
    "67 wrong shape": (lambda: read(custom(short), LAZY, Y), VALUE, r"CustomLoss value short returned shape \(3,\)"),
    "67 words": (lambda: read(custom(words), LAZY, Y), VALUE, "CustomLoss value words returned <U1|str"),
    "67 NaN": (lambda: read(custom(nothing), LAZY, Y), NON_FINITE, "CustomLoss value nothing returned NaN at row 14, "),
    "78 no GPU": (lambda: nlis.factorize(matrix(LAZY, device="cuda")), nlis.DeviceError, "device='cuda'.*install"),
    "82 zero rows": (lambda: nlis.factorize(da.zeros((20, 2), chunks=7)), VALUE, "all rows of the matrix are zero"),
    "negative weight": (
        lambda: nlis.factorize(matrix(LAZY, Y, sample_weight=at_bad(Y**2, -1))),
        NON_FINITE,
        "sample_weight is negative .*row 14 ",
    ),
}


@pytest.mark.parametrize("case", ONCE_SEEN)
def test_refused_in_one_line_once_seen(case):
    refused(ONCE_SEEN[case])


# Integers that float64 would round in silence: (dtype, value, where).
TOO_LARGE = {
    "one above in X": ("int64", 2**53 + 1, "X"),  # becomes 2^53 when cast, so the cast value looks innocent
    "two above in X": ("int64", 2**53 + 2, "X"),
    "negative in X": ("int64", -(2**53) - 1, "X"),
    "smallest of all in X": ("int64", -(2**63), "X"),  # its absolute value is negative in int64
    "unsigned in X": ("uint64", 2**64 - 1, "X"),
    "one above in y": ("int64", 2**53 + 1, "y"),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_12_integers_that_float64_cannot_hold_are_refused_with_their_row(case):
    dtype, value, where = TOO_LARGE[case]
    x, y = np.arange(60).reshape(20, 3).astype(dtype), np.arange(20).astype(dtype)
    (x[:, 1] if where == "X" else y)[13] = value
    A = matrix(da.from_array(x, (7, 3)), da.from_array(y, 4))
    name = r"X, column 1 \('x1'\)" if where == "X" else "y"
    with pytest.raises(nlis.NonFiniteError, match=rf"{name}.*too large an integer.*row 13 \(1 row"):
        nlis.factorize(A)
    with pytest.raises(nlis.NonFiniteError, match="row 13 "):
        nlis.norm_scores(A).compute()


def test_12_integers_that_float64_cannot_hold_are_refused_in_a_data_frame():
    table = frame(lambda pd: np.r_[np.full(13, 3), 2**53 + 1, np.full(6, 3)])
    with pytest.raises(nlis.NonFiniteError, match=r"'b'.*row 13 "):
        nlis.factorize(matrix(table))


def test_12_the_largest_exact_integers_are_accepted():
    assert nlis.factorize(np.array([[2**53, 1], [-(2**53), 2], [0, 3]])).rank == 2


# 80: the rank is reported and no one is scolded.
@pytest.mark.parametrize(
    ("table", "rank"),
    [
        (np.c_[X, np.full(20, 7.0), np.full(20, 3.0)], 4),  # two constant columns
        (np.c_[X, X], 3),  # every column twice
        (X[:2], 2),  # fewer rows than columns
        (np.c_[X, np.zeros(20)], 3),  # a dead column
        (X[:1], 1),
    ],
)
def test_80_dependent_columns_and_few_rows_are_accepted(table, rank):
    factor = nlis.factorize(table)
    assert factor.rank == rank
    assert nlis.leverage_scores(table, factor).sum() == pytest.approx(rank, abs=1e-12)


def test_41_one_class_has_no_finite_optimum_and_says_so():
    with pytest.warns(nlis.ConvergenceWarning, match="no finite optimum"):
        assert not nlis.refit(LOGISTIC, X, np.ones(20), np.ones(20)).ok


def test_42_counts_that_are_no_integers_are_accepted():
    assert read(POISSON, LAZY, Y**2).rank == 5


def test_81_rows_without_an_adjoint_score_zero_and_are_never_drawn():
    dead = nlis.dual_matrix(nlis.Problem(nlis.SingleIndex(nlis.Relu())), X, theta=-np.ones(4))
    scores = nlis.norm_scores(dead)
    off = X.sum(axis=1) + 1 > 0
    assert off.any()
    assert np.array_equal(scores == 0, off)
    assert not off[nlis.draw(scores, 20, seed=0).indices].any()


# Case A11.
def test_bad_scores_are_counted_and_the_first_five_rows_named():
    scores = np.where(np.arange(20) % 2, np.nan, 1.0)
    refused((lambda: nlis.draw(lazy(scores), 3), VALUE, "scores hold 10 NaN.*first at rows 1, 3, 5, 7, 9; give finite"))


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "poisson", "systematic"])
def test_rows_of_score_zero_are_never_drawn_and_weights_are_finite(scheme):
    scores = np.where(np.arange(20) % 3, np.abs(Y) + 0.1, 0.0)
    for seed in range(20):
        sample = nlis.draw(lazy(scores), 9, scheme=scheme, seed=seed)
        assert (sample.indices % 3 > 0).all()
        assert np.isfinite(sample.weights).all()


@pytest.mark.parametrize("scheme", ["multinomial", "stratified"])
def test_one_row_with_all_the_mass_is_drawn_every_time_with_the_weight_of_one(scheme):
    sample = nlis.draw(lazy(np.where(np.arange(20) == BAD, 3.0, 0.0)), 7, scheme=scheme, seed=0)
    assert (sample.indices.tolist(), sample.counts.tolist(), sample.weights.tolist()) == ([BAD], [7], [1.0])


# Case A1 and fault F30: writes that share a chunk or shard lose rows in silence.
@pytest.mark.parametrize("blocks", [30, 50, 999, 1000])
@pytest.mark.parametrize(("chunk", "shard"), [(50, None), (64, None), (100, None), (1000, None), (50, 500), (100, 500)])
def test_scores_are_written_in_whole_chunks_and_shards_or_refused(chunk, shard, blocks, tmp_path):
    scores = da.from_array(np.arange(1.0, 4001), blocks)
    unit = shard or chunk
    options = {"shape": (4000,), "chunks": (chunk,), "shards": None if shard is None else (shard,), "dtype": "f8"}
    target = zarr.create_array(tmp_path / "scores", **options)
    if blocks % unit:
        refused(
            (lambda: write_scores(scores, target, "nlis-score"), VALUE, rf"blocks of {blocks}, .* stored by {unit:,}")
        )
        return
    for _ in range(5):
        write_scores(scores, target, "nlis-score").compute(scheduler="threads", num_workers=8)
        assert np.array_equal(target[...], np.arange(1.0, 4001))
        target[...] = 0


@pytest.mark.parametrize("chunks", [(30, 50, 20), (30, 31), (10, 0, 10)])
def test_irregular_blocks_are_no_score_array(chunks):
    refused((lambda: create_scores({}, "scores", chunks), VALUE, "scores come in irregular chunks"))
