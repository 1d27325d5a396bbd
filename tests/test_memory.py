"""What is held at a time: by the client, by a worker, by a process; nothing of size n x n, and scores only while drawn."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import dask
import dask.array as da
import distributed.system
import numpy as np
import pytest
import zarr
from counting import Tasks, no_compute
from distributed import Client, LocalCluster
from large_rows import functions
from scripts import EXAMPLES

import dask_nlis as nlis
from dask_nlis import phase, workers
from dask_nlis.kernels.draw import row_uniforms

TESTS = Path(__file__).parent
MIB = 2**20


def in_a_process(*arguments, timeout=280):
    """What a script prints in a process of its own, on one BLAS thread."""
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=timeout, env=os.environ | one, check=False
    )
    assert not ran.returncode, ran.stderr
    return ran.stdout


def cluster_of(limit):
    return LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address="127.0.0.1:0", silence_logs=50
    )


@pytest.fixture(scope="module")
def under_a_cap():
    return dict(map(json.loads, in_a_process(str(TESTS / "large_rows.py")).splitlines()))


@pytest.mark.slow
def test_every_public_function_works_in_16_gb_of_addresses_at_200_000_rows(under_a_cap):
    assert under_a_cap.pop("n x n").startswith("MemoryError: Unable to allocate 298. GiB")  # the cap is there
    assert {name: said for name, said in under_a_cap.items() if said != "ok"} == {}


@pytest.mark.slow
def test_no_public_function_is_left_out_of_the_cap(under_a_cap):
    assert functions() == {name for name in under_a_cap if "." not in name} - {"n x n"}


LEVERAGE = """
import sys
import dask, numpy as np
import dask_nlis as nlis


def memory(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


rows, d, n_blocks = 100_000, 10, 48
X, y = nlis.datasets.generated_rows(n_blocks * rows, d, block_rows=rows)
with dask.config.set(scheduler="threads", num_workers=2):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Logistic()))
    for x, labels in ((X[:100], y[:100]), (X, y)):
        before = memory("VmRSS")
        A = nlis.reference_matrix(problem, x, labels)
        factor = nlis.factorize(A, method=sys.argv[1])
        top = nlis.top_rows(nlis.leverage_scores(A, factor), 10)
