"""What a job would read, compute and hold, before it runs."""

from typing import Any

import numpy as np
from dask.utils import parse_bytes

from dask_nlis import workers
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.matrix import Dual, TallMatrix, Tangent, dual_matrix, reference_matrix
from dask_nlis.pipeline.asked import asked, check_kind, first_size
from dask_nlis.pipeline.fits import has_patterns, needs_of, steps_of
from dask_nlis.planner import METHODS, Plan, Step, calibrated, check_fits, passes_of, scores_alone, timed
from dask_nlis.problem import Problem
from dask_nlis.sampling import check_draw

_NOTE = (
    "Reads at a condition up to 100; each factor takes one or two more above. Tasks, bytes and memory are as run "
    "counts them without a store"
)


def plan(
    problem: Problem,
    X: Any,
    y: Any = None,
    *,
    size: int | float | str | None = None,
    scores: str = "two-stage",
    scheme: str = "poisson",
    rounds: int = 2,
    pilot_size: int | float | None = None,
    theta: Any = None,
    sample_weight: Any = None,
    method: str = "auto",
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
    memory_limit: int | str | None = None,
    calibrate: bool = True,
) -> Plan:
    """Say what `run` would read, compute and hold: X (n, d), y (n,) -> Plan. Reads nothing, or one block to time it.

    Passes, blocks, tasks, bytes, operations, memory of the fullest worker and of this process follow from metadata, and what
    cannot fit is refused as `run` refuses it. With `calibrate` one block is read, in a compute of one task, and the
    products for p parameters are timed on its rows, for an estimate of the time on the threads there are.

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (n, d)
        As for `run`. Only Dask arrays whose blocks have unknown lengths, and DataFrames of Dask, are read whole at this
        call, to count their rows.
    y : array_like of shape (n,) or (n, n_outputs), optional
        Labels; without them, scores and a draw are planned, and no fit.
    size : int or float or "auto", optional
        Rows to draw, a count or a share; by default where size="auto" would start. "auto" plans its first size: each
        doubling takes a draw, and the blocks of the drawn rows, once more.
    scores : {"two-stage", "leverage", "norm", "influence"}
        As for `run`; without y leverage or norm.
    scheme : {"poisson", "multinomial", "stratified", "systematic"}
        As in `draw`.
    rounds : int, default 2
        Stages of two-stage scores.
    pilot_size : int or float, optional
        Rows of the first stage, as for `run`.
    theta : array_like of shape (p,), optional
        Where rows would be scored; there is no pilot then.
    sample_weight : array_like of shape (n,), optional
        Row weights.
    method : {"auto", "gram", "tsqr", "sketch", "sketch-only"}
        Of `factorize`; `run` takes "auto".
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks would compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.
    memory_limit : int or str, optional
        Bytes that one worker process may use, such as "2 GiB"; by default what the workers of the cluster in force say,
        or the memory of this machine.
    calibrate : bool, default True
        Read one block and estimate the time.

    Returns
    -------
    Plan

    Raises
    ------
    MemoryLimitError
        If a worker or this process would need more memory than there is, with the numbers and a remedy.
    InputError, InputTypeError
        As `run`.
    MissingDataError
        If a path was given and nothing is stored there.

    Notes
    -----
    Memory is that of whole processes, blocks and pieces on their way included, within a factor of two of what is measured.
    Times count reading passes, of blocks that the file system has in its cache; the draw and the fit come on top.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
    >>> plan = nlis.plan(problem, X, y, size=500, calibrate=False)
    >>> plan.reads, plan.passes[1].label, plan.seconds is None
    (5, 'pilot scores', True)
    """
    options: dict[str, Any] = {"missing": missing, "device": device, "block_bytes": block_bytes}
    options["sample_weight"] = sample_weight
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method={str(method)[:60]!r} is not known; give one of {', '.join(map(repr, METHODS))}")
    if not isinstance(calibrate, bool | np.bool_):
        raise InputTypeError(f"calibrate is {type(calibrate).__name__}; give True or False")
    limit = _limit(memory_limit)
    grows = isinstance(size, str) and size == "auto"
    goal: dict[str, Any] = {"size": None if grows else size, "scores": scores}
    goal |= {"theta": theta, "scheme": scheme, "rounds": rounds, "pilot_size": pilot_size}
    if y is None:
        matrix, n_draws, steps = _unlabelled(problem, X, goal, options)
    else:
        goal |= {"epsilon": None, "seed": 0, "shares": None} | ({"size": size, "epsilon": 1.0} if grows else {})
        matrix, design, scores, one = asked(problem, X, y, goal, options)
        n_draws, steps = design.size, steps_of(matrix, design, scores, one)
        theta = one
    needs = needs_of(steps, matrix, n_draws)
    layout, workforce = needs.layout, needs.workforce
    limit = workforce.memory if limit is None else limit
    check_fits(needs.worker, needs.client, layout, workforce, limit, workers.memory_here())
    passes = passes_of(steps, layout, n_draws, scheme, method)
    if calibrate:
        passes = timed(passes, steps, calibrated(_matrices(problem, matrix, theta, steps)), layout, workforce)
    return Plan(
        passes=passes,
        n_rows=layout.n_rows,
        n_columns=layout.n_columns,
        n_parameters=layout.widths["tangent"],
        size=n_draws,
        scheme=scheme,
        scores=scores,
        blocks=layout.blocks,
        block_rows=layout.block_rows,
        block_bytes=layout.block_bytes,
        worker_memory=needs.worker,
        client_memory=needs.client,
        memory_limit=limit,
        processes=workforce.processes,
        threads=workforce.threads,
        note=_NOTE + ("; times are of reading passes, with files in cache." if calibrate else "."),
    )


