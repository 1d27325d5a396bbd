"""Results that a job keeps on its way, as parcels in its store."""

import re
from dataclasses import dataclass, replace
from typing import Any

from dask_nlis.checkpoints import Kinds
from dask_nlis.errors import FingerprintMismatchError, InputError
from dask_nlis.parcels import packed, unpacked
from dask_nlis.store.place import Place


@dataclass(frozen=True, slots=True)
class Kept:
    """Checkpoints of a run in a folder of a place: one object each, of no use in another folder or to another run.

    To `verify`, nothing is given back: all is made again, and must be what is there.
    """

    place: Place
    folder: str
    run: str  # what tells it from others
    verify: bool = False

    def names(self) -> set[str]:
        """Names of all that is kept here."""
        return set() if self.verify else self.place.names(self.folder)

    def load(self, name: str, kinds: Kinds | None = None) -> Any:
        """What is kept under a name; None where there is nothing, or nothing that is intact."""
        data = None if self.verify else self.place.read(self._key(name))
        try:
            return None if data is None else unpacked(data, kinds, self._what(name))
        except InputError:
            return None

    def save(self, name: str, value: Any) -> None:
        """Keep a value: it is there whole, or not at all. Raises where it is verified and something else is there."""
        data = packed(value, self._what(name))
        if self.verify and self.place.read(self._key(name)) not in (None, data):
            raise FingerprintMismatchError(
                f"store: {self._called(name)} was kept with other values than data and libraries give now: they changed without a "
                "trace in names, sizes, times and versions; give a new path"
            )
        self.place.write(self._key(name), data)

    def below(self, name: str) -> "Kept":
        """A folder of its own."""
        return replace(self, folder=f"{self.folder}/{name}")

    def _key(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _what(self, name: str) -> str:
        return f"{self.run} {self._key(name)}"

    def _called(self, name: str) -> str:
        """A step in words: blocks are kept under their first row and their number of rows."""
        step = self._key(name).partition("/")[2]
        block = re.fullmatch(r"(\d+)-(\d+)", name)
        if block is None:
            return f"step {step!r}"
        first, rows = map(int, block.groups())
        return f"step {step.rpartition('/')[0]!r}, rows {first} to {first + max(rows, 1) - 1},"
