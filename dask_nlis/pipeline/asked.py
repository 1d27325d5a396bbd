"""The arguments of a job, checked before anything is read."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dask_nlis.errors import InputError, InputTypeError
from dask_nlis.kernels.numbers import is_number, is_whole
from dask_nlis.matrix import TallMatrix, check_has_curvature, reference_matrix
from dask_nlis.pipeline.design import Design
from dask_nlis.pipeline.stages import SMALL, first_rows
from dask_nlis.problem import Problem, check_theta, set_for
from dask_nlis.sampling import check_draw
from dask_nlis.scores import checked_shares

SCORES = ("two-stage", "leverage", "norm", "influence")

#: Rows a parameter at which size="auto" starts.
_AUTO_START = 20


class Asked(NamedTuple):
    """What was asked for, checked: the reference matrix, the design, which scores, and theta where it is given."""

    reference: TallMatrix
    design: Design
    scores: str
    theta: np.ndarray | None


def asked(problem: Problem, X: Any, y: Any, goal: Mapping[str, Any], options: Mapping[str, Any]) -> Asked:
    """Check the arguments of `run`: `goal` is what is to be drawn and how, `options` those of the matrices.

    Reads nothing. A size of None is where size="auto" would start.
    """
    size, seed, theta, scores, scheme = (goal[name] for name in ("size", "seed", "theta", "scores", "scheme"))
    shares, rounds, pilot_size = (goal[name] for name in ("shares", "rounds", "pilot_size"))
    check_kind(scores)
    if y is None:
        raise InputTypeError("y is None, but a fit needs labels; give an array of shape (n,)")
    reference = reference_matrix(problem, X, y, **options)
    n, d = reference.source.n_rows, reference.source.n_columns
    set_for(problem, d)
    one = None if theta is None else check_theta(problem, theta, d, reference.source.names)
    if one is not None and scores == "two-stage":
        scores = "leverage"
    target = _target(size, goal["epsilon"], scores)
    n_draws, seed = check_draw(
        first_size(problem, n, d) if target is not None or size is None else size, scheme, n, seed
    )
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
    return Asked(reference, design, scores, one)


def check_kind(scores: Any) -> None:
    """Raise unless these scores are known."""
    if not isinstance(scores, str) or scores not in SCORES:
        what = repr(scores) if scores is None or isinstance(scores, str) else f"a {type(scores).__name__}"
        raise InputError(
            f"scores={what[:60]} is not known; give one of {', '.join(map(repr, SCORES))}, or scores of your own to draw()"
        )


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


def first_size(problem: Problem, n: int, d: int) -> int:
    """Where size="auto" starts: 20 rows a parameter, half of them for a pilot, and no more than it may end at."""
    return max(1, min(n // 2, _AUTO_START * problem.model.n_parameters(d)))
