"""What a sample is worth, measured on it: the realised embedding, the interval of the loss, what cannot be drawn."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics.bootstrap import interval
from dask_nlis.diagnostics.certificate_noun import Certificate
from dask_nlis.diagnostics.deep import Deep, read_deep
from dask_nlis.diagnostics.total_loss import summed
from dask_nlis.errors import InputError, InputTypeError, MatrixMismatchError
from dask_nlis.factor import Factor
from dask_nlis.intake import take_in
from dask_nlis.kernels.linalg import whitened
from dask_nlis.matrix import Dual, TallMatrix, as_matrix
from dask_nlis.problem import check_theta
from dask_nlis.sample import Sample, take_rows
from dask_nlis.scores import check_factor, lazy_losses
from dask_nlis.theory import norm_misestimation_factor, sample_size

#: Probability of failure at which the theorem's size is given.
_FAILURE = 0.05


def certificate(
    A: Any, factor: Factor, sample: Sample, *, scores: Any = None, theta: Any = None, deep: bool = False
) -> Certificate:
    """Measure what a sample is worth for a matrix: A (n, p), its factor, the sample -> Certificate. Reads the blocks touched.

    Computes. With A of the taken rows only (`dual_matrix(problem, *sample.take(X, y), theta=...)`) no read; with
    `deep` one read of X on top of what lazy scores take (persist them, or use those of a run).

    The realised epsilon speaks of this sample, at the theta of A, and of every quadratic form of A, such as the loss of
    any model that is linear in A's columns. It says nothing uniform over theta: that is the paper's theorem, whose size is
    given beside it.

    Parameters
    ----------
    A : TallMatrix or array_like of shape (n, p)
        The matrix of all rows, or of the rows of the sample in their order, with the same problem and theta.
    factor : Factor
        `factorize(A)` of all rows.
    sample : Sample
        Drawn from those rows.
    scores : array_like of shape (n,), optional
        The scores the rows were drawn by, for `deep`.
    theta : array_like of shape (p,), optional
        Where the loss is estimated, such as the fit to the sample; the theta of A by default.
    deep : bool, default False
        Also measure, over all rows, the misestimation factor of the scores, the identity residual, the rows that can
        never be drawn, and the loss.

    Returns
    -------
    Certificate

    Raises
    ------
    MatrixMismatchError
        If the factor belongs to another matrix, or covers other rows than those the sample was drawn from.
    InputError
        If the sample is empty or of other rows, the factor is only a sketch, or `deep` lacks scores or A of all rows.
    NonFiniteError
        If a row, a loss or the sum of the losses is not finite.
    InputTypeError
        If an argument is of another type.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    A sample with epsilon below 1 is a subspace embedding of A (Woodruff 2014, definition 1), which the sampling theorems
    promise beforehand at a size (`sample_size`) and which is measured here afterwards.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
    >>> rough = nlis.pilot(problem, X, y, 400, seed=0)
    >>> A = nlis.dual_matrix(problem, X, y, theta=rough.theta)
    >>> factor = nlis.factorize(A)
    >>> sample = nlis.draw(nlis.leverage_scores(A, factor), 1_000, seed=1)
    >>> found = nlis.certificate(A, factor, sample)
    >>> found.is_embedding, found.n_sample
    (True, 807)
    """
    matrix = as_matrix(A)
    _check(matrix, factor, sample, scores, deep)
    points = _points(matrix, theta)
    rows = taken_matrix(matrix, sample) if matrix.shape[0] == sample.n_rows else matrix
    found = certified(rows, factor, sample, points)
    if not deep:
        return found
    return _deepened(found, read_deep(matrix, factor, scores, points), factor)


class Points(NamedTuple):
    """Where losses are wanted: at the theta of the matrix and at that of a fit; None where there is none."""

    matrix: np.ndarray | None
    fit: np.ndarray | None

    @property
    def known(self) -> list[np.ndarray]:
        """Those there are."""
        return [theta for theta in self if theta is not None]


def taken_matrix(matrix: TallMatrix, sample: Sample) -> TallMatrix:
    """The matrix of the drawn rows alone, in memory; reads the blocks that hold them."""
    source = matrix.source
    parts = [
        None if array is None else np.asarray(take_rows("A", array, sample.indices, sample.n_rows))
        for array in (source.x, source.y, source.weight)
    ]
    return TallMatrix(take_in(*parts, label_columns=matrix.label_columns), matrix.rule, matrix.missing, matrix.device)


def certified(taken: TallMatrix, factor: Factor, sample: Sample, points: Points) -> Certificate:
    """Certificate of a sample from the matrix of its rows; reads nothing else."""
    rows = np.concatenate(phase.blocks_of(taken.to_dask_array(), "nlis-certificate"))
    epsilon = realised_epsilon(rows, sample.weights, factor)
    size = None
    if 0 < epsilon < 1:
        size = sample_size(factor.rank, epsilon, _FAILURE, rank=factor.rank, guarantee="embedding").size
    losses = [_losses(taken, theta) for theta in points.known]
    last = losses[-1] if losses else None
    with np.errstate(over="ignore"):
        sums = [summed([float(sample.weights @ each)]) for each in losses]
    low, high = (None, None) if last is None else interval(sample, last)
    return Certificate(
        epsilon=epsilon,
        rank=factor.rank,
        n_sample=len(sample),
        n_rows=sample.n_rows,
        theorem_size=size,
        effective_size=sample.effective_size,
        largest_weight=float(sample.weights.max() / sample.weights.sum()),
        loss=sums[-1] if sums else None,
        loss_low=low,
        loss_high=high,
        excess=_excess(sums),
        beta_norm=norm_misestimation_factor(factor),
        beta=None,
        identity_residual=None,
        unreachable_rows=None,
        unreachable_loss=None,
        total_loss=None,
    )


def realised_epsilon(rows: np.ndarray, weights: np.ndarray, factor: Factor) -> float:
    """Largest |eigenvalue - 1| of W'F_S'D F_S W, rows F_S (m, p), or (m k, p), D the weights (m,)."""
    # A data row may be several rows of the matrix, all of its weight.
    white = np.repeat(np.sqrt(weights), len(rows) // len(weights))[:, None] * whitened(
        rows, factor.whitener, factor.correction
    )
    return float(np.abs(np.linalg.eigvalsh(white.T @ white) - 1.0).max())


def _losses(taken: TallMatrix, theta: np.ndarray) -> np.ndarray:
    """Loss of each taken row, times its row weight, (m,)."""
    assert taken.problem is not None
    there = TallMatrix(taken.source, Dual(taken.problem, theta), taken.missing, taken.device)
    return phase.computed(lazy_losses(there), "nlis-certificate")


def _excess(sums: list[float]) -> float | None:
    return sums[1] / sums[0] - 1 if len(sums) == 2 and sums[0] > 0 else None


def _deepened(found: Certificate, deep: Deep, factor: Factor) -> Certificate:
    return replace(
        found,
        beta=min(1.0, float(deep.ratio * factor.rank / deep.total)) if deep.total else 0.0,
        identity_residual=deep.residual,
        unreachable_rows=deep.unreachable_rows,
        unreachable_loss=deep.unreachable_loss,
        total_loss=deep.losses[-1] if deep.losses else None,
        excess=_excess(list(deep.losses)),
    )


def _points(matrix: TallMatrix, theta: Any) -> Points:
    labelled = matrix.problem is not None and matrix.has_labels
    if theta is None:
        return Points(matrix.theta if labelled else None, None)
    if matrix.problem is None or not labelled:
        raise InputError("theta is given, but A has no labels, so no loss; give dual_matrix(problem, X, y, theta=...)")
    return Points(matrix.theta, check_theta(matrix.problem, theta, matrix.source.n_columns, matrix.source.names))


def _check(matrix: TallMatrix, factor: Any, sample: Any, scores: Any, deep: Any) -> None:
    if not isinstance(factor, Factor):
        raise InputTypeError(f"factor is {type(factor).__name__}; give factorize(A)")
    if not isinstance(sample, Sample):
        raise InputTypeError(f"sample is {type(sample).__name__}; give draw(scores, size)")
    if not isinstance(deep, bool | np.bool_):
        raise InputTypeError(f"deep={deep!r} is {type(deep).__name__}; give True or False")
    if not len(sample):
        raise InputError("sample is empty, so there is nothing to measure; draw more rows")
    if "sketch-only" in factor.method.split("+"):
        raise InputError("factor is a sketch, which does not tell epsilon; give factorize(A)")
    n = matrix.shape[0]
    if n not in (sample.n_rows, len(sample)):
        raise InputError(
            f"A has {n:,} rows; give that of the {sample.n_rows:,} rows the sample was drawn from, or of its "
            f"{len(sample):,} taken rows"
        )
    covered = factor.n_rows + factor.n_dropped
    if covered != sample.n_rows:
        raise MatrixMismatchError(
            f"factor covers {covered:,} rows, but the sample was drawn from {sample.n_rows:,}; give the factor of those"
        )
    if n > len(sample):
        check_factor(matrix, factor)
    elif matrix.token not in factor.parts and matrix.rule_token != factor.rule_token:
        raise MatrixMismatchError(
            "factor belongs to a matrix with another problem or theta; make A and the factorised matrix with the same ones"
        )
    if deep and scores is None:
        raise InputError("deep=True needs scores=, those the rows were drawn by; give run.scores, or scores.persist()")
    if deep and n != sample.n_rows:
        raise InputError("deep=True needs A of all rows, but it has the taken ones; give that of X and y")
    if scores is not None and not deep:
        raise InputError("scores are given, but only deep=True reads them; give deep=True, or leave scores out")
