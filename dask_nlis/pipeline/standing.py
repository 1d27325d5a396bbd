"""What is known of a run store without opening it: state, progress, owner, and what would keep it from being resumed here."""

import os
from importlib.metadata import version
from typing import Any, NamedTuple

from dask_nlis.errors import InputTypeError
from dask_nlis.store import lives, place_of, progress, read_manifest, read_owner, state_of

#: How a run stands: finished, at work, cut off, or no run at all.
COMPLETE, RUNNING, CUT_OFF, NONE = "complete", "running", "cut off", ""


class Standing(NamedTuple):
    """How a run stands."""

    state: str
    progress: str  # blocks scored of all, in words; empty for a finished run
    owner: str  # who writes it
    started: str
    asked: str  # rows, scores, scheme, seed
    differs: list[str]  # versions it was begun with that are others here, so that it would not be resumed


def standing(path: str | os.PathLike[str]) -> Standing:
    """Look at a run store, finished or not. Reads no data."""
    if not isinstance(path, str | os.PathLike):
        raise InputTypeError(f"path is {type(path).__name__}; give a path")
    place = place_of(path)
    there = state_of(place)
    if there not in ("begun", "complete"):
        return Standing(NONE, "", "", "", "", [])
    manifest = read_manifest(place) or {}
    owner = read_owner(place)
    alive = owner is not None and lives(place, owner)
    state = COMPLETE if there == "complete" else RUNNING if alive else CUT_OFF
    return Standing(
        state,
        "" if state == COMPLETE else progress(place),
        str(owner) if alive else "",
        str(manifest.get("started") or ""),
        _asked(manifest),
        [] if state == COMPLETE else _differences(manifest),
    )


def _asked(manifest: dict[str, Any]) -> str:
    data = manifest.get("data") if isinstance(manifest.get("data"), dict) else {}
    shape = f"{data.get('n_rows', '?')} x {data.get('n_columns', '?')}" if data else "?"
    return (
        f"size {manifest.get('size', '?')} of {shape}, {manifest.get('scores', '?')} scores, {manifest.get('scheme', '?')}, "
        f"seed {manifest.get('seed', '?')}"
    )


def _differences(manifest: dict[str, Any]) -> list[str]:
    begun = manifest.get("fingerprint", {}).get("versions", {}) if isinstance(manifest.get("fingerprint"), dict) else {}
    here = {name: version(name) for name in ("dask-nlis", "numpy", "scipy")}
    return [
        f"{name} {begun[name]} there, {found} here" for name, found in here.items() if begun.get(name, found) != found
    ]
