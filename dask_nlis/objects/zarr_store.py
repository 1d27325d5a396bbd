"""A Zarr store in object storage that is pickled as its address: no key of anybody travels with it."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import Store
from zarr.storage import ObjectStore

from dask_nlis.objects.address import Address
from dask_nlis.objects.clients import client
from dask_nlis.objects.failures import reading, store_writing


class BucketStore(ObjectStore[Any]):
    """Objects at an address as Zarr sees them; whoever unpickles it opens them with credentials of its own.

    What fails is an error of ours, which says nothing that the client does.
    """

    def __init__(self, address: Address, *, read_only: bool = False) -> None:
        Store.__init__(self, read_only=read_only)
        self.address = address

    @property
    def store(self) -> Any:
        """The client, opened when it is needed: a scheduler that a graph passes through needs neither keys nor obstore."""
        return client(self.address)

    def with_read_only(self, read_only: bool = False) -> "BucketStore":
        """The same objects, to be read only or not."""
        return BucketStore(self.address, read_only=read_only)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.address, self.read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketStore) and (self.address, self.read_only) == (other.address, other.read_only)

    def __hash__(self) -> int:
        return hash((self.address, self.read_only))

    def __str__(self) -> str:
        return self.address.url

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Bytes of an object; None where there is none."""
        with reading(self.address.url):
            return await super().get(key, prototype, byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        """Parts of objects."""
        with reading(self.address.url):
            return await super().get_partial_values(prototype, key_ranges)

    async def exists(self, key: str) -> bool:
        """Whether there is an object of this key."""
        with reading(self.address.url):
            return await super().exists(key)

    async def getsize(self, key: str) -> int:
        """Bytes of an object."""
        with reading(self.address.url):
            return await super().getsize(key)

    async def set(self, key: str, value: Any) -> None:
        """Write an object whole, in place of one that is there."""
        with store_writing(self.address.url, f"{key!r} of {len(value):,} bytes"):
            await super().set(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write an object unless there is one."""
        with store_writing(self.address.url, f"{key!r} of {len(value):,} bytes"):
            await super().set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        with store_writing(self.address.url, f"the deletion of {key!r}"):
            await super().delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all objects below a prefix."""
        with store_writing(self.address.url, f"the deletion of {prefix!r}"):
            await super().delete_dir(prefix)

    def list(self) -> Any:
        """Keys of all objects."""
        return self._said(super().list())

    def list_prefix(self, prefix: str) -> Any:
        """Keys of all objects below a prefix."""
        return self._said(super().list_prefix(prefix))

    def list_dir(self, prefix: str) -> Any:
        """Names of what lies directly below a prefix."""
        return self._said(super().list_dir(prefix))

    async def _said(self, found: AsyncIterator[str]) -> AsyncIterator[str]:
        with reading(self.address.url):
            async for key in found:
                yield key


def _opened(address: Address, read_only: bool) -> BucketStore:
    """A store as it is unpickled."""
    return BucketStore(address, read_only=read_only)
