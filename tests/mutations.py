"""Mutations of files and dictionaries, and the rule for what may come of reading them: an object as it should be, or an error of ours.

All is determined by a seed: a failure names the target and the number that made it.
"""

import copy
import json
import os
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import NlisError

#: What JSON values are replaced by: of other types, out of range, empty, deep, and with a meaning elsewhere.
VALUES = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**53 + 1, -(2**63), 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), "", "x", "NaN", "Infinity", "../x", "/etc/passwd", "__import__('os')", "|O", "<f8", ">i4", "<U7",
    "float64", "pickle", "\ud800", "\0", "a" * 5000, [], [[]], [0], [1, 2], [-1, -1], [[1.0, 2.0], [3.0]], [None], ["x"], [True],
    [10**12, 10**12], [0, 0], {}, {"noun": "Ball"}, {"noun": "Problem"}, {"array": "x"}, {"noun": None}, {"a": {"b": []}},
    {"noun": "Ball", "radius": 1.0, "center": None}, {"name": "pickle"}, {"id": "pickle"}, {"name": "gzip", "configuration": {}},
)  # fmt: skip


def seconds_left(*_: Any) -> None:
    raise Hang("this took more processor time than it may")


class Hang(BaseException):
    """Reading took too long."""


@contextmanager
def bounded(megabytes: int = 2048) -> Iterator[None]:
    """At most so many more megabytes of addresses than there are now; warnings of NumPy are errors, others are not shown."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, seconds_left)
    resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, before[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


class Outcome(NamedTuple):
    """How many mutations were refused, how many gave an object, and the failures."""

    refused: int
    accepted: int
    failures: list[str]


def attempts(
    count: int,
    seed: int,
    mutate: Callable[[np.random.Generator], tuple[str, Any]],
    use: Callable[[Any], Any],
    seconds: float = 10,
) -> Outcome:
    """Mutate and use so many times: `use` raises an error of ours, or checks the object that comes."""
    refused = accepted = 0
    failures = []
    with bounded():
        for k in range(count):
            what, mutated = mutate(np.random.default_rng([seed, k]))
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            try:
                use(mutated)
                accepted += 1
            except NlisError as error:
                refused += 1
                if "\n" in str(error) or len(str(error)) > 300:
                    failures.append(f"{seed},{k} {what}: a message of several lines or above 300 characters")
            except (Exception, Hang):
                failures.append(f"{seed},{k} {what}: {traceback.format_exc(limit=-4)}")
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if len(failures) > 12:
                break
    return Outcome(refused, accepted, failures)


# --- bytes -----------------------------------------------------------------------------------------------------------


def mutated_bytes(raw: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Flip bits, cut, drop, repeat, insert or overwrite."""
    kind = rng.choice(["flip", "flip", "flip", "cut", "drop", "repeat", "insert", "zero", "empty", "longer", "noise"])
    data = bytearray(raw)
    n = len(data)
    if n == 0 or kind == "noise":
        return "noise", rng.bytes(int(rng.integers(0, 200)))
    a = int(rng.integers(0, n))
    b = min(n, a + int(rng.integers(1, 40)))
    if kind == "flip":
        for _ in range(int(rng.integers(1, 5))):
            data[int(rng.integers(0, n))] ^= 1 << int(rng.integers(0, 8))
    elif kind == "cut":
        del data[a:]
    elif kind == "drop":
        del data[a:b]
    elif kind == "repeat":
        data[a:a] = data[a:b] * int(rng.integers(1, 20))
    elif kind == "insert":
        data[a:a] = rng.bytes(int(rng.integers(1, 20)))
    elif kind == "zero":
        data[a:b] = bytes(b - a)
    elif kind == "longer":
        data += rng.bytes(int(rng.integers(1, 100)))
    else:
        data = bytearray()
    return kind, bytes(data)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for k, (key, inner) in enumerate(inside):
        if k < 60:
            yield from _places(inner, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutated_json(found: Any, rng: np.random.Generator) -> tuple[str, Any]:
    """Change one to three places: another value, another place's value, gone, under another name, deeper, or twice."""
    out = copy.deepcopy(found)
    said = []
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(out))
        path = places[int(rng.integers(0, len(places)))]
        kind = str(rng.choice(["value", "value", "value", "swap", "delete", "rename", "wrap", "extra", "number"]))
        said.append(f"{kind} at {'.'.join(map(str, path))[:60]}")
        if not path:
            if rng.random() < 0.1:
                out = copy.deepcopy(VALUES[int(rng.integers(0, len(VALUES)))])
            continue
        parent, key = _at(out, path[:-1]), path[-1]
        if kind == "delete":
            del parent[key]
        elif kind == "rename" and isinstance(parent, dict):
            parent[str(rng.choice([f"{key}x", "", "noun", "__class__", str(key).upper()]))] = parent.pop(key)
        elif kind == "swap":
            other = places[int(rng.integers(0, len(places)))]
            parent[key] = copy.deepcopy(_at(out, other)) if other != path[: len(other)] else None
        elif kind == "wrap":
            parent[key] = [parent[key]] if rng.random() < 0.5 else {"noun": parent[key]}
        elif kind == "extra":
            if isinstance(parent[key], dict):
                parent[key]["extra"] = 1
            elif isinstance(parent[key], list):
                parent[key].append(copy.deepcopy(VALUES[int(rng.integers(0, len(VALUES)))]))
        elif kind == "number" and isinstance(parent[key], int | float):
            parent[key] = parent[key] * int(rng.choice([-1, 2, 10, 1000, 10**9])) + int(rng.choice([-1, 0, 1]))
        else:
            parent[key] = copy.deepcopy(VALUES[int(rng.integers(0, len(VALUES)))])
    return ", ".join(said), out


