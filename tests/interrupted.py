"""A job in a process of its own that hangs, for a test to interrupt: `interrupted.py FOLDER threads|processes|cluster`."""

import signal
import sys

import dask
from acting import ActingRows, matrix
from distributed import Client, LocalCluster

import dask_nlis as nlis


def main(folder, where):
    A = matrix(ActingRows(folder, "slow", n=100_000))
    if where != "cluster":
        with dask.config.set(scheduler=where, num_workers=2):
            nlis.factorize(A)
        return
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        try:
            nlis.factorize(A)
        except KeyboardInterrupt:
            left = [key for key in client.run_on_scheduler(tasks) if "nlis" in key]
            print("left on the scheduler:", len(left), flush=True)
            raise


def tasks(dask_scheduler):
    return [str(key) for key in dask_scheduler.tasks]


if __name__ == "__main__":
    # What a shell starts in the background ignores interrupts, and so do its children, unless they say otherwise.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(*sys.argv[1:])
