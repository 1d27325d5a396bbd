"""How far scores at one theta serve another: checkpoints of a training, say."""

from typing import Any

import numpy as np

from dask_nlis.diagnostics.drift_noun import Drift
from dask_nlis.diagnostics.drift_sums import Comparison, Factors, Table, comparison_block, factors_block
from dask_nlis.diagnostics.row_tables import check_count
from dask_nlis.diagnostics.total_loss import summed
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.factor.sums import check_finite_factor, read_sum
from dask_nlis.intake import Rows
from dask_nlis.kernels.linalg import spectrum
from dask_nlis.matrix import Dual, TallMatrix, dual_at, shared
from dask_nlis.problem import Problem, check_theta

#: Width of a square matrix as large as the tables of a pair usually are.
_TABLE_WIDTH = 100

_BY = ("leverage", "norm", "loss")


def drift(
    problem: Problem,
    X: Any,
    y: Any,
    thetas: Any,
    *,
    by: str = "leverage",
    top: int = 100,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> Drift:
    """Compare scores at checkpoints: X (n, d), y (n,), thetas (k, p) -> Drift. Two reads of X; one by norm or loss.

    Each checkpoint is compared with the next one and with the last: are the scores made at the earlier theta still
    good for sampling at the later one, and are the highest rows the same? Nothing of size n is kept; a block adds
    sums, its highest rows and a table of ranks. The first read, for leverage, makes the k factors (by QR, at any
    condition; scores hold to 100 kappa eps); the other one makes all scores, and the losses, however many checkpoints.

    Parameters
    ----------
    problem : Problem
        Model and loss; the set plays no part.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,) or (n, n_outputs)
        Labels; a column an output where a loss is summed over several.
    thetas : array_like of shape (k, p)
        Checkpoints, earliest first, at least two.
    by : {"leverage", "norm", "loss"}
        Which scores: those of `leverage_scores`, `norm_scores` or `loss_scores` of the dual matrix at theta.
    top : int, default 100
        Highest rows that are compared; all rows where there are fewer.
    sample_weight : array_like of shape (n,), optional
        Row weights >= 0; rows of weight 0 are not compared.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Drift

    Raises
    ------
    InputError, InputTypeError
        If thetas are not (k, p) with k >= 2, or by or top are not allowed.
    NonFiniteError
        If a cell, a loss or a score is not finite, naming the row, or a sum of them is not.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    Memory of a task and of the client: k p^2 numbers of the factors, and for each of the 2 k - 3 pairs a table of at
    most (8 times the octaves the scores span)^2 counts.

    The affinity is that of Bhattacharyya (1943), the rank correlation that of Spearman (1904); beta is the misestimation
    factor of Rajmohan & Roosta (ICML 2025), of the earlier scores for the later ones.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    >>> X, y = np.arange(12.0).reshape(6, 2) / 10, np.array([0.1, 0.9, 0.2, 0.8, 0.3, 0.7])
    >>> found = nlis.drift(problem, X, y, [[0, 0, 0], [0.5, 0, 0], [0.6, 0.1, 0]], by="norm", top=3)
    >>> found.pairs.tolist(), found.top_overlap.round(2), found.beta.round(2)
    ([[0, 1], [1, 2], [0, 2]], array([1., 1., 1.]), array([0.93, 0.94, 0.88]))
    """
    if not isinstance(by, str) or by not in _BY:
        raise InputError(f"by={by!r} is not known; give one of {', '.join(map(repr, _BY))}")
    check_count("top", top)
    if y is None:
        raise InputTypeError("y is None, but the loss needs labels; give an array of shape (n,)")
    table = _table(thetas)
    options = {"sample_weight": sample_weight, "missing": missing, "device": device, "block_bytes": block_bytes}
    matrix = dual_at(problem, X, y, table[0], argument="thetas[0]", **options)
    rules = _rules(problem, table, matrix.source)
    whiteners = _whiteners(matrix, rules) if by == "leverage" else None
    pairs = _pairs(len(rules))
    found: Comparison = read_sum(
        matrix,
        comparison_block,
        int(_TABLE_WIDTH * np.sqrt(len(pairs))),
        rules=rules,
        whiteners=None if whiteners is None else shared(whiteners, "nlis-whitener"),
        by=by,
        pairs=pairs,
        top=min(int(top), matrix.shape[0]),
    )
    return _drift(found, pairs, by, reads=2 if by == "leverage" else 1)


def _table(thetas: Any) -> list[Any]:
    try:
        shape = np.shape(thetas)
    except ValueError as cause:
        raise InputError("thetas are of unequal lengths; give (k, p), a checkpoint a row") from cause
    if len(shape) != 2 or shape[0] < 2:
        raise InputError(f"thetas have shape {shape}; give (k, p), a checkpoint a row, at least two")
    # A table is gone through by its columns, so it becomes an array first.
    return list(thetas.to_numpy() if hasattr(thetas, "to_numpy") and hasattr(thetas, "iloc") else thetas)


def _rules(problem: Problem, table: list[Any], source: Rows) -> tuple[Dual, ...]:
    return tuple(
        Dual(problem, check_theta(problem, theta, source.n_columns, source.names, f"thetas[{k}]"))
        for k, theta in enumerate(table)
    )


def _pairs(k: int) -> np.ndarray:
    """Neighbours, then each checkpoint before them and the last."""
    return np.array([(i, i + 1) for i in range(k - 1)] + [(i, k - 1) for i in range(k - 2)], dtype=np.int64)


def _whiteners(matrix: TallMatrix, rules: tuple[Dual, ...]) -> tuple[tuple[np.ndarray, np.ndarray | None], ...]:
    """One read: what turns the rows at each theta into leverages."""
    width = int(matrix.shape[1] * np.sqrt(len(rules)))
    found: Factors = read_sum(matrix, factors_block, width, rules=rules)
    check_finite_factor(found.r)
    decided = [spectrum(r) for r in found.r]
    for k, each in enumerate(decided):
        if not each.rank:
            raise InputError(
                f"all rows of the matrix are zero at thetas[{k}], so no row has leverage; check theta and the data"
            )
    return tuple((each.whitener, each.correction) for each in decided)


def _drift(found: Comparison, pairs: np.ndarray, by: str, reads: int) -> Drift:
    first, second = pairs.T
    totals = found.totals
    for values, what in ((found.losses, "losses"), (totals, "scores")):
        for value in values:
            summed([value], what)
    nothing = (totals[first] == 0) | (totals[second] == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        affinity = np.where(nothing, 0.0, found.affinity / np.sqrt(totals[first]) / np.sqrt(totals[second]))
        beta = np.where(nothing, 0.0, found.ratio * (totals[second] / totals[first]))
    highest = [set(line[line >= 0].tolist()) for line in found.rows]
    top = max(map(len, highest))
    return Drift(
        losses=found.losses,
        pairs=pairs,
        rank_correlation=np.array([spearman(table) for table in found.tables]),
        top_overlap=np.array([len(highest[i] & highest[j]) / max(top, 1) for i, j in pairs]),
        affinity=np.minimum(affinity, 1.0),
        beta=np.minimum(beta, 1.0),
        by=by,
        top=top,
        n_rows=found.n_rows,
        reads=reads,
    )


def spearman(table: Table) -> float:
    """Spearman's rank correlation of two columns of bins, ties at their mean rank; NaN where one column is constant."""
    ranks = [_ranks(column, table.counts) for column in table.bins.T]
    n = table.counts.astype(np.float64)
    a, b = ((n * rank * rank).sum() for rank in ranks)
    return float((n * ranks[0] * ranks[1]).sum() / np.sqrt(a) / np.sqrt(b)) if a > 0 and b > 0 else float("nan")


def _ranks(column: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean rank of each bin in the column, less the mean of all, over the number of rows."""
    distinct, place = np.unique(column, return_inverse=True)
    many = np.zeros(len(distinct))
    np.add.at(many, place, counts)
    return ((np.cumsum(many) - many / 2 - many.sum() / 2) / max(many.sum(), 1.0))[place]
