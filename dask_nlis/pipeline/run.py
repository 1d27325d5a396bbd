"""One job from data to fit: stages of scores and draws -> refit -> total loss and certificate."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError, NlisWarning
from dask_nlis.pipeline.asked import asked
from dask_nlis.pipeline.design import Setting
from dask_nlis.pipeline.fits import check_run_fits
from dask_nlis.pipeline.job import carry_out
from dask_nlis.pipeline.manifest import begun, changed
from dask_nlis.pipeline.opening import open_run
from dask_nlis.pipeline.run_noun import Run
from dask_nlis.pipeline.verified import check_equal
from dask_nlis.problem import Problem
from dask_nlis.store import (
    begun_seed,
    check_same,
    check_store,
    clear_leftovers,
    is_complete,
    read_manifest,
    under_way,
)
from dask_nlis.tally import counted as tallied


def run(
    problem: Problem,
    X: Any,
    y: Any,
    *,
    size: int | float | str,
    epsilon: float | None = None,
    seed: int | None = None,
    store: str | os.PathLike[str] | None = None,
    resume: bool = False,
    verify: bool = False,
    data_version: str | None = None,
    keep_scores: bool = True,
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

    Two stages by default, which need no theta: a quarter of the rows, or up to half where they are few, by leverage of the
    reference matrix; a fit to them; the rest by a mixture of leverage, influence and a constant at that fit; a refit on
    both. Reads X 5 times: factor and scores of each stage, and the total loss of the fit. Each factor takes 1 more at a
    condition above 100 or for dependent columns, 2 more above 1e7; `Run.reads` says how many there were. At a theta that
    is given leverage takes 3, norms 2.

    Poisson stages are scored, drawn and taken in one read, which keeps about four rows, with their scores, for each that
    is drawn and gives the sample of `draw` in every bit. Where these turn out too few, as where a few rows hold most of
    the scores, blocks are read once more ("gather" in `Run.reads`). A stage also scores the rows as the earlier ones did,
    so that nothing of length n is held but the scores of the last stage, if they are kept; those go to the store block by
    block. Other schemes, size="auto", a store of scores of unequal blocks, and samples of which four rows for each do not
    fit in memory, hold the scores of each stage (8 bytes a row, on disk where that is too much) until all rows are
    drawn, and read the blocks of the drawn rows once more.

    Poisson stages are joined as one union design: a row drawn in either stage counts once, with weight
    1 / (1 - (1 - pi_1)(1 - pi_2)), and `size` is the expected number of distinct rows. Other schemes are pooled by the
    balance heuristic, where a row drawn twice counts twice. Where half of the rows are too few for a fit (five rows a
    parameter; two more rows than parameters in a bounded set), or where its fit is not ok (1 read more), all rows are
    drawn in one stage by reference leverage, and `Run.why_one_stage` says so. A fit that is merely not stationary
    serves: those of networks end in kinks.

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (n, d)
        NumPy, Dask, Zarr, pandas or xarray.
    y : array_like of shape (n,) or (n, n_outputs)
        Labels; a column an output where a loss is summed over several.
    size : int or float or "auto"
        Rows to draw, of all stages: expected number (poisson), number (systematic) or draws (multinomial, stratified); a
        float in (0, 1] is a share of the rows. "auto" doubles the last stage, which needs no further read of all rows,
        until the certificate's epsilon is at most `epsilon` or half of the rows that count are drawn; it starts at 20 p.
    epsilon : float, optional
        What size="auto" is to reach, above 0, such as 0.3.
    seed : int, optional
        Seed of the draws; None draws one and records it. Stage k of the job is stage k of the seed.
    store : path or URL, optional
        New folder for the run store, or a new place in a bucket: s3://bucket/path, gs://bucket/path, az://container/path,
        with the extra `cloud`. None keeps the run in memory. Each step is kept there as it is done. Credentials of a bucket
        come from the environment of each process, of this one and of each worker, and from nowhere else; endpoint, region,
        account, anonymous, allow-http and limits of time in the Dask config key `dask-nlis.storage` are not secret and
        travel with the address.
    resume : bool, default False
        Whether to go on where a run at `store` was cut off, to return it where it is finished, or to begin it where there
        is none: the same call starts and restarts. Blocks that were scored are not read again, and all results are those
        of an undisturbed run in every bit. Another theta, problem, design, version or other data are refused.
    verify : bool, default False
        Whether a run that is resumed trusts nothing: all data are read again, each step is made again, and all that is kept
        must be the same in every bit. Of a finished run factor, sample, fit and total loss are compared, not the n scores.
        It takes the reads of a new run.
    data_version : str, optional
        What stands for the content of X, y and sample_weight when a run is resumed, where it cannot be told from names,
        sizes and times: for Dask arrays that are named anew in each process, and objects in memory of other machines.
    keep_scores : bool, default True
        Whether the n scores are kept, in `Run.scores` and in the store. False: `Run.scores` is None, and nothing of
        length n is held or written where stages are drawn in one read.
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
        Rows of the first stage. For two-stage scores a part of `size`, by default size / 4 or, where that is more, the
        smaller of size / 2 and 10 p; for the others besides it, by default the larger of size / 4 and 5 p.
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
        If something is at `store`, without resume; nothing is overwritten.
    StoreLockedError
        If another process is writing the run at `store`.
    FingerprintMismatchError
        If the run at `store` was begun with other data or arguments, naming which.
    StoreWriteError
        If something cannot be written to `store`; the run can be resumed. A bucket that does not answer is waited for as
        long as `dask-nlis.storage.retry-seconds` says, 120 by default.
    ClusterError
        If a bucket cannot be read, as one that does not answer or refuses access.
    MemoryLimitError
        If a worker or this process would need more memory than it has, as `plan` tells; before anything is read.
    InputError, InputTypeError
        If an argument is not allowed; before anything is read or written.
    NonFiniteError
        If a cell is not finite, naming row and column.
    MissingDataError
        If a path was given and nothing is stored there.

    Warns
    -----
    NlisWarning
        If size="auto" ends at half of the rows without reaching epsilon, or a run goes on on another kind of device.

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
    for name, value in (("keep_scores", keep_scores), ("resume", resume), ("verify", verify)):
        if not isinstance(value, bool):
            raise InputTypeError(f"{name}={str(value)[:60]!r} is {type(value).__name__}; give True or False")
    if data_version is not None and not isinstance(data_version, str):
        raise InputTypeError(f"data_version is {type(data_version).__name__}; give a text, such as '2026-07-01'")
    path = None if store is None else check_store(store, resume)
    if path is None and resume:
        raise InputError("resume=True is given without store; give the path of the store to resume, or begin")
    if verify and not resume:
        raise InputError("verify=True is given without resume=True; only what a store keeps can be verified")
    if seed is None and path is not None:
        seed = begun_seed(path)
    goal: dict[str, Any] = {"size": size, "epsilon": epsilon, "seed": seed, "theta": theta, "scores": scores}
    goal |= {"scheme": scheme, "shares": shares, "rounds": rounds, "pilot_size": pilot_size}
    reference, design, scores, one = asked(problem, X, y, goal, options)
    keeping = {"in_memory": store is None and keep_scores, "stored": store is not None and keep_scores}
    check_run_fits(reference, design, scores, one, **keeping)
    if path is not None:
        problem.to_dict()  # raises for users' functions, which could not be stored at the end
    manifest = begun(reference, design, scores, one, keep_scores, data_version)
    text = "" if store is None else os.fspath(store)
    if path is not None and is_complete(path):
        check_same(text, read_manifest(path) or {}, manifest["fingerprint"], partial(changed, reference))
        clear_leftovers(path)
        done = open_run(text)
        if verify:
            with ExitStack() as stack, tallied() as tally:
                setting = Setting(design, X, y, options, stack, None, keep_scores=False)
                check_equal(text, done, carry_out(reference, setting, scores, one, manifest, tally))
        return done
    if path is not None and reference.device == "auto":
        manifest["ran_on"] = phase.devices_in_force("nlis-run")
    with ExitStack() as stack, tallied() as tally:
        warn = partial(phase.warn, category=NlisWarning)
        running = (
            None
            if path is None
            else stack.enter_context(
                under_way(path, text, manifest, warn, partial(changed, reference), resume=resume, verify=verify)
            )
        )
        if running is not None:
            _warn_of_devices(text, running.begun.get("ran_on"), manifest.get("ran_on"))
        setting = Setting(design, X, y, options, stack, running, keep_scores)
        return carry_out(reference, setting, scores, one, manifest, tally)


def _warn_of_devices(text: str, before: Any, now: Any) -> None:
    """Other devices round otherwise: allowed, for a job must be able to go on where there is no GPU any more."""
    if isinstance(before, list) and before != now:
        phase.warn(
            f"store={text!r} was begun where tasks ran on {', '.join(map(str, before))}, and goes on on {', '.join(now)}: results "
            "agree to rounding, not in every bit; give device='cpu' or 'cuda' to have one of them throughout",
            NlisWarning,
        )
