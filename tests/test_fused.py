"""Stages in one read: what is read how often, and that it is in every bit the draw from held scores and the take after it."""

import json
import logging
import multiprocessing
import os
import signal
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import product

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, CountingStore, Tasks, cut, rows_of, same_bits
from distributed import Client, LocalCluster

import dask_nlis as nlis
from dask_nlis import phase, workers
from dask_nlis.pipeline.held import score_held
from dask_nlis.sampling import fused

JOBS = import_module("dask_nlis.pipeline.job")

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
N = 1500
X, Y = rows_of(41, N, 3)
THETA = np.array([0.3, -0.2, 0.1, 0.05])


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def lazy(values, chunks):
    return da.from_array(values, (chunks, *values.shape[1:]))


def in_turn(*arguments, **options):
    """A run by scores that are held, drawn from in passes, and rows read from X afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JOBS, "way_of", lambda *_: score_held)
        return nlis.run(*arguments, **options)


def assert_same(found, expected):
    assert found.sample == expected.sample
    assert found.sample.weights.tobytes() == expected.sample.weights.tobytes()
    assert same_bits(found.sample_X, expected.sample_X)
    assert same_bits(found.sample_y, expected.sample_y)
    assert (found.sample_weight is None) == (expected.sample_weight is None)
    assert found.sample_weight is None or same_bits(found.sample_weight, expected.sample_weight)
    assert found.scores is None or same_bits(found.scores, expected.scores)
    for name in ("factor", "pilot", "fit", "certificate", "total_loss", "n_dropped", "why_one_stage"):
        assert getattr(found, name) == getattr(expected, name), name


def some_huge(values, factor):
    out = values.copy()
    out[::300] *= factor
    return out


MISSING = X.copy()
MISSING[[0, 77, 1499], 1] = np.nan
WEIGHT = (np.arange(N) % 4).astype(float)
CASES = {
    "plain": (X, Y, {"size": 160}),
    "by leverage at a pilot": (X, Y, {"size": 160, "scores": "leverage"}),
    "by norms at theta": (X, Y, {"size": 160, "scores": "norm", "theta": THETA}),
    "by influence at a pilot": (X, Y, {"size": 160, "scores": "influence"}),
    "row weights": (X, Y, {"size": 160, "sample_weight": WEIGHT}),
    "missing": (MISSING, Y, {"size": 160, "missing": "drop"}),
    "huge rows": (some_huge(X, 1e4), Y, {"size": 160}),
    "huge labels": (X, some_huge(Y, 1e6), {"size": 160}),
    "huge rows by norms": (some_huge(X, 1e4), Y, {"size": 160, "scores": "norm", "theta": THETA}),
    "most of the rows": (X, Y, {"size": 1100}),
    "three rounds": (X, Y, {"size": 160, "rounds": 3}),
    "one round": (X, Y, {"size": 160, "rounds": 1}),
    "no room for a pilot": (X, Y, {"size": 9}),
    "float32 and integers": (X.astype(np.float32), np.round(3 * Y).astype(np.int16), {"size": 160}),
}


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning", "ignore::dask_nlis.ScaleWarning")
@pytest.mark.parametrize(
    ("case", "chunks"), [*product(CASES, (1000, N)), *product(("plain", "huge rows", "row weights"), (1, 7))]
)
def test_a_stage_in_one_read_is_that_in_turn_in_every_bit(case, chunks):
    x, y, options = CASES[case]
    if chunks < 10:
        x, y, options = (
            x[:300],
            y[:300],
            {"size": 60} | ({"sample_weight": WEIGHT[:300]} if case == "row weights" else {}),
        )
    for seed in (1, 2) if chunks > 7 else (1,):
        arguments = (PROBLEM, lazy(x, chunks), lazy(y, chunks))
        assert_same(nlis.run(*arguments, **options, seed=seed), in_turn(*arguments, **options, seed=seed))


EXACT = {
    "two-stage": ({}, 5),
    "leverage": ({"scores": "leverage", "theta": THETA}, 3),
    "influence": ({"scores": "influence", "theta": THETA}, 3),
    "norm": ({"scores": "norm", "theta": THETA}, 2),
    "norm at a pilot": ({"scores": "norm"}, 4),
}


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "stored"])
@pytest.mark.parametrize("keep_scores", [False, True])
@pytest.mark.parametrize("case", EXACT)
def test_every_row_is_read_so_often_and_nothing_else_is(tmp_path, case, keep_scores, stored):
    options, reads = EXACT[case]
    counted = CountingArray(X), CountingArray(Y)
    store = tmp_path / "run" if stored else None
    with Tasks() as tasks:
        job = nlis.run(
            PROBLEM,
            *(each.dask(10) for each in counted),
            size=160,
            seed=1,
            keep_scores=keep_scores,
            store=store,
            **options,
        )
    assert [each.reads() for each in counted] == [reads, reads]
    assert sum(job.reads.values()) == reads
    labels = tasks.labels
    assert labels["nlis-draw"] == labels["nlis-gather"] == 0
    n_scored = job.reads["scores"] + (1 if "pilot" in job.reads else 0)
    # One task a block and read; rows that are known are scored in one more.
    assert n_scored * 150 <= labels["nlis-score"] <= n_scored * 150 + 2
    assert len(tasks.keys) <= 1.2 * 150 * reads


def test_a_zarr_store_is_fetched_chunk_by_chunk_five_times(tmp_path):
    group = zarr.open_group(tmp_path / "data", mode="w")
    group.create_array("X", data=X, chunks=(100, 3))
    group.create_array("y", data=Y, chunks=(100,))
    store = CountingStore(tmp_path / "data")
    x, y = (zarr.open_array(store, path=name, mode="r") for name in ("X", "y"))
    job = nlis.run(PROBLEM, x, y, size=160, seed=1, block_bytes=4800, keep_scores=False)
    assert store.reads() == {5}
    assert_same(job, in_turn(PROBLEM, x, y, size=160, seed=1, block_bytes=4800))


@pytest.mark.parametrize("case", ["plain", "row weights", "huge rows", "by norms at theta", "three rounds"])
def test_where_too_few_rows_were_kept_blocks_are_read_again_and_nothing_changes(case, monkeypatch):
    x, y, options = CASES[case]
    x, y = CountingArray(x), CountingArray(y)
    before = nlis.run(PROBLEM, x.dask(70), y.dask(70), seed=1, **options)
    monkeypatch.setattr(fused, "SAFETY", 0.01)
    x.reads()
    job = nlis.run(PROBLEM, x.dask(70), y.dask(70), seed=1, **options)
    n_stages = 1 if "theta" in options else options.get("rounds", 2)
    if case == "by norms at theta":  # by its length a block has room enough for the 64 rows that it keeps in any case
        assert "gather" not in job.reads
    else:
        assert job.reads["gather"] == n_stages
    assert x.reads() == sum(job.reads.values())
    assert_same(job, before)


def test_only_blocks_that_kept_too_few_rows_are_read_again():
    x, y = rows_of(42, 12_000, 3)
    x *= np.exp(np.linspace(0, 12, 12_000))[:, None]  # nearly all of the norms are in the last of twelve blocks
    counted = CountingArray(x)
    options = {"size": 900, "seed": 1, "scores": "norm", "theta": THETA}
    job = nlis.run(PROBLEM, counted.dask(1000), y, **options)
    assert job.reads == {"scores": 1, "gather": 1, "total loss": 1}
    assert set(counted.rows[:-3000]) == {2}
    assert set(counted.rows[-1000:]) == {3}
    assert_same(job, in_turn(PROBLEM, lazy(x, 1000), y, **options))


def test_uneven_blocks_are_no_reason_to_read_again_where_the_sum_is_known():
    order = np.argsort((X**2).sum(axis=1))
    for options in ({"scores": "leverage", "theta": THETA}, {}):
        arguments = (PROBLEM, lazy(X[order], 20), lazy(Y[order], 20))
        job = nlis.run(*arguments, size=300, seed=1, **options)
        assert "gather" not in job.reads
        assert_same(job, in_turn(*arguments, size=300, seed=1, **options))


def results(x, y, tmp_path):
    cases = {"two": {}, "weighted": {"sample_weight": WEIGHT}, "norm": {"scores": "norm", "theta": THETA}}
    jobs = {name: nlis.run(PROBLEM, x, y, size=160, seed=1, **options) for name, options in cases.items()}
    jobs["unkept"] = nlis.run(PROBLEM, x, y, size=160, seed=1, keep_scores=False)
    jobs["stored"] = nlis.run(PROBLEM, x, y, size=160, seed=1, store=tmp_path / "run")
    return jobs


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    with dask.config.set(scheduler="synchronous"):
        return results(lazy(X, 100), lazy(Y, 100), tmp_path_factory.mktemp("expected"))


def assert_all(jobs, expected):
    for name, job in jobs.items():
        assert_same(job, expected[name])


def test_threads_give_the_same_bits(expected, tmp_path):
    with dask.config.set(scheduler="threads", num_workers=3):
        assert_all(results(lazy(X, 100), lazy(Y, 100), tmp_path), expected)


@pytest.mark.slow
def test_processes_give_the_same_bits(expected, tmp_path):
    with (
        ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool,
        dask.config.set(scheduler="processes", pool=pool),
    ):
        assert_all(results(lazy(X, 100), lazy(Y, 100), tmp_path), expected)


def cluster():
    return LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    )


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_gives_the_same_bits_and_keeps_the_candidates_to_itself(expected, tmp_path, monkeypatch):
    fetched, boxed = [], phase.on_blocks

    def watched(array, label, task, arguments):
        found = boxed(array, label, task, arguments)
        fetched.append((task.__name__, found))
        return found

    monkeypatch.setattr(phase, "on_blocks", watched)
    with dask.config.set(scheduler=None), cluster() as workers, Client(workers) as client:
        assert_all(results(lazy(X, 100), lazy(Y, 100), tmp_path), expected)
        fetched.clear()
        job = nlis.run(PROBLEM, lazy(X, 100), lazy(Y, 100), size=60, seed=5, keep_scores=False)
        taken = [each for name, found in fetched if name == "_picked" for each in found]
        assert sum(len(x) for x, _, _ in taken[-15:]) >= len(job.sample)
        assert sum(len(x) for x, _, _ in taken) <= 2 * len(job.sample)
        del job
        until = time.monotonic() + 10
        while any(client.who_has().values()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(client.who_has().values())  # nothing stays behind


@pytest.mark.cluster
@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_stage_changes_nothing(expected, monkeypatch):
    held, killed = phase.held, []

    def and_kill(array, label, **sizes):
        found = held(array, label, **sizes)
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)  # after the read: the candidates it held are lost
        killed.append(pid)
        return found

    with dask.config.set(scheduler=None), cluster() as workers, Client(workers) as client:
        monkeypatch.setattr(phase, "held", and_kill)
        job = nlis.run(PROBLEM, lazy(X, 100), lazy(Y, 100), size=160, seed=1, keep_scores=False)
    assert len(set(killed)) == 2
    assert_same(job, expected["unkept"])


class Formula:
    """Rows that are made when they are read."""

    def __init__(self, n, d):
        self.shape, self.dtype, self.ndim = ((n, d) if d else (n,)), np.dtype(float), 2 if d else 1

    def __getitem__(self, index):
        place = index[0] if isinstance(index, tuple) else index
        rows = np.arange(*place.indices(self.shape[0]))
        phases = np.sqrt(np.arange(2, 2 + self.shape[1])) if self.ndim == 2 else np.array(1.7)
        return np.sin(np.multiply.outer(rows % 10007, phases)) * (1 + (rows % 101 == 0)).reshape(
            -1, *[1] * (self.ndim - 1)
        )


def test_without_scores_kept_nothing_of_length_n_is_held():
    n = 800_000
    x, y = (da.from_array(Formula(n, d), (16_000, d) if d else 16_000, asarray=False) for d in (2, 0))
    peaks = {}
    nlis.run(PROBLEM, X, Y, size=100, seed=1)  # imports and caches
    for keep_scores in (True, False):
        tracemalloc.start()
        job = nlis.run(PROBLEM, x, y, size=200, seed=1, keep_scores=keep_scores)
        peaks[keep_scores] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (job.scores is not None) == keep_scores
    assert peaks[True] > peaks[False] + 6 * n
    assert peaks[False] < 6 * n


def test_a_store_without_scores_opens_as_the_run_that_it_is(tmp_path):
    job = nlis.run(PROBLEM, lazy(X, 100), Y, size=160, seed=1, keep_scores=False, store=tmp_path / "run")
    arrays = [json.loads(file.read_text()) for file in (tmp_path / "run").rglob("zarr.json")]
    assert max(array["shape"][0] for array in arrays if "shape" in array) < N // 2
    assert not (tmp_path / "run" / "scores").exists()
    opened = nlis.open_run(tmp_path / "run")
    assert opened == job
    assert opened.scores is None
    assert not opened.manifest["keep_scores"]
    assert "scores=" not in repr(opened)


@pytest.mark.parametrize("scheme", ["multinomial", "systematic"])
def test_other_schemes_keep_no_scores_either_where_they_shall_not(scheme, tmp_path):
    kept = nlis.run(PROBLEM, X, Y, size=160, seed=1, scheme=scheme)
    job = nlis.run(PROBLEM, X, Y, size=160, seed=1, scheme=scheme, keep_scores=False, store=tmp_path / "run")
    assert job.scores is None
    assert_same(job, kept)
    assert nlis.open_run(tmp_path / "run") == job
    assert not (tmp_path / "run" / "scores").exists()


def test_a_store_that_lost_its_scores_is_damaged(tmp_path):
    nlis.run(PROBLEM, X, Y, size=160, seed=1, store=tmp_path / "run")
    (tmp_path / "run" / "scores").rename(tmp_path / "scores")
    with pytest.raises(nlis.InputError, match="no array 'scores'"):
        nlis.open_run(tmp_path / "run")


def test_scores_of_unequal_blocks_are_stored_in_turn(tmp_path):
    chunks = cut(N, (30, 500, 7))
    x, y = da.from_array(X, (chunks, 3)), da.from_array(Y, (chunks,))
    with Tasks() as tasks:
        job = nlis.run(PROBLEM, x, y, size=160, seed=1, store=tmp_path / "run")
    assert tasks.labels["nlis-gather"] > 0
    with Tasks() as tasks:
        held = nlis.run(PROBLEM, x, y, size=160, seed=1)
    assert tasks.labels["nlis-gather"] == 0
    assert_same(job, held)


def test_candidates_that_do_not_fit_in_memory_are_not_kept(monkeypatch, caplog):
    plain = nlis.run(PROBLEM, lazy(X, 100), Y, size=160, seed=1)
    monkeypatch.setattr(workers, "fits_in_memory", lambda n_bytes: n_bytes <= 4 * 160 * (4 * 8 + 24) - 1)
    with caplog.at_level(logging.INFO, logger="dask_nlis"), Tasks() as tasks:
        job = nlis.run(PROBLEM, lazy(X, 100), Y, size=160, seed=1)
    assert "640 candidates of a draw of 160 rows would take 35,840 bytes" in caplog.text
    assert tasks.labels["nlis-gather"] > 0
    assert_same(job, plain)


def test_what_keep_scores_may_be():
    with pytest.raises(nlis.InputTypeError, match="keep_scores='no' is str; give True or False"):
        nlis.run(PROBLEM, X, Y, size=160, keep_scores="no")
