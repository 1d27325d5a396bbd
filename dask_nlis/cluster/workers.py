"""Worker processes with our settings, also those that a cluster starts later."""

import copy
from typing import Any

import dask
import distributed

from dask_nlis.cluster.settings import SETTINGS
from dask_nlis.errors import InputError


class Tuned(distributed.Nanny):
    """A worker process that begins with our settings whenever it is started: what a cluster is made with is over by then."""

    def __init__(self, *args: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*args, **{"config": copy.deepcopy(dask.config.config), **options})


class OneDevice(Tuned):
    """A worker process that sees one GPU."""

    def __init__(self, *args: Any, cuda_device: str, env: Any = None, **options: Any) -> None:
        super().__init__(*args, env={**(env or {}), "CUDA_VISIBLE_DEVICES": cuda_device}, **options)


class Pool(distributed.LocalCluster):
    """A cluster of one process a GPU: it scales to as many as there are, and no GPU has two."""

    def __init__(self, devices: tuple[str, ...], **options: Any) -> None:
        self.devices = devices
        super().__init__(n_workers=0, threads_per_worker=1, worker_class=OneDevice, **options)

    def new_worker_spec(self) -> dict[Any, Any]:
        """Name and options of a worker on a GPU that has none."""
        taken = {spec["options"]["cuda_device"] for spec in self.worker_spec.values()}
        free = [each for each in self.devices if each not in taken]
        if not free:
            raise InputError(f"this pool has {len(self.devices)} GPUs, and a worker on each; scale to at most that")
        ((name, spec),) = super().new_worker_spec().items()
        return {name: {**spec, "options": {**spec["options"], "cuda_device": free[0]}}}
