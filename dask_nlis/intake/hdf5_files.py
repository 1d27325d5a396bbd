"""Datasets of HDF5 files through h5py, which is imported where such a file is opened.

Objects of h5py hold open files and cannot be sent: what travels is path and name, and each task opens the file, reads
whole chunks of the dataset and closes it. Within a process HDF5 reads one thing at a time.
"""

import os
from types import ModuleType
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_nlis.errors import InputError, InputTypeError, MissingDataError, MissingExtraError
from dask_nlis.intake.hdf5_links import check_sources, resolved
from dask_nlis.intake.stamps import Stamp, stamp_of
from dask_nlis.nouns import noun

_SUFFIXES, _SIGNATURE = (".h5", ".hdf5", ".hdf", ".he5", ".nc4"), b"\x89HDF\r\n\x1a\n"


@noun
class Hdf5Array:
    """A dataset by path and name; `[...]` opens the file and reads the rows asked for."""

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None
    token: str
    attrs: dict[str, Any]  # of feature_names alone
    stamp: Stamp | None = None  # None for a file that was opened to be written to

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        h5py = _h5py("path", self.path)
        try:
            opened = h5py.File(self.path, "r")
        except OSError as cause:
            raise MissingDataError(
                f"{self.path!r} cannot be opened as HDF5 any more ({_reason(cause)}); write it anew, where workers see it"
            ) from cause
        with opened as file:
            dataset = resolved("path", file, self.name)
            shape, dtype = getattr(dataset, "shape", None), getattr(dataset, "dtype", None)
            if (shape, dtype) != (self.shape, self.dtype):
                raise InputError(
                    f"{self.name!r} of {self.path!r} was {self.dtype} {self.shape} when it was opened and is now {dtype} "
                    f"{shape}; open it anew"
                )
            check_sources("path", dataset, self.path)
            try:
                found: np.ndarray = dataset[index]
            except (OSError, RuntimeError) as cause:
                raise InputError(
                    f"{self.name!r} of {self.path!r} cannot be read ({str(cause)[:100]}): it was cut short or altered; write it "
                    "anew"
                ) from cause
        if self.stamp is not None:
            self.stamp.check(repr(self.path), self.path, os.stat(self.path))
        return found


def is_hdf5(path: str) -> bool:
    """Whether a local path is an HDF5 file, by its suffix or its first bytes."""
    if not os.path.isfile(path):
        return path.lower().endswith(_SUFFIXES)
    with open(path, "rb") as file:
        return path.lower().endswith(_SUFFIXES) or file.read(len(_SIGNATURE)) == _SIGNATURE


def open_hdf5(argument: str, path: str, name: str) -> Hdf5Array:
    """Open a dataset of a file lazily, or raise listing what there is."""
    with _opened("path", path) as file:
        if not isinstance(name, str):
            raise InputTypeError(f"{argument} is {type(name).__name__}; give the name of an array in the file")
        found = resolved(argument, file, name)
        if not isinstance(found, _h5py(argument, path).Dataset):
            raise InputError(f"{argument}={name!r} is no array of this file; it holds: {_listed(file)}")
        opened = of_dataset(argument, found)
        assert opened is not None  # it was found in a file
        return opened


def list_hdf5(argument: str, path: str) -> str:
    """Name the arrays of a file with their shapes, for messages."""
    with _opened(argument, path) as file:
        return _listed(file)


def _opened(argument: str, path: str) -> Any:
    """The open file, or an error that says why there is none."""
    if "://" in path:
        raise InputError(
            f"{argument}={path.partition('?')[0]!r} is a URL, and HDF5 is read from files; copy it, or store it as Zarr"
        )
    if not os.path.exists(path):
        raise MissingDataError(f"{argument}={path!r} does not exist; check the path")
    h5py = _h5py(argument, path)
    try:
        return h5py.File(path, "r")
    except OSError as cause:
        raise MissingDataError(
            f"{argument}={path!r} cannot be opened as HDF5 ({_reason(cause)}); check the path"
        ) from cause


def _reason(cause: OSError) -> str:
    """What HDF5 says of a file that it cannot open, without the path."""
    why = str(cause).partition("(")[2].rstrip(")").partition(":" if isinstance(cause, FileNotFoundError) else "\n")[0]
    return why[:80] or type(cause).__name__


def of_dataset(argument: str, dataset: Any) -> Hdf5Array | None:
    """A dataset of an open file as one that tasks open; None where there is no file to open, as in memory."""
    if dataset.shape is None:
        raise InputError(f"{argument}={dataset.name!r} is an empty dataset, without a shape; give an array of numbers")
    path = dataset.file.filename
    if not isinstance(path, str) or not os.path.isfile(path) or dataset.name is None:
        return None
    if dataset.file.mode != "r":
        dataset.file.flush()  # so that tasks find what was written
    check_sources(argument, dataset, path)
    where = os.path.abspath(path)
    # What a virtual dataset shows lies in other files, named beside its own.
    others = {source.file_name for source in dataset.virtual_sources()} if dataset.is_virtual else set()
    files = [where, *sorted(os.path.join(os.path.dirname(where), other) for other in others - {"."})]
    stamps = [(s.st_size, s.st_mtime_ns, s.st_ino) for s in map(os.stat, filter(os.path.exists, files))]
    names = dataset.attrs.get("feature_names")
    known = {} if names is None else {"feature_names": [_text(name) for name in np.atleast_1d(names)]}
    return Hdf5Array(
        path=where,
        name=dataset.name,
        shape=tuple(map(int, dataset.shape)),
        dtype=np.dtype(dataset.dtype),
        chunks=dataset.chunks,
        token=tokenize(files, stamps, dataset.name, dataset.shape, str(dataset.dtype)),
        attrs=known,
        stamp=stamp_of((), stamps[0][1]) if dataset.file.mode == "r" else None,
    )


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _listed(file: Any) -> str:
    found: list[str] = []

    def look(name: str, item: Any) -> None:
        if hasattr(item, "shape"):
            found.append(f"{name} {item.shape}")

    file.visititems(look)
    return ", ".join(found[:8]) or "none"


def _h5py(argument: str, path: str) -> ModuleType:
    try:
        import h5py
    except ImportError as cause:
        raise MissingExtraError(
            f"{argument}={path!r} is an HDF5 file, which needs h5py; pip install 'dask-nlis[hdf5]', or store it as Zarr"
        ) from cause
    found: ModuleType = h5py
    return found
