"""DataFrames and Series of pandas and Dask: their columns, one by one, as float64.

A column that holds no numbers is named with its first bad value, rather than spoiling all of them.
"""

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import GraphNode, Task, TaskRef, convert_legacy_graph
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_nlis import phase
from dask_nlis.errors import InputTypeError, PerformanceWarning
from dask_nlis.intake.cell_words import number_of

#: Beyond this float64 skips integers.
LARGEST_INTEGER = 2**53

_REMEDY = "encode it first, with the categories of the whole data (dask_nlis.from_dataframe)"

#: What makes the arrays of tables of Dask that were opened, while it is in use: what was counted of one is noted there, and
#: is known where an equal table comes again. Dask names a file that was written anew in another way.
_LAYERS: "weakref.WeakValueDictionary[str, MaterializedLayer]" = weakref.WeakValueDictionary()


#: Tasks by which rows change their partition.
_SHUFFLED = re.compile("shuffle|partd|p2p|rearrange", re.IGNORECASE)

#: What the tasks of a layer refer to, noted on the layer.
_BELOW = "nlis-below"


def is_dask_table(value: Any) -> bool:
    """Whether a value is a DataFrame, a Series or an Index of Dask."""
    return type(value).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(value, "to_dask_array")


def from_pandas(argument: str, table: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Convert a Series (n,) or a DataFrame (n, d), held in memory, to float64, with the names of its columns."""
    if table.ndim == 1:
        return _column(argument, table.name, table), None
    columns = [_column(argument, name, table.iloc[:, k]) for k, name in enumerate(table.columns)]
    names = tuple(map(str, table.columns))
    return np.stack(columns, axis=1) if columns else np.empty((len(table), 0)), names


def from_dask(argument: str, table: Any) -> tuple[da.Array, tuple[str, ...] | None]:
    """A lazy array of a Series or DataFrame of Dask: one task a partition, whose rows are not counted yet.

    The table is optimised by itself, so that a file is read for the columns asked for alone, and each partition is read
    and converted by one task.

    Raises InputTypeError, by the dtypes alone, where a column holds no numbers.
    """
    if table.ndim == 2:
        for name, dtype in table.dtypes.items():
            _check_kind(argument, name, dtype)
        names: tuple[str, ...] | None = tuple(map(str, table.columns))
    else:
        _check_kind(argument, getattr(table, "name", None), table.dtype)
        names = None
    return _lazy(argument, table), names


def _lazy(argument: str, table: Any) -> da.Array:
    name = f"nlis-table-{tokenize(table.expr._name)}"
    rest = (len(table.columns),) if table.ndim == 2 else ()
    layer = _LAYERS.get(name)
    if layer is None:
        layer = _LAYERS[name] = _layer(argument, table, name, len(rest), _block, argument)
    below = layer.collection_annotations[_BELOW]
    graph = (
        HighLevelGraph({name: layer}, {name: set()})
        if below is None
        else HighLevelGraph({name: layer, f"{name}-parts": below}, {name: {f"{name}-parts"}, f"{name}-parts": set()})
    )
    chunks = ((np.nan,) * len(layer), *((size,) for size in rest))
    return da.Array(graph, name, chunks=chunks, meta=np.empty((0,) * (1 + len(rest)), dtype=np.float64))


def _layer(
    argument: str, table: Any, name: str, n_rest: int, function: Callable[..., np.ndarray], *arguments: Any
) -> MaterializedLayer:
    fused = table.optimize()
    parts, nodes = fused.__dask_keys__(), convert_legacy_graph(dict(fused.__dask_graph__()))
    made = _made_alone(nodes, parts)
    # What a cluster holds keeps the names of the tasks that made it, but is none.
    if made is None and any(_SHUFFLED.search(str(key)) for key, node in nodes.items() if isinstance(node, Task)):
        phase.warn(
            f"{argument} is a table after a shuffle, which each read does anew, in whatever order rows come; persist it first "
            "(all columns in one table), or write it to Parquet",
            PerformanceWarning,
        )
    keys = [(name, k, *(0,) * n_rest) for k in range(len(parts))]
    inside = map(TaskRef, parts) if made is None else made
    layer = MaterializedLayer(
        {key: Task(key, function, part, *arguments) for key, part in zip(keys, inside, strict=True)}
    )
    layer.collection_annotations = {_BELOW: MaterializedLayer(nodes) if made is None else None}
    return layer


def of_partitions(argument: str, table: Any, function: Callable[..., np.ndarray], *arguments: Any) -> da.Array:
    """A lazy array of one object a partition of a table of Dask: what `function(part, *arguments)` gives, of shape (1,)."""
    name = f"nlis-table-{tokenize(table.expr._name, function.__qualname__, arguments)}"
    layer = _layer(argument, table, name, 0, function, *arguments)
    below = layer.collection_annotations[_BELOW]
    layers = {name: layer} | ({} if below is None else {f"{name}-parts": below})
    dependencies = {each: {f"{name}-parts"} if each == name and below is not None else set() for each in layers}
    return da.Array(
        HighLevelGraph(layers, dependencies), name, chunks=((1,) * len(layer),), meta=np.empty(0, dtype=object)
    )


def _made_alone(nodes: Mapping[Any, GraphNode], parts: Sequence[Any]) -> list[GraphNode] | None:
    """Each partition as one node with all that it is made from inside; None where partitions share what they are made from."""
    seen: set[Any] = set()
    made = []
    for part in parts:
        needed, waiting = {}, [part]
        while waiting:
            key = waiting.pop()
            if key in needed:
                continue
            if key in seen or key not in nodes:
                return None
            needed[key] = nodes[key]
            waiting.extend(nodes[key].dependencies)
        seen |= set(needed)
        made.append(nodes[part] if len(needed) == 1 else GraphNode.fuse(*needed.values()))
    return made


def _block(part: Any, argument: str) -> np.ndarray:
    return from_pandas(argument, part)[0]


def _check_kind(argument: str, name: Any, dtype: Any) -> None:
    if getattr(dtype, "kind", "O") not in "biuf":
        raise InputTypeError(f"{argument} column {_short(name)} has dtype {str(dtype)[:40]}; {_REMEDY}")


def _column(argument: str, name: Any, column: Any) -> np.ndarray:
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "biuf":
        row, first = _first_other(column.tolist())
        example = f", first other value {first!r}"[:60] + f" at row {row}" if first is not None else ""
        raise InputTypeError(f"{argument} column {_short(name)} has dtype {str(column.dtype)[:40]}{example}; {_REMEDY}")
    converted: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind in "iu" and column.dtype.itemsize == 8:
        too_large = ((column > LARGEST_INTEGER) | (column < -LARGEST_INTEGER)).to_numpy(dtype=bool, na_value=False)
        converted = np.where(too_large, np.nan, converted)  # reported with its row, like any cell that is no number
    return converted


def _first_other(values: list[Any]) -> tuple[int, Any]:
    """The first cell that holds no number and is no text that says one, else the first that holds no number."""
    others = [(k, v) for k, v in enumerate(values) if not isinstance(v, int | float | np.number) and v is not None]
    spelt = ((k, v) for k, v in others if not isinstance(v, str) or number_of(v) is None)
    return next(spelt, others[0] if others else (0, None))


def _short(name: Any) -> str:
    """A name of a column in a message."""
    text = repr(str(name))
    return text if len(text) <= 60 else f"{text[:56]}...'"
