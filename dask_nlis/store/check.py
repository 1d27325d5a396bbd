"""Whether a run may be written where `store` says."""

import os
from pathlib import Path

from dask_nlis.errors import InputError, MissingDataError, NotWritableError, StoreExistsError
from dask_nlis.store.buckets import Bucket
from dask_nlis.store.place import Place
from dask_nlis.store.places import Folder
from dask_nlis.store.state import place_of, state_of

_ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")


def check_store(path: str | os.PathLike[str], resume: bool) -> Place:
    """Return the place of a store that may be written; raise when something else is there, or it cannot be used."""
    place = place_of(path, "store")
    where, text = Path(path), os.fspath(path)
    if isinstance(place, Bucket):
        return _checked_bucket(place, resume)
    if where.is_symlink():
        raise StoreExistsError(f"store={text!r} is a symbolic link; give the path of a folder of its own")
    if where.exists():
        _check_there(place, text, resume, is_folder=where.is_dir())
        if not os.access(where, os.W_OK):
            raise NotWritableError(f"store={text!r} is not writable; change its permissions, or give a new path")
        return place
    parent = where.absolute().parent
    inside = next((p for p in (parent, *parent.parents) if any((p / name).exists() for name in _ZARR_FILES)), None)
    if inside is not None:
        raise InputError(f"store={text!r} lies inside the Zarr store {str(inside)!r}; give a path outside it")
    if not parent.is_dir():
        raise MissingDataError(f"store={text!r}: the folder {str(parent)!r} does not exist; make it first")
    if not os.access(parent, os.W_OK):
        raise NotWritableError(f"store={text!r}: the folder {str(parent)!r} is not writable")
    return Folder(str(where.absolute()))


def _check_there(place: Place, text: str, resume: bool, *, is_folder: bool = True) -> None:
    """Raise unless what is there is a run that shall be resumed."""
    state = state_of(place) if is_folder else ""
    if not resume:
        remedy = {
            "complete": "open_run() reads the finished run there, resume=True returns it; give a new path for another",
            "begun": "resume=True goes on with the run there; give a new path for another",
        }.get(state, "give a new path")
        raise StoreExistsError(f"store={text!r} exists; {remedy}")
    if not state:
        raise StoreExistsError(f"store={text!r} exists and is no run store; give a new path, or that of a run")


def _checked_bucket(place: Bucket, resume: bool) -> Place:
    if place.exists():
        _check_there(place, place.root, resume)
        return place
    for parent in place.address.parents:
        if any(Bucket(parent).exists(name) for name in _ZARR_FILES):
            raise InputError(f"store={place.root!r} lies inside the Zarr store {parent.url!r}; give a URL outside it")
    return place
