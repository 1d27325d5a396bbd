"""The verbs that name a matrix: dual, reference, and any 2-D array taken as it is."""

from typing import Any

from dask.base import tokenize
from dask.tokenize import TokenizationError

from dask_nlis.device import check_device
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.intake import Rows, take_in
from dask_nlis.losses import AbsoluteError
from dask_nlis.matrix.rules import Dual, Plain, Reference, Rule, Tangent
from dask_nlis.matrix.tall import TallMatrix
from dask_nlis.phase import setting
from dask_nlis.problem import Problem, check_theta


def reference_matrix(
    problem: Problem,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> TallMatrix:
    """Rows [x_i, 1 | f_i(0)] that need no theta: X (n, d), y (n,) -> lazy (n, d + 2). Reads nothing.

    The row as the model sees it, with a 1 where the model has any bias (otherwise (n, d + 1)), then f_i(0). For one
    linear index this is the dual matrix with every slope replaced by its sign; at theta = 0 a single-index model
    with squared error has exactly this leverage where phi'(0) is not 0. For squared error the last column is
    phi(0) - y; without y it is phi(0) and the loss is left out.

    Parameters
    ----------
    problem : Problem
        Model and loss.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray, in any real dtype; computed in float64. Rows that have the `input_shape` of a
        model are flattened. Only Dask arrays whose blocks have
        unknown lengths, and DataFrames of Dask, are read at this call, once, to count their rows.
    y : array_like of shape (n,) or (n, n_outputs), optional
        Labels; a column an output where a loss is summed over several.
    sample_weight : array_like of shape (n,), optional
        Row weights v >= 0; a row counts sqrt(v) times, an integer v like v repeated rows.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity; dropped rows score 0.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute; from the Dask config key `dask-nlis.device` by default.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose, 64 MB by default.

    Returns
    -------
    TallMatrix

    Raises
    ------
    InputError, InputTypeError
        If shapes, dtypes or options are not allowed, or problem cannot be pickled; before anything is read.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    The dual matrix of Rajmohan & Roosta (ICML 2025, Definition 3.2) with slopes left out. They score the features
    alone; without the label in the last column scores fall far below those at theta (see `misestimation_factor`).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), np.eye(3), np.ones(3))
    >>> A.shape, A.has_labels
    ((3, 5), True)
    """
    _check_problem(problem)
    rows = _rows(problem, X, y, sample_weight, block_bytes)
    return _tall(rows, Reference(problem), missing, device)


def dual_matrix(
    problem: Problem,
    X: Any,
    y: Any = None,
    *,
    theta: Any,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> TallMatrix:
    """Rows [f*_i ; f_i(0)], the adjoint of each row at theta: X (n, d), y (n,) -> lazy (n, p + 1). Reads nothing.

    f_i is the signed root of the row's loss, so that f_i(theta) = f_i(0) + <theta, f*_i> and the loss is
    f_i^2 (Definition 3.2 and Proposition 3.1 of Rajmohan & Roosta, ICML 2025). Without y, f_i is the
    model's output.

    Parameters
    ----------
    problem : Problem
        Model and loss.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray, in any real dtype; computed in float64. Rows that have the `input_shape` of a
        model are flattened. Only Dask arrays whose blocks have
        unknown lengths, and DataFrames of Dask, are read at this call, once, to count their rows.
    y : array_like of shape (n,) or (n, n_outputs), optional
        Labels; they go to the last column, where they carry most of the gain. A column an output where a loss is summed
        over several.
    theta : array_like of shape (p,)
        Where the adjoint is taken; copied.
    sample_weight : array_like of shape (n,), optional
        Row weights v >= 0; a row counts sqrt(v) times, an integer v like v repeated rows.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity; dropped rows score 0.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute; from the Dask config key `dask-nlis.device` by default.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose, 64 MB by default.

    Returns
    -------
    TallMatrix

    Raises
    ------
    InputError, InputTypeError
        If shapes, dtypes, theta or options are not allowed, or problem cannot be pickled; before anything is read.
    MissingDataError
        If a path was given and nothing is stored there.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    >>> A = nlis.dual_matrix(problem, np.eye(2), np.ones(2), theta=[0.0, 0.0, 0.0])
    >>> A.to_dask_array().compute()
    array([[ 1.,  0.,  1., -1.],
           [ 0.,  1.,  1., -1.]])
    """
    return dual_at(problem, X, y, theta, sample_weight, missing, device, block_bytes)


def dual_at(
    problem: Problem,
    X: Any,
    y: Any,
    theta: Any,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
    argument: str = "theta",
) -> TallMatrix:
    """Return the `dual_matrix` at a theta that the caller's users know as `argument`."""
    _check_problem(problem)
    if y is None and problem.model.n_outputs > 1 and problem.outputs == "joint":
        raise InputTypeError(
            f"y is None, but the row of {problem.model.n_outputs} outputs is that of their whole loss; give y, or Problem(..., "
            "outputs='separate')"
        )
    rows = _rows(problem, X, y, sample_weight, block_bytes)
    return _tall(
        rows, Dual(problem, check_theta(problem, theta, rows.n_columns, rows.names, argument)), missing, device
    )


def tangent_matrix(
    problem: Problem,
    X: Any,
    y: Any,
    *,
    theta: Any,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> TallMatrix:
    """Rows sqrt(max(l''_i, 0)) J_i at theta, for influence: X (n, d), y (n,) -> lazy (n, p). Reads nothing.

    J_i is the gradient of the row's prediction in theta (of the linear predictor where the loss takes that), l_i its
    loss: the Gram matrix of the rows is the Gauss-Newton Hessian of the summed loss. Beside them the tasks of
    `influence_scores` form the row's gradient l'_i J_i.

    Parameters
    ----------
    problem : Problem
        Model and loss.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray, in any real dtype; computed in float64. Rows that have the `input_shape` of a
        model are flattened. Only Dask arrays whose blocks have
        unknown lengths, and DataFrames of Dask, are read at this call, once, to count their rows.
    y : array_like of shape (n,) or (n, n_outputs)
        Labels; a column an output where a loss is summed over several.
    theta : array_like of shape (p,)
        Where the loss is differentiated; copied.
    sample_weight : array_like of shape (n,), optional
        Row weights v >= 0; a row counts sqrt(v) times and its gradient v times, an integer v like v repeated rows.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity; dropped rows score 0.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute; from the Dask config key `dask-nlis.device` by default.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose, 64 MB by default.

    Returns
    -------
    TallMatrix

    Raises
    ------
    InputError, InputTypeError
        If shapes, dtypes, theta or options are not allowed, the loss has no curvature anywhere (AbsoluteError), or
        problem cannot be pickled; before anything is read.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    Influence in this form is that of optimal subsampling (Wang, Zhu & Ma 2018) and of Cook & Weisberg (1982).

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> problem = nlis.Problem(nlis.Linear())
    >>> T = nlis.tangent_matrix(problem, np.eye(2), np.ones(2), theta=[0.0, 0.0, 0.0])
    >>> T.to_dask_array().compute().round(3)  # sqrt(2) [x, 1]
    array([[1.414, 0.   , 1.414],
           [0.   , 1.414, 1.414]])
    """
    _check_problem(problem)
    if y is None:
        raise InputTypeError("y is None, but the gradient of a loss needs labels; give an array of shape (n,)")
    check_has_curvature(problem)
    rows = _rows(problem, X, y, sample_weight, block_bytes)
    return _tall(rows, Tangent(problem, check_theta(problem, theta, rows.n_columns, rows.names)), missing, device)


def _rows(problem: Problem, X: Any, y: Any, sample_weight: Any, block_bytes: int | None) -> Rows:
    shape: Any = {"label_columns": problem.label_columns, "input_shape": problem.input_shape}
    return take_in(X, y, sample_weight, block_bytes=block_bytes, **shape)


def check_has_curvature(problem: Problem) -> None:
    """Raise where the Hessian of the loss is zero everywhere."""
    if isinstance(problem.loss, AbsoluteError):
        raise InputError(
            "AbsoluteError has no curvature, so its Hessian is zero and no row has influence; use leverage_scores of the "
            "dual matrix, or PseudoHuber"
        )


def as_matrix(A: Any) -> TallMatrix:
    """Return a TallMatrix as it is; take any other 2-D array as a matrix of its own rows."""
    return A if isinstance(A, TallMatrix) else _tall(take_in(A, argument="A"), Plain(), "raise", None)


def _tall(rows: Rows, rule: Rule, missing: str, device: str | None) -> TallMatrix:
    if not isinstance(missing, str) or missing not in ("raise", "drop"):
        raise InputError(f"missing={missing!r} is not known; give 'raise' or 'drop'")
    return TallMatrix(rows, rule, missing, check_device(setting("device", device)))


def _check_problem(problem: object) -> None:
    if not isinstance(problem, Problem):
        raise InputTypeError(f"problem is {type(problem).__name__}; give Problem(model, loss)")
    try:
        tokenize(problem, ensure_deterministic=True)
    except TokenizationError as cause:  # its tasks could not be sent, nor a factor be known as its own
        raise InputTypeError(
            f"problem holds what cannot be pickled ({str(cause).partition(' cannot be')[0][:120]}); give functions "
            "without locks, open files or connections inside"
        ) from cause
