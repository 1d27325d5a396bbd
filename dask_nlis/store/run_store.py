"""The run store: one Zarr v3 group a run, complete only once its marker is there.

Layout::

    RUN/                 attributes: the manifest
      factor/ sample/ fit/ pilot/ certificate/   a noun each: arrays with checksums, the rest in the attribute "noun"
      scores             float64 (n,), NaN-filled, one chunk a task
      blocks/            one record a score chunk: start, rows, checksum, smallest, largest, total
      data/              the drawn rows, X and y: a refit needs no other data
      complete.json      written last, synced to disk: hash and number of the records

and while the run is under way::

      lock.json          who writes: host, process, and since when it runs
      work/              results of reads as they come, a parcel each (`dask_nlis.parcels`): sums of groups of blocks and
                         factors; of each block what a draw may need; rough fits; losses

No pickle: JSON attributes and arrays only.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zarr

from dask_nlis.errors import (
    IncompleteRunError,
    InputError,
    InputTypeError,
    MemoryLimitError,
    MissingDataError,
    StoreExistsError,
)
from dask_nlis.intake import ScoreRecord
from dask_nlis.store.fingerprint import check_same
from dask_nlis.store.kept import Kept
from dask_nlis.store.lock import LOCK, Lock, lives, read_owner
from dask_nlis.store.places import Folder, writing
from dask_nlis.store.records import FORMAT, LARGEST_JSON, MARKER, check_records, write_marker, write_records

Group = zarr.Group

_WORK = "work"
_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")


@dataclass(frozen=True, slots=True)
class RunStore:
    """The store of a run that is under way, which this process holds the lock of."""

    text: str  # its path as it was given
    place: Folder
    group: zarr.Group
    lock: Lock
    resumed: int  # how often the run was taken up again

    @property
    def saved(self) -> Kept:
        """Where results are kept on the way."""
        return Kept(self.place, _WORK)

    def scores_of(self, name: str) -> tuple[Any, str]:
        """Zarr store and path for the scores of a stage that are not those of the run."""
        return self.group.store, f"{_WORK}/{name}/scores"

    def finish(self, manifest: Mapping[str, Any], records: Sequence[ScoreRecord]) -> None:
        """Write records, the final manifest and then the completion marker; clear away what was kept on the way."""
        self.lock.check()
        with writing("the manifest"):
            write_records(self.group, records)
            self.group.update_attributes({"manifest": dict(manifest)})
        write_marker(self.place, records)
        self.place.delete(_WORK)


def check_store(path: str | os.PathLike[str], resume: bool) -> Path:
    """Return the path of a store that may be written; raise when something else is there, or its folder cannot be used."""
    where = _path("store", path)
    text = os.fspath(path)
    if "://" in text:
        raise InputError("store is a URL; give a local path (or store=None to keep the run in memory)")
    if where.is_symlink():
        raise StoreExistsError(f"store={text!r} is a symbolic link; give the path of a folder of its own")
    if where.exists():
        if not resume:
            state = state_of(where) if where.is_dir() else ""
            remedy = {
                "complete": "open_run() reads the finished run there, resume=True returns it; give a new path for another",
                "begun": "resume=True goes on with the run there; give a new path for another",
            }.get(state, "give a new path")
            raise StoreExistsError(f"store={text!r} exists; {remedy}")
        if not where.is_dir() or not state_of(where):
            raise StoreExistsError(f"store={text!r} exists and is no run store; give a new path, or that of a run")
        if not os.access(where, os.W_OK):
            raise PermissionError(f"store={text!r} is not writable; change its permissions, or give a new path")
        return where.absolute()
    parent = where.absolute().parent
    inside = next((p for p in (parent, *parent.parents) if any((p / name).exists() for name in _ZARR_FILES)), None)
    if inside is not None:
        raise InputError(f"store={text!r} lies inside the Zarr store {str(inside)!r}; give a path outside it")
    if not parent.is_dir():
        raise MissingDataError(f"store={text!r}: the folder {str(parent)!r} does not exist; make it first")
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"store={text!r}: the folder {str(parent)!r} is not writable")
    return where.absolute()


def _path(argument: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise InputTypeError(f"{argument} is {type(value).__name__}; give a path")
    return Path(value)


def state_of(where: Path) -> str:
    """ "complete", "begun", "empty", or no text for a folder that holds something else than a run."""
    place = Folder(str(where))
    if place.exists(MARKER):
        return "complete"
    if read_manifest(where) is not None or place.names() == {LOCK}:
        return "begun"
    return "" if place.names() else "empty"


def is_complete(path: str | os.PathLike[str]) -> bool:
    """Whether there is a finished run at a path."""
    return Folder(os.fspath(path)).exists(MARKER)


def clear_leftovers(path: str | os.PathLike[str]) -> None:
    """Delete what a run left behind that was killed after its marker was written, unless its owner still does."""
    place = Folder(os.fspath(path))
    if not place.exists(_WORK) and not place.exists(LOCK):
        return
    found = read_owner(place)
    if found is None or not lives(place, found):
        place.delete(_WORK)
        place.delete(LOCK)
        place.clear_partial()


def begun_seed(path: str | os.PathLike[str]) -> int | None:
    """Seed of the run at a path; None where there is no run."""
    found = (read_manifest(path) or {}).get("seed")
    return found if isinstance(found, int) else None


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The manifest of a run; None where there is none that can be read."""
    data = Folder(os.fspath(path)).read("zarr.json", LARGEST_JSON)
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(data or b"")["attributes"]["manifest"]
        return found if isinstance(found, dict) else None
    return None


