"""The file of a report: looked at before the job, written whole after it."""

import os
from contextlib import suppress
from pathlib import Path

from dask_nlis.errors import InputError, InputTypeError, MissingDataError, NotWritableError


def check_report(report: object) -> str:
    """Return the absolute path of a report that can be written, or raise; a file is made beside it to see, and removed."""
    if not isinstance(report, str | os.PathLike) or not isinstance(os.fspath(report), str):
        raise InputTypeError(f"report is {type(report).__name__}; give the path of a file, such as 'run.html'")
    text = os.fspath(report)
    assert isinstance(text, str)
    if not text or "\0" in text or "://" in text:
        raise InputError(f"report={text[:120]!r} is no path of a file here; give one such as 'run.html'")
    path = Path(text).absolute()
    if os.path.isdir(path):
        raise InputError(f"report={text[:120]!r} is a folder; give the path of a file in it, such as 'run.html'")
    if not os.path.isdir(path.parent):
        raise MissingDataError(f"report={text[:120]!r}: its folder does not exist; make it first")
    try:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError("it is not writable")
        with open(_part(str(path)), "w", encoding="utf-8"):
            pass
        os.unlink(_part(str(path)))
    except OSError as cause:
        raise NotWritableError(
            f"report={text[:120]!r} cannot be written ({cause.strerror or cause}); give another path"
        ) from cause
    return str(path)


def write_report(path: str, page: str) -> None:
    """Put a page in place of what is there, whole or not at all."""
    part = _part(path)
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(part, path)
    except OSError as cause:
        with suppress(OSError):
            os.unlink(part)
        raise NotWritableError(
            f"report={path[:120]!r} could not be written ({cause.strerror or cause}); make room, or give another path"
        ) from cause


def _part(path: str) -> str:
    """Name of the file that becomes the report once it is whole."""
    return f"{path}.{os.getpid()}.part"
