"""`factorize`: which method answers at which condition, after how many reads; all agree; factors merge."""

import json
import pickle
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, CountingStore, FakeGPU, Tasks, cut, rows_of, same_bits
from dask.base import tokenize
from hypothesis import given, settings, strategies as st

import dask_nlis as nlis
from dask_nlis import device
from dask_nlis.device import choose
from dask_nlis.factor import Factor, factorize
from dask_nlis.factor.gram import Gram, read_gram, scaled_gram
from dask_nlis.matrix import Finding, as_matrix

EPS = np.finfo(np.float64).eps
EXACT = ("auto", "tsqr", "sketch", "gram")


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


def conditioned(rng, n, p, kappa):
    """A matrix whose singular vectors know nothing of its columns, so that scaling does not help."""
    left, _ = np.linalg.qr(rng.normal(size=(n, p)))
    right, _ = np.linalg.qr(rng.normal(size=(p, p)))
    return left * np.geomspace(1, 1 / kappa, p) @ right


def scored(F, method="auto", chunks=None):
    """Leverage scores of a plain matrix, and its factor."""
    if chunks is not None:
        F = da.from_array(F, chunks=(chunks, F.shape[1]))
    factor = factorize(F, method=method)
    return np.asarray(nlis.leverage_scores(F, factor)), factor


# -- which rung, and how many reads ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kappa", "method", "used", "reads"),
    [
        (10.0, "auto", "gram", 1),
        (10.0, "gram", "gram", 1),
        (10.0, "tsqr", "tsqr", 1),
        (10.0, "sketch", "sketch", 2),
        (10.0, "sketch-only", "sketch-only", 1),
        (40.0, "auto", "gram", 1),
        (300.0, "auto", "cholesky-qr2", 2),
        (300.0, "tsqr", "tsqr", 1),
        (1e4, "tsqr", "tsqr", 2),
        (3e6, "auto", "cholesky-qr2", 2),
        (1e8, "auto", "tsqr", 3),
        (1e10, "auto", "tsqr", 3),
        (1e10, "tsqr", "tsqr", 2),
        (1e10, "sketch", "sketch", 2),
        (1e10, "sketch-only", "sketch-only", 1),
    ],
)
def test_the_condition_decides_on_the_rung_and_the_reads_are_counted(kappa, method, used, reads, rng):
    counted = CountingArray(conditioned(rng, 600, 5, kappa))
    factor = factorize(counted.dask(50), method=method)
    assert (factor.method, factor.reads) == (used, reads)
    assert counted.reads() == reads
    assert factor.n_rows == 600
    assert factor.rank == 5


DEPENDENT = {
    "duplicate": lambda F: np.column_stack([F, F[:, 0]]),
    "sum": lambda F: np.column_stack([F, F.sum(axis=1)]),
    "combination": lambda F: np.column_stack([F, F @ np.linspace(0.3, 2, F.shape[1])]),
    "duplicate and a zero column": lambda F: np.column_stack([0 * F[:, 0], F, F[:, 0]]),
}


@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize(("method", "reads"), [("auto", 2), ("tsqr", 1), ("sketch", 2), ("sketch-only", 1)])
def test_dependent_columns_end_in_the_tree_with_the_right_rank(kind, method, reads, rng):
    F = DEPENDENT[kind](rng.normal(size=(2000, 4)))
    counted = CountingArray(F)
    factor = factorize(counted.dask(300), method=method)
    assert (factor.rank, factor.reads, counted.reads()) == (4, reads, reads)
    assert factor.method == ("sketch-only" if method == "sketch-only" else "tsqr")
    expected, tree = scored(F, "tsqr")
    assert factor.dependent == tree.dependent
    if method != "sketch-only":
        np.testing.assert_allclose(scored(F, method)[0], expected, atol=1e-12)


