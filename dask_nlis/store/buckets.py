"""A run store in object storage, over obstore: objects are written whole by themselves, some under a condition.

Conditions are what makes one of several writers the only one: an object is created unless there is one (the lock, the
marker), or put in place of one whose ETag is known (a lock taken over, a beat). A client that sends a request again, since
its answer was lost, may meet its own result: what is refused is therefore looked at, and is ours if it holds our bytes.
"""

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dask_nlis.errors import InputError, MissingDataError, NlisError, StoreWriteError
from dask_nlis.objects import Address, BucketStore, client, library, reading, store_writing

#: Names of objects that are made to learn the time, or what a store can do.
_PROBE = ".probe-"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Objects at an address; pickled, it is the address, and whoever unpickles it has credentials of its own."""

    address: Address

    @property
    def root(self) -> str:
        """The URL."""
        return self.address.url

    def exists(self, key: str = "") -> bool:
        """Whether there is an object of this key, or one below it."""
        if not key:
            return bool(self.names())
        return self._head(key) is not None or any(self._below(key, 1))

    def read(self, key: str, most: int | None = None) -> bytes | None:
        """Bytes of an object; None where there is none, or one of more bytes than `most`."""
        found = self._get(key, most)
        return None if found is None else found[0]

    def write(self, key: str, data: bytes, *, sync: bool = False) -> None:
        """Write an object, in place of one that is there. Whatever is written lasts, with `sync` or without."""
        with store_writing(self.root, f"{key!r} of {len(data):,} bytes"):
            self._put(key, data, "overwrite")

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        """Write an object unless there is one; whether it was written. Of several that try at once one does."""
        with store_writing(self.root, f"{key!r} of {len(data):,} bytes"):
            try:
                self._put(key, data, "create")
            except self._refusals():
                return self.read(key) == data
        return True

    def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """Write an object in place of one that holds `old`; whether it was written. Of several that try at once one does."""
        found = self._get(key)
        if found is None or found[0] != old:
            return False
        version = {name: found[1][name] for name in ("e_tag", "version") if found[1].get(name)}
        with store_writing(self.root, f"{key!r} of {len(new):,} bytes"):
            try:
                self._put(key, new, version)
            except FileNotFoundError:  # deleted in between
                return False
            except self._refusals():
                return self.read(key) == new
        return True

    def beat(self, key: str, now: bytes, then: bytes) -> bytes:
        """Put `then` in the place of `now`, which makes the object new, unless somebody else wrote it; return what is there.

        Two beats differ, so that none passes for the one before it where a lock is taken over at the same time.
        """
        return then if self.swap(key, now, then) else now

    def silence(self, key: str) -> float:
        """Seconds since an object was written, both times told by the store; infinite where there is none."""
        probe = f"{_PROBE}{uuid.uuid4().hex}"
        try:
            self.write(probe, b"now")
            now, then = self._head(probe), self._head(key)
        except StoreWriteError:  # somebody who only looks cannot tell
            return 0.0
        finally:
            with suppress(NlisError):
                self._drop([probe])
        return (
            float("inf")
            if now is None or then is None
            else (now["last_modified"] - then["last_modified"]).total_seconds()
        )

    def delete(self, key: str) -> None:
        """Delete an object and all below it; nothing where there is none."""
        if key:
            self._drop([key])
        for paths in self._below(key):
            self._drop(paths)

    def names(self, key: str = "") -> set[str]:
        """Names of what lies directly below a key; probes are not among them."""
        with reading(self.root):
            found = library(self.address).list_with_delimiter(client(self.address), f"{key}/" if key else None)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        names = {path.rstrip("/").rpartition("/")[2] for path in paths}
        return {name for name in names if not name.startswith(_PROBE)}

    def clear_partial(self) -> int:
        """Delete probes that a crash left behind, and tell how many; objects are never there in part."""
        with reading(self.root):
            found = library(self.address).list_with_delimiter(client(self.address), None)
        probes = [each["path"] for each in found["objects"] if each["path"].startswith(_PROBE)]
        self._drop(probes)
        return len(probes)

    def begin(self, *, resume: bool) -> bool:
        """Whether nothing is there. Raises FileExistsError then, unless resumed, and InputError for a store without conditions."""
        fresh = not self.exists()
        if not fresh and not resume:
            raise FileExistsError(self.root)
        probe, data = f"{_PROBE}{uuid.uuid4().hex}", uuid.uuid4().hex.encode()
        try:
            held = self.create(probe, data) and not self.create(probe, b"other") and not self._forced(probe)
        finally:
            self._drop([probe])
        if not held:
            raise InputError(
                f"store={self.root!r}: its object storage ignores conditions on writes, which locks need; give a path, or a "
                "bucket of one that has If-None-Match and If-Match"
            )
        return fresh

    def let_go(self) -> None:
        """Do nothing: without objects there is no place."""

    def zarr(self, *, read_only: bool = False) -> BucketStore:
        """The objects as Zarr sees them."""
        return BucketStore(self.address, read_only=read_only)

    def _forced(self, key: str) -> bool:
        """Whether an object can be put in the place of one that has been replaced since it was looked at."""
        found = self._get(key)
        version = {} if found is None else {name: found[1][name] for name in ("e_tag", "version") if found[1].get(name)}
        if not version:
            return True
        self.write(key, b"newer")
        with store_writing(self.root, "a probe"):
            try:
                self._put(key, b"forced", version)
            except self._refusals():
                return False
        return True

    def _refusals(self) -> tuple[type[Exception], ...]:
        """What a client raises for a condition that does not hold: stores differ."""
        kinds = library(self.address).exceptions
        return kinds.AlreadyExistsError, kinds.PreconditionError

    def _drop(self, keys: list[str]) -> None:
        """Delete objects, a thousand a request where the storage can."""
        with store_writing(self.root, f"the deletion of {len(keys):,} objects"), suppress(FileNotFoundError):
            if keys:
                library(self.address).delete(client(self.address), keys)

    def _put(self, key: str, data: bytes, mode: Any) -> None:
        library(self.address).put(client(self.address), key, data, mode=mode, use_multipart=False)

    def _get(self, key: str, most: int | None = None) -> tuple[bytes, Any] | None:
        """Bytes of an object and what is known of it."""
        with reading(self.root):
            try:
                found = library(self.address).get(client(self.address), key)
                if most is not None and found.meta["size"] > most:
                    return None
                return bytes(found.bytes()), found.meta
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None

    def _head(self, key: str) -> Any:
        with reading(self.root):
            try:
                return library(self.address).head(client(self.address), key)
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None

    def _check_bucket(self, error: Exception) -> None:
        """Raise where an object is not there since its bucket is not."""
        if "NoSuchBucket" in str(error):
            raise MissingDataError(
                f"{self.root!r} cannot be used: its bucket does not exist; make it first, or check the URL"
            )

    def _below(self, key: str, most: int = 1000) -> Any:
        """Keys of all objects below one, so many at a time."""
        found = library(self.address).list(client(self.address), f"{key}/" if key else None, chunk_size=most)
        while True:
            with reading(self.root):
                objects = next(found, None)
            if not objects:
                return
            yield [each["path"] for each in objects]
