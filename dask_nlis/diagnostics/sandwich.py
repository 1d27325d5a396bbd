"""Loewner bounds of the adjoints, l G'G <= F*'F* <= u G'G, beside the eigenvalues they bound."""

import math
from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics.adjoint_parts import Part, part_block
from dask_nlis.errors import InputError, UnderdeterminedWarning
from dask_nlis.factor.sums import check_finite_factor, read_sum
from dask_nlis.kernels.linalg import spectrum, whitened
from dask_nlis.matrix import dual_matrix
from dask_nlis.models import is_index
from dask_nlis.nouns import noun
from dask_nlis.problem import Problem
from dask_nlis.theory import slope_bounds


@noun
class Sandwich:
    """What `sandwich` finds: bounds by theory, and the eigenvalues of (F*'F*, G'G) between them.

    Attributes
    ----------
    lower, upper : float
        l and u: squares of the smallest and largest slope over `index_range`.
    smallest, largest : float
        Generalised eigenvalues of F*'F* against G'G, on the range of G'.
    index_range : (float, float)
        Lowest and highest index u_i = <theta, x_i> of the rows.
    constants : (float, float)
        l and u over the whole line: what holds for every theta and every row.
    rank, condition : int, float
        Of G, as in `Factor`.
    n_rows : int
        Rows that count.
    active_share : float
        Share of rows whose gradient of the index is not zero: for a network those with an active unit.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=4), intercept=False))
    >>> found = nlis.sandwich(problem, np.array([[1.0], [-1.0]]), [0.0])
    >>> found.lower, round(found.smallest, 12), round(found.largest, 12), found.upper, found.holds
    (2.25, 2.25, 2.25, 2.25, True)
    >>> found.beta, found.tolerance < 1e-12
    (1.0, True)
    """

    lower: float
    upper: float
    smallest: float
    largest: float
    index_range: tuple[float, float]
    constants: tuple[float, float]
    rank: int
    condition: float
    n_rows: int
    active_share: float

    @property
    def beta(self) -> float:
        """l / u, the misestimation factor of the leverage of G at this theta; 0 where it says nothing."""
        return self.lower / self.upper if self.lower > 0 and self.upper < math.inf else 0.0

    @property
    def tolerance(self) -> float:
        """Rounding of the eigenvalues: 100 kappa eps, relative to the largest."""
        return 100 * self.condition * float(np.finfo(np.float64).eps)

    @property
    def holds(self) -> bool:
        """Whether the eigenvalues lie between the bounds, up to rounding."""
        slack = self.tolerance * self.largest
        return self.lower - slack <= self.smallest and self.largest <= self.upper + slack

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            name: getattr(self, name) for name in ("lower", "smallest", "largest", "upper", "holds")
        }
        shown |= {name: tuple(float(f"{v:.6g}") for v in getattr(self, name)) for name in ("index_range", "constants")}
        shown |= {name: getattr(self, name) for name in ("rank", "condition", "n_rows")}
        return shown | ({"active_share": self.active_share} if self.active_share < 1 else {})


def sandwich(
    problem: Problem,
    X: Any,
    theta: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> Sandwich:
    """Bounds l G'G <= F*'F* <= u G'G at theta, and the eigenvalues between them: X (n, d). One read of X.

    F* (n, p) are the adjoints, the dual matrix without its last column; G (n, p) the gradients of the index over its
    degree, the features [x, 1] for `Linear` and `SingleIndex`. Each row of F* is one of G times a slope, so the
    squares of the smallest and the largest slope bound F*'F*, and their ratio is beta of the leverage of G.

    Parameters
    ----------
    problem : Problem
        A model with one homogeneous index; the loss counts only with y.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    theta : array_like of shape (p,)
        Where the adjoints are taken.
    y : array_like of shape (n,), optional
        Labels: the slope then includes that of the root of the loss. Without them rows are of the model's output.
    sample_weight : array_like of shape (n,), optional
        Row weights >= 0, of both matrices.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Sandwich

    Raises
    ------
    InputError, InputTypeError
        If the model has no single index, no bounds are known for the loss, or all gradients are zero;
        or if an argument is of another type.
    NonFiniteError
        If a cell or a row is not finite, naming the row.
    MissingDataError
        If a path was given and nothing is stored there.

    Warns
    -----
    UnderdeterminedWarning
        If there are fewer rows than parameters.

    Notes
    -----
    l and u are proven for indices in the range met (Rajmohan & Roosta, ICML 2025, take them over the whole line,
    and their square roots for Swish-type activations; phi(t)^2 / t^2 lies between c1 and c2). The last column f(0) is not
    covered: with labels no such bound holds for the whole dual matrix. One R factor of [G, F*], p the parameters, is
    (2p)^2 numbers; directions outside the range of G' are left out, where both forms are 0.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> found = nlis.sandwich(nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2))), X, [1.0, -1.0, 0.0])
    >>> found.holds, 1 < found.lower < found.smallest < found.largest < found.upper < 2
    (True, True)
    """
    if isinstance(problem, Problem) and not is_index(problem.model):
        raise InputError(
            f"{type(problem.model).__name__} has no single index, so its adjoints are no multiples of one gradient; "
            "use measured_misestimation_factor on scores"
        )
    matrix = dual_matrix(
        problem,
        X,
        y,
        theta=theta,
        sample_weight=sample_weight,
        missing=missing,
        device=device,
        block_bytes=block_bytes,
    )
    model = problem.model
    assert is_index(model)
    if y is not None:
        slope_bounds(problem, (0.0, 0.0), _some_labels(problem))  # raises before the read where the loss has none
    p = matrix.shape[1] - 1
    total: Part = read_sum(matrix, part_block, 2 * p, model=model, theta=np.array(matrix.theta))
    check_finite_factor(total.r)
    if not total.n_active:
        raise InputError("all gradients of the index are zero; check theta, sample_weight and the data")
    if total.n_rows < p:
        phase.warn(
            f"n={total.n_rows} rows are fewer than p={p} parameters, where the theory says nothing; use fewer "
            "parameters or more rows",
            UnderdeterminedWarning,
        )
    decided = spectrum(total.r[:p, :p])
    values = np.linalg.svd(whitened(total.r[:, p:], decided.whitener, decided.correction), compute_uv=False)
    labels = None if y is None else (total.lowest[1], total.highest[1])
    met = (total.lowest[0], total.highest[0])
    lower, upper = slope_bounds(problem, met, labels)
    constants = slope_bounds(problem, (-math.inf, math.inf), labels)
    return Sandwich(
        lower=lower * lower,
        upper=upper * upper,
        smallest=float(values[-1] ** 2),
        largest=float(values[0] ** 2),
        index_range=met,
        constants=(constants[0] ** 2, constants[1] ** 2),
        rank=decided.rank,
        condition=decided.condition,
        n_rows=total.n_rows,
        active_share=total.n_active / total.n_rows,
    )


def _some_labels(problem: Problem) -> tuple[float, float]:
    """Labels that every loss of ours allows."""
    first, second = getattr(problem.loss, "labels", (0, 1))
    return float(first), float(second)
