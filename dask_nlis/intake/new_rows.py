"""A new store of rows, written block by block beside its path and moved there when it is whole."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from dask_nlis.errors import (
    InputError,
    InputTypeError,
    MissingDataError,
    NlisError,
    NotWritableError,
    StoreExistsError,
    StoreWriteError,
)
from dask_nlis.intake.limits import check_metadata
from dask_nlis.intake.links import check_no_link

#: Attribute of the group under which it is told how its rows were made.
RECORD = "dask_nlis"

#: Bytes of the name of an output: file systems take 255, and what is written beside has a longer one.
_LONGEST_NAME = 200


def check_new(argument: str, path: Any) -> Path:
    """Return the path of an output that does not exist yet, in a folder that does; raises otherwise."""
    if not isinstance(path, str | os.PathLike):
        raise InputTypeError(f"{argument} is {type(path).__name__}; give the path of a folder to be made")
    if "://" in os.fspath(path):
        raise InputError(
            f"{argument} is a URL, and rows are written to files; give a local path, and copy it from there"
        )
    if not os.fspath(path).strip() or "\0" in os.fspath(path):
        raise InputError(
            f"{argument}={os.fspath(path)!r} is no path; give that of a folder to be made, such as data.zarr"
        )
    where = Path(os.path.abspath(path))
    if len(os.fsencode(where.name)) > _LONGEST_NAME:
        raise InputError(
            f"{argument} ends in a name of {len(where.name):,} characters; give a shorter one, such as data.zarr"
        )
    check_no_link(argument, where)
    if os.path.lexists(where):
        raise StoreExistsError(f"{argument}={str(where)!r} exists; give another path, or remove it")
    if not where.parent.is_dir():
        raise MissingDataError(
            f"{argument}={str(where)!r}: the folder {str(where.parent)!r} does not exist; make it first"
        )
    return where


class NewRows:
    """Arrays of a group that are filled from the first row on, chunk by chunk; each holds `n_rows` rows in the end."""

    def __init__(self, folder: Path, n_rows: int, chunk_rows: int) -> None:
        self._group = zarr.create_group(str(folder), zarr_format=3)
        self._n_rows, self._chunk_rows = n_rows, chunk_rows
        self._arrays: dict[str, Any] = {}
        self._chunks: dict[str, np.ndarray] = {}
        self._held = self._done = 0

    def add_array(
        self, name: str, rest: tuple[int, ...], dtype: str, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Make an array of shape (n_rows, *rest), with a checksum of each chunk."""
        rows = min(self._chunk_rows, self._n_rows)
        self._arrays[name] = self._group.create_array(
            name,
            shape=(self._n_rows, *rest),
            chunks=(rows, *rest),
            dtype=dtype,
            compressors=[ZstdCodec(), Crc32cCodec()],
            config={"write_empty_chunks": True},  # one that is not there is taken for lost
            attributes=dict(attributes or {}),
        )
        self._chunks[name] = np.empty((rows, *rest), dtype=dtype)

    def add_rows(self, blocks: Mapping[str, np.ndarray]) -> None:
        """Put the next rows in their place; those of a chunk are written when it is full."""
        n, taken = len(next(iter(blocks.values()))), 0
        while taken < n:
            size = min(n - taken, len(next(iter(self._chunks.values()))) - self._held)
            for name, block in blocks.items():
                self._chunks[name][self._held : self._held + size] = block[taken : taken + size]
            self._held, taken = self._held + size, taken + size
            if self._done + self._held == self._n_rows or self._held == self._chunk_rows:
                self._flush()

    def _flush(self) -> None:
        for name, array in self._arrays.items():
            array[self._done : self._done + self._held] = self._chunks[name][: self._held]
        self._done, self._held = self._done + self._held, 0

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write how the rows were made; all of them must be there."""
        assert self._done == self._n_rows
        self._group.update_attributes({RECORD: dict(record)})


@contextmanager
def written_beside(where: Path, argument: str = "out") -> Iterator[Path]:
    """A folder to write to, which gets its name where all went well, and else is removed."""
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{where.name}-", dir=where.parent))
    except PermissionError as cause:
        raise NotWritableError(
            f"{argument}={str(where)!r}: {str(where.parent)!r} may not be written to; give another path"
        ) from cause
    try:
        yield beside / where.name
        if where.exists():
            raise StoreExistsError(
                f"{argument}={str(where)!r} was made by another process meanwhile; give another path"
            )
        os.rename(beside / where.name, where)
    except NlisError:
        raise
    except OSError as cause:
        raise StoreWriteError(
            f"{argument}={str(where)!r} could not be written ({cause.strerror or type(cause).__name__}); make room, or give another path"
        ) from cause
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_record(argument: str, path: Any) -> dict[str, Any]:
    """How the rows of a store were made, as its group tells; raises for every other path."""
    if not isinstance(path, str | os.PathLike):
        raise InputTypeError(f"{argument} is {type(path).__name__}; give the path of a store that ingest wrote")
    text = os.fspath(path)
    if not os.path.exists(text):
        raise MissingDataError(f"{argument}={text!r} does not exist; check the path")
    check_metadata(argument, text)
    try:
        found = zarr.open_group(text, mode="r", use_consolidated=False).attrs.asdict().get(RECORD)
    except Exception as cause:
        raise InputError(
            f"{argument}={text!r} is no store that ingest wrote ({type(cause).__name__}); check the path"
        ) from cause
    if not isinstance(found, dict):
        raise InputError(
            f"{argument}={text!r} does not tell how its rows were made; give the path of a store that ingest wrote"
        )
    return found
