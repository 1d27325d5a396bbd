"""The methods of `factorize`: what each reads, when it believes what it found, and where it goes on otherwise.

| rung | accepted at a condition | reads | error of a leverage |
|---|---|---|---|
| Gram matrix + Cholesky | up to 1e2 | 1 | eps kappa^2 |
| the same again on F R^-1 (CholeskyQR2) | up to 1e7 | 2 | eps kappa |
| R-only QR tree, refined above 1e3 | any, and any rank | 1 or 2 | eps kappa |

Of a network the rungs are those of its basis, the columns without those of outer weights, and R is widened from it.
"""

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple

import numpy as np

from dask_nlis.errors import InputError
from dask_nlis.factor.basis import condition_of, of_all_columns, spread, widened
from dask_nlis.factor.gram import Gram
from dask_nlis.factor.noun import GRAM_UP_TO
from dask_nlis.factor.sketch import measured_beta
from dask_nlis.kernels.linalg import Spectrum, before_whitening, r_factor, r_of_gram, spectrum, with_zero_columns
from dask_nlis.matrix import Finding
from dask_nlis.matrix.patterns import Units

#: Condition up to which a second Gram matrix, of F R^-1, is enough: at 1e8 Cholesky breaks.
_TWICE_UP_TO = 1e7

#: Condition of F W up to which W is believed; it is near 1 unless the first factor was lost in rounding.
_WHITE_UP_TO = 10.0

#: Above this condition the whitener of the tree is refined by one more read (unrefined error: eps kappa).
_REFINE_ABOVE = 1e3


class Found(NamedTuple):
    """What a method ends with."""

    r: np.ndarray
    decided: Spectrum
    method: str
    reads: int
    finding: Finding
    whitening: Spectrum | None = None
    correction: np.ndarray | None = None
    beta: float = 1.0


class Read(NamedTuple):
    """What a method asks for next: one read of X that makes F, or F W, into something small."""

    kind: Literal["gram", "tree", "sketch"]
    whitener: np.ndarray | None = None
    copies: int = 1  # independent sketches
    units: Units | None = None  # of a network: the basis of F alone, by activation pattern
    columns: np.ndarray | None = None  # of F, the others being left out


#: A method is asked for its next read and told what that gave; the methods of several matrices climb in step.
Climb = Generator[Read, Any, Found]


def _auto(n: int, p: int, units: Units | None) -> Climb:
    if n < p:  # dependent columns: a Gram matrix would be read for nothing
        return (yield from _tsqr(n, p, units))
    total: Gram = yield Read("gram", units=units)
    first = _from_gram(total, units)
    if first is None or first.condition > _TWICE_UP_TO:
        return (yield from _tsqr(n, p, units, reads=1, total=total))
    if first.condition <= GRAM_UP_TO and (units is None or condition_of(total.values) <= GRAM_UP_TO):
        return first.found("gram" if units is None else "patterns", 1, total.finding)
    again = yield from _whitened_once_more(first, "cholesky-qr2", total.finding, units)
    # The second read may find the condition larger than rounding let the first one see.
    if again is None or again.decided.condition > _TWICE_UP_TO:
        return (yield from _tsqr(n, p, units, reads=2, total=total))
    return again


def _gram(n: int, p: int, units: Units | None) -> Climb:
    total: Gram = yield Read("gram")
    first = _from_gram(total)
    if first is None or first.condition > GRAM_UP_TO:
        found = "dependent ones, or a condition near 1e8" if first is None else f"{first.condition:.3g}"
        raise InputError(
            f"method='gram' needs independent columns with a condition up to {GRAM_UP_TO:g}, but A has {found}; "
            "give method='auto'"
        )
    return first.found("gram", 1, total.finding)


def _tsqr(n: int, p: int, units: Units | None = None, reads: int = 0, total: Gram | None = None) -> Climb:
    """QR tree, after `reads` reads of other methods; refined where the condition asks for it.

    Of a network the tree is that of the columns of the basis, less those that an earlier Gram matrix found to be zero.
    """
    basis = np.arange(p) if units is None else units.basis
    kept = np.ones(len(basis), dtype=bool) if units is None or total is None else np.diagonal(total.values) > 0
    tree = yield Read("tree", columns=None if units is None else basis[kept])
    r, decided = (tree.r, spectrum(tree.r)) if units is None else of_all_columns(tree.r, kept, units)
    _check_rank(decided.rank)
    correction = None
    if decided.condition > _REFINE_ABOVE:
        refined = yield Read("tree", decided.whitener)
        correction = spectrum(refined.r).whitener
        reads += 1
    return Found(r, decided, "tsqr", reads + 1, tree.finding, correction=correction)


