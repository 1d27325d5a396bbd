"""A rough fit from scores that need no theta."""

from contextlib import ExitStack
from functools import partial
from typing import Any

from dask_nlis import phase
from dask_nlis.checkpoints import recalled_noun
from dask_nlis.errors import InputTypeError, NlisWarning
from dask_nlis.factor import factorize_together
from dask_nlis.matrix import TallMatrix, reference_matrix
from dask_nlis.pipeline.design import Design, Known, Setting, Wanted, Way, counted
from dask_nlis.pipeline.drawn import fit_drawn
from dask_nlis.pipeline.fused import way_of
from dask_nlis.problem import Problem
from dask_nlis.refit import Fit
from dask_nlis.sampling import check_draw
from dask_nlis.scores import leverage_scorer


def pilot(
    problem: Problem,
    X: Any,
    y: Any,
    size: int,
    *,
    seed: int | None = None,
    scheme: str = "multinomial",
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> Fit:
    """Fit roughly on `size` rows drawn by the leverage of the reference matrix: X (n, d), y (n,) -> Fit.

    Reads X twice (factor, scores), and the blocks of the drawn rows if they are not poisson's; 3 times at a condition above
    100, 4 above 1e7. Scores at such a theta are nearly as good as at the unknown optimum.

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,) or (n, n_outputs)
        Labels; a column an output where a loss is summed over several.
    size : int or float
        Rows to draw, or a share of the rows; ten times the number of parameters is a fair start.
    seed : int, optional
        Seed of the draw; None draws one.
    scheme : {"multinomial", "stratified", "poisson", "systematic"}
        As in `draw`.
    sample_weight : array_like of shape (n,), optional
        Row weights v >= 0; a row counts v times in the loss.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Fit

    Raises
    ------
    InputError, InputTypeError, NonFiniteError
        As the five words it is made of.
    MissingDataError
        If a path was given and nothing is stored there.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.linspace(-1, 1, 200).reshape(-1, 1)
    >>> rough = nlis.pilot(nlis.Problem(nlis.Linear()), X, 3 * X[:, 0] + 1, 50, seed=0)
    >>> rough.theta.round(6)
    array([3., 1.])
    """
    options: dict[str, Any] = {"missing": missing, "device": device, "block_bytes": block_bytes}
    options["sample_weight"] = sample_weight
    matrix = reference_matrix(problem, X, y, **options)
    if y is None:
        raise InputTypeError("y is None, but a fit needs labels; give an array of shape (n,)")
    size, chosen = check_draw(size, scheme, matrix.shape[0], seed)
    with ExitStack() as scratch:
        setting = Setting(Design(size, scheme, chosen, None, 1, None), X, y, options, scratch)
        return rough_fit(matrix, setting, way_of(setting, matrix), size)[0]


def rough_fit(
    matrix: TallMatrix, setting: Setting, way: Way, size: int, argument: str = "size"
) -> tuple[Fit, Known, dict[str, int]]:
    """Fit on rows drawn by the leverage of a reference matrix of X and y; with the rows and the reads of X it took."""
    problem = matrix.problem
    assert problem is not None
    ((factor,), _) = factorize_together([matrix], setting.saved.below("factors-0"))
    wanted = Wanted(matrix, leverage_scorer(matrix, factor), size, 0, total=float(factor.rank))
    stage = way(setting, wanted).drawn(size, argument)
    if not len(stage.sample):
        phase.warn(f"no row was drawn (expected {size}); give a larger {argument}", NlisWarning)
    taken = stage.scored.taken(stage.sample)
    make = partial(fit_drawn, problem, stage.sample, taken, matrix.source.names)
    fit: Fit = recalled_noun(setting.saved, "fit-0", make, Fit)
    reads = counted({"pilot": factor.reads + 1}, "gather", stage.reads)
    return fit, Known(stage.sample, taken), reads
