"""Peak memory against the plan: of one process with threads, and of the workers of a cluster. Minutes: marked slow."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc"),
]

N, D = 600_000, 60

JOB = """
import json, sys
import dask, dask_nlis as nlis
from distributed import Client, LocalCluster

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def measure(path, where, block_bytes):
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(10.0))
    x, y = nlis.open_rows(path, X="X", y="y", block_bytes=block_bytes)
    if where == "threads":
        with dask.config.set(scheduler="threads", num_workers=2):
            plan = nlis.plan(problem, x, y, size=5000, calibrate=False)
            nlis.run(problem, x, y, size=5000, seed=0)
        # Worker and client are one process.
        return plan.peak_worker_memory + plan.peak_client_memory - plan.client_memory["process"], peak()
    options = dict(n_workers=2, threads_per_worker=1, memory_limit="1 GiB", dashboard_address="127.0.0.1:0")
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        plan = nlis.plan(problem, x, y, size=5000, calibrate=False)
        nlis.run(problem, x, y, size=5000, seed=0)
        return plan.peak_worker_memory, max(client.run(peak).values())

if __name__ == "__main__":
    path, where, block_bytes = sys.argv[1:]
    print(json.dumps(measure(path, where, int(block_bytes))))
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """About 290 MB twice: in chunks of 29 MB, and of 4.8 MB."""
    folder = tmp_path_factory.mktemp("memory")
    for rows in (60_000, 10_000):
        group = zarr.open_group(folder / f"{rows}", mode="w")
        rng = np.random.default_rng(0)
        x = group.create_array("X", shape=(N, D), dtype="f8", chunks=(rows, D))
        y = group.create_array("y", shape=(N,), dtype="f8", chunks=(rows,))
        for k in range(0, N, rows):
            block = rng.standard_normal((rows, D))
            x[k : k + rows], y[k : k + rows] = block, np.tanh(block[:, 0])
    (folder / "job.py").write_text(JOB)
    return folder


@pytest.mark.parametrize("block_bytes", [64_000_000, 16_000_000])
@pytest.mark.parametrize("rows", [60_000, 10_000])
@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_the_peak_of_a_process_is_within_a_factor_of_two_of_the_plan(where, rows, block_bytes, stores):
    command = [sys.executable, stores / "job.py", stores / f"{rows}", where, str(block_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    planned, measured = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{where}, chunks of {rows:,} rows, blocks of {block_bytes:,}: {measured / planned:.2f} of the plan, {measured:,}"
    )
    assert 0.5 <= measured / planned <= 2
