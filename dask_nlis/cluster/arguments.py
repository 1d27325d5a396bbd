"""Arguments of clusters, checked before anything is started."""

import socket
from importlib.util import find_spec
from typing import Any

import distributed
from dask.utils import parse_bytes

from dask_nlis.errors import InputError, InputTypeError, MissingExtraError
from dask_nlis.kernels.numbers import is_number, is_whole

LOOPBACK = "127.0.0.1"


def check_count(argument: str, value: Any, allowed: str = "a positive integer") -> int | None:
    """Return a count, or None for the default; raise where it is none."""
    if value is None:
        return None
    if not is_whole(value):
        raise InputTypeError(f"{argument}={str(value)[:60]!r} is {type(value).__name__}; give {allowed}, or None")
    if value < 1:
        raise InputError(f"{argument}={value} is not allowed; give {allowed}, or None")
    return int(value)


def check_memory(value: Any) -> Any:
    """Return what Dask takes for the memory of one worker: bytes, "auto", or None for no limit."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    allowed = "bytes, such as '4 GiB', 'auto', or None for no limit"
    if not isinstance(value, str) and not is_number(value):
        raise InputTypeError(f"memory_limit is {type(value).__name__}; give {allowed}")
    try:
        found = parse_bytes(value)
    except (ValueError, OverflowError) as cause:
        raise InputError(f"memory_limit={str(value)[:60]!r} is no number of bytes; give {allowed}") from cause
    if found < 2**26:  # which the interpreter and its libraries alone take
        raise InputError(
            f"memory_limit={str(value)[:60]!r} is {found:,} bytes, less than a worker itself takes; give {allowed}"
        )
    return found


def check_security(value: Any) -> distributed.Security | None:
    """Return how traffic is encrypted: not at all, by the certificates given, or by temporary ones made here."""
    if value is None or value is False:
        return None
    if isinstance(value, distributed.Security):
        return value
    if value is not True:
        raise InputTypeError(
            f"security is {type(value).__name__}; give True for temporary certificates, or distributed.Security"
        )
    if find_spec("cryptography") is None:
        raise MissingExtraError(
            "security=True needs cryptography, to make certificates with; pip install 'dask-nlis[tls]'"
        )
    return distributed.Security.temporary()


def dashboard_at(port: Any) -> str:
    """Address of the dashboard on loopback: at this port, or at a free one where another program has it."""
    if not is_whole(port):
        raise InputTypeError(
            f"dashboard_port={str(port)[:60]!r} is {type(port).__name__}; give an integer, 0 for any free port"
        )
    if not 0 <= port < 2**16:
        raise InputError(f"dashboard_port={port} is no port; give one from 0, for any that is free, to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            port = 0
    return f"{LOOPBACK}:{port}"
