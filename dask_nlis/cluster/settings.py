"""Settings of Dask for clusters that give up what is lost in seconds; `deploy/dask-config/nlis.yaml` has the same."""

from typing import Any

#: A worker that falls silent is given up after the longer of the two times: without the first only when its connections
#: end, by default after minutes; without the second its nanny is waited for. Below 11 s no connection is ever made.
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.worker-ttl": "10 s",
    "distributed.comm.timeouts.tcp": "12 s",
    "distributed.comm.timeouts.connect": "10 s",
    "distributed.scheduler.allowed-failures": 3,
    # Before a worker joins: done by its first task, the import would keep it silent for seconds.
    "distributed.worker.preload": ["dask_nlis"],
    # One thread of BLAS a task. Thresholds of malloc, which a nanny would leave behind in the process that starts it, are
    # set by the first task of a worker (`dask_nlis.prepared`).
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.MKL_NUM_THREADS": 1,
    "distributed.nanny.pre-spawn-environ.OPENBLAS_NUM_THREADS": 1,
}
