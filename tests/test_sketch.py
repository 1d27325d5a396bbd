"""The sparse-sign sketch: its entries belong to rows, it keeps lengths, and what is built on it is exact or says how far off."""

import array_api_strict
import dask
import dask.array as da
import numpy as np
import pytest
from counting import same_bits

import dask_nlis as nlis
from dask_nlis.factor import factorize
from dask_nlis.factor.sketch import measured_beta, read_sketch
from dask_nlis.kernels.linalg import r_factor, spectrum
from dask_nlis.kernels.sketch import BANDS, STREAMS, entries, sketch_size, sketched
from dask_nlis.matrix import as_matrix


@pytest.fixture(autouse=True)
def one_thread():
    """Starting threads takes longer than these matrices."""
    with dask.config.set(scheduler="synchronous"):
        yield


def dense(stream, start, n, size):
    """S for n rows as a dense matrix (size, n), entry by entry."""
    s = np.zeros((size, n))
    buckets, signs = entries(stream, start, n, size)
    for row in range(n):
        for bucket, sign in zip(buckets[row], signs[row], strict=True):
            s[bucket, row] += sign
    return s


@pytest.mark.parametrize("p", [1, 3, 10, 101])
def test_the_sketch_has_about_ten_rows_a_column_in_whole_bands(p):
    size = sketch_size(p)
    assert size % BANDS == 0
    assert max(128, 10 * p) <= size <= max(128, 10 * p + BANDS)


def test_every_row_has_one_nonzero_in_each_band_and_both_signs_and_all_buckets_are_as_frequent():
    n, size = 20_000, 80
    buckets, signs = entries(STREAMS[0], 0, n, size)
    assert buckets.shape == signs.shape == (n, BANDS)
    np.testing.assert_array_equal(buckets // (size // BANDS), np.broadcast_to(np.arange(BANDS), (n, BANDS)))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    counts = np.bincount(buckets.ravel(), minlength=size)
    assert np.abs(counts - n / 10).max() < 5 * np.sqrt(n / 10)
    assert np.abs(signs.sum(axis=0)).max() < 4 * np.sqrt(n)
    # Bands are independent of each other, and so are signs and buckets.
    correlation = np.corrcoef(np.concatenate([signs, buckets], axis=1).T)
    assert np.abs(correlation - np.eye(2 * BANDS)).max() < 5 / np.sqrt(n)


@pytest.mark.parametrize("start", [0, 1, 3, 4, 999, 2**40 + 7])
def test_entries_belong_to_the_global_row_whatever_the_cut(start):
    size = sketch_size(5)
    whole = entries(STREAMS[0], start, 50, size)
    for a, b in ((0, 50), (0, 1), (13, 27), (49, 50)):
        part = entries(STREAMS[0], start + a, b - a, size)
        for found, expected in zip(part, whole, strict=True):
            assert same_bits(found, expected[a:b])
    other = entries(STREAMS[1], start, 50, size)
    assert not np.array_equal(other[0], whole[0])
    assert not np.array_equal(other[1], whole[1])


@pytest.mark.parametrize("m", [0, 1, 7, 300])
def test_the_product_is_that_with_the_dense_matrix_in_every_namespace(m, rng):
    size = sketch_size(4)
    rows = rng.normal(size=(m, 4))
    found = sketched(rows, *entries(STREAMS[0], 11, m, size), size)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, dense(STREAMS[0], 11, m, size) @ rows, atol=1e-14)
    if m:
        strict = sketched(array_api_strict.asarray(rows), *entries(STREAMS[0], 11, m, size), size)
        assert type(strict) is type(array_api_strict.zeros(1))
        np.testing.assert_allclose(np.asarray(strict), found, atol=1e-14)


@pytest.mark.parametrize("chunks", [1, 7, 100, (400, 0, 30, 70)])
def test_the_sketch_does_not_know_the_chunks(chunks, rng):
    F = rng.integers(-9, 9, size=(500, 3)).astype(float)  # integers add up without rounding
    expected, _ = read_sketch(as_matrix(F), 2)
    found, _ = read_sketch(as_matrix(da.from_array(F, (chunks, 3))), 2)
    assert all(same_bits(a, b) for a, b in zip(found, expected, strict=True))
    size = sketch_size(3)
    for r, stream in zip(found, STREAMS, strict=True):
        np.testing.assert_allclose(r, r_factor(dense(stream, 0, 500, size) @ F) / np.sqrt(BANDS), rtol=1e-12)


