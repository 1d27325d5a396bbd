"""Object storage: addresses without secrets, clients that give up in time, and Zarr stores that travel as addresses."""

from dask_nlis.objects.address import SCHEMES, Address, check_url, has_scheme
from dask_nlis.objects.clients import client, installed, library
from dask_nlis.objects.failures import reading, reason, store_writing
from dask_nlis.objects.zarr_store import BucketStore

__all__ = [
    "SCHEMES",
    "Address",
    "BucketStore",
    "check_url",
    "client",
    "has_scheme",
    "installed",
    "library",
    "reading",
    "reason",
    "store_writing",
]
