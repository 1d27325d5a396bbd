"""How far the scores that are used may fall below the exact ones: beta, proven or measured."""

import math
from typing import Any, Protocol

import numpy as np

from dask_nlis.activations import LeakyRelu, Relu
from dask_nlis.constraints import AmplitudeBand, Ball
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.losses import SquaredError
from dask_nlis.models import Linear, ReluNetwork, SingleIndex
from dask_nlis.problem import Problem
from dask_nlis.theory import arguments
from dask_nlis.theory.slopes import slope_bounds


class HasFactor(Protocol):
    """What is needed of a `Factor`."""

    @property
    def r(self) -> np.ndarray:
        """R factor of F, (p, p)."""

    @property
    def rank(self) -> int:
        """Rank of F."""

    @property
    def whitener(self) -> np.ndarray:
        """W such that F W, or (F W) C, is orthonormal, (p, rank)."""

    @property
    def correction(self) -> np.ndarray | None:
        """C, (rank, rank), or None."""

    @property
    def column_scale(self) -> np.ndarray:
        """Powers of two that bring the columns of F to one size, (p,)."""

    @property
    def frobenius(self) -> float:
        """Frobenius norm of F."""


def misestimation_factor(problem: Problem, *, index_range: Any = math.inf, labels: Any = None) -> float:
    """Proven beta of scores that need no theta: they fall nowhere below beta times the exact ones. Reads nothing.

    For `Linear` and `SingleIndex`: leverage of the features [x, 1], divided by its sum, against that of the rows f*
    of the dual matrix without its last column, at every theta whose index stays in the range. f* is the features times
    a slope in [low, high], so beta = (low / high)^2. For `ReluNetwork` with an `AmplitudeBand`: norm scores
    of the reference matrix against those of the dual matrix, for rows with an active unit.

    Parameters
    ----------
    problem : Problem
        Model, loss and, for networks, the set.
    index_range : float or (float, float), default inf
        B for indices |u| <= B, or the lowest and highest; u is what the activation is applied to.
    labels : array_like of shape (k,), optional
        All labels, or the lowest and highest: the slope then includes that of the root of the loss. Without them, as
        in `dual_matrix`, the loss is left out. Squared error has the same beta either way.

    Returns
    -------
    float
        In [0, 1]; 0 where nothing keeps the slope away from 0 or from infinity.

    Raises
    ------
    InputError, InputTypeError
        If an argument is not allowed, or no bound is known for the model or loss; then measure beta.

    See Also
    --------
    measured_misestimation_factor : from two sets of scores.
    sandwich : the bounds behind it, with the range of the index taken from the data.

    Notes
    -----
    Where the paper (Rajmohan & Roosta, ICML 2025) is corrected: for Swish-type activations phi(t)^2 / t^2 lies in
    [c1, c2], so beta = c1 / c2, not sqrt(c1 / c2); with c1 = 0 and |t| <= B it is exp(-2 zeta B), of no use beyond B of
    about 3. The bound for networks lacks the 1/4 of degree 2: beta = min(c1 l / 4, 1) / max(c2 u / 4, 1), l the
    smallest squared amplitude and u the budget; rows without an active unit have no such bound (`sandwich` reports the share
    of the others). The last column f(0) is not covered for leverage: with labels, leverage of the features falls
    far below; that of the reference matrix does not on data seen, but nothing proves it, so measure it.

    Examples
    --------
    >>> from dask_nlis import AmplitudeBand, Logistic, Problem, ReluNetwork, SingleIndex, Swish
    >>> round(misestimation_factor(Problem(SingleIndex(Swish(c1=1, c2=2)))), 12)
    0.5
    >>> swish = Problem(SingleIndex(Swish(c1=0, c2=1)))
    >>> [round(misestimation_factor(swish, index_range=bound), 6) for bound in (1, 3, float("inf"))]
    [0.135335, 0.002479, 0.0]
    >>> round(misestimation_factor(Problem(SingleIndex(Logistic())), index_range=2), 6)
    0.580026
    >>> misestimation_factor(Problem(ReluNetwork(2), constraint=AmplitudeBand(1.0, 10.0)))
    0.1
    """
    if not isinstance(problem, Problem):
        raise InputTypeError(f"problem is {type(problem).__name__}; give Problem(model, loss)")
    index = arguments.index_range(index_range)
    known = None if labels is None else arguments.labels(labels)
    model = problem.model
    if isinstance(model, ReluNetwork) and type(model.unit) in (Relu, LeakyRelu):
        if model.per_unit and known is not None and not isinstance(problem.loss, SquaredError):
            raise InputError(
                f"per_unit=True with labels and {type(problem.loss).__name__} has no closed form, so no bound; use "
                "measured_misestimation_factor"
            )
        return _of_network(model, problem, *slope_bounds(problem, index, known))
    if not isinstance(model, Linear | SingleIndex):
        raise InputError(
            f"no bound is known for {type(model).__name__}; use measured_misestimation_factor(used, exact) on scores"
        )
    low, high = slope_bounds(problem, index, known)
    return (low / high) ** 2 if low > 0 and high < math.inf else 0.0


