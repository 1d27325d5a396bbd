"""One job from data to fit: stages of scores and draws -> refit -> total loss and certificate."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from dask_nlis import phase
from dask_nlis.diagnostics import Points, certified, realised_epsilon, summed_losses
from dask_nlis.errors import InputError, InputTypeError, NlisWarning
from dask_nlis.intake import give_back, take_in
from dask_nlis.kernels.numbers import is_number, is_whole
from dask_nlis.matrix import TallMatrix, check_has_curvature, reference_matrix
from dask_nlis.pipeline.drawn import Drawn, fit_drawn, take_drawn
from dask_nlis.pipeline.manifest import begun, completed
from dask_nlis.pipeline.once import scored_once
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.pipeline.shelf import finish_store, keep
from dask_nlis.pipeline.stages import SMALL, Design, Staged, first_rows, last_stage, least_rows, stages, united
from dask_nlis.problem import Problem, check_theta, set_for
from dask_nlis.sample import Sample
from dask_nlis.sampling import check_draw
from dask_nlis.scores import checked_shares
from dask_nlis.store import check_free
from dask_nlis.tally import counted

SCORES = ("two-stage", "leverage", "norm", "influence")

#: Rows a parameter at which size="auto" starts.
_AUTO_START = 20


def run(
    problem: Problem,
    X: Any,
    y: Any,
    *,
    size: int | float | str,
    epsilon: float | None = None,
    seed: int | None = None,
    store: str | os.PathLike[str] | None = None,
    theta: Any = None,
    scores: str = "two-stage",
    scheme: str = "poisson",
    shares: Sequence[float] | None = None,
    rounds: int = 2,
    pilot_size: int | float | None = None,
    sample_weight: Any = None,
    missing: str = "raise",
    device: str | None = None,
    block_bytes: int | None = None,
) -> Run:
    """Score, draw, refit and certify in one job: X (n, d), y (n,) -> Run. Computes.

    Two stages by default, which need no theta: a quarter of the rows by leverage of the reference matrix; a fit to them;
    the rest by a mixture of leverage, influence and a constant at that fit; a refit on both. Reads X 5 times: factor and
    scores of each stage, and the total loss of the fit; besides the blocks of the drawn rows. Each factor takes 1 more at
    a condition above 100 or for dependent columns, 2 more above 1e7; `Run.reads` says how many there were. Scores of the
    last stage go to the store block by block.

    Poisson stages are joined as one union design: a row drawn in either stage counts once, with weight
    1 / (1 - (1 - pi_1)(1 - pi_2)), and `size` is the expected number of distinct rows. Other schemes are pooled by the
    balance heuristic, where a row drawn twice counts twice. Where a quarter of the rows is too few for a fit (five rows a
    parameter; two more rows than parameters in a bounded set) the first stage takes so many, up to half of all;
    beyond that, or where its fit is not ok, all rows are drawn in one stage by reference leverage, and
    `Run.why_one_stage` says so. A fit that is merely not stationary serves: those of networks end in kinks.

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,)
        Labels.
    size : int or float or "auto"
        Rows to draw, of all stages: expected number (poisson), number (systematic) or draws (multinomial, stratified); a
        float in (0, 1] is a share of the rows. "auto" doubles the last stage, which needs no further read of all rows,
        until the certificate's epsilon is at most `epsilon` or half of the rows that count are drawn; it starts at 20 p.
    epsilon : float, optional
        What size="auto" is to reach, above 0, such as 0.3.
    seed : int, optional
        Seed of the draws; None draws one and records it. Stage k of the job is stage k of the seed.
    store : path, optional
        New folder for the run store; None keeps the run in memory.
    theta : array_like of shape (p,), optional
        Where to score, in one stage by leverage there, if `scores` names no others; the sample is then that of
        `draw(scores, size, scheme=scheme, seed=seed)`.
    scores : {"two-stage", "leverage", "norm", "influence"}
        "two-stage" as above. The others score once, at theta or at a pilot fit whose rows are drawn besides and only serve
        to find theta: leverage or squared row norms of the dual matrix, or influence.
    scheme : {"poisson", "multinomial", "stratified", "systematic"}
        As in `draw`.
    shares : three floats, optional
        Shares of leverage, influence and a constant in the scores of later stages, with sum 1: (0.45, 0.45, 0.1) by
        default below ten rows a parameter and for size="auto", (0, 0.9, 0.1) above. Losses without curvature have no
        influence; leverage has its share.
    rounds : int, default 2
        Stages, of two-stage scores, each with a row or more: 1 draws by reference leverage alone; more refit and rescore
        again, which takes 2 reads each.
    pilot_size : int or float, optional
        Rows of the first stage, part of `size` for two-stage scores and besides it for the others, where the larger of
        size / 4 and 5 p is the default.
    sample_weight : array_like of shape (n,), optional
        Row weights v >= 0: a row counts sqrt(v) times in the matrices and v times in the losses; 0 is never drawn.
    missing : {"raise", "drop"}
        What to do with rows that hold NaN or an infinity.
    device : {"auto", "cpu", "cuda"}, optional
        Where tasks compute.
    block_bytes : int, optional
        Bytes of a block where the layout is ours to choose.

    Returns
    -------
    Run

    Raises
    ------
    StoreExistsError
        If something is at `store`; nothing is overwritten.
    InputError, InputTypeError
        If an argument is not allowed; before anything is read or written.
    NonFiniteError
        If a cell is not finite, naming row and column.

    Warns
    -----
    NlisWarning
        If size="auto" ends at half of the rows without reaching epsilon.

    Notes
    -----
    The two steps are those of optimal subsampling (Wang, Zhu & Ma 2018), with leverage in place of the uniform pilot and
    with the pilot's rows in the final fit; weights are Horvitz & Thompson's (1952). The scores of later stages depend on
    the rows of earlier ones, which biases weighted sums by an order of 1 / size; intervals of the fit take the design as
    given (95 % ones covered 94 to 96 %, `examples/coverage.py`).

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> problem = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)), constraint=nlis.Ball(10.0))
    >>> job = nlis.run(problem, X, y, size=500, seed=0)
    >>> job.fit.ok, job.factor.rank, sum(job.reads.values()), job.certificate.is_embedding
    (True, 10, 5, True)
    """
    options: dict[str, Any] = {"missing": missing, "device": device, "block_bytes": block_bytes}
    options["sample_weight"] = sample_weight
    if not isinstance(scores, str) or scores not in SCORES:
        what = repr(scores) if scores is None or isinstance(scores, str) else f"a {type(scores).__name__}"
        raise InputError(
            f"scores={what[:60]} is not known; give one of {', '.join(map(repr, SCORES))}, or scores of your own to draw()"
        )
    if y is None:
        raise InputTypeError("y is None, but a fit needs labels; give an array of shape (n,)")
    reference = reference_matrix(problem, X, y, **options)
    n, d = reference.source.n_rows, reference.source.n_columns
    set_for(problem, d)
    one = None if theta is None else check_theta(problem, theta, d, reference.source.names)
    if one is not None and scores == "two-stage":
        scores = "leverage"
    target = _target(size, epsilon, scores)
    n_draws, seed = check_draw(_first_size(problem, n, d) if target is not None else size, scheme, n, seed)
    first = None if pilot_size is None else check_draw(pilot_size, scheme, n, seed, "pilot_size")[0]
    mixed = None if shares is None else checked_shares(shares, 3)
    if shares is not None and scores != "two-stage":
        raise InputError(f"shares are of two-stage scores, but scores={scores!r}; leave shares out")
    if not is_whole(rounds) or rounds < 1:
        raise InputError(f"rounds={rounds!r} is not allowed; give a positive integer")
    if scores != "two-stage" and rounds > 2:
        raise InputError(f"rounds={rounds} is of two-stage scores, but scores={scores!r} are made once; leave it out")
    if one is not None and first is not None:
        raise InputError(f"pilot_size={pilot_size!r} is given besides theta, which needs no pilot; leave one out")
    if scores == "influence":
        check_has_curvature(problem)
    if scores != "two-stage" and first is None:
        first = min(n, max(n_draws // 4, 5 * problem.model.n_parameters(d)))
    if target is not None and mixed is None:
        mixed = SMALL
    design = Design(n_draws, scheme, seed, mixed, int(rounds), first, target)
    if scores == "two-stage":
        first_rows(problem, design, d)  # raises where rows do not go round
    path = None if store is None else check_free(store)
    if path is not None:
        problem.to_dict()  # raises for users' functions, which could not be stored at the end

    manifest = begun(reference, design, scores, one, target)
    into = partial(keep, path=path, manifest=manifest)
    with ExitStack() as scratch, counted() as tally:
        if scores == "two-stage":
            staged = stages(reference, design, X, y, options, into, scratch)
        else:
            staged = scored_once(reference, design, X, y, options, scores, one, into)
        sample, taken = _grown(staged, design, X, y, sample_weight, target)
    fit = fit_drawn(problem, sample, taken, reference.source.names, start=staged.matrix.theta)
    with counted(tally):
        (loss,), n_dropped = summed_losses(staged.matrix, problem, fit.theta[None])
    found = None
    if staged.factor is not None:
        found = certified(_of_taken(staged.matrix, taken), staged.factor, sample, Points(None, fit.theta))
    manifest = completed(manifest, staged, design, sample, float(loss), n_dropped, tally.devices())
    shown: Any = staged.kept.scores  # lazy from the store, else in the container that X came in
    if path is None:
        shown = give_back(reference.source.container, shown, scores, "nlis-score")
    done = Run(
        problem=problem,
        factor=staged.factor,
        scores=shown,
        sample=sample,
        sample_X=taken.X,
        sample_y=taken.y,
        sample_weight=taken.weight,
        fit=fit,
        pilot=staged.pilot,
        certificate=found,
        total_loss=float(loss),
        manifest=manifest,
        path=None if path is None else os.fspath(path),
    )
    finish_store(staged.kept, path, done)
    return done


def _grown(
    staged: Staged, design: Design, X: Any, y: Any, sample_weight: Any, target: float | None
) -> tuple[Sample, Drawn]:
    """Draw the last stage and take the rows of all; with a target, twice as many until the certificate reaches it."""
    most = max(1, staged.n_rows // 2)
    size = design.size if target is None else min(design.size, most)
    while True:
        sample = united(staged, last_stage(staged, size, design))
        if not len(sample):
            raise InputError(f"size={size} gave an empty sample at seed={design.seed}; give a larger size")
        taken = take_drawn(sample, X, y, sample_weight)
        if target is None or staged.factor is None:
            return sample, taken
        rows = np.concatenate(phase.blocks_of(_of_taken(staged.matrix, taken).to_dask_array(), "nlis-certificate"))
        reached = realised_epsilon(rows, sample.weights, staged.factor)
        if reached <= target:
            return sample, taken
        if size >= most:
            phase.warn(
                f"size='auto' ends at {size:,} rows, half of all, with epsilon {reached:.3g} above {target:g}",
                NlisWarning,
            )
            return sample, taken
        size = min(2 * size, most)


def _of_taken(matrix: TallMatrix, taken: Drawn) -> TallMatrix:
    """The matrix of the taken rows."""
    return TallMatrix(take_in(taken.X, taken.y, taken.weight), matrix.rule, matrix.missing, matrix.device)


def _target(size: Any, epsilon: Any, scores: str) -> float | None:
    """The epsilon that size="auto" is to reach; None for a size that is given."""
    if not isinstance(size, str) or size != "auto":
        if epsilon is not None:
            raise InputError(f"epsilon={epsilon!r} is for size='auto', but size={size!r} is given; leave one out")
        return None
    if epsilon is None:
        raise InputTypeError("epsilon is None, but size='auto' needs one to reach; give a number such as 0.3")
    if not is_number(epsilon):
        raise InputTypeError(f"epsilon={epsilon!r} is {type(epsilon).__name__}; give a positive number such as 0.3")
    if not 0 < epsilon < np.inf:
        raise InputError(f"epsilon={epsilon!r} is not allowed; give a positive number such as 0.3")
    if scores == "norm":
        raise InputError(
            "size='auto' needs a certificate, which norm scores have none of; give other scores, or a size"
        )
    return float(epsilon)


def _first_size(problem: Problem, n: int, d: int) -> int:
    """Where size="auto" starts: room for a pilot four times over, and no more than it may end at."""
    p = problem.model.n_parameters(d)
    return max(1, min(n // 2, max(_AUTO_START * p, 4 * least_rows(problem, d))))
