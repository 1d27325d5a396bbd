"""Who works: the cluster or local scheduler in force, how many threads there are, and the memory of each process."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import dask
import dask.base
import dask.local
import dask.multiprocessing
import dask.threaded
import distributed
import distributed.system
from dask.system import CPU_COUNT
from distributed.comm import get_address_host
from distributed.utils import get_ip

from dask_nlis.documents import MOST_BYTES, parsed
from dask_nlis.errors import ClusterError, InputError, MissingDataError


@contextmanager
def connected(scheduler: str) -> Iterator[distributed.Client]:
    """A client of the cluster at an address, or of the one whose scheduler wrote this file; in force inside.

    Certificates of a TLS cluster are those of the Dask configuration.
    """
    address = _address_of(scheduler)
    try:
        _check_encryption(address)
        client = distributed.Client(address, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as cause:
        raise ClusterError(
            f"no scheduler answers at {scheduler[:120]!r} ({str(cause)[:80]}); check the address, and that it runs"
        ) from cause
    with client, client.as_current(), dask.config.set(scheduler=client):
        yield client


def _address_of(scheduler: str) -> str:
    """An address as it is, or that in the file that a scheduler wrote."""
    if "://" in scheduler:
        return scheduler
    if not os.path.isfile(scheduler):
        raise MissingDataError(
            f"scheduler={scheduler[:120]!r} is no file; give the file that the scheduler wrote, or an address such as tcp://host:8786"
        )
    with open(scheduler, "rb") as opened:
        found = parsed(f"scheduler={scheduler[:120]!r}", opened.read(MOST_BYTES + 1)).get("address")
    if not isinstance(found, str):
        raise InputError(f"scheduler={scheduler[:120]!r} names no address; give the file that the scheduler wrote")
    return found


def _check_encryption(address: str) -> None:
    """Raise where the Dask configuration and an address do not agree; a Client would be left half made, and in force."""
    ours = distributed.Security().get_connection_args("client")
    if address.startswith("tls://") and ours.get("ssl_context") is None:
        raise ClusterError(
            f"scheduler={address[:120]!r} encrypts, but this process has no certificate; set distributed.comm.tls.ca-file, "
            "client.cert and client.key in the Dask configuration"
        )
    if ours.get("require_encryption") and not address.startswith("tls://"):
        raise ClusterError(
            f"scheduler={address[:120]!r} does not encrypt, but distributed.comm.require-encryption is set; give an address of tls://"
        )


def fits_in_memory(n_bytes: int) -> bool:
    """Whether results of this size may be held: in a quarter of the memory of this process, or of a cluster's workers.

    Also where workers are on other machines, which do not see this one's files: they spill to their own.
    """
    client = client_in_force()
    if client is None:
        return n_bytes <= memory_here() // 4
    limits = [worker["memory_limit"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()]
    return (
        not all(limits)  # 0 is no limit
        or n_bytes <= sum(limits) // 4
        or not see_files()
    )


def see_files() -> bool:
    """Whether workers are on this machine, whose temporary files they see then; also where there is no cluster.

    Of workers that a cluster is yet to start nobody knows where they will be: they count as elsewhere.
    """
    client = client_in_force()
    if client is None:
        return True
    here = {"127.0.0.1", "::1", "localhost", get_ip()}
    addresses = client.scheduler_info(n_workers=-1)["workers"]
    return bool(addresses) and all(get_address_host(address) in here for address in addresses)


class Workforce(NamedTuple):
    """What a compute would run on now: processes that work, their threads in all, and the tightest of the processes."""

    processes: int
    threads: int
    threads_of_one: int
    memory: int | None  # bytes that one process may use; None where nothing limits it
    on_cluster: bool

    @property
    def elsewhere(self) -> bool:
        """Whether tasks run in other processes than this one."""
        return self.on_cluster or self.processes > 1


def workforce() -> Workforce:
    """Look at the scheduler in force; a cluster that has no workers yet counts as one thread without a limit."""
    client = client_in_force()
    if client is None:
        get = dask.base.get_scheduler() or dask.threaded.get
        pool = dask.config.get("pool", None)
        n = int(dask.config.get("num_workers", None) or getattr(pool, "_max_workers", 0) or CPU_COUNT)
        if get is dask.multiprocessing.get:
            return Workforce(n, n, 1, distributed.system.MEMORY_LIMIT // n, on_cluster=False)
        n = n if get is dask.threaded.get else 1
        return Workforce(1, n, n, distributed.system.MEMORY_LIMIT, on_cluster=False)
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    threads = [worker["nthreads"] for worker in workers]
    # A worker without a limit has memory_limit 0 or None.
    pairs = [(worker["memory_limit"] or math.inf, worker["nthreads"]) for worker in workers] or [(math.inf, 1)]
    memory, tightest = min(pairs, key=lambda pair: pair[0] / pair[1])
    limit = None if memory == math.inf else int(memory)
    return Workforce(max(1, len(workers)), max(1, sum(threads)), tightest, limit, on_cluster=True)


def memory_here() -> int:
    """Bytes that this process may use."""
    return int(distributed.system.MEMORY_LIMIT)


def client_in_force() -> distributed.Client | None:
    """Return the client that would run a compute now, or None for a local scheduler."""
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, distributed.Client) else None


def scheduler_name() -> str:
    """Name of the scheduler that would run a compute now, as Dask's configuration calls it."""
    if client_in_force() is not None:
        return "distributed"
    get = dask.base.get_scheduler() or dask.threaded.get
    names = {dask.threaded.get: "threads", dask.multiprocessing.get: "processes", dask.local.get_sync: "synchronous"}
    return names.get(get, getattr(get, "__name__", "another"))
