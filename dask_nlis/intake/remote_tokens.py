"""Zarr arrays by URL: opening them, and what tells whether they changed: names, sizes and ETags of their objects."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import zarr
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore

from dask_nlis.intake.by_url import by_url
from dask_nlis.objects import Address, BucketStore, has_scheme, installed, reading

#: What fsspec's file systems call a stamp that changes with the content; times alone may be rounded to seconds.
_STAMPS = ("ETag", "etag", "e_tag", "generation", "md5Hash", "content_md5")

#: Clients of obstore whose objects are the same for all processes; those of memory number theirs alike.
_SHARED = ("S3Store", "GCSStore", "AzureStore")


def remote(argument: str, text: str) -> Any:
    """What Zarr opens a URL by: a store over obstore where it is installed and knows the scheme, else fsspec by the URL."""
    return BucketStore(Address.of(argument, text), read_only=True) if has_scheme(text) and installed() else by_url(text)


def remote_token(array: "zarr.Array[Any]") -> str | None:
    """Return a token of what a remote array holds now, the same in every process; None where its objects have no ETags.

    Lists the objects of the array, a thousand a request, and reads none.
    """
    store = array.store if isinstance(array, zarr.Array) else None
    if isinstance(store, ObjectStore) and type(store.store).__name__ in _SHARED:
        return _token(f"{store} {array.path}", _listed(store, array.path))
    if isinstance(store, FsspecStore):
        found = _found(store, array.path)
        return None if found is None else _token(f"{store.path} {array.path}", found)
    return None


def objects_written(array: "zarr.Array[Any]", moment: float) -> Iterator[str]:
    """Keys of the chunks of an array in object storage that were written after a moment, in seconds since 1970.

    Buckets tell whole seconds: what was written within that of the moment is left out.
    """
    store = array.store
    if not isinstance(store, ObjectStore):
        return
    import obstore

    below = f"{array.path}/" if array.path else ""
    with reading(str(store)):
        for objects in obstore.list(store.store, below or None):
            for each in objects:
                key = each["path"].rpartition(below)[2] if below else each["path"]
                if each["last_modified"].timestamp() > moment and any(
                    part.isdigit() for part in re.split(r"[/.]", key)
                ):
                    yield key


def _token(where: str, objects: Iterable[tuple[str, int, str]]) -> str:
    digest = hashlib.blake2b(where.encode(), digest_size=16)
    for each in sorted(objects):
        digest.update(f"{each!r};".encode())
    return digest.hexdigest()


def _listed(store: Any, path: str) -> Iterable[tuple[str, int, str]]:
    import obstore

    with reading(str(store)):
        for objects in obstore.list(store.store, f"{path}/" if path else None):
            yield from ((each["path"], each["size"], str(each["e_tag"] or each["last_modified"])) for each in objects)


def _found(store: FsspecStore, path: str) -> list[tuple[str, int, str]] | None:
    store.fs.invalidate_cache()  # a listing from before would not show what has changed since
    try:
        listed = sync(store.fs._find("/".join(part for part in (store.path, path) if part), detail=True))
    except (AttributeError, NotImplementedError, OSError):  # file systems that cannot list, such as HTTP
        return None
    out = []
    for name, info in listed.items():
        stamp = next((info[key] for key in _STAMPS if info.get(key)), None)
        if stamp is None:
            return None
        out.append((name, int(info.get("size") or 0), str(stamp)))
    return out
