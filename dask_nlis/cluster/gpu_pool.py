"""A cluster of one process a GPU."""

import os
from importlib.util import find_spec
from typing import Any

import dask
import distributed

from dask_nlis import device
from dask_nlis.cluster.arguments import LOOPBACK, check_count, check_memory, check_security, dashboard_at
from dask_nlis.cluster.settings import SETTINGS
from dask_nlis.cluster.workers import Pool
from dask_nlis.errors import DeviceError, InputError


def gpu_pool(
    n_workers: int | None = None,
    *,
    memory_limit: Any = "auto",
    security: Any = None,
    dashboard_port: int = 8787,
) -> distributed.LocalCluster:
    """Start one worker process for each GPU of this machine, one thread each: -> LocalCluster. Reads nothing.

    With dask-cuda installed it is a `dask_cuda.LocalCUDACluster`, which also places processes near their GPU; otherwise
    processes that see one GPU each. Tasks choose the device themselves (`device="auto"`), so that pools of workers with and
    without a GPU serve too, as do GPU workers of other clusters.

    Parameters
    ----------
    n_workers : int, optional
        GPUs to use, the first ones of CUDA_VISIBLE_DEVICES or of the machine; all by default.
    memory_limit : int or str, default "auto"
        Bytes of the host's memory that each worker may use; "auto" is its share of the machine, None no limit.
    security : bool or distributed.Security, optional
        As in `local`.
    dashboard_port : int, default 8787
        As in `local`.

    Returns
    -------
    distributed.LocalCluster
        A context manager; `distributed.Client(cluster)` is what computes then.

    Raises
    ------
    DeviceError
        If there is no GPU, at once, saying why.
    InputError, InputTypeError
        If an argument is not allowed, or more workers are asked for than there are GPUs.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> nlis.cluster.gpu_pool(n_workers=0)
    Traceback (most recent call last):
        ...
    dask_nlis.errors.InputError: n_workers=0 is not allowed; give a positive integer, or None
    """
    wanted = check_count("n_workers", n_workers)
    options = {
        "dashboard_address": dashboard_at(dashboard_port),
        "memory_limit": check_memory(memory_limit),
        "security": check_security(security),
    }
    devices = visible_devices()
    if wanted is not None and wanted > len(devices):
        raise InputError(
            f"n_workers={wanted} is more than the {len(devices)} GPUs there are; give at most that, or None"
        )
    devices = devices[:wanted]
    with dask.config.set(SETTINGS):
        if find_spec("dask_cuda") is not None:
            from dask_cuda import LocalCUDACluster

            return LocalCUDACluster(CUDA_VISIBLE_DEVICES=list(devices), host=LOOPBACK, threads_per_worker=1, **options)
        pool = Pool(devices, host=LOOPBACK, **options)
        pool.scale(len(devices))
        return pool


def visible_devices() -> tuple[str, ...]:
    """GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them; raises DeviceError where there is none."""
    found = device.probe()
    if isinstance(found, str):
        raise DeviceError(
            f"gpu_pool: {found} in this process; install dask-nlis[gpu12] or [gpu13] on a machine with an NVIDIA GPU, or "
            "start cluster.local()"
        )
    count = int(found.cuda.runtime.getDeviceCount())
    named = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    return tuple(named[:count]) if named else tuple(map(str, range(count)))