def _plain_tsqr(n: int, p: int, units: Units | None) -> Climb:
    return (yield from _tsqr(n, p))


def _sketch(n: int, p: int, units: Units | None) -> Climb:
    (r,), finding = yield Read("sketch", units=units)
    first = _from_sketch(r, units)
    if first is None:
        return (yield from _tsqr(n, p, units, reads=1))
    again = yield from _whitened_once_more(first, "sketch", finding, units)
    return (yield from _tsqr(n, p, units, reads=2)) if again is None else again


def _sketch_only(n: int, p: int, units: Units | None) -> Climb:
    (r, second), finding = yield Read("sketch", copies=2, units=units)
    if units is None:
        decided = spectrum(r)
    else:
        kept = np.ones(len(r), dtype=bool)
        (r, decided), (second, _) = (of_all_columns(part, kept, units) for part in (r, second))
    _check_rank(decided.rank)
    return Found(r, decided, "sketch-only", 1, finding, beta=measured_beta(decided, second))


METHODS: dict[str, Callable[[int, int, Units | None], Climb]] = {
    "auto": _auto,
    "gram": _gram,
    "tsqr": _plain_tsqr,
    "sketch": _sketch,
    "sketch-only": _sketch_only,
}


class First(NamedTuple):
    """A first R factor without the zero columns of F, of columns divided by 2^exponents, and the decision on it."""

    r: np.ndarray
    exponents: np.ndarray
    decided: Spectrum
    kept: np.ndarray  # (p,), the columns that are not zero

    @property
    def condition(self) -> float:
        """Largest over smallest singular value."""
        return self.decided.condition

    def found(self, method: str, reads: int, finding: Finding) -> Found:
        """Take the factor as the last word."""
        r = spread(self.r, self.exponents, self.kept)
        return Found(r, with_zero_columns(self.decided, self.kept), method, reads, finding)


def _from_gram(total: Gram, units: Units | None = None) -> First | None:
    """Cholesky factor of a Gram matrix; None where it breaks or columns, of a network those of the basis, are dependent."""
    # Scaled as they are, the columns have squares that vanish only where the columns do.
    kept = np.asarray(np.diagonal(total.values) > 0)
    _check_rank(int(kept.sum()))
    factor = r_of_gram(total.values[np.ix_(kept, kept)], total.exponents[kept])
    if factor is None:
        return None
    if units is not None:
        first = First(*widened(*factor, kept, units))
        return None if first.decided.rank < len(factor[0]) else first
    decided = spectrum(*factor, triangular=True)
    return None if decided.rank < len(decided.exponents) else First(*factor, decided, kept)


def _from_sketch(r: np.ndarray, units: Units | None) -> First | None:
    """First factor from that of a sketch; None where columns are dependent."""
    kept = np.asarray(r.any(axis=0))
    _check_rank(int(kept.sum()))
    r, exponents = r_factor(r[:, kept]), np.zeros(int(kept.sum()), dtype=np.int64)
    if units is None:
        first = First(r, exponents, spectrum(r, triangular=True), kept)
    else:
        first = First(*widened(r, exponents, kept, units))
    return None if first.decided.rank < len(r) else first


def _whitened_once_more(
    first: First, method: str, finding: Finding, units: Units | None
) -> Generator[Read, Any, Found | None]:
    """One more read, the second: R of F from a Gram matrix of F W, and the correction; None where W fails.

    F W has a condition near 1 if W is right, so that its Gram matrix is exact enough. Dependent columns that
    rounding hid from the first factor show here as a direction that F W lacks.
    """
    whitening = with_zero_columns(first.decided, first.kept)
    second = _from_gram((yield Read("gram", whitening.whitener, units=units)))
    if second is None or not second.kept.all() or second.condition > _WHITE_UP_TO:
        return None
    r = before_whitening(first.decided, np.ldexp(second.r, second.exponents))
    decided = spectrum(r, first.decided.exponents)
    if decided.rank < first.decided.rank:
        return None
    return Found(
        spread(r, first.decided.exponents, first.kept),
        with_zero_columns(decided, first.kept),
        method,
        2,
        finding,
        whitening=whitening,
        correction=second.decided.whitener,
    )


def _check_rank(rank: int) -> None:
    if not rank:
        raise InputError(
            "all rows of the matrix are zero, so no row has leverage; check theta, sample_weight and the data"
        )
