"""A cluster of processes on this machine."""

from typing import Any

import dask
import distributed

from dask_nlis.cluster.arguments import LOOPBACK, check_count, check_memory, check_security, dashboard_at
from dask_nlis.cluster.settings import SETTINGS
from dask_nlis.cluster.workers import Tuned


def local(
    n_workers: int | None = None,
    *,
    threads_per_worker: int | None = None,
    memory_limit: Any = "auto",
    security: Any = None,
    dashboard_port: int = 8787,
) -> distributed.LocalCluster:
    """Start worker processes on this machine, for this machine alone: -> LocalCluster. Reads nothing.

    Dask's own `LocalCluster` serves as well. This one listens on loopback alone, dashboard included, has workers whose
    BLAS runs one thread a task and whose memory is kept between tasks, and gives up a worker that falls silent after
    12 seconds.

    Parameters
    ----------
    n_workers, threads_per_worker : int, optional
        Processes, and tasks that each runs at a time; by the number of cores where they are not given.
    memory_limit : int or str, default "auto"
        Bytes that each worker may use, such as "4 GiB"; "auto" is its share of the machine, None no limit.
    security : bool or distributed.Security, optional
        True encrypts all traffic by temporary certificates that are made here and kept in memory; a Security brings others.
    dashboard_port : int, default 8787
        Where the dashboard is, on http://127.0.0.1; a free port where another program has it.

    Returns
    -------
    distributed.LocalCluster
        A context manager; `distributed.Client(cluster)` is what computes then.

    Raises
    ------
    InputError, InputTypeError
        If an argument is not allowed; before anything is started.
    MissingExtraError
        If security=True and cryptography is not installed.

    See Also
    --------
    gpu_pool : One process a GPU.

    Examples
    --------
    >>> from distributed import Client
    >>> import dask_nlis as nlis
    >>> with nlis.cluster.local(1, threads_per_worker=2, dashboard_port=0) as cluster, Client(cluster):
    ...     X, y = nlis.datasets.california_housing(standardized=True)
    ...     A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), X, y)
    ...     nlis.factorize(A).rank
    10
    """
    options = {
        "n_workers": check_count("n_workers", n_workers),
        "threads_per_worker": check_count("threads_per_worker", threads_per_worker),
        "dashboard_address": dashboard_at(dashboard_port),
        "memory_limit": check_memory(memory_limit),
        "security": check_security(security),
    }
    with dask.config.set(SETTINGS):
        return distributed.LocalCluster(host=LOOPBACK, worker_class=Tuned, **options)