# --- dictionaries with arrays ----------------------------------------------------------------------------------------


def mutated_array(array: np.ndarray, rng: np.random.Generator) -> tuple[str, Any]:
    """Another dtype, shape, length, order, or number in an array."""
    kind = str(rng.choice(["dtype", "shape", "cut", "longer", "number", "order", "list", "scalar", "objects", "text"]))
    flat = array.reshape(-1)
    if kind == "dtype":
        with np.errstate(all="ignore"):
            changed: Any = array.astype(rng.choice(["f4", "i4", "u8", "i8", "f8", "?", "c16", "f2", ">f8"]))
    elif kind == "shape":
        changed = array[None] if rng.random() < 0.5 else flat
    elif kind == "cut":
        changed = array[: len(array) // 2] if array.ndim else array
    elif kind == "longer":
        changed = np.concatenate([flat, flat])
    elif kind == "order":
        changed = array[::-1] if array.ndim else array
    elif kind == "list":
        changed = array.tolist()
    elif kind == "scalar":
        changed = array.ravel()[0].item() if array.size else 0
    elif kind == "objects":
        changed = array.astype(object)
    elif kind == "text":
        changed = array.astype(str)
    else:
        changed = array.copy()
        if array.size:
            value = rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, -(2.0**62), 2.0**62, 0.5])
            with np.errstate(all="ignore"):
                changed.reshape(-1)[int(rng.integers(0, array.size))] = np.asarray(value).astype(array.dtype)
    return f"array {kind}", changed


def mutated_dict(found: dict[str, Any], rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Change the dictionary of a noun: its JSON values, or one of its arrays."""
    arrays: list[np.ndarray] = []

    def parted(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {"__array__": len(arrays) - 1}
        if isinstance(value, dict):
            return {key: parted(inner) for key, inner in value.items()}
        return [parted(inner) for inner in value] if isinstance(value, list | tuple) else value

    def joined(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"__array__"} and isinstance(value["__array__"], int):
            return arrays[value["__array__"] % len(arrays)] if arrays else value
        if isinstance(value, dict):
            return {key: joined(inner) for key, inner in value.items()}
        return [joined(inner) for inner in value] if isinstance(value, list) else value

    plain = parted(found)
    if arrays and rng.random() < 0.5:
        k = int(rng.integers(0, len(arrays)))
        what, arrays[k] = mutated_array(arrays[k], rng)
    else:
        what, plain = mutated_json(plain, rng)
    return what, joined(plain)


# --- folders ---------------------------------------------------------------------------------------------------------


def mutated_folder(source: Path, target: Path, rng: np.random.Generator) -> tuple[str, Path]:
    """Copy a file or a folder and change one of its files: bytes, JSON, another file's content, gone, or a folder of its name."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if source.is_file():
        shutil.copyfile(source, target)
        files = [target]
    else:
        shutil.copytree(source, target)
        files = sorted(path for path in target.rglob("*") if path.is_file())
    path = files[int(rng.integers(0, len(files)))]
    name = path.relative_to(target.parent).as_posix()
    # A run has many files of chunks and few of metadata: every other mutation is one of the latter.
    documents = [each for each in files if each.suffix == ".json" or each.name.startswith(".z")]
    if documents and rng.random() < 0.6:
        path = documents[int(rng.integers(0, len(documents)))]
        name = path.relative_to(target.parent).as_posix()
        found = json.loads(path.read_text("utf-8"))
        if rng.random() < 0.75:
            what, changed = mutated_json(found, rng)
            path.write_text(json.dumps(changed), "utf-8")
            return f"{name}: {what}", target
    kind = rng.choice(["bytes", "bytes", "bytes", "delete", "other", "folder", "no folder"])
    if kind == "bytes":
        kind, changed = mutated_bytes(path.read_bytes(), rng)
        path.write_bytes(changed)
    elif kind == "delete":
        path.unlink()
    elif kind == "other":
        shutil.copyfile(files[int(rng.integers(0, len(files)))], target.parent / "other")
        os.replace(target.parent / "other", path)
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif path.parent != target.parent:
        shutil.rmtree(path.parent)
    return f"{name}: {kind}", target
