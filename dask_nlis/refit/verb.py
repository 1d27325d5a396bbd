"""The verb refit: weighted loss, several starts, two solvers, and checks of our own."""

import warnings
from typing import Any

import numpy as np

from dask_nlis.activations import Identity
from dask_nlis.constraints import Piecewise
from dask_nlis.errors import ConvergenceWarning, InputError, InputTypeError
from dask_nlis.kernels.numbers import as_float, is_number
from dask_nlis.losses import AbsoluteError
from dask_nlis.models import Linear, SingleIndex, has_rectifiers, slopes_only
from dask_nlis.problem import Problem, check_theta, jacobians, set_for
from dask_nlis.refit.covariance import spread
from dask_nlis.refit.fit import Fit
from dask_nlis.refit.least_absolute import last_width, least_absolute, smoothed
from dask_nlis.refit.objective import Objective, best_step, on_piece, within
from dask_nlis.refit.solvers import gauss_newton, project, spectral_projected_gradient
from dask_nlis.refit.taken import check_labels, row_weights, taken_rows
from dask_nlis.sample import Sample

#: A fit is stationary when its local quadratic promises less than this share of the loss.
STATIONARY = 1e-8

#: Change of a linear predictor by a further step that is none of rounding; of rows that escape it is about 1.
_ESCAPES = 0.1

#: Steps of the projected gradient in the first turn, where it brings Gauss-Newton near a minimum, and in later ones,
#: which there are where Gauss-Newton did not end in one.
_WARM_UP, _LONG = 25, 100

#: Turns that the two solvers take from a start while the end point is not stationary; more of them, up to the second
#: number, while each halves the decrease in sight. In a kink, as networks have them, that does not shrink.
_ROUNDS, _AT_MOST = 3, 12


def refit(
    problem: Problem,
    X: Any,
    y: Any,
    sample: Any,
    *,
    ridge: float = 0.0,
    sample_weight: Any = None,
    start: Any = None,
    n_starts: int = 5,
    seed: int = 0,
) -> Fit:
    """Fit a problem on drawn rows with their weights: X (s, d), y (s,), sample -> Fit. Works in memory; no reads.

    Minimises sum_i w_i l(prediction_i(theta), y_i) + ridge |theta|^2 over the problem's set, weights as drawn (their
    mean total is n, so the objective estimates the full loss, and a ridge means the same for every sample of the
    data). From each start a spectral projected gradient (Birgin, Martinez & Raydan 2000), then Gauss-Newton inside the set;
    absolute error through Huber losses of shrinking width. The best end point is checked by us: finite, in the set,
    stationary, and no optimum at infinity (separable classes, say).

    Parameters
    ----------
    problem : Problem
        Model, loss and set.
    X : array_like of shape (s, d)
        Taken rows, in memory (`sample.take(X, y)`).
    y : array_like of shape (s,) or (s, n_outputs)
        Their labels.
    sample : Sample or array_like of shape (s,)
        The sample the rows come from, or weights >= 0 of one's own; all ones for an ordinary fit.
    ridge : float, default 0.0
        Penalty on the squares of theta's entries, without the intercept and the biases of units, in units of the loss
        over theta squared. `Fit.loss` is the loss without it.
    sample_weight : array_like of shape (s,), optional
        Row weights of the data, multiplied in.
    start : array_like of shape (p,), optional
        First start, projected on the set; zeros by default, a random one for networks, where zeros is a saddle.
    n_starts : int, default 5
        Starts in all, the others random; one suffices for a linear model on a convex set and is all it gets. On an
        AmplitudeBand every second one is the start before it with the signs of some amplitudes flipped.
    seed : int, default 0
        Seed of the random starts.

    Returns
    -------
    Fit

    Raises
    ------
    InputError, InputTypeError
        If shapes do not fit, weights are negative, a cell is not finite, the loss does not allow a label, or the set
        is empty or lives in other dimensions; or if an argument is of another type.

    Warns
    -----
    ConvergenceWarning
        If the fit does not pass the checks; `Fit.reasons` says why.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> X = np.arange(6.0).reshape(6, 1)
    >>> fit = nlis.refit(nlis.Problem(nlis.Linear(), constraint=nlis.Box(-2, 2)), X, 3 * X[:, 0], np.ones(6))
    >>> fit.params["x0"], fit.active
    (2.0, ('x0 at its upper bound', 'intercept at its upper bound'))
    """
    if not isinstance(problem, Problem):
        raise InputTypeError(f"problem is {type(problem).__name__}; give Problem(model, loss)")
    x, labels, weights, names = taken_rows(problem, X, y, sample, sample_weight)
    drawn = sample if isinstance(sample, Sample) else row_weights("sample", sample, len(x))
    check_labels(problem.row_loss, labels)
    if isinstance(n_starts, bool) or not isinstance(n_starts, int | np.integer) or n_starts < 1:
        raise InputError(f"n_starts={n_starts!r} is not allowed; give a positive integer")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputTypeError(f"seed={seed!r} is {type(seed).__name__}; give a non-negative integer")
    if seed < 0:
        raise InputError(f"seed={seed} is negative; give a non-negative integer")
    settings = {"start": start, "n_starts": int(n_starts), "seed": int(seed), "ridge": _ridge(ridge)}
    return fit_rows(problem, x, labels, weights, names, sample=drawn, **settings)