@pytest.mark.parametrize("kind", ["random", "identity", "heavy rows"])
@pytest.mark.parametrize(("p", "seeds"), [(2, 10), (20, 5), (60, 1)])
def test_lengths_are_kept_for_incoherent_and_coherent_rows(kind, p, seeds):
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        F = rng.normal(size=(40 * p, p))
        if kind == "identity":  # rows of leverage 1: two that met in a bucket of a CountSketch would be one
            F = np.zeros((40 * p, p))
            F[rng.permutation(40 * p)[:p]] = np.eye(p)
        elif kind == "heavy rows":
            F[:p] *= 1e8
        (r,), _ = read_sketch(as_matrix(F), 1)
        whitened = F @ spectrum(r).whitener
        lengths = np.linalg.svd(whitened, compute_uv=False)
        # Of a random S with 10 p rows: 1 / (1 +- sqrt(0.1)), that is 0.76 to 1.46.
        assert 0.4 < lengths.min() <= lengths.max() < 2.5
        assert factorize(F, method="sketch").method == "sketch"


@pytest.mark.parametrize("kappa", [1.0, 1e6, 1e12])
def test_a_sketch_whitens_at_any_condition(kappa, rng):
    left, _ = np.linalg.qr(rng.normal(size=(2000, 15)))
    right, _ = np.linalg.qr(rng.normal(size=(15, 15)))
    F = left * np.geomspace(1, 1 / kappa, 15) @ right
    (r,), _ = read_sketch(as_matrix(F), 1)
    lengths = np.linalg.svd(F @ spectrum(r).whitener, compute_uv=False)
    assert lengths.max() / lengths.min() < 4


@pytest.mark.parametrize("p", [1, 3, 12, 40])
def test_sketch_only_keeps_the_share_of_leverage_that_its_beta_promises(p):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        F = rng.normal(size=(30 * p, p)) @ rng.normal(size=(p, p)) * np.exp(3 * rng.random((30 * p, 1)))
        rough = factorize(F, method="sketch-only")
        exact = nlis.leverage_scores(F, factorize(F))
        h = nlis.leverage_scores(F, rough)
        assert ((h >= 0) & (h <= 1)).all()
        share = (h / h.sum()) / (exact / exact.sum())
        assert 0.05 < rough.beta < 1
        assert share.min() >= rough.beta
        # No empty promise: the true bound is at most a few times the measured one.
        true = np.linalg.svd(F @ rough.whitener, compute_uv=False) ** 2
        assert rough.beta >= 0.2 * true.min() / true.mean()
        assert (rough.rank, rough.reads, rough.method) == (p, 1, "sketch-only")
        assert f"beta={rough.beta:.6g}" in repr(rough)


def test_beta_is_the_spread_that_the_second_sketch_sees_less_three_standard_errors(rng):
    F = rng.normal(size=(400, 4))
    (first, second), _ = read_sketch(as_matrix(F), 2)
    decided = spectrum(first)
    seen = np.linalg.svd(second @ decided.whitener, compute_uv=False) ** 2
    surely = (1 + 3 * np.sqrt(2 / 128)) * (1 + 3 * np.sqrt(2 / 128 / 4))
    assert measured_beta(decided, second) == pytest.approx(seen.min() / seen.mean() / surely, rel=1e-12)
    assert measured_beta(decided, first) == pytest.approx(1 / surely)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_sketch_only_of_few_rows_and_of_dependent_columns_has_the_right_rank(n, rng):
    F = rng.normal(size=(n, 5))
    rough = factorize(F, method="sketch-only")
    assert rough.rank == n
    np.testing.assert_allclose(nlis.leverage_scores(F, rough), 1.0, atol=0.9)
    tall = rng.normal(size=(300, 4))
    tall[:, 3] = tall[:, 0]
    rough = factorize(tall, method="sketch-only")
    assert (rough.rank, rough.dependent) == (3, ("x0", "x3"))
    h = nlis.leverage_scores(tall, rough)
    exact = nlis.leverage_scores(tall, factorize(tall))
    assert ((h / h.sum()) >= rough.beta * exact / 3).all()


@pytest.mark.parametrize("method", ["sketch", "sketch-only"])
def test_sketched_factors_are_the_same_at_every_call_and_equal_enough_for_all_chunks(method, rng):
    F = rng.normal(size=(900, 6))
    whole = factorize(F, method=method)
    assert factorize(F, method=method) == whole
    for chunks in (50, 333):
        cut = factorize(da.from_array(F, (chunks, 6)), method=method)
        np.testing.assert_allclose(cut.r, whole.r, atol=1e-12)
        assert cut.beta == pytest.approx(whole.beta, rel=1e-12)