@pytest.mark.parametrize("noise", np.geomspace(1e-6, 1e-16, 21))
def test_a_first_factor_lost_in_rounding_is_never_believed(noise, rng):
    # Around 1e-8 the Gram matrix says anything between a condition of 1e7 and not positive definite.
    F = rng.normal(size=(3000, 4))
    F = np.column_stack([F, F @ [0.3, 1.0, -2.0, 0.7] + noise * rng.normal(size=3000)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.RankAmbiguityWarning)
        (h, factor), (expected, tree) = scored(F), scored(F, "tsqr")
    assert factor.rank == tree.rank
    np.testing.assert_allclose(h, expected, atol=100 * tree.condition * EPS, rtol=0)
    assert factor.condition == pytest.approx(tree.condition, rel=max(1e-6, 100 * tree.condition * EPS))


@pytest.mark.parametrize(
    ("gap", "method", "rank", "reads"), [(0.0, "tsqr", 3, 3), (1e-10, "tsqr", 4, 4), (1e-5, "cholesky-qr2", 4, 2)]
)
def test_a_first_factor_that_hides_a_dependency_costs_a_read_and_nothing_else(
    gap, method, rank, reads, rng, monkeypatch
):
    F = np.column_stack([rng.normal(size=(500, 3)), np.zeros(500)])
    F[:, 3] = F[:, 0] + gap * rng.normal(size=500)
    counted = CountingArray(F)

    def rounded(matrix, whitener=None, **options):
        # As large a rounding error as any sum of 1e9 rows has: Cholesky succeeds, with a condition below 1e7.
        found = read_gram(matrix, whitener, **options)
        return found if whitener is not None else found._replace(values=found.values * (1 + 1e-12 * np.eye(4)))

    monkeypatch.setattr("dask_nlis.factor.climb.read_gram", rounded)
    rows = counted.dask(100)
    factor = factorize(rows)
    assert (factor.method, factor.rank, factor.reads, counted.reads()) == (method, rank, reads, reads)
    np.testing.assert_allclose(
        nlis.leverage_scores(rows, factor).compute(), scored(F, "tsqr")[0], atol=100 * EPS * factor.condition
    )


def test_gram_refuses_what_it_cannot_answer_and_names_auto(rng):
    for F, said in [
        (conditioned(rng, 100, 4, 1e3), r"has [\d.]+e?\+?\d*;"),
        (conditioned(rng, 100, 4, 1e12), "has dependent ones, or a condition near 1e8;"),
        (np.ones((10, 2)), "has dependent ones"),
        (rng.normal(size=(2, 3)), "has dependent ones"),
    ]:
        with pytest.raises(
            nlis.InputError, match=rf"method='gram' needs .* up to 100, but A {said}.*method='auto'$"
        ) as e:
            factorize(F, method="gram")
        assert len(str(e.value)) <= 300


@pytest.mark.parametrize("bad", ["qr", "", "AUTO", None, 3])
def test_an_unknown_method_is_refused_with_the_five_there_are(bad):
    with pytest.raises(nlis.InputError, match="'auto', 'gram', 'tsqr', 'sketch', 'sketch-only'"):
        factorize(np.eye(2), method=bad)


@pytest.mark.parametrize("method", [*EXACT, "sketch-only"])
def test_a_zero_matrix_is_refused_by_every_method_after_one_read(method):
    counted = CountingArray(np.zeros((40, 3)))
    with pytest.raises(nlis.InputError, match="all rows of the matrix are zero"):
        factorize(counted.dask(10), method=method)
    assert counted.reads() == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", [*EXACT, "sketch-only"])
def test_non_finite_cells_are_reported_alike_by_every_method(method, bad, rng):
    F = rng.normal(size=(90, 3))
    F[17, 1] = F[60, 2] = F[17, 2] = bad
    with pytest.raises(nlis.NonFiniteError, match=r"column 1 \('x1'\).* at row 17 \(2 rows in all\)"):
        factorize(da.from_array(F, (20, 3)), method=method)
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), da.from_array(F, (20, 3)), np.ones(90), missing="drop")
    factor = factorize(A, method=method if method != "gram" else "auto")  # the label is the intercept here
    assert (factor.n_rows, factor.n_dropped, factor.rank) == (88, 2, 4)


