"""Clients of object storage, one an address and process, which give up in time."""

import os
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from dask_nlis.errors import InputError, MissingExtraError
from dask_nlis.objects.address import Address

#: How often a request is sent again at most; the time that is allowed for it ends it earlier.
_RETRIES = 30

#: What options are called for each scheme.
_NAMES: dict[str, dict[str, str]] = {
    "s3": {"endpoint": "endpoint", "region": "region", "anonymous": "skip_signature"},
    "gs": {"endpoint": "base_url", "anonymous": "skip_signature"},
    "az": {"endpoint": "endpoint", "account": "account_name", "anonymous": "skip_signature"},
}


def installed() -> bool:
    """Whether obstore is."""
    return find_spec("obstore") is not None


def client(address: Address) -> Any:
    """Return an obstore client of an address, with credentials of this process's environment.

    It is kept for this process: its connections are used again. Stores of temporary credentials renew them by themselves.
    """
    library(address)
    return _client(address, os.getpid())


def library(address: Address) -> Any:
    """Return the module obstore; raise, where it is not installed, naming the extra."""
    if not installed():
        raise MissingExtraError(f"{address.url!r} needs obstore; pip install 'dask-nlis[cloud]'")
    import obstore
    import obstore.exceptions

    return obstore


@lru_cache(maxsize=64)
def _client(address: Address, pid: int) -> Any:
    from obstore.store import AzureStore, GCSStore, S3Store

    scheme, _, rest = address.url.partition("://")
    root, _, prefix = rest.partition("/")
    names = _NAMES[scheme]
    config = {names[name]: value for name, value in address.options if name in names}
    client_options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=address.option("connect-seconds")),
        "timeout": timedelta(seconds=address.option("request-seconds")),
    }
    if address.option("allow-http"):
        client_options["allow_http"] = True
    retry: dict[str, Any] = {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=address.option("retry-seconds")),
    }
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    try:
        return kinds[scheme](root, prefix=prefix, config=config, client_options=client_options, retry_config=retry)
    except Exception as cause:  # its text may hold what the environment does
        raise InputError(
            f"{address.url!r} cannot be opened ({type(cause).__name__}); check the options in dask-nlis.storage and the "
            "variables of the provider in the environment"
        ) from None
