"""The run store: one Zarr v3 group a run, complete only once its marker is there.

Layout::

    RUN/                 attributes: the manifest
      factor/ sample/ fit/ pilot/ certificate/   a noun each: arrays with checksums, the rest in the attribute "noun"
      scores             float64 (n,), NaN-filled, one chunk a task
      blocks/            one record a score chunk: start, rows, checksum, smallest, largest, total
      data/              the drawn rows, X and y: a refit needs no other data
      complete.json      written last and once, synced to disk: hash and number of the records

and while the run is under way::

      lock.json          who writes: host, process, and since when it runs
      work/              results of reads as they come, a parcel each (`dask_nlis.parcels`): sums of groups of blocks and
                         factors; of each block what a draw may need; rough fits; losses

RUN is a folder, or a part of a bucket (s3://, gs://, az://) that no other writer uses. In a folder each object is written
beside its place and moved there; in a bucket it is written whole by itself. Lock and marker are created unless they are
there: of several writers one holds the lock, and one that is dead is followed by one (`Place.create`, `Place.swap`).

No pickle: JSON attributes and arrays only.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import zarr

from dask_nlis.errors import (
    ClusterError,
    IncompleteRunError,
    InputError,
    InputTypeError,
    MemoryLimitError,
    MissingDataError,
    StoreExistsError,
)
from dask_nlis.failures import writing
from dask_nlis.intake import ScoreRecord
from dask_nlis.store.fingerprint import abridged, check_same
from dask_nlis.store.kept import Kept
from dask_nlis.store.lock import LOCK, Lock, lives, read_owner
from dask_nlis.store.place import Place, Where
from dask_nlis.store.places import Folder
from dask_nlis.store.records import FORMAT, check_records, write_marker, write_records
from dask_nlis.store.state import place_of, progress, read_manifest, state_of

Group = zarr.Group

_WORK = "work"


@dataclass(frozen=True, slots=True)
class RunStore:
    """The store of a run that is under way, which this process holds the lock of."""

    text: str  # its path as it was given
    place: Place
    group: zarr.Group
    lock: Lock
    resumed: int  # how often the run was taken up again
    about: str  # short for its fingerprint
    begun: Mapping[str, Any]  # the manifest that was there; empty for a new run
    verify: bool  # whether what is kept is made again and compared

    @property
    def saved(self) -> Kept:
        """Where results are kept on the way."""
        return Kept(self.place, _WORK, self.about, self.verify)

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


def clear_leftovers(where: Where) -> None:
    """Delete what a run left behind that was killed after its marker was written, unless its owner still does."""
    place = place_of(where)
    if not place.exists(_WORK) and not place.exists(LOCK):
        return
    found = read_owner(place)
    if found is None or not lives(place, found):
        place.delete(_WORK)
        place.delete(LOCK)
        place.clear_partial()


@contextmanager
def under_way(
    place: Place,
    text: str,
    manifest: Mapping[str, Any],
    warn: Callable[[str], Any],
    changed: Callable[[str, Any], str],
    *,
    resume: bool,
    verify: bool,
) -> Iterator[RunStore]:
    """Begin the store of a run, or take up the one that is there, holding its lock; the manifest is written first.

    Data or arguments that turn out to be refused leave nothing behind where the store is new: another run would need others.
    """
    try:
        fresh = place.begin(resume=resume)
    except FileExistsError as cause:
        raise StoreExistsError(f"store={text!r} was made by another process just now; give another path") from cause
    lock = Lock(place, text, warn)
    try:
        begun = read_manifest(place)
        if begun is not None:
            if not resume:  # in the time between the look and the lock
                raise StoreExistsError(f"store={text!r} was made by another process just now; give another path")
            if begun.get("format") != FORMAT:
                raise InputError(f"store={text!r} has another store format; open it with the version that wrote it")
            fresh = False
            check_same(text, begun, manifest["fingerprint"], changed)
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
        yield RunStore(text, place, group, lock, resumed, abridged(manifest["fingerprint"]), begun or {}, verify)
    except BaseException as error:
        refused = isinstance(error, InputError | InputTypeError) and not isinstance(error, MemoryLimitError)
        if fresh and refused:  # while the lock is held, so that it is nobody else's
            for name in place.names() - {LOCK}:
                place.delete(name)
            place.clear_partial()
        lock.release()
        if fresh and refused:
            place.let_go()
        if isinstance(error, ClusterError):
            raise type(error)(f"{error}; {progress(place, _WORK)}: run again with resume=True") from error
        raise
    lock.release()


def open_complete(path: str | os.PathLike[str]) -> tuple[zarr.Group, dict[str, Any]]:
    """Open a finished run for reading; return its group and manifest, or raise saying what is missing."""
    place = place_of(path)
    text = os.fspath(path)
    if not place.exists() or (isinstance(place, Folder) and not os.path.isdir(place.root)):
        raise MissingDataError(f"path={text!r} holds no run; check the path")
    if state_of(place) == "begun":
        raise IncompleteRunError(f"path={text!r} was never finished: {progress(place, _WORK)}; {_remedy(place)}")
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


def _remedy(place: Place) -> str:
    found = read_owner(place)
    if found is not None and lives(place, found):
        return f"{found} is at it, so wait"
    return "run it again with resume=True"
