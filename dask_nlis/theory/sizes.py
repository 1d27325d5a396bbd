"""Sample sizes that theorems ask for, with their constants where these are known."""

import math
import warnings
from typing import Any

from dask_nlis.errors import InputError, UnderdeterminedWarning
from dask_nlis.nouns import noun
from dask_nlis.theory import arguments

#: What `sample_size` may guarantee.
GUARANTEES = ("uniform", "embedding", "loss")


@noun
class SampleSize:
    """A sample size that a theorem asks for, with what it depends on.

    Attributes
    ----------
    size : int, or inf
        Draws with replacement; inf where beta is 0 or the size is no float64.
    guarantee : str
        "uniform", "embedding", "loss", or the paper.
    epsilon : float
        Relative error.
    delta : float
        Probability that the guarantee fails.
    beta : float
        Misestimation factor of the scores.
    log_net : float
        Logarithm of the number of points of the net, 0 where none is needed.
    n_rows : int, or None
        Rows there are.

    Examples
    --------
    >>> from dask_nlis import sample_size
    >>> found = sample_size(10, 0.5, n_rows=1_000)
    >>> found.size, found.vacuous
    (1960, True)
    """

    size: float
    guarantee: str
    epsilon: float
    delta: float
    beta: float
    log_net: float
    n_rows: int | None

    @property
    def vacuous(self) -> bool | None:
        """Whether all rows are no more than the theorem asks for; None where their number is not known."""
        return None if self.n_rows is None else self.size >= self.n_rows

    def _summary(self) -> dict[str, Any]:
        known = ("size", "guarantee", "epsilon", "delta", "beta", "n_rows")
        shown = {name: getattr(self, name) for name in known if getattr(self, name) is not None}
        return shown if self.vacuous is None else shown | {"vacuous": self.vacuous}


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
      of a net of a ball around 0, and the second for the features, with scores that keep beta at all these theta; then
      `excess_loss_bound` holds.

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
    size = _ceiling((2 + 2 * error / 3) * columns * exponent, factor, error, error)
    if rows is not None and rows < parameters:
        _warn_underdetermined(rows, parameters)
    return SampleSize(size, guarantee, error, failure, factor, net, rows)


def active_learning_size(
    d: int,
    epsilon: float,
    *,
    paper: str = "gajjar-2024",
    constant: float = 1.0,
    n_rows: int | None = None,
) -> SampleSize:
    """Labels that one-shot active learning of a single-index model needs, up to a constant that no paper states.

    Draws by the leverage of the features (no labels), for a known phi with Lipschitz constant K and phi(0) = 0, reach
    with probability 9/10 a loss of at most C (L(theta*) + epsilon K^2 |X theta*|^2), C a constant above 1 that is not
    stated either:

    - "gajjar-2023": constant d^2 log(1/epsilon) / epsilon^4 (Gajjar, Musco & Hegde, AISTATS 2023, Theorem 1);
    - "gajjar-2024": constant d / epsilon^2, logarithms of d and 1/epsilon left to the constant (Gajjar, Tai, Xu, Hegde,
      Musco & Li, COLT 2024, whose abstract gives the linear dependence on d).

    Parameters
    ----------
    d : int
        Columns of the features.
    epsilon : float
        Error, between 0 and 1.
    paper : {"gajjar-2024", "gajjar-2023"}
        Which theorem.
    constant : float, default 1.0
        Factor that the theorem leaves open, with the logarithms of the later one. 1 gives an order of magnitude.
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
        If there are fewer rows than columns.

    Notes
    -----
    Another promise than `sample_size`: labels are bought for the rows drawn only, hence scores without them, C > 1 and
    an error that does not vanish with L(theta*).

    Examples
    --------
    >>> [active_learning_size(10, 0.5, paper=paper).size for paper in ("gajjar-2023", "gajjar-2024")]
    [1110, 40]
    """
    columns, error = arguments.count("d", d), arguments.share("epsilon", epsilon)
    factor = arguments.positive("constant", constant)
    rows = None if n_rows is None else arguments.count("n_rows", n_rows)
    if paper == "gajjar-2023":
        size = _ceiling(factor * columns * columns * -math.log(error), *[error] * 4)
    elif paper == "gajjar-2024":
        size = _ceiling(factor * columns, error, error)
    else:
        raise InputError(f"paper={paper!r} is not known; give 'gajjar-2024' or 'gajjar-2023'")
    if rows is not None and rows < columns:
        _warn_underdetermined(rows, columns)
    return SampleSize(size, f"{paper}, up to a constant", error, 0.1, 1.0, 0.0, rows)


def _ceiling(value: float, *divisors: float) -> float:
    """Smallest whole number >= value over the divisors, at least 1; inf where that is no float64."""
    for divisor in divisors:  # one after the other: the fourth power of a small epsilon is 0
        value = value / divisor if divisor else math.inf
    return max(math.ceil(value), 1) if value < math.inf else math.inf


def _log_sum(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def _warn_underdetermined(n: int, p: int) -> None:
    warnings.warn(
        f"n={n} rows are fewer than p={p} parameters, where the theory says nothing; use fewer parameters or more rows",
        UnderdeterminedWarning,
        stacklevel=3,
    )