def _of_network(model: ReluNetwork, problem: Problem, low: float, high: float) -> float:
    """min(c1 l / 4, 1) / max(c2 u / 4, 1); the slope of leaky units enters both."""
    amplitude, budget = _weights(model, problem)
    leak = model.unit.slope if isinstance(model.unit, LeakyRelu) else 1.0
    shortest = min(low * low * min(1.0, leak * leak) * amplitude / 4, 1.0)
    return shortest / max(high * high * max(1.0, leak * leak) * budget / 4, 1.0) if shortest else 0.0


def _weights(model: ReluNetwork, problem: Problem) -> tuple[float, float]:
    """Smallest squared outer weight and largest squared norm of theta that the problem's set allows."""
    found = problem.constraint
    if isinstance(found, AmplitudeBand):
        given = found.amplitudes
        step = given[1] - given[0] if given is not None and len(given) > 1 else 2 + model.hidden_bias
        blocks = step >= 2 + model.hidden_bias  # an outer weight and at least one inner one
        outer = given is None or (blocks and given == tuple(range(0, model.n_hidden * step, step)))
        return (found.lower if outer else 0.0), found.budget
    if isinstance(found, Ball):
        center = 0.0 if found.center is None else float(np.linalg.norm(found.center))
        return 0.0, (center + found.radius) ** 2
    return 0.0, math.inf


def measured_misestimation_factor(used: Any, exact: Any) -> float:
    """Measured beta of the scores used: the smallest ratio to the exact ones, each divided by its sum. In memory.

    Parameters
    ----------
    used, exact : array_like of shape (n,)
        Scores of the same rows, not negative, in any units: of the reference matrix and of the dual matrix, say.

    Returns
    -------
    float
        In [0, 1]; rows whose exact score is 0 do not count.

    Raises
    ------
    InputError, InputTypeError
        If shapes differ, or scores are not finite, negative, all zero or lazy.

    Notes
    -----
    The beta of Rajmohan & Roosta (ICML 2025) as it comes out: an observation on these rows at one theta, not a bound.
    `sample_size` takes it for that theta only.

    Examples
    --------
    >>> measured_misestimation_factor([1.0, 1.0, 2.0], [0.1, 0.1, 0.0])
    0.5
    """
    first, second = arguments.scores("used", used), arguments.scores("exact", exact)
    if first.shape != second.shape:
        raise InputError(f"used has {len(first)} scores and exact {len(second)}; give scores of the same rows")
    # By powers of two to at most 1, so that the sums stay finite.
    first, second = (np.ldexp(part, -np.frexp(part.max())[1]) for part in (first, second))
    counts = second > 0
    ratio = float((first[counts] / second[counts]).min())
    return min(ratio * float(second.sum() / first.sum()), 1.0)


def norm_misestimation_factor(factor: HasFactor) -> float:
    """Proven beta of norm scores against leverage scores, r sigma_r^2 / |F|_F^2, from the factor of F. Reads nothing.

    Parameters
    ----------
    factor : Factor
        `factorize(F)`; of a Gram matrix, the tree or a sketch as preconditioner.

    Returns
    -------
    float
        In (0, 1]; r is the rank, sigma_r the smallest singular value that counts, both of F in its own units.

    Raises
    ------
    InputTypeError
        If `factor` is no factor.

    Notes
    -----
    The paper (Rajmohan & Roosta, ICML 2025) samples by norm scores at the size of leverage scores; that is no subspace
    embedding unless
    the size grows by 1 / beta. The bound depends on the units of the columns, as norm scores do.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> nlis.norm_misestimation_factor(nlis.factorize(np.diag([1.0, 3.0])))
    0.2
    """
    if not hasattr(factor, "whitener"):
        raise InputTypeError(f"factor is {type(factor).__name__}; give factorize(A)")
    # Brought near 1, and only then corrected: what powers of two were left out of W might leave float64's range.
    _, top = np.frexp(np.abs(factor.whitener).max())
    whitener = np.ldexp(factor.whitener, -top)
    whitener = whitener if factor.correction is None else whitener @ factor.correction
    if factor.rank < len(factor.r):
        # W may leave the range of F', where it would look longer; D^2 W spans that range, D the sizes of the columns.
        sizes = factor.column_scale.min() / factor.column_scale
        basis = np.linalg.qr(sizes[:, None] ** 2 * factor.whitener)[0]
        whitener = basis @ (basis.T @ whitener)
    # The singular values of W are the inverse ones of F, and the largest is found with all its digits.
    share = 1 / (float(np.linalg.norm(whitener, 2)) * float(np.ldexp(factor.frobenius, top)))
    return min(factor.rank * share * share, 1.0)
