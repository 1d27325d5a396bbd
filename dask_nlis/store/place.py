"""Where a run store lies: small objects by key, each there whole or not at all, and some that only one writer can make."""

import os
from typing import Any, Protocol


class Place(Protocol):
    """A folder, or a part of a bucket; pickled, it is a path or an address."""

    @property
    def root(self) -> str:
        """Its path or URL, as messages show it."""
        ...

    def exists(self, key: str = "") -> bool:
        """Whether there is an object or a folder of this key."""
        ...

    def read(self, key: str, most: int | None = None) -> bytes | None:
        """Bytes of an object; None where there is none, or one of more bytes than `most`."""
        ...

    def write(self, key: str, data: bytes, *, sync: bool = False) -> None:
        """Write an object, in place of one that is there; `sync` waits until it lasts."""
        ...

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        """Write an object unless there is one; whether it was written. Of several that try at once one does."""
        ...

    def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """Write an object in place of one that holds `old`; whether it was written. Of several that try at once one does."""
        ...

    def beat(self, key: str, now: bytes, then: bytes) -> bytes:
        """Make an object that holds `now` look new, by `then` where that must change, and return what it holds."""
        ...

    def silence(self, key: str) -> float:
        """Seconds since an object was written or last beat, both times told by the place itself."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, or a folder and all that is in it; nothing where there is none."""
        ...

    def names(self, key: str = "") -> set[str]:
        """Names of what lies in a folder; leftovers of a crash are not among them."""
        ...

    def clear_partial(self) -> int:
        """Delete what a crash left behind, and tell how many objects that were."""
        ...

    def begin(self, *, resume: bool) -> bool:
        """Make the place ready to be written; whether nothing was there. Raises FileExistsError then, unless resumed."""
        ...

    def let_go(self) -> None:
        """Remove the place itself where nothing is left in it."""
        ...

    def zarr(self, *, read_only: bool = False) -> Any:
        """The place as Zarr sees it."""
        ...


#: What functions take for a place.
Where = Place | str | os.PathLike[str]
