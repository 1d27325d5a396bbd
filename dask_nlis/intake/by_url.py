"""A remote store that travels as its URL: who reads it brings the credentials, from the environment or fsspec's configuration.

fsspec pickles a file system with its options, secrets in clear, and a graph goes to the scheduler and to every worker.
"""

from typing import Any

from zarr.storage import FsspecStore


class ByUrl(FsspecStore):
    """A store of fsspec, for reading, of which a pickle holds the URL alone."""

    url: str

    def __reduce__(self) -> Any:
        return by_url, (self.url,)

    def __repr__(self) -> str:
        return f"<ByUrl({self.url})>"

    __str__ = __repr__


def by_url(url: str) -> ByUrl:
    """Open a URL, which carries no credentials (`check_path`), with those of this process.

    Examples
    --------
    >>> import pickle
    >>> pickle.loads(pickle.dumps(by_url("memory://bucket/x.zarr")))
    <ByUrl(memory://bucket/x.zarr)>
    """
    plain = FsspecStore.from_url(url, read_only=True)
    store = ByUrl(plain.fs, read_only=True, path=plain.path, allowed_exceptions=plain.allowed_exceptions)
    store.url = url
    return store
