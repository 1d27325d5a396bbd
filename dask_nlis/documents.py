"""JSON and TOML from outside: nothing larger or deeper than what this library writes, and one kind of error.

Neither parser makes anything but tables, lists, numbers and text; names in them are looked up in fixed tables.
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from dask_nlis.errors import InputError, MissingDataError

#: Bytes of a document, and levels of tables and lists in it: what is beyond is not read.
MOST_BYTES, MOST_LEVELS = 16 * 2**20, 32


def parsed(what: str, text: str | bytes, *, toml: bool = False) -> dict[str, Any]:
    """Parse a document whose outermost level is a table.

    Parameters
    ----------
    what : str
        What the document is, for messages.
    text : str or bytes
        JSON, or TOML; UTF-8.
    toml : bool, default False
        Whether it is TOML.

    Returns
    -------
    dict

    Raises
    ------
    InputError
        If it has more than 16 MiB or 32 levels, is no JSON or TOML, or no table.

    Examples
    --------
    >>> parsed("the header", '{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parsed("the header", "[" * 100_000)
    Traceback (most recent call last):
    dask_nlis.errors.InputError: the header has more than 32 levels; write it anew
    """
    if len(text) > MOST_BYTES:
        raise InputError(f"{what} has {len(text):,} bytes, above {MOST_BYTES:,}; write it anew")
    try:
        words = text.decode("utf-8") if isinstance(text, bytes) else text
        found: Any = tomllib.loads(words) if toml else json.loads(words)
    except RecursionError as cause:
        raise InputError(f"{what} has more than {MOST_LEVELS} levels; write it anew") from cause
    except ValueError as cause:  # both parsers, and the decoder, raise one
        raise InputError(f"{what} is no {'TOML' if toml else 'JSON'} ({str(cause)[:100]}); write it anew") from cause
    check_levels(what, found)
    if not isinstance(found, dict):
        raise InputError(f"{what} holds no table; write it anew")
    return found


def check_levels(what: str, found: Any) -> None:
    """Raise where tables and lists are nested deeper than 32 levels; walks level by level, so that no depth is too much."""
    level = [found]
    for _ in range(MOST_LEVELS + 1):
        level = [inner for each in level if isinstance(each, dict | list | tuple) for inner in _inside(each)]
        if not level:
            return
    raise InputError(f"{what} has more than {MOST_LEVELS} levels; write it anew")


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def read_document(argument: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file that ends in .toml or .json, at most 16 MiB of it.

    Raises
    ------
    InputError
        If the name ends otherwise, the file is too large, cannot be read, or `parsed` refuses it.
    MissingDataError
        If there is none.
    """
    where = Path(path)
    suffix = where.suffix.lower()
    if suffix not in (".toml", ".json"):
        raise InputError(f"{argument} {str(where)!r} does not say its format; give a file that ends in .toml or .json")
    try:
        with where.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError as cause:
        raise MissingDataError(f"{argument} {str(where)!r} does not exist; check the path") from cause
    except (OSError, ValueError) as cause:  # a ValueError for a name with a zero byte
        raise InputError(
            f"{argument} {str(where)!r} cannot be read ({type(cause).__name__}); check the path"
        ) from cause
    return parsed(f"{argument} {str(where)!r}", text, toml=suffix == ".toml")