def _limit(given: Any) -> int | None:
    """Bytes of a limit that is given, as a number or with a unit."""
    if given is None:
        return None
    try:
        size = parse_bytes(given) if isinstance(given, str) else given
    except ValueError:
        size = None
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(
            f"memory_limit={str(given)[:60]!r} is not allowed; give bytes, such as 2_000_000_000 or '2 GB'"
        )
    return int(size)


def _unlabelled(
    problem: Problem, X: Any, goal: dict[str, Any], options: dict[str, Any]
) -> tuple[TallMatrix, int, list[Step]]:
    """Matrix, size and steps where there are no labels: scores at theta, or of the reference matrix, and a draw."""
    scores, theta = goal["scores"], goal["theta"]
    check_kind(scores)
    if scores not in ("leverage", "norm"):
        raise InputTypeError(f"y is None, but scores={scores!r} need labels; give y, or scores='leverage' or 'norm'")
    matrix = reference_matrix(problem, X, **options)
    name = "reference"
    if theta is not None:
        dual_matrix(problem, X, theta=theta, **options)  # raises for a theta that does not fit
        name = "dual"
    n = matrix.shape[0]
    size = first_size(problem, n, matrix.source.n_columns) if goal["size"] is None else goal["size"]
    size, _ = check_draw(size, goal["scheme"], n, 0)
    factorized, scored = ((name,), (name,)) if scores == "leverage" else ((), ("norm",))
    return matrix, size, scores_alone(factorized, scored, has_patterns(problem))


def _matrices(problem: Problem, reference: TallMatrix, theta: Any, steps: list[Step]) -> dict[str, TallMatrix]:
    """The matrices that the steps need, at a small theta of our own where none is given."""
    source = reference.source
    if theta is None:
        theta = 0.01 * np.random.default_rng(0).standard_normal(problem.model.n_parameters(source.n_columns))
    theta = np.asarray(theta, dtype=np.float64)
    found = {"dual": TallMatrix(source, Dual(problem, theta), reference.missing, reference.device)}
    wanted = {name for step in steps for name in step.matrices}
    if "reference" in wanted:
        found["reference"] = reference
    if "tangent" in wanted:
        found["tangent"] = TallMatrix(source, Tangent(problem, theta), reference.missing, reference.device)
    return found
