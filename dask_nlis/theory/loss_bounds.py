"""From a sample that keeps losses to a fit that is nearly as good: Lipschitz bound and excess loss."""

import math
from typing import Any

import numpy as np

from dask_nlis.activations import LeakyRelu, Relu
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import is_number
from dask_nlis.models import Linear, ReluNetwork, SingleIndex
from dask_nlis.problem import Problem
from dask_nlis.theory import arguments, slopes


def lipschitz_bound(
    problem: Problem,
    features: Any,
    *,
    index_range: Any = math.inf,
    labels: Any = None,
    radius: float | None = None,
    steepest: float | None = None,
) -> float:
    """Bound of how fast the root of the loss moves: |sqrt L(a) - sqrt L(b)| <= G |a - b|. Reads nothing.

    G = k |[X, 1]|_2 for `Linear` and `SingleIndex`, k the steepest slope of f_i in the index; G = k R |X|_F for
    `ReluNetwork` with theta in a ball of radius R around 0, whose index has slope |theta| |x_i| at most.

    Parameters
    ----------
    problem : Problem
        Model and loss.
    features : Factor or float
        `factorize(reference_matrix(problem, X))`, or the norm itself: the largest singular value of the features, for
        networks the Frobenius norm.
    index_range : float or (float, float), default inf
        B for indices |u| <= B, or the lowest and highest.
    labels : array_like of shape (k,), optional
        All labels, or the lowest and highest; without them the loss is left out. Squared error needs none.
    radius : float, optional
        R, for networks.
    steepest : float, optional
        k, where it is not known for the activation or loss.

    Returns
    -------
    float
        inf where nothing bounds the slope, as for Exp or AbsoluteError.

    Raises
    ------
    InputError, InputTypeError
        If an argument is not allowed, or no bound is known.

    Notes
    -----
    The paper's bound (Rajmohan & Roosta, ICML 2025) names a Lipschitz constant without a value. It belongs to the
    vector of all roots, not to one row.

    Examples
    --------
    >>> from dask_nlis import Logistic, Problem, SingleIndex
    >>> lipschitz_bound(Problem(SingleIndex(Logistic())), 100.0)
    25.0
    """
    if not isinstance(problem, Problem):
        raise InputTypeError(f"problem is {type(problem).__name__}; give Problem(model, loss)")
    model = problem.model
    network = isinstance(model, ReluNetwork) and type(model.unit) in (Relu, LeakyRelu)
    if not network and not isinstance(model, Linear | SingleIndex):
        raise InputError(
            f"no Lipschitz bound is known for {type(model).__name__}; give excess_loss_bound a constant of your own"
        )
    index = arguments.index_range(index_range)
    known = None if labels is None else arguments.labels(labels)
    slope = slopes.steepest(problem, index, known) if steepest is None else arguments.not_negative("steepest", steepest)
    norm = _norm(features, network)
    if not isinstance(model, ReluNetwork):
        return slope * norm
    if radius is None:
        raise InputError("radius is None, but the slope of a network grows with theta; give the radius of a ball")
    leak = model.unit.slope if isinstance(model.unit, LeakyRelu) else 1.0
    return slope * max(1.0, leak) * arguments.positive("radius", radius) * norm


def _norm(features: Any, network: bool) -> float:
    """Spectral or, for networks, Frobenius norm of the features."""
    if hasattr(features, "r") and hasattr(features, "frobenius"):
        return float(features.frobenius if network else np.linalg.norm(features.r, 2))
    if not is_number(features):
        raise InputTypeError(f"features is {type(features).__name__}; give factorize(A) or a norm")
    return arguments.positive("features", features)


def excess_loss_bound(
    loss: float,
    epsilon: float,
    *,
    lipschitz: float = 0.0,
    radius: float = 0.0,
    sampled_lipschitz: float | None = None,
) -> float:
    """Bound of L(theta_S) - L(theta*), theta_S the best theta on a sample with the uniform guarantee. Reads nothing.

    sqrt L(theta_S) <= sqrt((1 + epsilon) / (1 - epsilon) L(theta*)) + epsilon R (G + G_S / sqrt(1 - epsilon)), for
    theta in a ball of radius R around 0 with a net of radius epsilon R.

    Parameters
    ----------
    loss : float
        L(theta*), the loss of the best theta on all rows.
    epsilon : float
        Relative error of the sample, between 0 and 1.
    lipschitz : float, default 0
        G, such as `lipschitz_bound`; with 0 the sample is taken to keep the loss at theta_S itself.
    radius : float, default 0
        R.
    sampled_lipschitz : float, optional
        G_S, the same constant of the weighted sample; sqrt(1 + epsilon) G by default, which holds for a linear
        index where the sample embeds the features, as `sample_size` has it.

    Returns
    -------
    float
        In the units of the loss.

    Raises
    ------
    InputError, InputTypeError
        If an argument is not allowed.

    Notes
    -----
    Where the paper (Rajmohan & Roosta, ICML 2025) is corrected: its bound has epsilon L(theta*). The sample may rate
    theta* too high and theta_S too low, so that it is 2 epsilon / (1 - epsilon) L(theta*), and no less.

    Examples
    --------
    >>> round(excess_loss_bound(100.0, 0.1), 6)
    22.222222
    >>> round(excess_loss_bound(100.0, 0.1, lipschitz=5.0, radius=2.0), 6)
    73.210804
    """
    best = arguments.number("loss", loss, 0, math.inf, "a number >= 0")
    error = arguments.share("epsilon", epsilon)
    steep = arguments.not_negative("lipschitz", lipschitz)
    reach = error * arguments.not_negative("radius", radius)
    sampled = (
        math.sqrt(1 + error) * steep
        if sampled_lipschitz is None
        else arguments.not_negative("sampled_lipschitz", sampled_lipschitz)
    )
    between = (reach * (steep + sampled / math.sqrt(1 - error))) if reach else 0.0
    # Squared by hand: the difference of the two losses would cancel.
    crossed = 2 * math.sqrt((1 + error) / (1 - error)) * math.sqrt(best) * between if best and between else 0.0
    return 2 * error / (1 - error) * best + crossed + between * between
