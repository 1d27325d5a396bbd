"""The file of a page: looked at before the work, written whole after it."""

import os
from contextlib import suppress
from pathlib import Path

from dask_nlis.errors import InputError, InputTypeError, MissingDataError, NotWritableError, StoreExistsError


def check_page(argument: str, given: object, *, overwrite: bool = True) -> str:
    """Return the absolute path of a page that can be written, or raise; a file is made beside it to see, and removed."""
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise InputTypeError(
            f"{argument} is {type(given).__name__}; give the path of a file, such as '{_SUCH_AS[argument]}'"
        )
    text = os.fspath(given)
    assert isinstance(text, str)
    shown = f"{argument}={text[:120]!r}"
    if not text or "\0" in text or "://" in text:
        raise InputError(f"{shown} is no path of a file here; give one such as '{_SUCH_AS[argument]}'")
    path = Path(text).absolute()
    if os.path.isdir(path):
        raise InputError(f"{shown} is a folder; give the path of a file in it, such as '{_SUCH_AS[argument]}'")
    if not os.path.isdir(path.parent):
        raise MissingDataError(f"{shown}: its folder does not exist; make it first")
    if os.path.lexists(path) and not overwrite:
        raise StoreExistsError(f"{shown} exists; give another path, or overwrite=True (in a shell --overwrite)")
    try:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError("it is not writable")
        _written(str(path), "")
        os.unlink(_part(str(path)))
    except OSError as cause:
        _remove(str(path))
        raise NotWritableError(f"{shown} cannot be written ({cause.strerror or cause}); give another path") from cause
    return str(path)


#: What a path may look like, by argument.
_SUCH_AS = {"report": "run.html", "path": "report.html"}


def write_page(argument: str, path: str, page: str) -> None:
    """Put a page in place of what is there, whole or not at all."""
    try:
        _written(path, page)
        os.replace(_part(path), path)
    except OSError as cause:
        _remove(path)
        raise NotWritableError(
            f"{argument}={path[:120]!r} could not be written ({cause.strerror or cause}); make room, or give another path"
        ) from cause


def _written(path: str, page: str) -> None:
    """Write what becomes the page once it is whole, to a file that is made here: no link that lies there is followed."""
    with suppress(FileNotFoundError):
        os.unlink(_part(path))  # of a process of this number that was killed
    with open(_part(path), "x", encoding="utf-8") as file:
        file.write(page)
        file.flush()
        os.fsync(file.fileno())


def _remove(path: str) -> None:
    """Leave nothing beside a page that could not be written."""
    with suppress(OSError):
        os.unlink(_part(path))


def _part(path: str) -> str:
    """Name of the file that becomes the page once it is whole."""
    return f"{path}.{os.getpid()}.part"
