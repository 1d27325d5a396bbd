"""Records of the score chunks of a run, and the marker that says the run is complete."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr

from dask_nlis.errors import InputError, StoreExistsError
from dask_nlis.intake import ScoreRecord
from dask_nlis.store.nouns import stored_array, write_array
from dask_nlis.store.place import Place

FORMAT = 1
MARKER = "complete.json"

#: A marker or manifest larger than this is not read.
LARGEST_JSON = 16 * 2**20


def write_records(group: zarr.Group, records: Sequence[ScoreRecord]) -> None:
    """Write one record a score chunk, column by column."""
    target = group.create_group("blocks", overwrite=True)
    for field, column in zip(ScoreRecord._fields, _columns(records), strict=True):
        write_array(target, field, column)


def _columns(records: Sequence[ScoreRecord]) -> list[np.ndarray]:
    dtypes = ("int64", "int64", "uint32", "float64", "float64", "float64")
    return [
        np.array([getattr(r, field) for r in records], dtype=dtype)
        for field, dtype in zip(ScoreRecord._fields, dtypes, strict=True)
    ]


def _digest(columns: Sequence[np.ndarray]) -> str:
    """Hash of the records, which hold a checksum of every score chunk."""
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        digest.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def write_marker(place: Place, records: Sequence[ScoreRecord]) -> None:
    """Write the completion marker once, synced to disk: whatever it vouches for must be there before."""
    found = {"format": FORMAT, "records": _digest(_columns(records)), "n_blocks": len(records)}
    if not place.create(MARKER, json.dumps(found).encode(), sync=True):
        raise StoreExistsError(f"store={place.root!r} was finished by another process; open_run() reads what is there")


def check_records(place: Place, group: zarr.Group, text: str) -> None:
    """Compare the records of the score chunks with the hash in the marker."""
    try:
        found: Any = json.loads(place.read(MARKER, LARGEST_JSON) or b"")
        columns = [np.asarray(stored_array(group, f"blocks/{field}")[...]) for field in ScoreRecord._fields]
        intact = found["records"] == _digest(columns) and found["n_blocks"] == len(columns[0])
    except (KeyError, TypeError, ValueError, RuntimeError, RecursionError) as cause:
        raise InputError(f"path={text!r} is damaged: its marker or its records cannot be read; run again") from cause
    if not intact:
        raise InputError(f"path={text!r} is damaged: its records are not those it was finished with; run again")
