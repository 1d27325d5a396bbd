"""Task graphs before they run: one task a block, an alias nowhere, and cut into waves where there are very many."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import dask.array as da
import dask.core
import numpy as np
from dask._task_spec import Alias, DataNode, Dict, GraphNode, List, Task, TaskRef, Tuple, convert_legacy_graph
from dask.blockwise import Blockwise
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

Key = Any
Graph = Mapping[Key, Any]

#: To make the tasks of all blocks of an array is cheaper than to have Dask find those of one in this many.
_MANY = 4

#: Tasks that may be repeated, as a share of all, for a graph to be cut into waves.
_REPEATED = 0.05


def flat_keys(array: da.Array) -> list[Key]:
    """Return the keys of the blocks in C order."""
    return list(dask.core.flatten(array.__dask_keys__()))


def optimised(array: da.Array, wanted: Sequence[Key] | None = None) -> dict[Key, Any]:
    """Optimise the graph of an array, or of some blocks, with Dask's own passes; fused tasks get the key they are wanted under.

    Low-level fusion renames a fused task and leaves an alias behind it, a second task a block. A graph whose blocks
    depend on constants alone is left as it is: Dask's passes would take longer than making it.
    """
    wanted = flat_keys(array) if wanted is None else wanted
    plain = _plain(array, wanted)
    if plain is not None:
        return plain
    keys = set(wanted)
    graph = dict(convert_legacy_graph(dict(array.__dask_optimize__(array.dask, list(wanted)))))
    users = Counter(key for node in graph.values() for key in node.dependencies)
    for key in list(graph):
        # An alias may lead to another one, as where an array is joined from delayed parts.
        while isinstance(node := graph.get(key), Alias) and _only_behind(node, graph, keys, users):
            graph[key] = graph.pop(node.target).substitute({}, key=key)
    # Dask leaves out what is on the cluster already; asked for itself, it is its own future.
    return graph | {key: array.dask[key] for key in keys if key not in graph}


def _only_behind(alias: Alias, graph: dict[Key, Any], keys: set[Key], users: Counter[Key]) -> bool:
    """Whether what an alias names is in the graph for the sake of that alias alone."""
    return alias.target in graph and alias.target not in keys and users[alias.target] == 1


def _plain(array: da.Array, wanted: Sequence[Key]) -> dict[Key, Any] | None:
    """The blocks of a graph of tasks on constants, and those constants; None for any other graph."""
    layers = array.dask.layers
    if not all(isinstance(layer, MaterializedLayer) for layer in layers.values()):
        return None
    nodes = _nodes(layers[array.name], wanted)
    constants = None if nodes is None else _constants(array, nodes)
    return None if nodes is None or constants is None else dict(zip(wanted, nodes, strict=True)) | constants


def _nodes(layer: Mapping[Key, Any], wanted: Sequence[Key]) -> list[GraphNode] | None:
    """What makes these blocks; None where some are futures, aliases or of a kind that may hide the keys it needs."""
    raw = [layer.get(key) for key in wanted]
    if not all(isinstance(node, Task | DataNode | np.ndarray) for node in raw):
        return None
    return [DataNode(key, n) if isinstance(n, np.ndarray) else n for key, n in zip(wanted, raw, strict=True)]


def _constants(array: da.Array, nodes: Iterable[GraphNode]) -> dict[Key, Any] | None:
    """What these nodes depend on, where it is few constants; else None."""
    needed = set().union(*(node.dependencies for node in nodes))
    if len(needed) > len(array.dask.layers):  # constants are layers of their own
        return None
    found = {key: array.dask[key] for key in needed if key in array.dask}
    # What is on a cluster already, a future, is a TaskRef: to send it as a constant would redefine its key there.
    if len(found) < len(needed) or any(
        isinstance(value, Task | Alias | TaskRef | tuple | list | str) for value in found.values()
    ):
        return None
    return {key: value if isinstance(value, DataNode) else DataNode(key, value) for key, value in found.items()}


class Nodes(NamedTuple):
    """What makes each block of an array, to be put inside a task, with the constants that those tasks refer to."""

    blocks: Sequence[GraphNode | None]
    constants: dict[Key, Any]

    @property
    def layers(self) -> dict[str, dict[Key, Any]]:
        """The constants as layers of a graph, one each: two of them may be blocks of one array."""
        return {str(key): {key: node} for key, node in self.constants.items()}


def block_nodes(array: da.Array) -> Nodes | None:
    """The tasks that read the row blocks of an array, where each reads its block and nothing but constants; else None."""
    layer = array.dask.layers.get(array.name)
    if layer is None or (isinstance(layer, Blockwise) and any(_of_blocks(layer, *pair) for pair in layer.indices)):
        return None
    keys = flat_keys(array)
    blocks = _sliced(layer, keys) or _nodes(dict(layer), keys)
    constants = None if blocks is None else _constants(array, blocks)
    return None if blocks is None or constants is None else Nodes(blocks, constants)


def _sliced(layer: Mapping[Key, Any], keys: Sequence[Key]) -> list[Task] | None:
    """Tasks of a layer that slices one array, as `dask.array.from_array` makes it: all are like the first; else None.

    Ten times as fast as having the layer make them, and none of them stays behind in it.
    """
    if not isinstance(layer, Blockwise) or len(layer.io_deps) != 1:
        return None
    ((_, slices),) = layer.io_deps.items()
    first: Any = dict(layer.cull({keys[0]}, ())[0])[keys[0]]
    if not isinstance(first, Task) or len(first.args) != 2 or not isinstance(first.args[1], DataNode):
        return None
    if first.args[1].value != slices[keys[0][1:]]:
        return None
    options = dict(first.kwargs) | {"_data_producer": first.data_producer}
    return [Task(key, first.func, first.args[0], slices[key[1:]], **options) for key in keys]


def _of_blocks(layer: Blockwise, name: Any, indices: Any) -> bool:
    """Whether an argument of a layer is a block of another array."""
    return indices is not None and name not in layer.io_deps


def on_readers(
    name: str,
    task: Callable[..., Any],
    arrays: Sequence[da.Array | None],
    beside: Sequence[Any],
    arguments: Mapping[str, Any],
) -> HighLevelGraph | None:
    """Graph of `task(*blocks, beside[k], **arguments)` under the keys (name, k, 0), the blocks read inside the task.

    None where one of the arrays is computed rather than read, or comes twice: Dask's own fusion is for those. It takes
    ten times as long, 0.1 ms a block. `arguments` may be or hold Delayed values.
    """
    given = [array for array in arrays if array is not None]
    if len({array.name for array in given}) < len(given):  # it would be read twice
        return None
    nodes: dict[str, Nodes] = {}
    layers: dict[str, Any] = {}
    for array in given:
        found = block_nodes(array)
        if found is None:
            return None
        nodes[array.name] = found
        layers |= found.layers
    keywords = {each: _reference(value, layers) for each, value in arguments.items()}
    nothing = Nodes((None,) * len(beside), {})
    blocks = [(nothing if array is None else nodes[array.name]).blocks for array in arrays]
    graph = {
        (name, k, 0): Task((name, k, 0), task, *read, last, **keywords)
        for k, (*read, last) in enumerate(zip(*blocks, beside, strict=True))
    }
    dependencies: dict[str, set[str]] = {layer: set() for layer in layers} | {name: set(layers)}
    return HighLevelGraph(layers | {name: graph}, dependencies)


def _reference(value: Any, layers: dict[str, Any]) -> Any:
    """An argument as a task takes it: Delayed values by name, also in lists, tuples and dicts; their graphs added to `layers`."""
    if isinstance(value, Delayed):
        layers[value.key] = {k: v if isinstance(v, GraphNode) else DataNode(k, v) for k, v in value.dask.items()}
        return TaskRef(value.key)
    if type(value) in (list, tuple) and any(_holds_delayed(each) for each in value):
        return (List if type(value) is list else Tuple)(*(_reference(each, layers) for each in value))
    if type(value) is dict and any(_holds_delayed(each) for each in value.values()):
        return Dict({key: _reference(each, layers) for key, each in value.items()})
    return value


def _holds_delayed(value: Any) -> bool:
    parts = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
    return isinstance(value, Delayed) or any(map(_holds_delayed, parts))


class Asked(NamedTuple):
    """A call `function(block, *arguments)` of the block of a key."""

    block: Key
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def on_top(array: da.Array, made: Mapping[Key, Asked]) -> dict[Key, Any]:
    """A task for each key in `made` that makes the block and works on it at once.

    A block that nothing else wants is made inside the task; others, and results held on a cluster, are referred to.
    """
    wanted = list(dict.fromkeys(block for block, _, _ in made.values()))
    nodes = block_nodes(array) if _MANY * len(wanted) >= array.numblocks[0] else None
    if nodes is None:
        base = optimised(array, wanted)
    else:
        base = {key: nodes.blocks[key[1]] for key in wanted} | nodes.constants
    users = Counter(key for node in base.values() if isinstance(node, GraphNode) for key in node.dependencies)
    users.update(block for block, _, _ in made.values())
    graph: dict[Key, Any] = {}
    for key, (block, function, arguments) in made.items():
        node = base.get(block)
        inside = isinstance(node, Task) and users[block] == 1
        graph[key] = Task(key, function, node if inside else TaskRef(block), *arguments)
    return graph | {key: node for key, node in base.items() if isinstance(node, GraphNode)}


class Wave(NamedTuple):
    """Part of a graph that stands alone, and the keys wanted of it."""

    graph: dict[Key, Any]
    keys: list[Key]


def waves(graph: Graph, keys: Sequence[Key], most: int) -> list[Wave]:
    """Cut a graph into parts of about `most` tasks for consecutive keys; what no key needs is left out.

    Not cut where parts would repeat many tasks of other parts: rows centred by a mean of all rows, say.
    """
    parts = [Wave({}, [])]
    seen: set[Key] = set()
    repeated = n_tasks = 0
    for key in keys:
        new = _reached(graph, [key], parts[-1].graph)
        tasks = [k for k, node in new.items() if not isinstance(node, DataNode)]
        if parts[-1].keys and n_tasks + len(tasks) > most:
            parts.append(Wave({}, []))
            n_tasks, new = 0, _reached(graph, [key], {})
            tasks = [k for k, node in new.items() if not isinstance(node, DataNode)]
        repeated += sum(k in seen for k in tasks)
        if repeated > _REPEATED * len(graph):
            return [Wave(_reached(graph, keys, {}), list(keys))]
        seen.update(tasks)
        n_tasks += len(tasks)
        parts[-1].graph.update(new)
        parts[-1].keys.append(key)
    return parts


def _reached(graph: Graph, keys: Sequence[Key], known: Graph) -> dict[Key, Any]:
    """What keys need that is not known yet, themselves included."""
    new: dict[Key, Any] = {}
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        if key in new or key in known or key not in graph:
            continue
        new[key] = node = graph[key]
        waiting.extend(getattr(node, "dependencies", ()))
    return new
