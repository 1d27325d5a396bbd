"""Where the numbers of an HDF5 dataset lie: links inside its file are followed, what leads to other files is refused.

An HDF5 file may name any file of the machine as the place of a group (external link) or of numbers (virtual dataset,
external storage), and reading it would read that one. Sources of virtual datasets may lie beside the file, in its folder.
"""

import os
from typing import Any

from dask_nlis.errors import InputError
from dask_nlis.intake.links import is_within

#: Soft links that are followed to one object.
_MOST_LINKS = 32


def resolved(argument: str, file: Any, name: Any) -> Any:
    """Return the object of this name in an open file, or None where there is none; raises where it lies in another file."""
    parts = _parts(name) if isinstance(name, str) and "\0" not in name else []
    if not parts:
        return None
    at: Any = file["/"]
    followed = 0
    while parts:
        part = parts.pop(0)
        try:
            link: Any = at.get(part, getlink=True) if hasattr(at, "keys") else None
            kind = type(link).__name__
            if kind == "HardLink":
                at = at.get(part)
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as cause:
            raise InputError(
                f"{argument}={name!r}: {part!r} cannot be read ({str(cause)[:80]}); write the file anew"
            ) from cause
        if kind == "ExternalLink":
            raise InputError(
                f"{argument}={name!r}: {part!r} is a link to {link.path!r} in the file {link.filename!r}; give the path of that file"
            )
        if kind == "SoftLink":
            followed += 1
            if followed > _MOST_LINKS:
                raise InputError(f"{argument}={name!r}: {part!r} is a link that leads to itself; write the file anew")
            parts = _parts(link.path) + parts
            at = file["/"] if link.path.startswith("/") else at
        elif kind != "HardLink":
            return None
    return at


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def check_sources(argument: str, dataset: Any, path: str) -> None:
    """Raise where the numbers of a dataset lie in files outside the folder of its own."""
    folder = os.path.dirname(os.path.abspath(path))
    names = [source.file_name for source in dataset.virtual_sources()] if dataset.is_virtual else []
    names += [entry[0] for entry in dataset.external or ()]
    for name in map(os.fsdecode, names):
        if name != "." and not is_within(os.path.join(folder, name), folder):
            raise InputError(
                f"{argument}={dataset.name!r} has its numbers in {name!r}, outside the folder of its file; copy that file there, "
                "or give its path"
            )
