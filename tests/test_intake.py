"""What comes in: every real dtype and layout, X and y by row number, non-finite cells found (cases A7, A8, A32)."""

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, cut, no_compute, rows_of, same_bits

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
THETA = np.array([0.3, -0.2, 0.1, 0.05])


def scores_and_loss(X, y, **options):
    """Leverage, squared norms and total loss of the dual matrix at a fixed theta."""
    A = nlis.dual_matrix(PROBLEM, X, y, theta=THETA, **options)
    h = nlis.leverage_scores(A, nlis.factorize(A))
    return np.asarray(h), np.asarray(nlis.norm_scores(A)), nlis.total_loss(PROBLEM, X, y, THETA, **options)


def assert_same(one, other):
    assert all(same_bits(a, b) for a, b in zip(one, other, strict=True))


DTYPES = {
    "uint8": (0, 256),  # images: 255 + 1 wraps, 1 - 2 wraps
    "int8": (-128, 128),  # the Gram matrix of such columns overflows within 8 bits
    "uint16": (0, 2**16),
    "int16": (-(2**15), 2**15),
    "uint32": (0, 2**32),
    "int32": (-(2**31), 2**31),
    "uint64": (0, 2**53),
    "int64": (-(2**53), 2**53),
    "bool": (0, 2),  # no arithmetic of its own
    "float16": (-2048, 2049),  # the largest integers it holds exactly; squares overflow it
    "float32": (-(2**24), 2**24),  # squares lose digits in it
    ">f8": (-1000, 1000),  # written on another machine
    ">i4": (-1000, 1000),
    ">u2": (0, 2**16),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunks", [None, 60])
def test_every_dtype_scores_like_its_float64_values(dtype, chunks, rng):
    low, high = DTYPES[dtype]
    X = rng.integers(low, high, size=(200, 3), dtype="uint64" if low >= 0 else "int64").astype(dtype)
    y = rng.integers(low, high, size=200, dtype="uint64" if low >= 0 else "int64").astype(dtype)
    wide = X.astype(np.float64), y.astype(np.float64)
    typed = (X, y)
    if chunks:
        typed, wide = ((da.from_array(x, (chunks, 3)), da.from_array(z, 50)) for x, z in (typed, wide))
    assert_same(scores_and_loss(*typed), scores_and_loss(*wide))


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "every second row of a larger array": lambda a: np.repeat(a, 2, axis=0)[::2],
    "columns backwards in memory": lambda a: a[:, ::-1].copy()[:, ::-1],
    "read-only": lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), offset=1).reshape(a.shape),
    "nested lists": lambda a: a.tolist(),
    "lazy blocks in Fortran order": lambda a: da.from_array(a, a.shape).map_blocks(np.asfortranarray),
    "lazy blocks that are views": lambda a: da.from_array(np.repeat(a, 2, axis=0), (600, 3))[::2],
    "lazy read-only blocks": lambda a: da.from_array(a, a.shape).map_blocks(LAYOUTS["read-only"]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layout_changes_no_bit(layout):
    X, y = rows_of(1, 300, 3)
    other = LAYOUTS[layout](X)
    assert np.array_equal(np.asarray(other), X)
    A = nlis.dual_matrix(PROBLEM, X, y, theta=THETA)
    B = nlis.dual_matrix(PROBLEM, other, y.tolist(), theta=THETA.tolist())
    assert same_bits(nlis.leverage_scores(A, nlis.factorize(A)), nlis.leverage_scores(B, nlis.factorize(B)))
    assert same_bits(nlis.norm_scores(A), nlis.norm_scores(B))


Y_CUTS = {
    "as X": (70,),
    "one block": (500,),
    "same number of blocks, other borders": (90, 50, 60, 80, 70),  # a plain map_blocks pairs these silently
    "blocks of one": (1,),
    "larger blocks": (150, 50),
}


@pytest.mark.parametrize("case", Y_CUTS)
@pytest.mark.parametrize("column", [False, True])
def test_y_in_any_chunks_gives_the_same_bits(case, column):
    X, y = rows_of(3, 500, 3)
    x = da.from_array(X, (70, 3))
    expected = scores_and_loss(x, y)
    sizes = cut(500, Y_CUTS[case])
    if not column:
        assert_same(scores_and_loss(x, da.from_array(y, (sizes,))), expected)
        return
    with pytest.warns(nlis.DataConversionWarning, match=r"y has shape \(500, 1\) and is read as \(500,\)"):
        assert_same(scores_and_loss(x, da.from_array(y[:, None], (sizes, (1,)))), expected)


@pytest.mark.parametrize("sizes", [(1,), (3, 1, 2), (499, 1), (500,), (0, 250, 0)])
def test_x_in_any_chunks_gives_the_same_scores(sizes):
    X, y = rows_of(3, 500, 3)
    x = da.from_array(X, chunks=((*sizes, 250) if 0 in sizes else cut(500, sizes), (3,)))
    for found, expected in zip(scores_and_loss(x, da.from_array(y, 77)), scores_and_loss(X, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


VERBS = {
    "dual_matrix": lambda X, y: nlis.dual_matrix(PROBLEM, X, y, theta=THETA),
    "reference_matrix": lambda X, y: nlis.reference_matrix(PROBLEM, X, y),
    "row weights": lambda X, y: nlis.reference_matrix(PROBLEM, X, sample_weight=y),
    "total_loss": lambda X, y: nlis.total_loss(PROBLEM, X, y, THETA),
    "standardize": lambda X, y: nlis.standardize(X, y),
    "pilot": lambda X, y: nlis.pilot(PROBLEM, X, y, 20, seed=0),
    "run": lambda X, y: nlis.run(PROBLEM, X, y, size=20, seed=0),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("length", [4, 199, 201])
def test_unequal_lengths_are_refused_before_anything_is_computed(verb, length):
    X, y = rows_of(4, 200, 3)
    for form in (np.asarray, lambda a: da.from_array(a, 50)):
        both = form(X), form(np.resize(y, length))
        with no_compute(), pytest.raises(nlis.InputError, match=rf"inconsistent numbers of rows: \[200, {length}\]"):
            VERBS[verb](*both)


def spoiled(value, where, rows=(17,)):
    """1000 rows of five features and labels, with a bad value in column 2 of X, or in y."""
    X, y = rows_of(5, 1000, 5)
    for row in rows:
        (X[:, 2] if where == "X" else y)[row] = value
    return X, y


def passes(A, X, y, theta):
    """Everything that reads the rows of a matrix, by name."""
    return {
        "factorize": lambda: nlis.factorize(A),
        "norm scores": lambda: np.asarray(nlis.norm_scores(A)),
        "rows": lambda: A.to_dask_array().compute(),
        "total loss": lambda: nlis.total_loss(PROBLEM, X, y, theta),
    }


# 18 puts row 17 last in its block, 17 first; 7 deep inside; the irregular one has a block of one row before it.
CUTS = [(1000,), (7,), (18,), (17,), (16, 1, 500)]


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_one_bad_cell_is_named_by_row_and_column_and_no_score_is_given(sizes, value, where):
    X, y = spoiled(value, where)
    theta = np.zeros(6)
    x, labels = da.from_array(X, (cut(1000, sizes), (5,))), da.from_array(y, 90)
    A = nlis.dual_matrix(PROBLEM, x, labels, theta=theta)
    named = r"X, column 2 \('x2'\), is not finite.*" if where == "X" else "y is not finite.*"
    for read in passes(A, x, labels, theta).values():
        with pytest.raises(nlis.NonFiniteError, match=named + r"row 17 \(1 row in"):
            read()


@pytest.mark.parametrize("read", ["factorize", "total loss"])
def test_a_verb_counts_the_bad_rows_of_all_blocks_and_names_the_first(read):
    X, y = spoiled(np.nan, "X", rows=(999, 17, 500))
    y[17], y[700] = np.inf, np.nan  # a second bad cell in a row counts once, X is named before y
    x, theta = da.from_array(X, (30, 5)), np.zeros(6)
    A = nlis.dual_matrix(PROBLEM, x, y, theta=theta)
    with pytest.raises(nlis.NonFiniteError, match=r"column 2 .*row 17 \(4 rows in all\)"):
        passes(A, x, y, theta)[read]()


def test_a_lazy_score_can_only_count_within_its_block_and_says_so():
    X, y = spoiled(np.nan, "X", rows=(17, 19, 500))
    A = nlis.reference_matrix(PROBLEM, da.from_array(X, (30, 5)), y)
    with pytest.raises(nlis.NonFiniteError, match=r"row (17 \(2 rows|500 \(1 row) .*block"):
        nlis.norm_scores(A).compute()


def test_a_bad_cell_deep_inside_a_large_block_is_found():
    X, y = rows_of(6, 70_000, 3)  # several cache-sized pieces in one block
    X[50_017, 1] = np.nan
    for read in passes(nlis.dual_matrix(PROBLEM, X, y, theta=THETA), X, y, THETA).values():
        with pytest.raises(nlis.NonFiniteError, match=r"column 1 .*row 50017 "):
            read()


def test_a_cell_that_turns_bad_after_the_factor_gives_an_error_and_no_nan():
    X, y = spoiled(1.0, "X")
    A = nlis.dual_matrix(PROBLEM, CountingArray(X).dask(100), y, theta=np.zeros(6))
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    X[17, 2] = np.nan
    with pytest.raises(nlis.NonFiniteError, match=r"column 2 .*row 17 "):
        scores.compute()


@pytest.mark.parametrize("sizes", CUTS)
@pytest.mark.parametrize("where", ["X", "y"])
def test_dropping_bad_rows_equals_the_dense_result_on_the_others(sizes, where):
    rows = [17, 400, 999]
    X, y = spoiled(np.nan, where, rows)
    (X[:, 4] if where == "X" else y)[400] = -np.inf
    theta = np.linspace(-0.5, 0.5, 6)
    x = da.from_array(X, (cut(1000, sizes), (5,)))
    A = nlis.dual_matrix(PROBLEM, x, y, theta=theta, missing="drop")
    factor = nlis.factorize(A)
    assert (factor.n_dropped, factor.n_rows) == (3, 997)
    keep = np.delete(np.arange(1000), rows)
    F = nlis.dual_matrix(PROBLEM, X[keep], y[keep], theta=theta).to_dask_array().compute()
    u = np.linalg.svd(F, full_matrices=False)[0]
    for scores, dense in (
        (nlis.leverage_scores(A, factor), (u**2).sum(axis=1)),
        (nlis.norm_scores(A), (F**2).sum(axis=1)),
    ):
        found = scores.compute()
        assert np.array_equal(found[rows], np.zeros(3))
        np.testing.assert_allclose(found[keep], dense, rtol=1e-11, atol=1e-14)
        for scheme, size in (("multinomial", 900), ("poisson", 990)):
            assert not np.isin(rows, nlis.draw(scores, size, scheme=scheme, seed=0).indices).any()
    loss = nlis.total_loss(PROBLEM, x, y, theta, missing="drop")
    assert loss == pytest.approx(nlis.total_loss(PROBLEM, X[keep], y[keep], theta), rel=1e-13)


@pytest.mark.parametrize("sizes", [(1000,), (18,)])
def test_finite_rows_that_overflow_in_the_model_are_named(sizes):
    X, y = rows_of(7, 1000, 3)
    X[17] = 1e200
    weight = np.where(np.arange(1000) == 17, 1e300, 1.0)  # 1e200 sqrt(1e300) is no float64
    named = r"finite at row 17, overflows in the model \(1 row in"
    x, theta = da.from_array(X, (cut(1000, sizes), (3,))), np.full(4, 1e120)
    with pytest.raises(nlis.NonFiniteError, match=named):
        nlis.total_loss(PROBLEM, x, y, theta)
    A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA, sample_weight=weight)
    for read in (lambda: nlis.factorize(A), nlis.norm_scores(A).compute, A.to_dask_array().compute):
        with pytest.raises(nlis.NonFiniteError, match=named):
            read()


@pytest.mark.parametrize("power", [600, -600])
def test_units_whose_squares_are_no_float64_change_no_bit_of_the_leverage(power):
    X, _ = rows_of(8, 100, 3)
    scaled = X * 2.0**power
    factor = nlis.factorize(scaled)
    assert same_bits(nlis.leverage_scores(scaled, factor), nlis.leverage_scores(X, nlis.factorize(X)))
    assert factor.frobenius == pytest.approx(np.linalg.norm(X) * 2.0**power, rel=1e-12)
