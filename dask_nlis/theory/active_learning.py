"""The sample sizes of active learning, which theorems state up to constants."""

import math

from dask_nlis.errors import InputError
from dask_nlis.theory import arguments
from dask_nlis.theory.size import SampleSize, ceiling, warn_underdetermined


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
    - "gajjar-2024": constant d / epsilon^2, logarithms left to the constant (Gajjar, Tai, Xu, Hegde, Musco & Li, COLT
      2024, whose abstract states d up to logarithms; the power of epsilon is the one usually quoted).

    Reads nothing.

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
    if not isinstance(paper, str) or paper not in ("gajjar-2023", "gajjar-2024"):
        raise InputError(f"paper={paper!r} is not known; give 'gajjar-2024' or 'gajjar-2023'")
    if paper == "gajjar-2023":
        size = ceiling(factor * columns * columns * -math.log(error), *[error] * 4)
    else:
        size = ceiling(factor * columns, error, error)
    if rows is not None and rows < columns:
        warn_underdetermined(rows, columns)
    return SampleSize(size, f"{paper}, up to a constant", error, 0.1, 1.0, 0.0, rows)