@pytest.mark.parametrize("method", [*EXACT, "sketch-only"])
def test_rows_that_overflow_in_the_model_are_reported_alike_by_every_method(method):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Identity()))
    x = np.ones((50, 2))
    x[7] = 1e308
    A = nlis.dual_matrix(
        problem, da.from_array(x, (20, 2)), np.full(50, 3.0), theta=[1e5, 1e5, 0.0], sample_weight=1e10 * np.ones(50)
    )
    with pytest.raises(nlis.NonFiniteError, match=r"X, finite at row 7, overflows in the model \(1 row in all\)"):
        factorize(A, method=method)


@pytest.mark.parametrize("method", ["auto", "tsqr", "gram", "sketch"])
def test_a_factor_beyond_float64_is_refused(method, rng):
    F = 1.5e308 * np.sign(rng.normal(size=(100, 2)))
    with pytest.raises(nlis.NonFiniteError, match="the factor overflows"):
        factorize(F, method=method)


# -- all methods agree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [1.0, 10.0, 50.0, 1e3, 1e5, 1e7, 1e8, 1e9, 1e10])
def test_all_methods_agree_within_a_hundred_kappa_eps(kappa):
    for seed in range(5):
        F = 3 * conditioned(np.random.default_rng(seed), 300, 7, kappa)  # no norm at 1, where the scale is a toss-up
        expected, tree = scored(F, "tsqr", 64)
        bound = 100 * tree.condition * EPS
        for method in EXACT if kappa <= 50 else EXACT[:-1]:
            h, factor = scored(F, method, 64)
            np.testing.assert_allclose(h, expected, atol=bound, rtol=0)
            np.testing.assert_allclose(factor.r, tree.r, atol=bound * np.abs(tree.r).max())
            np.testing.assert_array_equal(np.tril(factor.r, -1), 0.0)
            assert (np.diagonal(factor.r) >= 0).all()
            np.testing.assert_allclose(factor.r.T @ factor.r, F.T @ F, atol=1e-12)
            assert factor.condition == pytest.approx(tree.condition, rel=max(1e-9, bound))
            assert factor.frobenius == pytest.approx(tree.frobenius, rel=1e-13)
            np.testing.assert_array_equal(factor.column_scale, tree.column_scale)


matrices = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 30.0, 1e3, 1e6, 1e8]),
    st.sampled_from(["auto", "tsqr", "sketch"]),
    st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any),
)


@settings(max_examples=25)
@given(matrices)
def test_invariants_of_leverage(drawn):
    seed, kappa, method, sizes = drawn
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(10, 150)), int(rng.integers(1, 7))
    F = conditioned(rng, n, p, kappa)
    F[rng.random(n) < 0.1] *= 100.0
    F[rng.random(n) < 0.1] = 0.0
    chunks = cut(n, sizes)
    h, factor = scored(F, method, chunks)
    close = {"atol": 100 * factor.condition * EPS, "rtol": 0}

    assert np.all((h >= 0) & (h <= 1))
    assert h.sum() == pytest.approx(factor.rank, abs=100 * factor.rank * factor.condition * EPS)
    np.testing.assert_array_equal(h[~F.any(axis=1)], 0.0)
    np.testing.assert_allclose(scored(F, method)[0], h, **close)  # one block

    order = rng.permutation(n)
    np.testing.assert_allclose(scored(F[order], method, chunks)[0], h[order], **close)

    basis = np.linalg.qr(rng.normal(size=(p, p)))[0] * np.geomspace(1, 30, p)
    mixed, other = scored(F @ basis, method, chunks)
    np.testing.assert_allclose(mixed, h, atol=100 * max(factor.condition, other.condition) * EPS, rtol=0)

    repeated, _ = scored(np.tile(F, (3, 1)), method)
    np.testing.assert_allclose(repeated.reshape(3, n), np.tile(h / 3, (3, 1)), **close)

    row = int(rng.integers(n))
    more, _ = scored(np.vstack([F, F[row : row + 1], F[row : row + 1]]), method)
    np.testing.assert_allclose(more[[row, n, n + 1]], h[row] / (1 + 2 * h[row]), **close)
    others = np.arange(n) != row
    assert np.all(more[:n][others] <= h[others] + close["atol"])  # rows added never raise a score

    if h[row] < 0.5:  # deletion: h_j + (x_j' G^-1 x_i)^2 / (1 - h_i)
        w = F @ factor.whitener if factor.correction is None else F @ factor.whitener @ factor.correction
        updated = h + (w @ w[row]) ** 2 / (1 - h[row])
        np.testing.assert_allclose(scored(F[others], method)[0], updated[others], atol=4 * close["atol"], rtol=0)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["auto", "tsqr", "sketch"]), st.integers(1, 3))