def fit_rows(
    problem: Problem,
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    names: tuple[str, ...],
    *,
    sample: Sample | np.ndarray,
    start: Any = None,
    n_starts: int = 5,
    seed: int = 0,
    ridge: float = 0.0,
) -> Fit:
    """Fit checked float64 rows with weights, (s, d), (s,), (s,): what `refit` and the pipeline have in common.

    `sample` is what the rows were drawn by, or the weights of draws of one's own; `weights` hold those of the data too.
    """
    shrunk = ridge * slopes_only(problem.model, x.shape[1]) if ridge else 0.0
    objective = within(Objective(problem, x, y, weights, shrunk), set_for(problem, x.shape[1]))
    first = None if start is None else check_theta(problem, start, x.shape[1], names, "start")
    theta = _best(objective, _starts(objective, first, n_starts, seed))
    return _checked(objective, problem, theta, names, sample)


def _ridge(value: Any) -> float:
    if not is_number(value):
        raise InputTypeError(f"ridge={value!r} is {type(value).__name__}; give one number >= 0")
    if not 0 <= as_float(value) < np.inf:
        raise InputError(f"ridge={value!r} is not allowed; give a finite number >= 0")
    return float(value)


def _starts(objective: Objective, given: np.ndarray | None, n_starts: int, seed: int) -> list[np.ndarray]:
    """The given start, or zeros, and random ones of the size of the inputs; zeros is a saddle of every network."""
    model = objective.problem.model
    affine = isinstance(model, Linear | SingleIndex)
    p = model.n_parameters(objective.X.shape[1])
    first = [given] if given is not None else [np.zeros(p)] if affine else []
    constraint = objective.problem.constraint
    mirrors = constraint if isinstance(constraint, Piecewise) else None
    straight = isinstance(model, Linear) or (isinstance(model, SingleIndex) and isinstance(model.activation, Identity))
    if straight and mirrors is None:
        return first  # convex: one start is enough
    with np.errstate(over="ignore"):
        # Coefficients that give the index a standard deviation of about 1 over the rows.
        size = np.sqrt((model.inputs(objective.X) ** 2).mean(axis=0) * (p if affine else objective.X.shape[1]))
        size = size if affine else np.full(p, np.sqrt((size**2).mean()))
    spread = np.where(size > 0, 1 / np.where(size > 0, size, 1.0), 1.0)
    rng = np.random.default_rng(seed)
    starts = first or [rng.standard_normal(p) * spread]
    while len(starts) < n_starts:
        if mirrors is not None and (straight or len(starts) % 2):
            starts.append(mirrors.flipped(starts[-1], rng))
        else:
            starts.append(rng.standard_normal(p) * spread)
    return starts


