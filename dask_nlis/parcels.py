"""Small results as bytes and back: what a job keeps on its way, so that it need not be made again.

A parcel is eight letters, a checksum, and an uncompressed zip of arrays (npz); its member "tree" is JSON that says how
the arrays, numbers and named tuples nest. The checksum is also over what the parcel is of, so that the intact parcel of
another step or another run is as good as a damaged one. A name of a tuple is looked up in a table that the reader gives, so that bytes
from anywhere make nothing but numbers, texts, arrays and those tuples. Numbers come back in every bit.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_nlis.errors import InputError

_MAGIC = b"nlis-p1\n"
_DIGEST = 16

#: Kinds of arrays: booleans, numbers, texts of a fixed length. None of them can hold an object.
_KINDS = "biufU"

#: Nested deeper than this is nothing that was written here.
_DEEPEST = 32


def packed(value: Any, what: str = "") -> bytes:
    """Bytes of a value, kept as `what`, of named tuples, tuples, lists, dictionaries with text keys, arrays, numbers, texts and None."""
    arrays: list[np.ndarray] = []
    tree = json.dumps(_plain(value, arrays))
    body = io.BytesIO()
    members = {f"a{k}": array for k, array in enumerate(arrays)}
    np.savez(body, allow_pickle=False, tree=np.frombuffer(tree.encode(), dtype=np.uint8), **members)
    return _MAGIC + _digest(body.getvalue(), what) + body.getvalue()


def unpacked(data: bytes, kinds: Mapping[str, type] | None = None, what: str = "") -> Any:
    """Value of `packed` bytes of the same `what`; `kinds` are the named tuples it may hold. Raises InputError otherwise."""
    body = data[len(_MAGIC) + _DIGEST :]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : -len(body) or None] != _digest(body, what):
        raise InputError(
            "a kept result is damaged: its checksum is not that of its content and place; have it made again"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as members:
            if any(each.file_size != each.compress_size for each in members.infolist()):
                raise ValueError("compressed members")
        with np.load(io.BytesIO(body), allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        if any(array.dtype.kind not in _KINDS for array in arrays.values()):
            raise ValueError("arrays of objects")
        return _rebuilt(json.loads(arrays.pop("tree").tobytes()), arrays, kinds or {}, 0)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, EOFError, zipfile.BadZipFile) as cause:
        raise InputError(f"a kept result cannot be read ({str(cause)[:80]}); have it made again") from cause


def _digest(body: bytes, what: str) -> bytes:
    named = hashlib.blake2b(what.encode(), digest_size=_DIGEST).digest()
    return hashlib.blake2b(body, digest_size=_DIGEST, key=named).digest()


def _plain(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise TypeError(f"an array of {value.dtype} cannot be kept")
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        return _plain(value.item(), arrays)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"kind": type(value).__name__, "fields": [_plain(each, arrays) for each in value]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(each, arrays) for each in value]}
    if isinstance(value, list):
        return [_plain(each, arrays) for each in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _plain(each, arrays) for key, each in value.items()}}
    raise TypeError(f"{type(value).__name__} cannot be kept")


def _rebuilt(tree: Any, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, type], depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    if isinstance(tree, list):
        return [_rebuilt(each, arrays, kinds, depth + 1) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[f"a{tree['array']}"]
    if "dict" in tree:
        return {key: _rebuilt(each, arrays, kinds, depth + 1) for key, each in tree["dict"].items()}
    parts = tree["tuple"] if "tuple" in tree else tree["fields"]
    values = tuple(_rebuilt(each, arrays, kinds, depth + 1) for each in parts)
    return values if "tuple" in tree else kinds[tree["kind"]](*values)