def test_a_score_is_one_exactly_where_deleting_the_row_lowers_the_rank(seed, method, lonely):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(12, 60)), int(rng.integers(lonely + 1, 7))
    F = conditioned(rng, n, p, 10.0)
    rows = rng.choice(n, size=lonely, replace=False)
    F[:, :lonely] = 0.0
    F[rows, :lonely] = np.diag(10.0 ** rng.uniform(-8, 8, size=lonely))  # each the only row in a column of its own
    if rng.random() < 0.5:
        F = np.vstack([F, F[rows[0]]])  # and one of them twice: neither is needed
    h, factor = scored(F, method, int(rng.integers(1, 20)))

    def rank_without(row):
        rest = np.delete(F, row, axis=0)
        norms = np.linalg.norm(rest, axis=0)
        return np.linalg.matrix_rank(rest / np.where(norms > 0, norms, 1.0))

    needed = np.array([rank_without(row) < factor.rank for row in range(len(F))])
    assert needed.any() or (lonely == 1 and len(F) > n)
    np.testing.assert_array_equal(np.abs(h - 1) <= 1e-9, needed)
    np.testing.assert_allclose(h[needed], 1.0, atol=100 * factor.condition * EPS, rtol=0)


@pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning")  # chance, where the first block is of a row or two
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(any))
def test_norm_scores_add_up_over_any_partition_to_the_squared_frobenius_norm(seed, sizes):
    F = np.random.default_rng(seed).normal(size=(60, 3))
    norms = nlis.norm_scores(da.from_array(F, (cut(60, sizes), 3))).compute()
    assert norms.sum() == pytest.approx(np.linalg.norm(F) ** 2, rel=1e-13)
    np.testing.assert_allclose(norms[:20], nlis.norm_scores(F[:20]), rtol=1e-14)


@pytest.mark.parametrize("method", EXACT)
def test_a_dask_array_of_unknown_chunks_once_they_are_computed(method, rng):
    F = rng.normal(size=(200, 4))
    lazy = da.from_array(F, (30, 4))
    filtered = lazy[lazy[:, 0] > 0].compute_chunk_sizes()
    h, _ = scored(F[F[:, 0] > 0], method)
    np.testing.assert_allclose(
        nlis.leverage_scores(filtered, factorize(filtered, method=method)).compute(), h, atol=1e-13
    )


# -- reads in all ------------------------------------------------------------------------------------------------


def test_standardised_data_take_two_reads_in_all_one_for_the_factor_and_one_for_the_scores(tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 6)) @ rng.normal(size=(6, 6)) * [1e-3, 1e3, 1, 1, 50, 2] + 100.0
    y = rng.normal(size=4000)
    for name, values, chunks in (("X", X, (250, 6)), ("y", y, (250,))):
        zarr.create_array(tmp_path / name, data=values, chunks=chunks)
    stores = [CountingStore(tmp_path / name) for name in ("X", "y")]
    x, labels = (zarr.open_array(store, mode="r") for store in stores)
    ready = nlis.standardize(x, labels)
    A = nlis.reference_matrix(nlis.Problem(nlis.SingleIndex(nlis.Tanh())), ready.X, ready.y)
    for store in stores:
        store.reads()
    factor = factorize(A)
    assert [store.reads() for store in stores] == [{1}, {1}]
    assert (factor.method, factor.reads) == ("gram", 1)
    assert "reads=1" in repr(factor)
    h = nlis.leverage_scores(A, factor).compute()
    assert [store.reads() for store in stores] == [{1}, {1}]
    assert h.sum() == pytest.approx(8)


