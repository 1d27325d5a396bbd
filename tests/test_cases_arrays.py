"""Kinds of arrays that break others: equal scores by the million, wide rows, filtered blocks, odd shapes (A10, A18, A26-A28)."""

import logging
import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.stats
import zarr
from counting import CountingArray, Tasks, no_compute, same_bits

import dask_nlis as nlis
from dask_nlis.device import memory

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))


def dense_leverage(F):
    left, values, _ = np.linalg.svd(np.asarray(F, dtype=np.float64), full_matrices=False)
    return (left[:, values > 1e-10 * values[0]] ** 2).sum(axis=1)


# -- A10: totals that a narrow type would stop counting ---------------------------------------------------------------


def test_thirty_million_equal_scores_are_all_within_reach_in_either_precision():
    n, size, blocks = 30_000_000, 100_000, 100
    drawn = [
        nlis.draw(da.full(n, 0.1, dtype=kind, chunks=n // blocks), size, seed=3) for kind in (np.float32, np.float64)
    ]
    # 0.1 has another value in each type, yet equal scores are equal scores.
    assert same_bits(drawn[0].indices, drawn[1].indices)
    for sample in drawn:
        assert sample.scale.total % n == 0
        np.testing.assert_allclose(sample.probabilities, 1 / n, rtol=1e-15)
        counts = np.bincount(sample.indices[sample.draws] // (n // blocks), minlength=blocks)
        assert counts.sum() == size
        assert scipy.stats.chisquare(counts).pvalue > 1e-3
        # A float32 running total ends at 2^24 steps: the rows beyond could not be drawn.
        assert (sample.indices > n - n // blocks).sum() > 0


# -- A18: rows wider than a block has room for -------------------------------------------------------------------------

_WIDE = """
import resource, sys
import dask, numpy as np
import dask_nlis as nlis

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

rng = np.random.default_rng(0)
verb, n, units = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
X, y = rng.normal(size=(n, 100)), rng.normal(size=n)
model = nlis.ReluNetwork(units)
theta = rng.normal(size=model.n_parameters(100))
dask.config.set(scheduler="synchronous")

def scored(X, y):
    A = nlis.dual_matrix(nlis.Problem(model), X, y, theta=theta, block_bytes=2**40)
    scores = nlis.norm_scores(A) if verb == "norm" else nlis.leverage_scores(A, nlis.factorize(A))
    return A, scores

scored(X[:2_100], y[:2_100])  # imports and buffers are no growth
before = peak()
A, scores = scored(X, y)
print(A.shape[1], len(A.source.chunks), peak() - before, float(scores.sum()))
"""


@pytest.mark.parametrize(
    ("verb", "rows", "units", "megabytes"),
    # One block; its matrix rows would take 4 GB and 440 MB. The QR of sub-blocks needs some 17 arrays of p x p.
    [("norm", 50_000, 99, 100), pytest.param("leverage", 60_000, 9, 200, marks=pytest.mark.slow)],
)
def test_one_block_of_wide_rows_takes_the_memory_of_a_sub_block(verb, rows, units, megabytes):
    ran = subprocess.run(
        [sys.executable, "-c", _WIDE, verb, str(rows), str(units)], capture_output=True, text=True, check=True
    )
    p, blocks, growth, total = map(float, ran.stdout.split())
    assert p == units * 101 + 1
    assert blocks == 1
    assert total > 0
    assert growth < megabytes * 2**20 < rows * p * 8 / 2


@pytest.mark.parametrize("verb", ["leverage", "norm"])
def test_scores_do_not_depend_on_the_sub_block(verb, rng, monkeypatch):
    X, y = rng.normal(size=(9000, 6)), rng.normal(size=9000)
    model = nlis.ReluNetwork(4)
    A = nlis.dual_matrix(nlis.Problem(model), X, y, theta=rng.normal(size=model.n_parameters(6)))
    found = []
    for rows in (64, 4096):
        monkeypatch.setattr(memory, "_FEWEST_ROWS", 1)
        monkeypatch.setitem(memory._SUB_BLOCK_BYTES, "cpu", 8 * A.shape[1] * rows)
        assert memory.sub_block_rows("cpu", A.shape[1]) == rows
        found.append(nlis.norm_scores(A) if verb == "norm" else nlis.leverage_scores(A, nlis.factorize(A)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


# -- A26: blocks of unknown length -------------------------------------------------------------------------------------


@pytest.fixture
def filtered(rng):
    """Rows kept by a mask that empties two blocks: counted source, lazy X and y, and both as NumPy."""
    F, y = rng.normal(size=(300, 4)), rng.normal(size=300)
    keep = F[:, 1] > -0.5
    keep[60:120] = False
    counted = CountingArray(F)
    lazy = da.from_array(keep, 30)
    return counted, counted.dask(30)[lazy], da.from_array(y, 30)[lazy], F[keep], y[keep]


@pytest.mark.parametrize("method", ["auto", "tsqr", "sketch"])
def test_filtered_rows_score_as_the_filtered_matrix(filtered, method, caplog):
    counted, X, y, dense, labels = filtered
    theta = np.array([0.5, -1.0, 0.2, 0.7, 0.1])
    with caplog.at_level(logging.INFO, logger="dask_nlis"):
        A = nlis.dual_matrix(SWISH, X, y, theta=theta)
        assert counted.reads() == 1  # for the lengths, and none for those of y, whose mask is known
        again = nlis.dual_matrix(SWISH, X, y, theta=theta)
    assert counted.reads() == 0
    assert [record.getMessage().split()[0] for record in caplog.records] == ["X", "y"]
    assert again == A
    assert 0 in A.source.chunks
    factor = nlis.factorize(A, method=method)
    expected = dense_leverage(nlis.dual_matrix(SWISH, dense, labels, theta=theta).to_dask_array())
    scores = nlis.leverage_scores(A, factor)
    np.testing.assert_allclose(scores.compute(), expected, atol=1e-12)
    np.testing.assert_allclose(
        nlis.norm_scores(A).compute(), nlis.norm_scores(nlis.dual_matrix(SWISH, dense, labels, theta=theta)), rtol=1e-13
    )


def test_rows_drawn_from_filtered_data_are_numbered_as_they_come_out(filtered, tmp_path):
    _, X, y, dense, labels = filtered
    A = nlis.reference_matrix(SWISH, X, y)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    sample = nlis.draw(scores, 40, seed=1)
    assert sample.n_rows == len(dense)
    X_s, y_s = sample.take(X, y)
    np.testing.assert_array_equal(X_s, dense[sample.indices])
    np.testing.assert_array_equal(y_s, labels[sample.indices])
    top = nlis.top_rows(scores, 5, X=X)
    np.testing.assert_array_equal(top.X, dense[top.indices])
    theta = np.ones(5)
    assert nlis.total_loss(SWISH, X, y, theta) == pytest.approx(nlis.total_loss(SWISH, dense, labels, theta), rel=1e-13)
    kept = nlis.run(SWISH, X, y, size=40, seed=2, store=tmp_path / "run.zarr")
    here = nlis.run(SWISH, dense, labels, size=40, seed=2)
    np.testing.assert_allclose(kept.scores.compute(), here.scores, atol=1e-12)
    np.testing.assert_array_equal(kept.sample.indices, here.sample.indices)
    standardized = nlis.standardize(X, y)
    np.testing.assert_allclose(standardized.X.compute(), (dense - dense.mean(0)) / dense.std(0), atol=1e-12)


def test_filtered_rows_that_do_not_fit_or_are_none_are_refused(filtered):
    _, X, _, dense, _ = filtered
    with pytest.raises(nlis.InputError, match=rf"inconsistent numbers of rows: \[{len(dense)}, 300\]"):
        nlis.reference_matrix(SWISH, X, np.ones(300))
    with pytest.raises(nlis.InputError, match=r"X has shape \(0, 4\): no rows"):
        nlis.reference_matrix(SWISH, X[X[:, 0] > 99])
    known = X.compute_chunk_sizes()
    with no_compute():
        nlis.reference_matrix(SWISH, known)


def test_labels_in_other_blocks_than_the_rows_they_belong_to_are_aligned_after_the_filter(rng):
    F, y = rng.normal(size=(300, 4)), rng.normal(size=300)
    keep = F[:, 1] > -0.5
    keep[:30] = keep[60:120] = keep[270:] = False  # the first block, two in the middle and the last
    X, labels = (da.from_array(a, (c, *a.shape[1:]))[da.from_array(keep, c)] for a, c in ((F, 30), (y, 47)))
    A, B = nlis.reference_matrix(SWISH, X, labels), nlis.reference_matrix(SWISH, F[keep], y[keep])
    assert A.source.chunks[0] == A.source.chunks[-1] == 0
    scores, expected = (nlis.leverage_scores(M, nlis.factorize(M)) for M in (A, B))
    np.testing.assert_allclose(scores.compute(), expected, atol=1e-13)
    for scheme in ("multinomial", "poisson"):
        sample, known = (
            nlis.draw(scores, 40, scheme=scheme, seed=1),
            nlis.draw(scores.compute(), 40, scheme=scheme, seed=1),
        )
        assert sample == known
        X_s, y_s = sample.take(X, labels)
        np.testing.assert_array_equal(np.column_stack([X_s, y_s]), np.column_stack([F, y])[keep][sample.indices])
        fits = [nlis.refit(SWISH, *rows, sample) for rows in ((X_s, y_s), known.take(F[keep], y[keep]))]
        np.testing.assert_array_equal(fits[0].theta, fits[1].theta)


def _part(reads, k):
    reads.append(k)
    return np.random.default_rng(k).normal(size=(0 if k == 2 else 20 + k, 4))


def test_x_y_and_weights_born_from_one_table_are_counted_in_one_compute_that_reads_it_once():
    reads = []
    parts = [dask.delayed(_part)(reads, k, dask_key_name=f"part-{k}") for k in range(6)]
    table = da.concatenate([da.from_delayed(part, (np.nan, 4), dtype=float) for part in parts])
    X, y, v = table[:, :2], table[:, 2], table[:, 3] ** 2
    with dask.config.set(scheduler="synchronous"):
        with Tasks() as tasks:
            A = nlis.reference_matrix(SWISH, X, y, sample_weight=v)
        assert tasks.computes == 1
        assert tasks.labels["nlis-sizes"] == 18
        assert sorted(reads) == list(range(6))
        with no_compute():
            nlis.reference_matrix(SWISH, X, y, sample_weight=v)
        dense = np.concatenate([_part([], k) for k in range(6)])
        B = nlis.reference_matrix(SWISH, dense[:, :2], dense[:, 2], sample_weight=dense[:, 3] ** 2)
        np.testing.assert_allclose(
            nlis.leverage_scores(A, nlis.factorize(A)).compute(), nlis.leverage_scores(B, nlis.factorize(B)), atol=1e-12
        )


def test_sizes_of_a_store_that_was_overwritten_are_not_those_it_had(tmp_path):
    # Dask gives both arrays one name, so what is remembered must not go by it (A3).
    names = []
    for seed in (1, 2):
        F = np.random.default_rng(seed).normal(size=(300, 3))
        zarr.create_array(tmp_path / "X", data=F, chunks=(30, 3), overwrite=True)
        lazy = da.from_zarr(str(tmp_path / "X"))
        X, dense = lazy[lazy[:, 0] > 0], F[F[:, 0] > 0]
        names.append(X.name)
        sample = nlis.draw(nlis.norm_scores(X), 60, seed=0)
        assert sample.n_rows == len(dense)
        np.testing.assert_array_equal(sample.take(X), dense[sample.indices])
    assert names[0] == names[1]


def test_what_metadata_show_is_refused_before_the_rows_are_counted(filtered):
    _, X, y, _, _ = filtered
    refused = {
        "X has 1 dimensions": (y, None),
        r"y has shape \(nan, 4\); give \(n,\)": (X, X),
        "X has dtype complex128": (X.astype(complex), None),
        "y has dtype <U": (X, y.astype(str)),
        "X has an unknown number of columns": (X.T, None),
    }
    for says, pair in refused.items():
        with no_compute(), pytest.raises(nlis.NlisError, match=says):
            nlis.reference_matrix(SWISH, *pair)


# -- A27: shapes at the edge -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "p", "rows"), [(1, 1, 1), (3, 5, 1), (3, 5, 2), (3, 5, 3), (1001, 50, 100), (7, 7, 2)])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "bool"])
@pytest.mark.parametrize("method", ["auto", "tsqr", "sketch"])
def test_any_shape_and_type_scores_as_the_dense_matrix(n, p, rows, kind, method, rng):
    F = (rng.normal(size=(n, p)) * 3).astype(kind) if kind != "bool" else rng.random((n, p)) < 0.5
    F[0, 0] = 1
    lazy = da.from_array(F, (rows, p))
    with np.errstate(all="raise"):
        factor = nlis.factorize(lazy, method=method)
        scores = nlis.leverage_scores(lazy, factor).compute()
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, dense_leverage(F), atol=1e-11)
    assert scores.sum() == pytest.approx(factor.rank, abs=1e-10)
    assert factor.rank == np.linalg.matrix_rank(F.astype(np.float64))


@pytest.mark.parametrize("verb", [nlis.factorize, nlis.norm_scores])
def test_no_rows_and_no_columns_are_refused_before_any_compute(verb):
    for shape, what in (((0, 4), "rows"), ((4, 0), "columns")):
        for empty in (np.empty(shape), da.zeros(shape, chunks=(2, 2))):
            with no_compute(), pytest.raises(nlis.InputError, match=rf"no {what}; give at least one$"):
                verb(empty)


# -- A28: stored in columns --------------------------------------------------------------------------------------------


def test_columns_stored_apart_score_as_rows_stored_whole(tmp_path, rng):
    F = rng.normal(size=(1000, 40))
    for name, chunks in (("rows", (100, 40)), ("columns", (100, 10))):
        zarr.create_array(tmp_path / name, data=F, chunks=chunks)
    whole, apart = (
        nlis.leverage_scores(stored, nlis.factorize(stored))
        for stored in (zarr.open_array(tmp_path / name) for name in ("rows", "columns"))
    )
    assert same_bits(whole.compute(), apart.compute())
    lazy = da.from_array(F, (100, 10))
    with pytest.warns(nlis.PerformanceWarning, match="A has 4 column chunks, which are joined on reading"):
        factor = nlis.factorize(lazy)
    with pytest.warns(nlis.PerformanceWarning), dask.config.set(scheduler="synchronous"):
        np.testing.assert_allclose(nlis.leverage_scores(lazy, factor).compute(), whole.compute(), atol=1e-15)
