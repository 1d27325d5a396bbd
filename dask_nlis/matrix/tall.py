"""The tall matrix: what it is made from, its shape, and the one way to run a task over its blocks."""

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArrayValuesDep

from dask_nlis.blocks import starts
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.graph import on_readers, optimised
from dask_nlis.intake import Rows, with_names
from dask_nlis.kernels.numbers import is_whole
from dask_nlis.matrix.rules import Dual, Modelled, Rule, Tangent, width
from dask_nlis.matrix.sharing import sent_once
from dask_nlis.matrix.tasks import Job, rows_block
from dask_nlis.nouns import noun
from dask_nlis.problem import Problem


@noun
class TallMatrix:
    """A tall matrix with one row a data row, lazy and never formed.

    Made by `dual_matrix`, `reference_matrix` and `tangent_matrix`, or from any 2-D array. Reads nothing.

    Attributes
    ----------
    source : Rows
        X, y and row weights as they were checked, in blocks of rows.
    rule : Rule
        What makes a row of them: the problem with theta, or nothing for plain rows.
    missing : {"raise", "drop"}
        What is done with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}
        Where tasks compute.

    Notes
    -----
    The nonlinear dual matrix of Rajmohan & Roosta (ICML 2025, Definition 3.2), or a relative of it.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), np.eye(2), np.array([3.0, 4.0]))
    >>> A.columns
    ('x0', 'x1', 'intercept', 'f(0), with label')
    >>> A.to_dask_array().compute()
    array([[ 1.,  0.,  1., -3.],
           [ 0.,  1.,  1., -4.]])
    >>> A.shape, A.has_labels, A.label_columns, A.theta, A.problem == nlis.Problem(nlis.Linear())
    ((2, 4), True, 1, None, True)
    >>> A.token == nlis.reference_matrix(nlis.Problem(nlis.Linear()), np.eye(2), np.array([3.0, 5.0])).token
    False
    """

    source: Rows
    rule: Rule
    missing: str = "raise"
    device: str = "auto"

    @property
    def shape(self) -> tuple[int, int]:
        """(n, p), n the data rows."""
        return self.source.n_rows, width(self.rule, self.source.names, self.has_labels)

    @property
    def has_labels(self) -> bool:
        """Whether the labels are in it: in the last column, or in the rows of a tangent matrix."""
        return self.source.y is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of each column."""
        return self.rule.columns(self.source.names, self.has_labels)

    @property
    def problem(self) -> Problem | None:
        """The problem behind it; None for a plain array."""
        return self.rule.problem if isinstance(self.rule, Modelled) else None

    @property
    def label_columns(self) -> int:
        """Columns of y: 1 for y of shape (n,)."""
        return 1 if self.problem is None else self.problem.label_columns

    @property
    def theta(self) -> np.ndarray | None:
        """Theta (p,) of a dual or tangent matrix; None otherwise."""
        return self.rule.theta if isinstance(self.rule, Dual | Tangent) else None

    @property
    def token(self) -> str:
        """Equal for equal data, rule and theta; compared by `leverage_scores`."""
        return tokenize(self.source.token, self.rule, self.missing)

    @property
    def rule_token(self) -> str:
        """Equal for equal problem and theta, whatever the data."""
        return tokenize(self.rule)

    @property
    def job(self) -> Job:
        """What the tasks over its blocks carry."""
        return Job(self.rule, self.source.names, self.shape[1], self.missing, self.device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TallMatrix) and (self.token, self.device) == (other.token, other.device)

    def __hash__(self) -> int:
        return hash((self.token, self.device))

    def to_dask_array(self) -> da.Array:
        """Return the rows as a lazy Dask array (n, p); one task a block, X and y read inside it.

        Where a data row is k rows of the matrix (`Problem` with separate outputs; tangent matrices of several) it is
        (n k, p), those of a data row one after the other.

        Returns
        -------
        dask.array.Array of shape (n, p), float64
            In the blocks of X.
        """
        lazy = map_blocks(
            self,
            rows_block,
            "nlis-rows",
            columns=self.shape[1],
            each=self.rule.each,
            meta=np.empty((0, 0)),
            job=self.job,
        )
        return _rekeyed(lazy, 2)

    def block(self, i: int) -> da.Array:
        """Return the rows of block i as a lazy Dask array; from the end for negative i.

        Parameters
        ----------
        i : int
            Number of a block, from 0 on.

        Returns
        -------
        dask.array.Array of shape (m, p), float64
            The m rows of the block; reads that block alone when computed.

        Raises
        ------
        InputTypeError
            If i is no integer.
        InputError
            If there is no such block.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), np.eye(2), np.array([3.0, 4.0]))
        >>> A.block(-1).shape
        (2, 4)
        """
        n_blocks = len(self.source.chunks)
        if not is_whole(i):
            raise InputTypeError(f"i={i!r} is {type(i).__name__}; give the number of a block")
        if not -n_blocks <= i < n_blocks:
            raise InputError(f"i={i} is no block; give a number from 0 to {n_blocks - 1}")
        block: da.Array = self.to_dask_array().blocks[i]
        return block

    def _summary(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "rule": type(self.rule).__name__,
            "has_labels": self.has_labels,
            "blocks": len(self.source.chunks),
            "missing": self.missing,
            "device": self.device,
        }


def map_blocks(
    matrix: TallMatrix,
    task: Callable[..., Any],
    label: str,
    *,
    columns: int = 1,
    rows: int | None = None,
    each: int = 1,
    beside: da.Array | None = None,
    meta: np.ndarray,
    **arguments: Any,
) -> da.Array:
    """Run `task(x, y, weight, start, **arguments)` on every block, read and work fused into one task a block.

    No axis is dropped: that would double the tasks. Results have `columns` columns and as many rows as the
    block, or `each` times as many, or `rows`. Blocks of `beside` (n,), chunked as X, come as the fifth argument. Theta and other arrays among the
    arguments are sent to each worker once, however many blocks there are.
    """
    source = matrix.source
    read = (source.x, source.y, source.weight)
    arguments = {argument: sent_once(value) for argument, value in arguments.items()}
    name = f"{label}-{tokenize(task, source.token, source.chunks, columns, rows, each, arguments)}"
    whole = tuple(each * length for length in source.chunks)
    first = starts(source.chunks).tolist()
    if beside is None and (graph := on_readers(name, task, read, first, arguments)) is not None:
        lengths = whole if rows is None else (rows,) * len(first)
        return da.Array(graph, name, chunks=(lengths, (columns,)), meta=meta)
    pairs: list[Any] = []
    for array in read:
        pairs += [None, None] if array is None else [array, "ij"[: array.ndim]]
    lengths_of = {} if rows is None and each == 1 else {"i": whole if rows is None else rows}
    sizes: dict[str, Any] = {"j": columns, **lengths_of}
    lazy: da.Array = da.blockwise(
        task,
        "ij",
        *pairs,
        ArrayValuesDep((source.chunks,), starts(source.chunks)),
        "i",
        *(() if beside is None else (beside, "i")),
        adjust_chunks=sizes,
        dtype=meta.dtype,
        meta=meta,
        token=label,
        align_arrays=False,
        **arguments,
    )
    return lazy


def map_boxes(matrix: TallMatrix, task: Callable[..., Any], label: str, **arguments: Any) -> da.Array:
    """Run a task over the blocks as `map_blocks` does where each gives one object, such as `boxed` makes: (blocks, 1)."""
    meta = np.empty((0, 0), dtype=object)
    return map_blocks(matrix, task, label, rows=1, meta=meta, job=matrix.job, **arguments)


def boxed(value: Any) -> np.ndarray:
    """Put what a task found into a 1 x 1 object array, the block of a Dask array."""
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = value
    return out


def without_column_axis(array: da.Array) -> da.Array:
    """Turn a lazy (n, 1) array whose blocks are already of shape (m,) into a lazy (n,) array, tasks unchanged.

    Slicing or squeezing would put a second task behind every block; here each task gets a one-index key.
    """
    return _rekeyed(array, 1)


def one_a_row(matrix: TallMatrix, lazy: da.Array) -> da.Array:
    """Values of the rows of a matrix, (n, 1) -> (n,) as above, with the feature names where there are any of the user's."""
    return with_names(without_column_axis(lazy), matrix.source.names)


def _rekeyed(array: da.Array, ndim: int) -> da.Array:
    """Optimise an array now and key its tasks by the first `ndim` indices, so that no alias is left behind them."""
    name = array.name + "-rows"
    graph = {}
    for key, node in optimised(array).items():
        mine = isinstance(key, tuple) and key[0] == array.name
        new = (name, *key[1 : 1 + ndim]) if mine else key
        graph[new] = node.substitute({}, key=new) if mine else node
    return da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[]),
        name,
        chunks=array.chunks[:ndim],
        meta=np.empty((0,) * ndim, dtype=array.dtype),
    )