@pytest.mark.parametrize("rule", ["reference", "dual"])
def test_the_zero_column_of_a_matrix_without_labels_costs_no_read(rule, rng):
    x = rng.normal(size=(500, 3))
    counted = CountingArray(x)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    if rule == "reference":
        A = nlis.reference_matrix(problem, counted.dask(100))
    else:
        A = nlis.dual_matrix(problem, counted.dask(100), theta=[0.1, 0.2, 0.3, 0.0])
    for method, reads in (("auto", 1), ("gram", 1), ("sketch", 2)):
        factor = factorize(A, method=method)
        assert (factor.rank, factor.reads, counted.reads()) == (4, reads, reads)
        assert factor.dependent == ("phi(0)",)
        assert factor.singular_values[-1] == 0
        np.testing.assert_array_equal(factor.r[:, -1], 0.0)
        rows = A.to_dask_array().compute()
        counted.reads()
        h = nlis.leverage_scores(A, factor).compute()
        counted.reads()
        np.testing.assert_allclose(h, (np.linalg.qr(rows[:, :-1])[0] ** 2).sum(axis=1), atol=1e-13)


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("kappa", [10.0, 1e4])
def test_zero_columns_anywhere_leave_factor_and_scores_as_they_are_without_them(place, kappa, rng):
    F = 1e-220 * conditioned(rng, 200, 4, kappa)
    G = np.insert(F, place, 0.0, axis=1)
    (h, factor), (found, other) = scored(F), scored(G)
    assert same_bits(found, h)
    assert (other.rank, other.method, other.reads) == (4, factor.method, factor.reads)
    assert other.condition == factor.condition
    assert other.dependent == (f"x{place}",)
    np.testing.assert_array_equal(np.delete(np.delete(other.r, place, 0), place, 1), factor.r)
    assert not other.r[place].any()
    assert not other.r[:, place].any()


# -- one task a block, sums in a fixed order ------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "passes"), [("auto", 1), ("gram", 1), ("sketch", 2), ("sketch-only", 1)])
def test_a_sum_takes_one_task_a_block_and_a_sixteenth(method, passes):
    x, _ = rows_of(3, 1600, 3)
    with Tasks() as tasks:
        factorize(CountingArray(x).dask(10), method=method)
    assert tasks.computes == passes
    for keys in tasks.phases:
        assert len(keys) == 160 + 10 + 1
        assert all(key[0].startswith("nlis-factor") for key in keys)


def test_the_sum_depends_on_the_blocks_alone_and_groups_are_added_in_order(monkeypatch, rng):
    x = rng.normal(size=(1000, 3))
    matrix = as_matrix(da.from_array(x, (10, 3)))
    blocks = [x[k : k + 10].T @ x[k : k + 10] for k in range(0, 1000, 10)]

    def in_order(parts):
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def stacked(parts):
        return in_order([in_order(parts[k : k + 16]) for k in range(0, len(parts), 16)])

    assert same_bits(read_gram(matrix).values, stacked(blocks))
    monkeypatch.setattr("dask_nlis.factor.sums.group_blocks", lambda p: 32)
    groups = [stacked(blocks[k : k + 32]) for k in range(0, 100, 32)]
    assert same_bits(read_gram(matrix).values, in_order(groups))


def test_gram_partials_meet_at_the_larger_exponent_of_each_column():
    low = Gram(np.array([[4.0, 2.0], [2.0, 8.0]]), np.array([-600, 0]), 3, Finding())
    high = Gram(np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([-598, 0]), 4, Finding(1, 7, 0))
    for a, b in ((low, high), (high, low)):
        both = a.plus(b)
        np.testing.assert_array_equal(both.exponents, [-598, 0])
        np.testing.assert_array_equal(both.values, [[1.25, 1.5], [1.5, 10.0]])
        assert (both.n_rows, both.finding.n_bad, both.finding.row) == (7, 1, 7)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200, 1e-310, 1e307])
def test_the_gram_matrix_of_a_sub_block_carries_the_exponents_of_its_columns(scale, rng):
    x = rng.normal(size=(50, 3))
    x[:, 1] = 0.0
    with np.errstate(over="ignore"):  # as in the tasks
        values, exponents = scaled_gram(x * [scale, 1.0, 1.0], choose("cpu"))
    assert np.isfinite(values).all()
    kept = [0, 2]
    exact = np.ldexp(x * [scale, 1.0, 1.0], -np.where(exponents < -2000, 0, exponents))[:, kept]
    np.testing.assert_allclose(values[np.ix_(kept, kept)], np.tril(exact.T @ exact), rtol=1e-14)
    assert not values[1].any()
    if scale == 1.0:
        np.testing.assert_array_equal(exponents[kept], 0)  # ordinary columns are left as they are


