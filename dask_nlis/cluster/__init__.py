"""Clusters on this machine: of processes, or of one process a GPU. Any other Dask cluster serves as well."""

from dask_nlis.cluster.gpu_pool import gpu_pool
from dask_nlis.cluster.local import local
from dask_nlis.cluster.settings import SETTINGS

__all__ = ["SETTINGS", "gpu_pool", "local"]
