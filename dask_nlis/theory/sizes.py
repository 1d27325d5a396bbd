"""The sample sizes of the theorem, with their constants."""

import math

from dask_nlis.errors import InputError
from dask_nlis.theory import arguments
from dask_nlis.theory.size import SampleSize, ceiling, warn_underdetermined

#: What `sample_size` may guarantee.
GUARANTEES = ("uniform", "embedding", "loss")


def log_net_size(p: int, epsilon: float) -> float:
    """Logarithm of the size of an epsilon-net of a ball in p dimensions: p log(1 + 2 / epsilon). Reads nothing.

    Parameters
    ----------
    p : int
        Dimension: parameters of the model.
    epsilon : float
        Radius of the balls of the net over the radius of the ball.

    Returns
    -------
    float
        No net needs more points; every net needs p log(1 / epsilon) at least, by volume.

    Raises
    ------
    InputError, InputTypeError
        If p is no positive integer, or epsilon not positive and finite.

    Notes
    -----
    A guarantee for every theta holds for the points of a net first, and costs log_net_size more than one for one
    theta: p log(1 + 2 / epsilon), which the size stated in the paper (Rajmohan & Roosta, ICML 2025) leaves out. The
    bound is the usual one by volumes (Vershynin, High-Dimensional Probability, 2018, Corollary 4.2.13).

    Examples
    --------
    >>> round(log_net_size(10, 0.5), 6)
    16.094379
    """
    dimension, radius = arguments.count("p", p), arguments.positive("epsilon", epsilon)
    # 2 / epsilon overflows for the smallest epsilon, and 1 + 2 / epsilon rounds to 1 for large ones.
    return dimension * (math.log1p(2 / radius) if radius > 1 else math.log(2 + radius) - math.log(radius))


def sample_size(
    p: int,
    epsilon: float,
    delta: float = 0.1,
    *,
    beta: float = 1.0,
    rank: int | None = None,
    guarantee: str = "uniform",
    n_rows: int | None = None,
) -> SampleSize:
    """Draws by leverage scores, with replacement, that a guarantee needs: s = (2 + 2 epsilon/3) r t / (beta epsilon^2).

    With probability 1 - delta, for weights 1 / (s tau_i) and scores tau_i >= beta h_i / r, h_i the exact leverage:

    - "loss", t = log(2 / delta): |L_S(theta) - L(theta)| <= epsilon L(theta) at one theta chosen before the draw;
    - "embedding", t = log(2 r / delta): the same for every quadratic form of the dual matrix at that theta
      (all eigenvalues of W'F_S'D F_S W, D the weights, within 1 +- epsilon), what `certificate` measures;
    - "uniform", t = log(2 (N + 1 + r) / delta), log N = `log_net_size(p, epsilon)`: the first at theta* and all points
      of a net of a ball around 0, and the second for the features, with scores that keep beta at all these theta and
      for the features; then `excess_loss_bound` holds.

    Reads nothing.

    Parameters
    ----------
    p : int
        Parameters of the model.
    epsilon : float
        Relative error, between 0 and 1.
    delta : float, default 0.1
        Probability of failure, between 0 and 1.
    beta : float, default 1.0
        Misestimation factor of the scores, from 0 to 1.
    rank : int, optional
        Rank r of the dual matrix, p + 1 by default.
    guarantee : {"uniform", "embedding", "loss"}
        What is to hold.
    n_rows : int, optional
        Rows there are; tells whether the size is vacuous.

    Returns
    -------
    SampleSize

    Raises
    ------
    InputError, InputTypeError
        If an argument is not allowed.

    Warns
    -----
    UnderdeterminedWarning
        If there are fewer rows than parameters: the theory assumes n >= p.

    Notes
    -----
    Bernstein's form of the scalar and the matrix Chernoff bound (Tropp 2012, Theorem 1.1), for a row's loss is at most
    h_i L(theta). Where the paper (Rajmohan & Roosta, ICML 2025) is corrected: it gives orders, without constants, and
    no cost of the net, which makes the size grow with p^2. For norm scores beta is that of `norm_misestimation_factor`.
    The uniform size is vacuous for the paper's own networks; the epsilon measured on a sample is far smaller.

    Examples
    --------
    >>> [sample_size(10, 0.5, guarantee=kind).size for kind in ("loss", "embedding", "uniform")]
    [308, 554, 1960]
    >>> sample_size(1010, 0.5, n_rows=60_000)
    SampleSize(size=15_366_791, guarantee='uniform', epsilon=0.5, delta=0.1, beta=1, n_rows=60_000, vacuous=True)
    """
    parameters, error = arguments.count("p", p), arguments.share("epsilon", epsilon)
    failure = arguments.share("delta", delta)
    factor = arguments.number("beta", beta, 0, 1, "a number from 0 to 1, such as misestimation_factor(problem)")
    columns = parameters + 1 if rank is None else arguments.count("rank", rank)
    rows = None if n_rows is None else arguments.count("n_rows", n_rows)
    if not isinstance(guarantee, str) or guarantee not in GUARANTEES:
        raise InputError(f"guarantee={guarantee!r} is not known; give one of {', '.join(map(repr, GUARANTEES))}")
    net = log_net_size(parameters, error) if guarantee == "uniform" else 0.0
    events = {"loss": 0.0, "embedding": math.log(columns), "uniform": _log_sum(net, math.log1p(columns))}
    exponent = math.log(2) - math.log(failure) + events[guarantee]
    size = ceiling((2 + 2 * error / 3) * columns * exponent, factor, error, error)
    if rows is not None and rows < parameters:
        warn_underdetermined(rows, parameters)
    return SampleSize(size, guarantee, error, failure, factor, net, rows)


def _log_sum(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))