@pytest.mark.parametrize("method", [*EXACT, "sketch-only"])
def test_every_method_computes_on_a_device_whose_arrays_are_not_numpys(method, monkeypatch, rng):
    F = rng.normal(size=(300, 4)) * [1.0, 1e200, 1e-200, 1.0]
    F[:, 3] = 0.0
    expected, known = scored(F, method, 90)
    gpu = FakeGPU()
    monkeypatch.setattr(device, "opened", gpu.opened)
    h, factor = scored(F, method, 90)
    assert gpu.ships
    assert gpu.fetches
    assert (factor.method, factor.rank, factor.reads) == (known.method, 3, known.reads)
    np.testing.assert_allclose(h, expected, atol=1e-13)


# -- merging -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "tsqr", "sketch"])
@pytest.mark.parametrize("kappa", [10.0, 1e5, 1e9])
def test_merge_of_two_factors_is_the_factor_of_both(kappa, method, rng):
    F = conditioned(rng, 300, 5, kappa)
    top, bottom = F[:120], F[120:]
    a, b = factorize(top, method=method), factorize(bottom, method=method)
    both, merged = factorize(F, method="tsqr"), a.merge(b)
    bound = 100 * both.condition * EPS
    np.testing.assert_allclose(merged.r, both.r, atol=bound)
    np.testing.assert_allclose(merged.r.T @ merged.r, F.T @ F, atol=1e-13)
    assert (merged.rank, merged.n_rows, merged.columns) == (5, 300, a.columns)
    assert merged.condition == pytest.approx(both.condition, rel=max(1e-9, bound))
    assert merged.frobenius == pytest.approx(both.frobenius, rel=1e-13)
    assert merged.reads == max(a.reads, b.reads)
    h = nlis.leverage_scores(F, both)
    np.testing.assert_allclose(nlis.leverage_scores(top, merged), h[:120], atol=bound, rtol=0)
    np.testing.assert_allclose(nlis.leverage_scores(bottom, merged), h[120:], atol=bound, rtol=0)
    assert b.merge(a) == merged


def test_a_merged_factor_belongs_to_its_parts_and_to_no_other_matrix(rng):
    F = rng.normal(size=(90, 3))
    a, b, c = (factorize(F[k : k + 30]) for k in (0, 30, 60))
    merged = a.merge(b).merge(c)
    assert merged.parts == tuple(sorted((a.token, b.token, c.token)))
    assert a.parts == (a.token,)
    assert c.merge(a).merge(b).token == merged.token not in merged.parts
    np.testing.assert_allclose(
        np.concatenate([nlis.leverage_scores(F[k : k + 30], merged) for k in (0, 30, 60)]), scored(F)[0], atol=1e-13
    )
    for other in (F, F[:31], rng.normal(size=(30, 3))):
        with pytest.raises(nlis.MatrixMismatchError, match="give factorize"):
            nlis.leverage_scores(other, merged)
    with pytest.raises(nlis.MatrixMismatchError):
        nlis.leverage_scores(F[:30], b.merge(c))


def test_merging_fills_up_the_rank_and_counts_what_was_dropped(rng):
    problem = nlis.Problem(nlis.Linear())
    x, y = rows_of(9, 80, 3)
    x[3, 1] = x[50, 0] = np.nan
    halves = [nlis.reference_matrix(problem, x[s], y[s], missing="drop") for s in (slice(0, 4), slice(4, 80))]
    a, b = map(factorize, halves)
    assert a.rank == 3
    merged = a.merge(b)
    assert (merged.rank, merged.n_rows, merged.n_dropped) == (5, 78, 2)
    assert merged.method == "gram+tsqr"
    whole_matrix = nlis.reference_matrix(problem, x, y, missing="drop")
    expected = nlis.leverage_scores(whole_matrix, factorize(whole_matrix))
    np.testing.assert_allclose(np.concatenate([nlis.leverage_scores(A, merged) for A in halves]), expected, atol=1e-13)