@contextmanager
def under_way(
    path: Path, text: str, manifest: Mapping[str, Any], warn: Callable[[str], Any], *, resume: bool
) -> Iterator[RunStore]:
    """Begin the store of a run, or take up the one that is there, holding its lock; the manifest is written first.

    Data or arguments that turn out to be refused leave nothing behind where the store is new: another run would need others.
    """
    fresh = not path.exists()
    try:
        path.mkdir(exist_ok=resume)
    except FileExistsError as cause:
        raise StoreExistsError(f"store={text!r} was made by another process just now; give another path") from cause
    place = Folder(str(path))
    lock = Lock(place, text, warn)
    try:
        begun = read_manifest(path)
        if begun is not None:
            if begun.get("format") != FORMAT:
                raise InputError(f"store={text!r} has another store format; open it with the version that wrote it")
            check_same(text, begun.get("fingerprint"), manifest["fingerprint"])
            place.clear_partial()
        resumed = 0 if begun is None else int(begun.get("resumed", 0)) + 1
        started = {} if begun is None else {"started": begun.get("started")}
        with writing("the manifest"):
            found = {"manifest": {**manifest, **started, "resumed": resumed}}
            if begun is None:  # with its manifest at once: a group without one is no run
                group = zarr.create_group(place.zarr(), zarr_format=3, attributes=found)
            else:
                group = zarr.open_group(place.zarr(), mode="r+", use_consolidated=False)
                group.update_attributes(found)
        yield RunStore(text, place, group, lock, resumed)
    except BaseException as error:
        lock.release()
        if fresh and isinstance(error, InputError | InputTypeError) and not isinstance(error, MemoryLimitError):
            place.delete("")
        raise
    lock.release()


def open_complete(path: str | os.PathLike[str]) -> tuple[zarr.Group, dict[str, Any]]:
    """Open a finished run for reading; return its group and manifest, or raise saying what is missing."""
    where = _path("path", path)
    text = os.fspath(path)
    if not where.is_dir():
        raise MissingDataError(f"path={text!r} holds no run; check the path")
    place = Folder(str(where.absolute()))
    if state_of(where) == "begun":
        raise IncompleteRunError(f"path={text!r} was never finished: {progress(place)}; {_remedy(place)}")
    try:
        group = zarr.open_group(place.zarr(read_only=True), mode="r", use_consolidated=False)
        manifest = group.attrs["manifest"]
    except (FileNotFoundError, KeyError, TypeError, ValueError, RecursionError) as cause:
        raise MissingDataError(
            f"path={text!r} is no run store: it has no manifest; give a path written by run()"
        ) from cause
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"path={text!r} has another store format; open it with the version that wrote it")
    check_records(place, group, text)
    return group, manifest


def _remedy(place: Folder) -> str:
    found = read_owner(place)
    if found is not None and lives(place, found):
        return f"{found} is at it, so wait"
    return "run it again with resume=True"


_BLOCK = re.compile(r"\d+-\d+")


def progress(place: Folder) -> str:
    """How far a run has come that is not finished, in words: blocks of the stage that was scored last."""
    manifest = read_manifest(place.root) or {}
    n_blocks = manifest.get("data", {}).get("n_blocks") if isinstance(manifest.get("data"), dict) else None
    stages = sorted(name for name in place.names(_WORK) if name.startswith("scores-"))
    if not stages:
        return "no block is scored yet"
    done = sum(bool(_BLOCK.fullmatch(name)) for name in place.names(f"{_WORK}/{stages[-1]}"))
    return f"{done:,} of {n_blocks if isinstance(n_blocks, int) else '?'} blocks scored in {stages[-1]}"
