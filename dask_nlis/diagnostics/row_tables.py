"""The rows with the largest or smallest scores, with their features."""

from math import prod
from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.blocks import starts
from dask_nlis.diagnostics.frames import pandas
from dask_nlis.errors import InputError, InputTypeError, NlisWarning
from dask_nlis.intake import default_names, open_array
from dask_nlis.nouns import noun
from dask_nlis.sample import take_rows


@noun
class RowTable:
    """Some rows, in order of rank.

    Attributes
    ----------
    indices : ndarray of shape (k,), int64
        Global row numbers.
    scores : ndarray of shape (k,)
        Their scores.
    X : ndarray of shape (k, d) or None
        Their features, when X was given; (k, ...) of X of shape (n, ...), such as images.
    names : tuple of str
        Feature names, one a number of a row; empty when X was not given.
    n_non_finite : int
        Scores that are NaN or infinite; such rows are in no table.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> found = nlis.top_rows(np.array([0.1, 0.7, 0.2]), k=2, X=X)
    >>> found.X
    array([[3., 4.],
           [5., 6.]])
    >>> found.to_frame().columns.to_list()
    ['row', 'score', 'x0', 'x1']
    """

    indices: np.ndarray
    scores: np.ndarray
    X: np.ndarray | None
    names: tuple[str, ...]
    n_non_finite: int

    def __len__(self) -> int:
        return len(self.indices)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: row, score, then the features.

        Returns
        -------
        pandas.DataFrame
            (k, 2), or (k, 2 + d) where X was given; rows of more dimensions are flattened in C order.

        Raises
        ------
        MissingExtraError
            If pandas is not installed: it comes with the extra `dataframe`.
        """
        features = {} if self.X is None else dict(zip(self.names, self.X.reshape(len(self), -1).T, strict=True))
        return pandas().DataFrame({"row": self.indices, "score": self.scores, **features})

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "rows": self.indices.tolist()[:5],
            "scores": [float(f"{s:.4g}") for s in self.scores[:5]],
        }
        return shown | ({"n_non_finite": self.n_non_finite} if self.n_non_finite else {})


def top_rows(scores: Any, k: int = 20, *, X: Any = None) -> RowTable:
    """Find the k rows with the largest scores: (n,) -> RowTable. Computes lazy scores once; with X reads the blocks touched.

    Ties go to the smaller row number; non-finite scores are counted apart. A ranking for looking at rows, not for
    sampling: taking the top rows instead of drawing is far worse than random.

    Parameters
    ----------
    scores : array_like of shape (n,)
        Lazy or not.
    k : int, default 20
        How many; clipped to the number of finite scores, with a warning.
    X : array_like of shape (n, d) or (n, ...), optional
        Where the features of those rows are taken from.

    Returns
    -------
    RowTable

    Raises
    ------
    InputError, InputTypeError
        If k is no positive integer, or the lengths differ.
    MissingDataError
        If a path was given and nothing is stored there.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.top_rows(np.array([0.1, 0.9, 0.9, 0.3]), k=3).indices
    array([1, 2, 3])
    """
    return _ranked(scores, k, X, largest=True)


def bottom_rows(scores: Any, k: int = 20, *, X: Any = None) -> RowTable:
    """Find the k rows with the smallest scores: (n,) -> RowTable, as `top_rows`. Computes lazy scores once.

    Parameters
    ----------
    scores : array_like of shape (n,)
        Lazy or not.
    k : int, default 20
        How many.
    X : array_like of shape (n, d) or (n, ...), optional
        Where the features of those rows are taken from.

    Returns
    -------
    RowTable

    Raises
    ------
    InputError, InputTypeError
        If k is no positive integer, or the lengths differ.
    MissingDataError
        If a path was given and nothing is stored there.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.bottom_rows(np.array([0.1, 0.9, np.nan, 0.3]), k=2)
    RowTable(rows=[0, 3], scores=[0.1, 0.3], n_non_finite=1)
    """
    return _ranked(scores, k, X, largest=False)


def check_count(argument: str, value: Any) -> None:
    """Raise unless the value is a number of rows."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(f"{argument}={value!r} is {type(value).__name__}; give a positive integer")
    if value < 1:
        raise InputError(f"{argument}={value} is not allowed; give a positive integer")


def _ranked(scores: Any, k: Any, X: Any, largest: bool) -> RowTable:
    check_count("k", k)
    array = open_array("scores", scores).array
    if array.ndim != 1:
        raise InputError(f"scores have shape {array.shape}; give (n,), one score a row")
    features = None if X is None else open_array("X", X, chunks=array.chunks[0])
    if features is not None and (features.array.ndim < 2 or features.array.shape[0] != array.shape[0]):
        raise InputError(
            f"X has shape {features.array.shape}, scores {array.shape}; give X of shape ({array.shape[0]}, d)"
        )
    first = starts(array.chunks[0])
    tasks = {block: (int(first[block]), int(k), largest) for block in range(array.numblocks[0])}
    parts = phase.on_blocks(array, "nlis-score", _block_ranked, tasks)
    rows, values = (np.concatenate([part[j] for part in parts]) for j in (0, 1))
    order = np.lexsort((rows, -values if largest else values))[:k]
    if len(order) < k:
        phase.warn(f"k={k} exceeds the {len(order)} finite scores; all of them are returned", NlisWarning)
    indices = rows[order].astype(np.int64)
    taken: np.ndarray | None = None
    names: tuple[str, ...] = ()
    if features is not None:
        taken = np.asarray(take_rows("X", X, indices, array.shape[0]), dtype=np.float64)
        names = features.names or default_names(prod(taken.shape[1:]))
    return RowTable(indices, values[order], taken, names, sum(part[2] for part in parts))


def _block_ranked(scores: np.ndarray, start: int, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray, int]:
    finite = np.flatnonzero(np.isfinite(scores))
    values = np.asarray(scores[finite], dtype=np.float64)
    # A stable sort keeps smaller rows first among ties.
    order = np.argsort(-values if largest else values, kind="stable")[:k]
    return start + finite[order], values[order], len(scores) - len(finite)