def test_factors_that_do_not_belong_together_do_not_merge(rng):
    x, y = rows_of(9, 80, 3)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))

    def at(theta, rows=slice(40, 80), problem=problem):
        return factorize(nlis.dual_matrix(problem, x[rows], y[rows], theta=theta))

    a = at(np.ones(4), slice(0, 40))
    assert a.merge(at(np.ones(4))).rank == 5
    for other in (at(np.zeros(4)), at(np.ones(4), problem=nlis.Problem(nlis.Linear()))):
        with pytest.raises(nlis.MatrixMismatchError, match="another problem or theta"):
            a.merge(other)
    with pytest.raises(nlis.InputError, match=r"of 5 and 2 columns do not merge"):
        a.merge(factorize(np.eye(2)))
    with pytest.raises(nlis.InputError, match="would count twice"):
        a.merge(a)
    with pytest.raises(nlis.InputError, match="would count twice"):
        a.merge(at(np.ones(4))).merge(a)
    with pytest.raises(nlis.InputTypeError, match="other is str"):
        a.merge("b")
    rough = factorize(nlis.dual_matrix(problem, x[40:], y[40:], theta=np.ones(4)), method="sketch-only")
    for first, second in ((a, rough), (rough, a)):
        with pytest.raises(nlis.InputError, match="does not merge; give method='sketch'"):
            first.merge(second)


def test_columns_of_other_names_do_not_merge(rng):
    pandas = pytest.importorskip("pandas")
    tables = [pandas.DataFrame(rng.normal(size=(20, 2)), columns=["a", name]) for name in ("b", "c")]
    with pytest.raises(nlis.InputError, match="columns 'b' and 'c' do not merge"):
        factorize(tables[0]).merge(factorize(tables[1]))


# -- the noun ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*EXACT, "sketch-only"])
def test_a_factor_survives_its_dictionary_its_pickle_and_json(method, rng):
    x = rng.normal(size=(60, 3))
    factor = factorize(x, method=method)
    stored = factor.to_dict()
    plain = {key: value for key, value in stored.items() if not isinstance(value, np.ndarray)}
    rebuilt = Factor.from_dict(json.loads(json.dumps(plain)) | {k: v for k, v in stored.items() if k not in plain})
    for other in (rebuilt, pickle.loads(pickle.dumps(factor))):
        assert other == factor
        assert tokenize(other) == tokenize(factor)
        assert same_bits(nlis.leverage_scores(x, other), nlis.leverage_scores(x, factor))
    assert factorize(x, method=method) == factor  # deterministic
    merged = factorize(x[:30], method="tsqr").merge(factorize(x[30:], method="tsqr"))
    assert Factor.from_dict(merged.to_dict()) == merged


def test_the_tolerance_of_the_scores_follows_the_error_law_of_the_method(rng):
    def of(kappa, method):
        return factorize(conditioned(rng, 100, 4, kappa), method=method)

    gram, tree = of(60.0, "gram"), of(60.0, "tsqr")
    assert gram.score_tolerance == pytest.approx(100 * gram.condition**2 * EPS)
    assert tree.score_tolerance == pytest.approx(100 * tree.condition * EPS)
    assert of(1e9, "auto").score_tolerance == pytest.approx(100 * 1e9 * EPS, rel=1)
    assert of(1.0, "auto").score_tolerance == pytest.approx(1e-12)
    assert gram.merge(tree).score_tolerance <= 100 * 1e4 * EPS
    assert of(2.0, "sketch-only").score_tolerance > 1


@pytest.mark.parametrize("method", EXACT)
def test_data_that_change_between_the_reads_are_noticed(method, rng):
    values = rng.normal(size=(200, 4))
    counted = CountingArray(values)
    lazy = counted.dask(50)
    scores = nlis.leverage_scores(lazy, factorize(lazy, method=method))
    values[123] *= 100
    with pytest.raises(nlis.NonFiniteError, match="row 123 exceeds 1: X or y changed since factorize"):
        scores.compute()
