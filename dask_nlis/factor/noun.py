"""The factor of a tall matrix: what pass 2 needs of pass 1, small, stored with a run, and mergeable."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_nlis import phase
from dask_nlis.errors import InputError, InputTypeError, MatrixMismatchError, RankAmbiguityWarning
from dask_nlis.factor.outside import check_comparable, difference, lazy_outside
from dask_nlis.factor.stored import check_stored
from dask_nlis.factor.sums import check_finite_factor
from dask_nlis.intake import give_back
from dask_nlis.kernels.complement import complement
from dask_nlis.kernels.linalg import Spectrum, frobenius_norm, merge_r, spectrum
from dask_nlis.matrix import as_matrix
from dask_nlis.nouns import from_dict, noun, to_dict

#: Condition up to which one Gram matrix is enough: its error grows with the square of the condition.
GRAM_UP_TO = 1e2


@noun
class Factor:
    """R factor of a tall matrix F (n, p), with its rank and a whitener W such that F W is orthonormal.

    Attributes
    ----------
    r : ndarray of shape (p, p)
        Upper triangular, diagonal >= 0, R'R = F'F; never truncated.
    rank : int
        Singular values above 10 p eps of the largest, after power-of-two column scaling.
    singular_values : ndarray of shape (p,)
        Of R after column scaling, descending.
    condition : float
        Largest over smallest kept singular value.
    column_scale : ndarray of shape (p,)
        Powers of two that bring column norms into [0.5, 1).
    whitener : ndarray of shape (p, rank)
        W: leverage is the squared row norm of F W, or of (F W) C where there is a correction. Upper triangular, but
        for zero rows, where it is the inverse of a Cholesky factor or of the R of a sketch.
    correction : ndarray of shape (rank, rank), or None
        C of a later read, to be applied to F W as rounded; W C would lose what it gains.
    frobenius : float
        Frobenius norm of F.
    n_rows, n_dropped : int
        Rows that count; rows left out by missing="drop".
    nodes : int
        Quadrature nodes along the ray to theta that the hardest row took; 0 where the adjoint is a formula.
    identity_residual : float
        Largest miss of f(theta) = f(0) + <theta, f*>, over 1 + |f(theta)| + |f(0)|, of such a row; else 0.
    method : str
        How it was computed: "gram", "patterns" (the same, by activation pattern), "cholesky-qr2", "tsqr", "sketch"
        or "sketch-only"; of a merged factor the methods of its parts, joined by "+".
    reads : int
        Reads of X it took, the most of any part of a merged factor.
    beta : float
        1 for an exact factor. For "sketch-only" the share of its exact leverage that no row falls below, scores
        divided by their sums: measured on a second, independent sketch, less three standard errors.
    token : str
        Token of the matrix it belongs to.
    parts : tuple of str
        Tokens of the matrices whose rows it covers: `token` alone, or those of the factors merged.
    rule_token : str
        Token of what made the rows: problem and theta, or nothing for plain rows.
    columns, dependent : tuple of str
        Names of the columns of F; those that take part in an exact linear dependency.

    Examples
    --------
    >>> import numpy as np, dask_nlis as nlis
    >>> factor = nlis.factorize(np.array([[3.0, 3.0], [4.0, 4.0], [0.0, 0.0]]))
    >>> factor.rank, factor.dependent, factor.r.round(12)[0]
    (1, ('x0', 'x1'), array([5., 5.]))
    >>> np.abs(factor.outward).round(3).T, factor.score_tolerance
    (array([[0.707, 0.707]]), 1e-12)
    """

    r: np.ndarray
    rank: int
    singular_values: np.ndarray
    condition: float
    column_scale: np.ndarray
    whitener: np.ndarray
    correction: np.ndarray | None
    frobenius: float
    n_rows: int
    n_dropped: int
    nodes: int
    identity_residual: float
    method: str
    reads: int
    beta: float
    token: str
    parts: tuple[str, ...]
    rule_token: str
    columns: tuple[str, ...]
    dependent: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("r", "singular_values", "column_scale", "whitener", "correction"):
            value = getattr(self, name)
            if value is not None:
                # A copy that nobody writes into; lists where the dictionary came through JSON.
                array = np.array(value, dtype=np.float64)
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    @property
    def score_tolerance(self) -> float:
        """How far above 1 rounding may bring a score: 100 kappa eps, of a Gram matrix 100 kappa^2 eps; >= 1e-12."""
        if self.method == "sketch-only":
            return 10 / self.beta  # a sketch overrates rows by design; the scores are clipped to 1
        growth = self.condition
        if {"gram", "patterns"} & set(self.method.split("+")):  # each Gram matrix was made at a condition up to 1e2
            growth = max(growth, min(growth, GRAM_UP_TO) ** 2)
        return max(1e-12, 100 * growth * float(np.finfo(np.float64).eps))

    def merge(self, other: "Factor") -> "Factor":
        """Factor of the rows of two matrices together: QR of the two stacked r. Reads nothing.

        `leverage_scores(A, merged)` takes either part as A and gives the leverage of its rows among the rows of
        both; the scores of all parts together sum to the rank. For one matrix that holds the rows of both,
        factorize that one. No second read corrects a merged whitener: its scores hold to 100 kappa eps.

        Parameters
        ----------
        other : Factor
            Of other rows, with the same columns, problem and theta.

        Returns
        -------
        Factor

        Raises
        ------
        InputError, InputTypeError
            If columns differ, a matrix is in both, or a factor is only a sketch; or if an argument is of another type.
        MatrixMismatchError
            If problem or theta differ.

        Warns
        -----
        RankAmbiguityWarning
            As `factorize`.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> A, B = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0]])
        >>> both = nlis.factorize(A).merge(nlis.factorize(B))
        >>> nlis.leverage_scores(A, both).round(12), nlis.leverage_scores(B, both).round(12)
        (array([1. , 0.5]), array([0.5]))
        """
        _check_mergeable(self, other)
        # In the order of the tokens, so that a.merge(b) and b.merge(a) are equal to the last bit.
        first, second = sorted((self, other), key=lambda factor: factor.parts)
        parts = tuple(sorted(self.parts + other.parts))
        methods = {method for factor in (self, other) for method in factor.method.split("+")}
        r = merge_r([first.r, second.r])
        check_finite_factor(r)
        return made(
            r,
            spectrum(r),
            n_rows=self.n_rows + other.n_rows,
            n_dropped=self.n_dropped + other.n_dropped,
            nodes=max(self.nodes, other.nodes),
            identity_residual=max(self.identity_residual, other.identity_residual),
            method="+".join(sorted(methods)),
            reads=max(self.reads, other.reads),
            token=f"merged-{tokenize(parts)}",
            parts=parts,
            rule_token=self.rule_token,
            columns=self.columns,
        )

    def outside(self, A: Any) -> Any:
        """Tell how much of each row of A (n, p) this factor has never seen -> (n,), in [0, 1]. One read when computed.

        The share of the squared row norm, in the units of the columns, that lies outside the row space of F; 0
        where F has full rank, and for a zero row. A large share says that `cross_leverage_scores` tells little
        about the row. Lazy as `leverage_scores`.

        Parameters
        ----------
        A : TallMatrix or array_like of shape (n, p)
            Rows with the same columns, problem and theta.

        Returns
        -------
        array of shape (n,), float64
            In the container X came in.

        Raises
        ------
        InputError, InputTypeError
            If columns differ; or if an argument is of another type.
        MatrixMismatchError
            If problem or theta differ.
        MissingDataError
            If a path was given and nothing is stored there.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> seen = nlis.factorize(np.array([[2.0, 0.0], [1.0, 0.0]]))
        >>> seen.outside(np.array([[5.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).round(12)
        array([0.  , 0.64, 1.  ])
        """
        matrix = as_matrix(A)
        check_comparable(matrix, self.columns, self.rule_token)
        return give_back(matrix.source.container, lazy_outside(matrix, self.outward), "outside", "nlis-score")

    @property
    def outward(self) -> np.ndarray:
        """Orthonormal directions (p, p - rank) that no row of F takes, in the units of the columns."""
        return complement(self.r, self.rank, self.column_scale)

    def to_dict(self) -> dict[str, Any]:
        """Return the factor as JSON values and arrays.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        return to_dict(self)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Factor":
        """Rebuild a factor from `to_dict`, its arrays as arrays or as the lists that JSON makes of them.

        Parameters
        ----------
        found : mapping
            What `to_dict` returned, its arrays as arrays or as the lists that JSON makes of them.

        Returns
        -------
        Factor
            Equal to the one that was stored.

        Raises
        ------
        InputError, InputTypeError
            If it is no factor, or its fields do not fit together.

        Examples
        --------
        >>> import numpy as np, dask_nlis as nlis
        >>> factor = nlis.factorize(np.eye(3))
        >>> nlis.Factor.from_dict(factor.to_dict()) == factor
        True
        """
        factor: Factor = from_dict(found, {"Factor": Factor}, typed=True)
        check_stored(factor)
        return factor

    def _summary(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"p": len(self.columns), "rank": self.rank, "condition": self.condition}
        shown |= {"n_rows": self.n_rows, "method": self.method, "reads": self.reads}
        extra = {"n_dropped": self.n_dropped, "dependent": self.dependent}
        shown |= {name: value for name, value in extra.items() if value}
        shown |= {"nodes": self.nodes, "identity_residual": self.identity_residual} if self.nodes else {}
        shown |= {"beta": self.beta} if self.method == "sketch-only" else {}
        return shown | ({"parts": len(self.parts)} if len(self.parts) > 1 else {})


def made(
    r: np.ndarray,
    decided: Spectrum,
    *,
    columns: tuple[str, ...],
    whitening: Spectrum | None = None,
    correction: np.ndarray | None = None,
    beta: float = 1.0,
    **known: Any,
) -> Factor:
    """Make a factor of r and the rank decision on it, and warn where that was a near thing.

    `whitening` is the decision that W comes from, where it is not the final one.
    """
    if decided.ambiguous:
        phase.warn(
            f"rank {decided.rank} of {len(columns)} is uncertain: relative singular values "
            f"{', '.join(f'{v:.2g}' for v in decided.ambiguous[:3])} lie near the tolerance "
            f"{10 * len(columns) * np.finfo(float).eps:.2g}; look at columns "
            f"{', '.join(columns[j] for j in decided.involved[:4])}",
            RankAmbiguityWarning,
        )
    whitening = decided if whitening is None else whitening
    return Factor(
        r=r,
        rank=decided.rank,
        singular_values=decided.singular_values,
        condition=decided.condition,
        column_scale=decided.column_scale,
        whitener=whitening.whitener,
        correction=whitening.correction if correction is None else correction,
        frobenius=frobenius_norm(r),
        beta=beta,
        columns=columns,
        dependent=_dependent(decided, columns),
        **known,
    )


def _dependent(decided: Spectrum, columns: Sequence[str]) -> tuple[str, ...]:
    """Columns with a part in the null space: together they are linearly dependent (a zero column alone is)."""
    # Rounding turns the null space towards the smallest kept direction by about kappa eps.
    noise = max(1e-8, 10 * decided.condition * np.finfo(np.float64).eps)
    taking_part = np.abs(decided.null_space).max(axis=1, initial=0.0) > noise
    return tuple(name for name, part in zip(columns, taking_part, strict=True) if part)


def _check_mergeable(a: Factor, b: object) -> None:
    if not isinstance(b, Factor):
        raise InputTypeError(f"other is {type(b).__name__}; give a Factor")
    if apart := difference(a.columns, b.columns):
        raise InputError(f"factors of {apart} do not merge; factorize matrices with the same columns")
    if a.rule_token != b.rule_token:
        raise MatrixMismatchError(
            "factors of matrices with another problem or theta do not merge; make both matrices with the same ones"
        )
    if set(a.parts) & set(b.parts):
        raise InputError(
            "both factors cover the same matrix, whose rows would count twice; merge factors of other rows"
        )
    if "sketch-only" in (a.method, b.method):
        raise InputError("method='sketch-only' gives an approximate r, which does not merge; give method='sketch'")
