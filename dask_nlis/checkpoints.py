"""What a job keeps on its way: results of reads by name, so that a run that was cut off goes on where it was.

`Checkpoints` is where they are kept: in a run store, or nowhere. They can be pickled, and tasks keep their own. What is
kept must be the same however often and wherever it is made, so that it does not matter which copy is found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import dask.array as da
from dask._task_spec import Alias, Task
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.errors import InputError

#: Named tuples that a kept result may hold, by name.
Kinds = Mapping[str, type]


def kinds_of(*classes: type) -> Kinds:
    """A table of named tuples by name."""
    return {cls.__name__: cls for cls in classes}


class Checkpoints(Protocol):
    """Where results are kept by name."""

    def names(self) -> set[str]:
        """Names of all that is kept here."""
        ...

    def load(self, name: str, kinds: Kinds | None = None) -> Any:
        """What is kept under a name; None where there is nothing, or nothing that is intact."""
        ...

    def save(self, name: str, value: Any) -> None:
        """Keep a value: it is there whole, or not at all."""
        ...

    def below(self, name: str) -> "Checkpoints":
        """A place of its own for the results of one step."""
        ...


class Nowhere:
    """Keeps nothing."""

    def names(self) -> set[str]:
        """None."""
        return set()

    def load(self, name: str, kinds: Kinds | None = None) -> Any:
        """Nothing."""

    def save(self, name: str, value: Any) -> None:
        """Keep nothing."""

    def below(self, name: str) -> "Nowhere":
        """Nowhere either."""
        return self

    def __dask_tokenize__(self) -> str:
        return "nlis-nowhere"


NOWHERE = Nowhere()


def recalled(saved: Checkpoints, name: str, make: Callable[[], Any], kinds: Kinds | None = None) -> Any:
    """What is kept under a name, or what `make` gives, kept from then on."""
    found = saved.load(name, kinds)
    if found is None:
        found = make()
        saved.save(name, found)
    return found


def recalled_noun(saved: Checkpoints, name: str, make: Callable[[], Any], cls: Any) -> Any:
    """The noun that is kept under a name, or what `make` gives, kept from then on."""
    if saved is NOWHERE:  # where it need not have a dictionary form: functions of the user have none
        return make()
    found = saved.load(name)
    if found is not None:
        return cls.from_dict(found)
    made = make()
    saved.save(name, made.to_dict())
    return made


def each_kept(
    array: da.Array,
    label: str,
    collect: Callable[[Any], None],
    saved: Checkpoints,
    kinds: Kinds | None,
    *,
    n_rows: int = 0,
    n_bytes: int = 0,
) -> None:
    """Hand what the blocks of a lazy (blocks, 1) array of 1 x 1 object blocks hold to `collect`, in order.

    Blocks whose results are kept are not computed; the others are kept as they come.
    """
    n = array.numblocks[0]
    # Each is looked at twice rather than held: they may be many, and p x p.
    missing = _missing(saved, kinds, n)
    place = 0
    waiting = iter(missing)

    def catch_up(end: int) -> None:
        nonlocal place
        for k in range(place, end):
            found = saved.load(str(k), kinds)
            if found is None:
                raise InputError(f"a kept result of {label!r} is gone or damaged since it was looked for; run again")
            collect(found)
        place = end

    def add(block: Any) -> None:
        nonlocal place
        k, value = next(waiting), block[0, 0]
        catch_up(k)
        saved.save(str(k), value)
        collect(value)
        place = k + 1

    if missing:
        share = len(missing) / n
        only = None if len(missing) == n else missing
        phase.each_block(array, label, add, only=only, n_rows=round(share * n_rows), n_bytes=round(share * n_bytes))
    catch_up(n)


def _missing(saved: Checkpoints, kinds: Kinds | None, n: int) -> list[int]:
    names = saved.names()
    return [k for k in range(n) if str(k) not in names or saved.load(str(k), kinds) is None]


def with_kept(array: da.Array, load: Callable[..., Any], kept: Mapping[int, tuple[Any, ...]]) -> da.Array:
    """A lazy (blocks,) array of objects whose blocks k in `kept` are `load(*kept[k])`, the others those of `array`."""
    if not kept:
        return array
    name = f"{array.name}-{tokenize(sorted(kept))}"
    graph: dict[Any, Any] = {
        (name, k): Task((name, k), load, *kept[k]) if k in kept else Alias((name, k), (array.name, k))
        for k in range(array.numblocks[0])
    }
    layers = HighLevelGraph.from_collections(name, graph, dependencies=[array])
    return da.Array(layers, name, chunks=array.chunks, meta=array._meta)


def runs_of(numbers: Sequence[int], most: int) -> Iterator[range]:
    """Consecutive numbers of an ascending sequence together, at most so many.

    >>> list(runs_of([0, 1, 2, 5], 2))
    [range(0, 2), range(2, 3), range(5, 6)]
    """
    first = 0
    for k in range(1, len(numbers) + 1):
        if k == len(numbers) or numbers[k] != numbers[k - 1] + 1 or k - first == most:
            yield range(numbers[first], numbers[k - 1] + 1)
            first = k
