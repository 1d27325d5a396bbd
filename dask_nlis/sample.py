"""A weighted sample of rows: which rows, how often, with what weight; and taking them out of arrays."""

from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from dask_nlis import phase
from dask_nlis.blocks import locate
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import open_array
from dask_nlis.kernels.draw import whole_numbers
from dask_nlis.kernels.weights import effective_sample_size
from dask_nlis.nouns import from_dict, noun, to_dict

#: `take` refuses to bring more than this into memory unless told otherwise.
MAX_TAKE_BYTES = 4 * 2**30


@noun
class Scale:
    """How scores became probabilities: enough to give the expected count of any row from its score.

    Attributes
    ----------
    scheme : str
        "multinomial" or "poisson".
    exponent : int
        e, the exponent of the largest score: scores are taken relative to 2^e.
    total : int
        Q, the sum of the integer scores q = floor(score 2^(62 - e)) (multinomial).
    factor : float
        c of min(1, c score 2^-e) (poisson).
    """

    scheme: str
    exponent: int = 0
    total: int = 0
    factor: float = 0.0

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Selection probability a draw (multinomial) or inclusion probability (poisson) of rows with these scores."""
        if self.scheme == "multinomial":
            # Integers up to 2^62 over an integer up to 2^96: each is rounded once, then their quotient.
            return whole_numbers(scores, self.exponent) / float(self.total)
        with np.errstate(over="ignore", under="ignore"):
            return np.minimum(1.0, self.factor * np.ldexp(scores, -self.exponent))


@noun
class Sample:
    """Drawn rows with their weights; a weighted sum over them estimates the sum over all rows without bias.

    Attributes
    ----------
    indices : ndarray of shape (m,), int64
        Distinct rows, ascending.
    counts : ndarray of shape (m,), int64
        How often each was drawn; 1 without replacement.
    probabilities : ndarray of shape (m,)
        Selection probability a draw (multinomial) or inclusion probability (poisson).
    weights : ndarray of shape (m,)
        counts / (n_draws probabilities) with replacement, 1 / probabilities without.
    variance_weights : ndarray of shape (m,)
        Terms of the design variance: w^2 / count (multinomial), w (w - 1) (poisson).
    draws : ndarray, int64
        Position in `indices` of each draw, in the order of the draws.
    stage : ndarray, int64
        Stage of each draw.
    scale : Scale
        How scores became probabilities.
    n_draws : int
        Draws made (multinomial), or the expected number of rows (poisson).
    n_rows : int
        Rows that could be drawn from.
    scheme : str
        "multinomial" (with replacement) or "poisson" (each row in or out by its own coin).
    seed : int
        Seed of the draw.
    feature_names : tuple of str
        Names of the features behind the scores, for the fit; empty where they are not known.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> sample = nlis.draw(np.array([1.0, 0.0, 3.0, 0.0]), 4, seed=0)
    >>> sample.indices, int(sample.counts.sum()), len(sample)
    (array([0, 2]), 4, 2)
    """

    indices: np.ndarray
    counts: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    variance_weights: np.ndarray
    draws: np.ndarray
    stage: np.ndarray
    scale: Scale
    n_draws: int
    n_rows: int
    scheme: str
    seed: int
    feature_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("indices", "counts", "probabilities", "weights", "variance_weights", "draws", "stage"):
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def effective_size(self) -> float:
        """Kish's effective sample size, (sum w)^2 / sum w^2 over draws: a pessimistic diagnostic, no error bar."""
        return effective_sample_size(self.weights, self.counts) if len(self) else 0.0

    @property
    def design_effect(self) -> float:
        """Kish's design effect per draw: number of draws over effective size; 1 for uniform scores."""
        return float(self.counts.sum()) / self.effective_size if len(self) else float("nan")

    def expected_count(self, scores: Any) -> np.ndarray:
        """Expected number of times a row with this score is in the sample, array in, array out.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> nlis.draw(np.array([1.0, 3.0, 4.0]), 2, seed=0).expected_count(np.array([1.0, 4.0]))
        array([0.25, 1.  ])
        """
        values = np.asarray(scores)
        if values.dtype.kind not in "biuf" or not (np.isfinite(values) & (values >= 0)).all():
            raise InputError("scores are no finite numbers >= 0; give scores such as those the sample was drawn by")
        probabilities = self.scale.probabilities(values.astype(np.float64))
        return probabilities * (self.n_draws if self.scheme == "multinomial" else 1)

    def take(self, *arrays: Any, max_bytes: int = MAX_TAKE_BYTES) -> Any:
        """Take the drawn rows out of arrays; reads only the blocks that hold drawn rows.

        Parameters
        ----------
        *arrays : array_like of shape (n, ...)
            NumPy, Dask, Zarr, a path, pandas or xarray, with any trailing shape.
        max_bytes : int, default 4 GiB
            More than this is refused before anything is read.

        Returns
        -------
        array or tuple of arrays
            One array for one argument, else a tuple: pandas for pandas, DataArray for xarray, NumPy for the
            rest; row k belongs to `indices[k]` and `weights[k]`.

        Raises
        ------
        InputError
            If an array has too few rows, or the rows would not fit in `max_bytes`.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> sample = nlis.draw(np.array([1.0, 0.0, 3.0, 0.0]), 4, seed=0)
        >>> sample.take(np.array([10, 20, 30, 40]))
        array([10, 30])
        """
        if not arrays:
            raise InputTypeError("take got no array; give X, or X and y")
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int | np.integer):
            raise InputTypeError(f"max_bytes={max_bytes!r} is {type(max_bytes).__name__}; give a number of bytes")
        taken = tuple(
            take_rows(f"array {k}", array, self.indices, self.n_rows, max_bytes) for k, array in enumerate(arrays)
        )
        return taken[0] if len(taken) == 1 else taken

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as JSON values and arrays."""
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Sample":
        """Rebuild a sample from `to_dict`."""
        sample: Sample = from_dict(found, {"Sample": Sample, "Scale": Scale})
        return sample

    def _summary(self) -> dict[str, Any]:
        return {
            "rows": len(self),
            "n_draws": self.n_draws,
            "scheme": self.scheme,
            "n_rows": self.n_rows,
            "effective_size": round(self.effective_size, 1),
            "seed": self.seed,
        }


def take_rows(argument: str, array: Any, rows: np.ndarray, n_rows: int, max_bytes: int = MAX_TAKE_BYTES) -> Any:
    """Take global rows, in the order given, out of an array of any accepted kind; reads only the blocks touched."""
    library = type(array).__module__.partition(".")[0]
    in_memory = isinstance(array, np.ndarray) or library == "pandas"
    lazy = None if in_memory else open_array(argument, array)
    shape = tuple(array.shape) if lazy is None else lazy.array.shape
    if not shape or shape[0] != n_rows:
        raise InputError(
            f"{argument} has {shape[0] if shape else 0:,} rows, but the sample was drawn from {n_rows:,}; give the same data"
        )
    itemsize = 8 if library == "pandas" else (array if lazy is None else lazy.array).dtype.itemsize
    needed = len(rows) * int(np.prod(shape[1:], dtype=np.int64)) * itemsize
    if needed > max_bytes:
        raise InputError(
            f"{argument}: the {len(rows):,} rows take {needed:,} bytes, above max_bytes={max_bytes:,}; "
            "draw fewer rows or give a larger max_bytes"
        )
    if lazy is None:
        return array.iloc[rows] if library == "pandas" else array[rows]
    if library == "xarray" and not lazy.container.lazy:
        return array[rows]
    order = np.argsort(rows, kind="stable")
    taken = np.empty((len(rows), *shape[1:]), dtype=lazy.array.dtype)
    taken[order] = _gather(lazy.array, rows[order])
    return array[rows].copy(data=taken) if library == "xarray" else taken


def _gather(array: da.Array, indices: np.ndarray) -> np.ndarray:
    """Rows of a lazy array: one task for each block that holds one, read and selection fused."""
    if not len(indices):
        return np.empty((0, *array.shape[1:]), dtype=array.dtype)
    if any(len(axis) > 1 for axis in array.chunks[1:]):
        array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1), method="tasks")
    name = f"nlis-gather-{tokenize(array.name, indices)}"
    touched = locate(indices, array.chunks[0])
    first = np.cumsum([0, *array.chunks[0]])
    rest = (0,) * (array.ndim - 1)
    graph = {
        (name, k, *rest): Task(
            (name, k, *rest), _select, TaskRef((array.name, block, *rest)), indices[a:b] - first[block]
        )
        for k, (block, a, b) in enumerate(touched)
    }
    selected = da.Array(
        HighLevelGraph.from_collections(name, graph, dependencies=[array]),
        name,
        chunks=(tuple(b - a for _, a, b in touched), *array.chunks[1:]),
        meta=array._meta,
    )
    return np.concatenate(phase.blocks_of(selected, "nlis-gather"))


def _select(block: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(block)[rows]
