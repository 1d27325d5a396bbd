"""Whether a job is the one that a store was begun for: data, theta, problem, design and versions compared."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from dask_nlis.errors import FingerprintMismatchError

_ABSENT = object()


def first_difference(begun: Any, now: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first field in which two fingerprints differ, and both values; None where they are the same."""
    if isinstance(begun, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*now, *begun]):
            inside = f"{path}.{name}" if path else str(name)
            found = first_difference(begun.get(name, _ABSENT), now.get(name, _ABSENT), inside)
            if found is not None:
                return found
        return None
    return None if _json(begun) == _json(now) else (path, begun, now)


def _json(value: Any) -> str:
    return "" if value is _ABSENT else json.dumps(value)


def abridged(fingerprint: Mapping[str, Any]) -> str:
    """A fingerprint as a short text."""
    return hashlib.blake2b(json.dumps(fingerprint, sort_keys=True).encode(), digest_size=16).hexdigest()


def check_same(
    text: str, manifest: Mapping[str, Any], now: Mapping[str, Any], changed: Callable[[str, Any], str]
) -> None:
    """Raise FingerprintMismatchError, naming the field, unless the fingerprint of a run that was begun is that of now.

    `changed` may tell, of the array of a name, what has changed since a time of the manifest.
    """
    begun = manifest.get("fingerprint")
    if not isinstance(begun, Mapping):
        raise FingerprintMismatchError(
            f"store={text!r} does not say which data and arguments it was begun with; give a new path"
        )
    found = first_difference(begun, json.loads(json.dumps(now)))
    if found is None:
        return
    field, before, after = found
    if field.startswith("data.content"):
        name = field.rpartition(".")[2]
        detail = changed(name, manifest.get("started"))
        raise FingerprintMismatchError(
            f"store={text!r} was begun with other data: {name} has changed{f' ({detail})' if detail else ', or cannot be told to be the same'}"
            "; give a new path, or data_version= in both runs to vouch for it"
        )
    raise FingerprintMismatchError(
        f"store={text!r} was begun with {field}={_shown(before)}, but now it is {_shown(after)}; give the same, or a new path"
    )


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else str(value)[:60]
