"""What can be told of a run store from its marker and its manifest."""

import json
import os
import re
from contextlib import suppress
from typing import Any

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.objects import Address
from dask_nlis.store.buckets import Bucket
from dask_nlis.store.lock import LOCK
from dask_nlis.store.place import Place, Where
from dask_nlis.store.places import Folder
from dask_nlis.store.records import LARGEST_JSON, MARKER


def place_of(where: Where, argument: str = "path") -> Place:
    """The place at a path or a URL, checked as far as that needs no look inside; a place is returned as it is."""
    if isinstance(where, Folder | Bucket):
        return where
    text = os.fspath(where) if isinstance(where, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InputTypeError(f"{argument} is {type(where).__name__}; give a path")
    if "://" in text:
        return Bucket(Address.of(argument, text))
    try:
        os.lstat(text)
    except (FileNotFoundError, NotADirectoryError):  # there may yet be something
        pass
    except (OSError, ValueError) as cause:
        why = getattr(cause, "strerror", None) or str(cause)
        raise InputError(f"{argument}={text[:60]!r} is no path that can be looked at ({why}); give another") from cause
    return Folder(os.path.abspath(text))


def state_of(where: Where) -> str:
    """ "complete", "begun", "empty", or no text for a place that holds something else than a run."""
    place = place_of(where)
    if place.exists(MARKER):
        return "complete"
    names = place.names()
    if read_manifest(place) is not None or names == {LOCK}:
        return "begun"
    return "" if names else "empty"


def is_complete(where: Where) -> bool:
    """Whether there is a finished run at a place."""
    return place_of(where).exists(MARKER)


def begun_seed(where: Where) -> int | None:
    """Seed of the run at a place; None where there is no run."""
    found = (read_manifest(where) or {}).get("seed")
    return found if isinstance(found, int) else None


def read_manifest(where: Where) -> dict[str, Any] | None:
    """The manifest of a run; None where there is none that can be read."""
    data = place_of(where).read("zarr.json", LARGEST_JSON)
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(data or b"")["attributes"]["manifest"]
        return found if isinstance(found, dict) else None
    return None


_BLOCK = re.compile(r"\d+-\d+")


def progress(where: Where, work: str = "work") -> str:
    """How far a run has come that is not finished, in words: blocks of the stage that was scored last."""
    place = place_of(where)
    manifest = read_manifest(place) or {}
    n_blocks = manifest.get("data", {}).get("n_blocks") if isinstance(manifest.get("data"), dict) else None
    stages = sorted(name for name in place.names(work) if name.startswith("scores-"))
    if not stages:
        return "no block is scored yet"
    done = sum(bool(_BLOCK.fullmatch(name)) for name in place.names(f"{work}/{stages[-1]}"))
    return f"{done:,} of {n_blocks if isinstance(n_blocks, int) else '?'} blocks scored in {stages[-1]}"
