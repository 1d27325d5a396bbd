"""A run store in a folder. Small objects by key, each there whole or not at all.

Every object is written beside its place and moved there. What a crash leaves behind ends in ".partial", is never read,
and is cleared away when the run goes on.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from zarr.storage import LocalStore

from dask_nlis.errors import ClusterError
from dask_nlis.failures import writing

PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class Folder:
    """A place on a file system; pickled, it is a path."""

    root: str

    def path(self, key: str) -> Path:
        """Where the object of a key lies."""
        return Path(self.root, key)

    def exists(self, key: str = "") -> bool:
        """Whether there is an object or a folder of this key."""
        return self.path(key).exists()

    def read(self, key: str, most: int | None = None) -> bytes | None:
        """Bytes of an object; None where there is none, or one of more bytes than `most`."""
        try:
            with open(self.path(key), "rb") as file:
                if most is not None and os.fstat(file.fileno()).st_size > most:
                    return None
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def write(self, key: str, data: bytes, *, sync: bool = False) -> None:
        """Write an object, in place of one that is there; `sync` waits until it has reached the disk."""
        target = self.path(key)
        beside = self._beside(target, data, sync)
        os.replace(beside, target)
        if sync:
            _sync_folder(target.parent)

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        """Write an object unless there is one; whether it was written. Of several that try at once one does."""
        target = self.path(key)
        beside = self._beside(target, data, sync)
        try:
            os.link(beside, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(beside)
        if sync:
            _sync_folder(target.parent)
        return True

    def swap(self, key: str, old: bytes, new: bytes) -> bool:
        """Write an object in place of one that holds `old`; whether it was written. Of several that try at once one does."""
        target = self.path(key)
        aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
        try:
            os.rename(target, aside)
        except FileNotFoundError:
            return False
        try:
            if aside.read_bytes() == old:
                return self.create(key, new)
            with suppress(FileExistsError):  # somebody was faster: what was moved is theirs
                os.link(aside, target)
            return False
        finally:
            os.unlink(aside)

    def beat(self, key: str, now: bytes, then: bytes) -> bytes:
        """Make an object of this process look new, and return what it holds; here that need not change."""
        os.utime(self.path(key))
        return now

    def silence(self, key: str) -> float:
        """Seconds since the last beat, both times told by the file system; infinite where there is no object."""
        probe = self.path(f".now.{uuid.uuid4().hex}{PARTIAL}")
        try:
            probe.touch()
            return probe.stat().st_mtime - self.path(key).stat().st_mtime
        except FileNotFoundError:  # let go of in between
            return float("inf")
        except PermissionError:  # somebody who only looks cannot tell
            return 0.0
        finally:
            with suppress(FileNotFoundError):
                probe.unlink()

    def begin(self, *, resume: bool) -> bool:
        """Make the folder where there is none; whether it was made. Raises FileExistsError where it is there, unless resumed."""
        fresh = not self.exists()
        self.path("").mkdir(exist_ok=resume)
        return fresh

    def let_go(self) -> None:
        """Remove the folder if it is empty."""
        with suppress(OSError):
            self.path("").rmdir()

    def delete(self, key: str) -> None:
        """Delete an object, or a folder and all that is in it; nothing where there is none."""
        target = self.path(key)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            with suppress(FileNotFoundError):
                os.unlink(target)

    def names(self, key: str = "") -> set[str]:
        """Names of what lies in a folder; leftovers of a crash are not among them."""
        try:
            return {name for name in os.listdir(self.path(key)) if not name.endswith(PARTIAL)}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def clear_partial(self) -> int:
        """Delete what a crash left behind, and tell how many files that were."""
        found = list(self._partial())
        for path in found:
            with suppress(FileNotFoundError):
                os.unlink(path)
        return len(found)

    def zarr(self, *, read_only: bool = False) -> LocalStore:
        """The folder as Zarr sees it."""
        return LocalStore(self.root, read_only=read_only)

    def _partial(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.root):
            yield from (os.path.join(folder, name) for name in files if name.endswith(PARTIAL))

    def _beside(self, target: Path, data: bytes, sync: bool) -> Path:
        """Write bytes to a new file beside their place."""
        if not os.path.isdir(self.root):
            raise ClusterError(
                f"the store {self.root!r} is not there on {os.uname().nodename}; give one that all workers see, on a shared file system"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
        with writing(f"{os.path.relpath(target, self.root)!r} of {len(data):,} bytes"):
            try:
                with open(beside, "xb") as file:
                    file.write(data)
                    file.flush()
                    if sync:
                        os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    os.unlink(beside)
                raise
        return beside


def _sync_folder(path: Path) -> None:
    """Wait until the names in a folder have reached the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
