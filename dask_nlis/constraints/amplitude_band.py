"""The paper's set for networks: outer weights away from zero, all weights together within a budget."""

import math
from collections.abc import Sequence

import numpy as np

from dask_nlis.constraints.arguments import positive
from dask_nlis.constraints.ball import ACTIVE, OUTSIDE
from dask_nlis.constraints.protocol import Constraint
from dask_nlis.constraints.quadratic import Pieces, minimize_over
from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.nouns import noun

Vector = np.ndarray


@noun
class AmplitudeBand:
    """The set a_j^2 >= lower for every amplitude a_j, |theta|^2 <= budget, of the paper's bound for networks.

    Not convex: a_j may be positive or negative, not in between. For given signs it is, and a fit keeps the signs of
    its start; `refit` takes several starts, some with signs flipped.

    Parameters
    ----------
    lower : float
        Smallest square of an amplitude, positive, in the units of theta squared.
    budget : float
        Largest squared norm of theta, positive, in the same units.
    amplitudes : sequence of int, optional
        Positions of the a_j in theta. By default those of the outer weights of the problem's network, ReluNetwork or
        DeepReluNetwork; then the set projects only once a fit has told it how many features there are.

    Raises
    ------
    InputError, InputTypeError
        If lower times the number of amplitudes exceeds the budget, so that the set is empty (with the positions left
        to the network: from Problem), or a position is negative or given twice; or if an argument is of another type.

    Notes
    -----
    The set is that of Rajmohan & Roosta (ICML 2025) for networks, whose beta `misestimation_factor` corrects.

    Projection: with the signs of theta (+ where 0) all entries are divided by 1 + mu, then each a_j raised to at least
    sqrt(lower), mu >= 0 the smallest within the budget: the Karush-Kuhn-Tucker conditions of the nearest point. For
    known raised amplitudes mu is a square root; raising more only ever raises mu, so that m + 1 rounds suffice.

    Examples
    --------
    >>> import numpy as np
    >>> AmplitudeBand(1.0, 10.0, amplitudes=(0,)).project(np.array([-0.2, 6.0]))
    array([-1.,  3.])
    """

    lower: float
    budget: float
    amplitudes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", positive("AmplitudeBand lower", self.lower))
        object.__setattr__(self, "budget", positive("AmplitudeBand budget", self.budget))
        if self.amplitudes is not None:
            object.__setattr__(self, "amplitudes", _positions(self.amplitudes))
            self.check_count(len(self._at()))

    def check_count(self, m: int) -> None:
        """Raise InputError where m amplitudes alone exceed the budget: m lower > budget."""
        if m * self.lower > self.budget * (1 + OUTSIDE):
            raise InputError(
                f"AmplitudeBand is empty: {m} amplitudes of square {self.lower:g} exceed budget={self.budget:g}; "
                f"give a budget of at least {m * self.lower:g}"
            )

    def _at(self) -> list[int]:
        if self.amplitudes is None:
            raise InputError(
                "AmplitudeBand amplitudes=None is known to refit alone; give their positions in theta, such as "
                "model.unpack(np.arange(p))['a']"
            )
        return list(self.amplitudes)

    def piece(self, theta: Vector) -> Constraint:
        """The convex part with the signs of theta's amplitudes, + where 0."""
        return SignedBand(self, tuple(bool(a < 0) for a in theta[self._at()]))

    def flipped(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Theta with the signs of some of its amplitudes flipped."""
        at = np.array(self._at())
        flips = rng.integers(0, 2, size=len(at))
        flips[rng.integers(len(at))] = 1  # at least one
        inside = self.project(theta)
        inside[at] = np.where(flips == 1, -inside[at], inside[at])
        return inside

    def project(self, theta: Vector) -> Vector:
        """Nearest point."""
        return self.piece(theta).project(theta)

    def contains(self, theta: Vector) -> bool:
        """Amplitudes and budget met up to 1e-9."""
        low = math.sqrt(self.lower) * (1 - OUTSIDE)
        return bool((np.abs(theta[self._at()]) >= low).all()) and math.hypot(*theta.tolist()) <= math.sqrt(
            self.budget
        ) * (1 + OUTSIDE)

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """Name each amplitude at its smallest square, and the budget when it is spent."""
        low = math.sqrt(self.lower) * (1 + ACTIVE)
        found = [f"{names[j]}^2 at its lower bound {self.lower:g}" for j in self._at() if abs(theta[j]) <= low]
        if math.hypot(*theta.tolist()) >= math.sqrt(self.budget) * (1 - ACTIVE):
            found.append(f"|theta|^2 at the budget {self.budget:g}")
        return tuple(found)

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """Over the part with the signs of theta."""
        return self.piece(theta).minimize_quadratic(hessian, gradient, theta)

    def check(self, p: int) -> None:
        """Compare the positions with p."""
        if self.amplitudes is not None and max(self.amplitudes) >= p:
            raise InputError(
                f"AmplitudeBand amplitudes holds {max(self.amplitudes)}, but theta has {p} entries; "
                f"give positions below {p}"
            )


@noun
class SignedBand:
    """The convex part of an AmplitudeBand with given signs of its amplitudes."""

    band: AmplitudeBand
    negative: tuple[bool, ...]

    def _signs(self) -> Vector:
        return np.where(self.negative, -1.0, 1.0)

    def project(self, theta: Vector) -> Vector:
        """Divide by 1 + mu, then raise: see `AmplitudeBand`."""
        at, signs, low = self.band._at(), self._signs(), math.sqrt(self.band.lower)
        amplitudes = signs * theta[at]
        shrink, raised = 1.0, amplitudes < low
        rest = theta.copy()
        for _ in range(len(at) + 1):
            rest[at] = np.where(raised, 0.0, amplitudes)
            left = self.band.budget - raised.sum() * self.band.lower
            length = math.hypot(*rest.tolist())
            # Where raised amplitudes alone take the budget, nothing is left for the others.
            wanted = length / math.sqrt(left) if left > 0 else (math.inf if length > 0 else 1.0)
            shrink = max(shrink, wanted)
            more = amplitudes / shrink < low
            if (more == raised).all():
                break
            raised = more
        z = theta / shrink
        z[at] = signs * np.where(raised, low, amplitudes / shrink)
        return z

    def contains(self, theta: Vector) -> bool:
        """In the band, with these signs."""
        return self.band.contains(theta) and bool((self._signs() * theta[self.band._at()] > 0).all())

    def active(self, theta: Vector, names: Sequence[str]) -> tuple[str, ...]:
        """As the band."""
        return self.band.active(theta, names)

    def minimize_quadratic(self, hessian: Vector, gradient: Vector, theta: Vector) -> Vector:
        """One face for each amplitude, one ball."""
        z = minimize_over(self.pieces(len(theta)), hessian, gradient, theta)
        return self.project(z) if np.isfinite(z).all() else z

    def pieces(self, p: int) -> Pieces:
        """Faces -sign_j a_j <= -sqrt(lower), and the ball of the budget."""
        at = self.band._at()
        rows = np.zeros((len(at), p))
        rows[np.arange(len(at)), at] = -self._signs()
        radius = math.sqrt(self.band.budget)
        return Pieces(rows, np.full(len(at), -math.sqrt(self.band.lower)), ((np.zeros(p), radius),))

    def check(self, p: int) -> None:
        """As the band."""
        self.band.check(p)


def _positions(value: object) -> tuple[int, ...]:
    """Distinct non-negative integers."""
    try:
        array = np.array(value)
    except ValueError as cause:
        raise InputTypeError(f"AmplitudeBand amplitudes={value!r} is no sequence of integers; give (0, 5)") from cause
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise InputTypeError(f"AmplitudeBand amplitudes={value!r} is no sequence of integers; give one such as (0, 5)")
    if (array < 0).any() or len(np.unique(array)) < array.size:
        raise InputError(f"AmplitudeBand amplitudes={value!r} is not allowed; give distinct integers >= 0")
    return tuple(map(int, array))