print(memory("VmHWM") - before, X.nbytes, rows * d * 8)
"""


@pytest.mark.parametrize("method", ["auto", "tsqr"])
def test_leverage_of_48_blocks_takes_fewer_than_eight_blocks_a_thread(method):
    growth, data, block = map(int, in_a_process("-c", LEVERAGE, method).split())
    assert data == 48 * block
    assert growth < 8 * 2 * block


def uniform_scores(n, n_blocks):
    """Lazy scores made when they are computed."""

    def made(block_info=None):
        start, stop = block_info[None]["array-location"][0]
        return row_uniforms(np.array([1, 2], dtype=np.uint64), start, stop - start)

    return da.map_blocks(made, chunks=((n // n_blocks,) * n_blocks,), dtype=float, meta=np.empty(0))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("n", "schemes"),
    [
        (10**6, ("poisson",)),
        pytest.param(
            10**8,
            ("multinomial", "stratified", "poisson", "systematic"),
            marks=[pytest.mark.slow, pytest.mark.timeout(1800)],
        ),
    ],
)
def test_a_draw_takes_ten_megabytes_of_the_client_however_many_rows(n, schemes):
    scores = uniform_scores(n, 100)
    with cluster_of("4GiB") as cluster, Client(cluster):
        for scheme in schemes:
            held = phase.held(scores, "nlis-score")  # the first graph of a client imports and registers things
            tracemalloc.start()
            sample = nlis.draw(held, 10_000, scheme=scheme, seed=0)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 10e6, scheme
            assert len(sample) > 9_000


@pytest.mark.parametrize("scheme", ["multinomial", "poisson"])
def test_a_local_draw_takes_memory_by_blocks_and_size_and_not_by_rows(scheme):
    peaks = []
    for rows in (10_000, 200_000):
        store = zarr.create_array({}, shape=(20 * rows,), chunks=(rows,), dtype="f8")
        store[:] = 1.0
        scores = da.from_array(store, chunks=rows)
        with dask.config.set(scheduler="synchronous"):
            held = phase.held(scores, "nlis-score")
            tracemalloc.start()
            nlis.draw(held, 1_000, scheme=scheme, seed=0)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    # One block of 1.6 MB is worked on at a time, where all scores take 32 MB.
    assert peaks[1] < peaks[0] + 8 * 8 * 200_000


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scores_that_do_not_fit_on_the_workers_go_to_a_file(tmp_path):
    n, rows = 64_000_000, 1_000_000
    x, y = nlis.datasets.generated_rows(n, 2, block_rows=rows)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Logistic()), constraint=nlis.Ball(5.0))
    with cluster_of("450MB") as cluster, Client(cluster) as client:
        pids = set(client.run(os.getpid).values())
        A = nlis.reference_matrix(problem, x, y)
        scores = nlis.norm_scores(A)
        assert not workers.fits_in_memory(scores.nbytes)
        sample = nlis.draw(scores, 1_000, seed=0)
        stored = nlis.run(problem, x, y, size=1_000, seed=0, store=tmp_path / "run.zarr")
        assert set(client.run(os.getpid).values()) == pids  # no worker was killed and started again
    assert stored.scores.shape == (n,)
    assert len(sample) > 900


@pytest.mark.cluster
def test_a_cluster_holds_scores_up_to_a_quarter_of_its_memory():
    with cluster_of("400MB") as cluster, Client(cluster) as client:
        assert workers.fits_in_memory(200_000_000)
        assert not workers.fits_in_memory(200_000_001)
        scores = uniform_scores(10**5, 10)
        expected = nlis.draw(scores, 100, seed=0)
        limits = {address: {"memory_limit": 10**6} for address in client.scheduler_info()["workers"]}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(client, "scheduler_info", lambda n_workers=5: {"workers": limits, "n_workers": 2})
            assert nlis.draw(scores, 100, seed=0) == expected  # by way of a file
            # Workers on another machine do not see the files of this one: they keep the scores, and spill.
            elsewhere = {"tcp://203.0.113.7:4000": {"memory_limit": 10**6}}
            patched.setattr(client, "scheduler_info", lambda n_workers=5: {"workers": elsewhere})
            assert workers.fits_in_memory(10**9)


def test_scores_that_would_not_fit_in_memory_are_refused_before_anything_is_computed(monkeypatch):
    X = np.ones((10_000, 2))
    lazy = da.from_array(X, chunks=(1_000, 2))
    factor = nlis.factorize(X)
    monkeypatch.setattr(distributed.system, "MEMORY_LIMIT", 100_000)
    message = (
        r"^leverage scores of 10,000 rows take 78.12 kiB, above half of the 97.66 kiB of this process; give X as a"
    )
    with no_compute(), pytest.raises(nlis.InputError, match=message):
        nlis.leverage_scores(X, factor)
    with no_compute():
        scores = nlis.norm_scores(lazy)
        with pytest.raises(nlis.InputError, match=r"^2 scores of 10,000 rows take 160,000 bytes, .* give totals"):
            nlis.blend([scores, np.ones(10_000)], [0.5, 0.5])
    with Tasks() as tasks:
        nlis.draw(scores, 10, seed=0)
    assert tasks.labels["nlis-score"] == 10  # written as they are computed


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_four_gigabytes_on_disk_take_no_more_of_two_workers_than_one():
    # By itself: workers take what the script defines from the script, and not from a module of the tests.
    ran = subprocess.run([sys.executable, EXAMPLES / "benchmarks" / "memory.py"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no worker goes above 350 MiB, and none grows with the data" in ran.stdout
