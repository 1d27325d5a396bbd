"""Score the same rows again and again while workers die all the time: every factor and score must be those of a clean run.

    python tests/chaos.py --minutes 5 --delay 2

Every two seconds one of the two workers of a local cluster is killed, where both run, and its nanny starts another
(distributed's own KillWorker also ends workers that are only starting). Prints one line a round and exits with 1 on the first difference.
"""

import hashlib
import os
import random
import signal
import tempfile
import threading
import time
import uuid
from pathlib import Path

import click
import dask
import numpy as np
import zarr
from distributed import Client, LocalCluster, Status

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
CLASSES = nlis.Problem(nlis.MultilayerPerceptron((), n_outputs=2), nlis.SoftmaxLoss(3))


def stored_rows(folder: Path, n: int, d: int = 10) -> None:
    """Write X (n, d), y (n,) and one of three classes a row in a hundred chunks."""
    rng = np.random.default_rng(0)
    group = zarr.open_group(folder, mode="w")
    group.create_array("X", data=rng.standard_normal((n, d)), chunks=(n // 100, d))
    group.create_array("y", data=rng.standard_normal(n), chunks=(n // 100,))
    group.create_array("classes", data=rng.integers(0, 3, n), chunks=(n // 100,))


def digest(folder: Path) -> str:
    """Hash of all that a job brings: a factor, a sample by its scores, losses, and runs with stores of one output and of two."""
    x, y = nlis.open_rows(folder, X="X", y="y", block_bytes=100_000)
    A = nlis.dual_matrix(PROBLEM, x, y, theta=np.linspace(-0.5, 0.5, x.shape[1] + 1))
    factor = nlis.factorize(A)
    scores = nlis.leverage_scores(A, factor)
    sample = nlis.draw(scores, 500, seed=1)
    losses = nlis.total_loss(PROBLEM, x, y, np.stack([A.theta, 2 * A.theta]))
    job = nlis.run(PROBLEM, x, y, size=500, seed=1, store=folder.parent / f"run-{uuid.uuid4().hex}")
    parts = (factor.r, sample.indices, sample.weights, sample.take(x, y)[0], np.asarray(losses))
    parts += (job.scores.compute(), job.sample.weights, job.sample_X, job.fit.theta)
    _, classes = nlis.open_rows(folder, X="X", y="classes", block_bytes=100_000)
    job = nlis.run(CLASSES, x, classes, size=500, seed=1, store=folder.parent / f"run-{uuid.uuid4().hex}")
    parts += (job.factor.r, job.scores.compute(), job.sample.weights, job.sample_X, job.fit.theta)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def chaos(seconds: float, delay: float, n: int) -> tuple[int, int]:
    """Rounds done and workers killed meanwhile; raises on the first difference."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        stored_rows(folder, n)
        with dask.config.set(scheduler="synchronous"):
            wanted = digest(folder)
        settings = {
            "distributed.scheduler.allowed-failures": 10_000,  # an innocent task may be beside many workers that die
            "distributed.deploy.lost-worker-timeout": "1 day",  # else a cluster gives up those that die twice in 15 s
            "dask-nlis.timeout": 600,
        }
        options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        with dask.config.set(settings), LocalCluster(n_workers=2, **options) as cluster, Client(cluster):
            killed: list[int] = []
            over = threading.Event()
            killer = threading.Thread(target=kill, args=(cluster, delay, over, killed))
            killer.start()
            try:
                end, rounds = time.monotonic() + seconds, 0
                while not rounds or time.monotonic() < end:
                    found = digest(folder)
                    rounds += 1
                    click.echo(f"round {rounds}: {found[:16]}, {len(killed)} workers killed so far")
                    if found != wanted:
                        raise AssertionError(f"round {rounds} gave {found}, a clean run {wanted}")
            finally:
                over.set()
                killer.join()
            return rounds, len(killed)


def kill(cluster: LocalCluster, delay: float, over: threading.Event, killed: list[int]) -> None:
    """Kill a worker that runs every so many seconds."""
    choose = random.Random(0)
    while not over.wait(delay):
        nannies = [each for each in list(cluster.workers.values()) if each.process is not None]
        pids = [each.process.pid for each in nannies if each.process.status is Status.running]
        if len(pids) == len(nannies) > 1:  # else a slow machine would start workers and do nothing else
            killed.append(choose.choice(pids))
            os.kill(killed[-1], signal.SIGKILL)


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long to go on.")
@click.option("--delay", default=2.0, show_default=True, help="Seconds between two deaths.")
@click.option("--rows", default=200_000, show_default=True)
def main(minutes: float, delay: float, rows: int) -> None:
    """Score while workers die, and compare with a clean run."""
    rounds, killed = chaos(60 * minutes, delay, rows)
    click.echo(f"{rounds} rounds of the same bits, {killed} workers killed")


if __name__ == "__main__":
    main()
