"""Results that a job keeps on its way, as parcels in its store."""

from dataclasses import dataclass
from typing import Any

from dask_nlis.checkpoints import Kinds
from dask_nlis.errors import InputError
from dask_nlis.parcels import packed, unpacked
from dask_nlis.store.place import Place


@dataclass(frozen=True, slots=True)
class Kept:
    """Checkpoints of a run in a folder of a place: one object each, of no use in another folder or to another run."""

    place: Place
    folder: str
    run: str  # what tells it from others

    def names(self) -> set[str]:
        """Names of all that is kept here."""
        return self.place.names(self.folder)

    def load(self, name: str, kinds: Kinds | None = None) -> Any:
        """What is kept under a name; None where there is nothing, or nothing that is intact."""
        key = f"{self.folder}/{name}"
        data = self.place.read(key)
        try:
            return None if data is None else unpacked(data, kinds, f"{self.run} {key}")
        except InputError:
            return None

    def save(self, name: str, value: Any) -> None:
        """Keep a value: it is there whole, or not at all."""
        key = f"{self.folder}/{name}"
        self.place.write(key, packed(value, f"{self.run} {key}"))

    def below(self, name: str) -> "Kept":
        """A folder of its own."""
        return Kept(self.place, f"{self.folder}/{name}", self.run)