def _best(objective: Objective, starts: list[np.ndarray]) -> np.ndarray:
    """End point with the smallest loss; never worse than a projected start."""
    whole = objective
    ends = []
    for start in starts:
        objective = on_piece(whole, start)
        constraint = objective.problem.constraint
        ends.append(project(constraint, start))
        if isinstance(objective.problem.loss, AbsoluteError):
            ends.append(least_absolute(objective, ends[-1]))
            continue
        sight = np.inf
        for turn in range(_AT_MOST):
            warm = spectral_projected_gradient(objective, constraint, ends[-1], _WARM_UP if not turn else _LONG)
            ends += [warm, gauss_newton(objective, constraint, warm)]
            before, sight = sight, _promised(objective, ends[-1])
            if sight <= STATIONARY or (turn + 1 >= _ROUNDS and not sight < before / 2):
                break
    # Later candidates win ties: an end point is at least as polished as what it came from.
    return min(reversed(ends), key=whole.value)


def _promised(objective: Objective, theta: np.ndarray) -> float:
    """Decrease that the local quadratic promises inside the set, relative to the loss."""
    gap = 0.0
    size = _size(objective, theta)
    if isinstance(objective.problem.loss, AbsoluteError) and size > 0:
        smooth = smoothed(objective, last_width(objective, theta))
        gap = objective.value(theta) - smooth.value(theta)
        objective = smooth
    local = objective.at(theta)
    if not all(np.isfinite(part).all() for part in local):
        return np.nan
    promised = best_step(objective.problem.constraint, local, theta)[1] + gap
    return promised / size if size > 0 else 0.0


def _size(objective: Objective, theta: np.ndarray) -> float:
    """Loss at theta; that of a perfect fit is 0, and what is left then is judged against predicting nothing."""
    nothing = objective.value(project(objective.problem.constraint, np.zeros_like(theta)))
    floor = np.finfo(np.float64).eps * (nothing if np.isfinite(nothing) else 0.0)
    return float(max(objective.value(theta), floor))


def _escapes(objective: Objective, theta: np.ndarray) -> bool:
    """Whether a next step still moves a linear predictor though it gains nothing: the optimum lies at infinity.

    So it is with classes that a plane separates, and with counts that are 0 throughout some direction.
    """
    problem = objective.problem
    if problem.loss.takes != "linear predictor":
        return False
    step, _ = best_step(problem.constraint, objective.at(theta), theta)
    return bool(np.abs(jacobians(problem.model, theta, objective.X) @ step).max() > _ESCAPES)


def _checked(
    objective: Objective, problem: Problem, theta: np.ndarray, names: tuple[str, ...], sample: Sample | np.ndarray
) -> Fit:
    constraint = objective.problem.constraint
    objective = on_piece(objective, theta)  # where the set is not convex, the optimum is a local one
    reasons = []
    stationarity = _promised(objective, theta)
    if not np.isfinite(stationarity):
        reasons.append("theta, its loss or its gradient is not finite")
    elif stationarity > STATIONARY:
        kink = has_rectifiers(problem.model)
        reasons.append(
            f"not stationary: a further decrease of {stationarity:.1e} of the loss is in sight"
            + (", unless this is a minimum in a kink, where a unit changes side and no slope vanishes" if kink else "")
        )
    elif _escapes(objective, theta):
        reasons.append(
            "no finite optimum (separable labels, or counts 0 throughout a direction); constrain theta, by Ball(10.0) say"
        )
    if constraint is not None and not constraint.contains(theta):
        reasons.append("outside the constraint set")
    if reasons:
        warnings.warn(f"refit is not ok: {'; '.join(reasons)}", ConvergenceWarning, stacklevel=4)
    active = () if constraint is None else constraint.active(theta, problem.model.parameter_names(names))
    found = spread(objective, theta, sample, ok=not reasons, active=active)
    return Fit(
        problem=problem,
        theta=theta,
        feature_names=names,
        loss=objective.loss(theta),
        ok=not reasons,
        reasons=tuple(reasons),
        active=active,
        stationarity=stationarity,
        n_rows=len(objective.y),
        covariance=found.covariance,
        population_covariance=found.population,
        design=f"{sample.scheme} sample" if isinstance(sample, Sample) else "one independent draw a row",
        withheld=found.withheld,
    )
