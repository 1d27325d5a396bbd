"""Polyhedra, intersections and the amplitude band against their optimality conditions, SciPy and enumeration."""

import pickle
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from dask.base import tokenize
from scipy.optimize import linprog, minimize, nnls

import dask_nlis as nlis
from dask_nlis import AmplitudeBand, Ball, Box, HalfSpaces, Intersection
from dask_nlis.constraints.amplitude_band import SignedBand

INF = np.inf
EYE = np.eye(3)
ONES = np.ones((1, 3))


class Known(NamedTuple):
    """A convex set beside its definition: rows @ z <= limits, |z - center| <= radius."""

    constraint: Any
    rows: np.ndarray
    limits: np.ndarray
    balls: tuple[tuple[np.ndarray, float], ...] = ()


def polyhedron(rows, limits) -> Known:
    rows, limits = np.array(rows, dtype=float), np.array(limits, dtype=float)
    return Known(HalfSpaces(rows, limits), rows, limits)


def meeting(*parts: Known) -> Known:
    rows, limits = np.vstack([k.rows for k in parts]), np.concatenate([k.limits for k in parts])
    return Known(Intersection(*(k.constraint for k in parts)), rows, limits, sum((k.balls for k in parts), ()))


def ball(radius, center=(0.0, 0.0, 0.0)) -> Known:
    return Known(Ball(radius, center), np.empty((0, 3)), np.empty(0), ((np.array(center), radius),))


def box(lower, upper) -> Known:
    lower, upper = (np.broadcast_to(np.array(b, dtype=float), (3,)) for b in (lower, upper))
    low, high = np.isfinite(lower), np.isfinite(upper)
    return Known(Box(lower, upper), np.vstack([-EYE[low], EYE[high]]), np.concatenate([-lower[low], upper[high]]))


def band(signs, lower, budget) -> Known:
    """Amplitudes 0 and 2 of three entries."""
    piece = SignedBand(AmplitudeBand(lower, budget, (0, 2)), tuple(s < 0 for s in signs))
    rows = np.array([[-signs[0], 0, 0], [0, 0, -signs[1]]], dtype=float)
    return Known(piece, rows, np.full(2, -np.sqrt(lower)), ((np.zeros(3), np.sqrt(budget)),))


CUT = np.random.default_rng(5).standard_normal((12, 3))
SIMPLEX = polyhedron(np.vstack([-EYE, ONES]), [0, 0, 0, 1])
SETS: dict[str, Known] = {
    "half-space": polyhedron([[1, 2, -1]], [0.5]),
    "simplex": SIMPLEX,
    "equation": polyhedron(np.vstack([ONES, -ONES]), [1, -1]),
    "probabilities": polyhedron(np.vstack([-EYE, ONES, -ONES]), [0, 0, 0, 1, -1]),
    "point": polyhedron(np.vstack([EYE, -EYE]), [1, 2, 3, -1, -2, -3]),
    "polytope": polyhedron(CUT, np.ones(12)),
    "polytope off the origin": polyhedron(CUT, np.ones(12) + CUT @ [30.0, -20.0, 5.0]),
    "the same row twice": polyhedron([[1, 1, 0], [1, 1, 0], [2, 2, 0]], [1, 1, 2]),
    "wedge of a thousandth": polyhedron([[1, 1e-3, 0], [-1, 1e-3, 0], [0, 0, 1]], [0, 0, 1]),
    "increasing": polyhedron([[1, -1, 0], [0, 1, -1]], [0, 0]),
    "rows in other units": polyhedron(np.vstack([-1e-8 * EYE, 1e9 * ONES]), [0, 0, 0, 1e9]),
    "tiny simplex": polyhedron(np.vstack([-EYE, ONES]), [0, 0, 0, 1e-8]),
    "huge simplex": polyhedron(np.vstack([-EYE, ONES]), [0, 0, 0, 1e8]),
    "ball and box": meeting(ball(1.0), box(0.0, 0.8)),
    "ball and half-space": meeting(ball(2.0, (1.0, 0.0, 0.0)), polyhedron([[1, 1, 1]], [0.5])),
    "ball and equation": meeting(ball(1.0), polyhedron(np.vstack([ONES, -ONES]), [1, -1])),
    "ball and wedge": meeting(ball(1.0), polyhedron([[1, 1e-3, 0], [-1, 1e-3, 0]], [0, 0])),
    "two balls": meeting(ball(1.0), ball(1.0, (1.5, 0.0, 0.0))),
    "two balls and a box": meeting(ball(1.0), ball(1.2, (1.0, 0.5, 0.0)), box(-0.2, [1.0, 0.3, 0.2])),
    "box and simplex": meeting(box([0.2, -1, -1], [0.2, 1, 1]), SIMPLEX),  # one entry is fixed
    "one ball": meeting(ball(1.0)),
    "small ball and box": meeting(ball(1e-8), box(0.0, INF)),
    "large ball and box": meeting(ball(1e8), box(0.0, INF)),
    "band, + and +": band((1, 1), 0.25, 2.0),
    "band, + and -": band((1, -1), 0.25, 2.0),
    "band without room": band((1, 1), 0.5, 1.0),  # amplitudes take the whole budget
    "small band": band((-1, -1), 1e-16, 1e-14),
}
each_set = pytest.mark.parametrize("name", SETS)


def size(known: Known) -> float:
    """A length of the set, to judge distances by."""
    if known.balls:
        return min(radius for _, radius in known.balls)
    return float(np.abs(known.limits / np.linalg.norm(known.rows, axis=1)).max()) or 1.0


def around(known: Known, rng, n: int) -> np.ndarray:
    return 3 * size(known) * rng.standard_normal((n, 3))


def outside(known: Known, z) -> float:
    """Distance beyond the farthest plane or sphere."""
    beyond = [(known.rows @ z - known.limits) / np.linalg.norm(known.rows, axis=1)]
    return float(np.concatenate([*beyond, [np.linalg.norm(z - c) - r for c, r in known.balls]]).max())


def unexplained(known: Known, z, slope) -> float:
    """Distance of -slope from the cone of the normals at z, over its length: 0 at an optimum (Karush-Kuhn-Tucker)."""
    near = 1e-7 * size(known) + 1e-9 * np.abs(z).max()
    planes = known.rows / np.linalg.norm(known.rows, axis=1)[:, None]
    normals = list(planes[planes @ z - known.limits / np.linalg.norm(known.rows, axis=1) > -near])
    normals += [(z - c) / r for c, r in known.balls if np.linalg.norm(z - c) > r - near]
    length = np.linalg.norm(slope)
    if not length:
        return 0.0
    return nnls(np.array(normals).T, -slope / length)[1] if normals else 1.0


#: Here the amplitudes take the whole budget: the set is one point, where normals need not explain the slope.
NO_ROOM = "band without room"


@each_set
def test_a_projection_satisfies_the_conditions_of_the_nearest_point(name, rng):
    known = SETS[name]
    for x in around(known, rng, 60):
        z = known.constraint.project(x)
        assert known.constraint.contains(z)
        assert outside(known, z) <= 1e-9 * size(known) + 1e-15 * np.abs(z).max()
        if name == NO_ROOM:
            np.testing.assert_allclose(np.abs(z), [np.sqrt(0.5), 0, np.sqrt(0.5)], atol=1e-12)
        elif np.linalg.norm(x - z) > 1e-6 * size(known):
            assert unexplained(known, z, z - x) <= 1e-6
        else:
            np.testing.assert_allclose(z, x, rtol=0, atol=1e-6 * size(known))


@each_set
def test_a_projection_is_the_nearest_of_many_points_and_stays(name, rng):
    known = SETS[name]
    inside = np.array([known.constraint.project(w) for w in around(known, rng, 60)])
    for x in around(known, rng, 20):
        z = known.constraint.project(x)
        assert ((inside - z) @ (x - z)).max() <= 1e-9 * size(known) ** 2
        again = known.constraint.project(z)
        np.testing.assert_allclose(again, z, rtol=0, atol=1e-9 * size(known))
        assert again is not z


@each_set
def test_points_clearly_outside_are_not_contained(name, rng):
    known = SETS[name]
    for x in around(known, rng, 20):
        z = known.constraint.project(x)
        if np.linalg.norm(x - z) > 0.1 * size(known):
            assert not known.constraint.contains(z + 1e-5 * (x - z))


def quadratics(rng) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Hessian and gradient, by kind; gradients outside the range of the Hessian where flat."""
    rows = rng.standard_normal((20, 3))
    full = rows.T @ rows
    units = np.array([1e-4, 1.0, 1e4])
    return {
        "full rank": (full, 10 * rng.standard_normal(3)),
        "weak gradient": (full, 1e-3 * rng.standard_normal(3)),
        "rank 1": (np.outer(rows[0], rows[0]), 5 * rows[0]),
        "collinear": ((rows[:, [0, 0, 1]]).T @ rows[:, [0, 0, 1]], rows[:, [0, 0, 1]].T @ rng.standard_normal(20)),
        "columns in other units": (full * np.outer(units, units), units * rng.standard_normal(3) * 10),
    }


@each_set
@pytest.mark.parametrize("kind", list(quadratics(np.random.default_rng(0))))
def test_the_minimum_of_a_quadratic_satisfies_its_conditions(name, kind, rng):
    known = SETS[name]
    for _ in range(6):
        hessian, gradient = quadratics(rng)[kind]
        theta = known.constraint.project(around(known, rng, 1)[0])
        gradient = gradient * size(known)
        z = known.constraint.minimize_quadratic(hessian, gradient, theta)
        assert known.constraint.contains(z)
        assert outside(known, z) <= 1e-9 * size(known) + 1e-14 * np.abs(z).max()
        slope = gradient + hessian @ (z - theta)
        terms = np.abs(gradient).sum() + np.abs(hessian).sum() * np.abs(z - theta).max()
        if name != NO_ROOM:
            assert unexplained(known, z, slope) * np.linalg.norm(slope) <= 1e-7 * terms


def value(hessian, gradient, theta, z) -> float:
    return gradient @ (z - theta) + (z - theta) @ hessian @ (z - theta) / 2


@pytest.mark.parametrize(
    "name", ["simplex", "polytope", "ball and box", "two balls", "band, + and -", "ball and equation"]
)
def test_minima_of_quadratics_and_projections_are_scipys(name, rng):
    known = SETS[name]
    limits = [{"type": "ineq", "fun": lambda w: known.limits - known.rows @ w, "jac": lambda w: -known.rows}]
    limits += [{"type": "ineq", "fun": lambda w, c=c, r=r: r**2 - ((w - c) ** 2).sum()} for c, r in known.balls]
    for kind in ("full rank", "distance"):
        for x in around(known, rng, 6):
            theta = known.constraint.project(x)
            hessian, gradient = (EYE, theta - x) if kind == "distance" else quadratics(rng)["full rank"]
            z = theta if kind == "distance" else known.constraint.minimize_quadratic(hessian, gradient, theta)
            other = minimize(
                lambda w, h=hessian, g=gradient, t=theta: value(h, g, t, w),
                theta,
                method="SLSQP",
                constraints=limits,
                options={"ftol": 1e-14, "maxiter": 300},
            ).x
            np.testing.assert_allclose(z, other, atol=2e-5)


@pytest.mark.parametrize("name", ["simplex", "polytope", "probabilities", "box and simplex", "rows in other units"])
def test_a_linear_objective_goes_to_the_vertex_of_linear_programming(name, rng):
    known = SETS[name]
    for _ in range(20):
        gradient, theta = rng.standard_normal(3), known.constraint.project(around(known, rng, 1)[0])
        z = known.constraint.minimize_quadratic(np.zeros((3, 3)), gradient, theta)
        scale = np.linalg.norm(known.rows, axis=1)
        best = linprog(gradient, known.rows / scale[:, None], known.limits / scale, bounds=(None, None))
        assert gradient @ z <= best.fun + 1e-7 * (1 + abs(best.fun))


@pytest.mark.parametrize("dimension", [2, 20, 200])
def test_least_distances_in_many_dimensions(dimension, rng):
    for faces in (1, dimension, 3 * dimension):
        rows = rng.standard_normal((faces, dimension))
        constraint = HalfSpaces(rows, rng.uniform(0.1, 1, size=faces))
        x = 5 * rng.standard_normal(dimension)
        z = constraint.project(x)
        assert (rows @ z - constraint.b).max() <= 1e-9
        tight = rows[rows @ z - constraint.b > -1e-7]
        left = nnls(tight.T, x - z)[1] if len(tight) else np.linalg.norm(x - z)
        assert left <= 1e-7 * (1 + np.linalg.norm(x - z))


def test_a_ball_that_touches_a_half_space_leaves_one_point():
    touching = Intersection(Ball(1.0), HalfSpaces([[-1.0, 0.0, 0.0]], [-1.0]))
    for x in np.random.default_rng(0).standard_normal((20, 3)):
        z = touching.project(x)
        np.testing.assert_allclose(z, [1, 0, 0], atol=1e-4)
        assert touching.contains(z)


def test_huge_points_are_projected_without_overflow():
    for known in (SETS["simplex"], SETS["polytope"], SETS["ball and box"]):
        z = known.constraint.project(np.array([1e100, -1e100, 3e99]))
        assert known.constraint.contains(z)
    np.testing.assert_allclose(
        AmplitudeBand(1.0, 10.0, (0,)).project(np.array([-1e200, 1e200])), [-np.sqrt(5), np.sqrt(5)], rtol=1e-12
    )


# The band itself, which is not convex.


def nearest_by_enumeration(constraint: AmplitudeBand, x) -> float:
    """Smallest distance over all signs and all choices of raised amplitudes, from the definition."""
    at = list(constraint.amplitudes)
    low, radius, best = np.sqrt(constraint.lower), np.sqrt(constraint.budget), INF
    for choice in product((-1, 0, 1), repeat=len(at)):  # raised to -low, free, raised to +low
        z = x.copy()
        fixed = [j for j, c in zip(at, choice, strict=True) if c]
        z[fixed] = [c * low for c in choice if c]
        rest = np.setdiff1d(np.arange(len(x)), fixed)
        left = radius**2 - len(fixed) * low**2
        if left < -1e-12:
            continue
        left = max(left, 0.0)
        length = np.linalg.norm(x[rest])
        z[rest] = x[rest] * min(1.0, np.sqrt(left) / length) if length else 0.0
        if (np.abs(z[at]) >= low * (1 - 1e-12)).all():
            best = min(best, float(np.linalg.norm(x - z)))
    return best


def points(rng, n: int, p: int = 5) -> np.ndarray:
    """Points of all sizes, some with amplitudes that are 0 or negligible."""
    found = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-2, 1.5, size=(n, 1))
    found[::7, 0] = 0.0
    found[1::7, 3] = -1e-12
    found[2::7] = 0.0
    return found


@pytest.mark.parametrize(("lower", "budget"), [(0.25, 2.0), (0.01, 1.0), (1.0, 3.0), (1.0, 3.0001), (1e-6, 1e6)])
def test_the_projection_on_a_band_is_the_nearest_of_all_signs(lower, budget, rng):
    constraint = AmplitudeBand(lower, budget, (0, 3, 4))
    for x in points(rng, 200):
        z = constraint.project(x)
        assert constraint.contains(z)
        assert np.linalg.norm(x - z) == pytest.approx(nearest_by_enumeration(constraint, x), rel=1e-9, abs=1e-9)


def test_the_projection_satisfies_its_variational_inequality_within_the_signs_on_1000_points(rng):
    constraint = AmplitudeBand(0.25, 2.0, (0, 3, 4))
    for x in points(rng, 1_000):
        piece = constraint.piece(x)
        z = constraint.project(x)
        others = np.array([piece.project(w) for w in points(rng, 15)])
        assert all(piece.contains(w) for w in others)
        # Every other point of the orthant lies behind the plane through z across x - z.
        assert ((others - z) @ (x - z)).max() <= 1e-10 * (1 + np.abs(x).max())


def test_a_band_keeps_the_signs_of_the_point_and_takes_plus_where_there_is_none(rng):
    constraint = AmplitudeBand(0.25, 2.0, (0, 3, 4))
    for x in points(rng, 100):
        z = constraint.project(x)
        np.testing.assert_array_equal(z[[0, 3, 4]] < 0, x[[0, 3, 4]] < 0)
        flipped = constraint.flipped(x, rng)
        assert constraint.contains(flipped)
        assert (flipped[[0, 3, 4]] != z[[0, 3, 4]]).any()
        np.testing.assert_allclose(np.abs(flipped), np.abs(z))


def test_the_active_parts_are_named():
    names = ("a1", "b1", "a2")
    assert AmplitudeBand(1.0, 9.0, (0, 2)).active(np.array([-1.0, 2.0, 2.0]), names) == (
        "a1^2 at its lower bound 1",
        "|theta|^2 at the budget 9",
    )
    assert AmplitudeBand(1.0, 9.0, (0, 2)).active(np.array([-1.1, 2.0, 1.2]), names) == ()
    rows = HalfSpaces([[1, -2, 0], [0, 0, 1]], [1, 1])
    assert rows.active(np.array([3.0, 1.0, 0.0]), names) == ("half-space 0: 1 a1 - 2 b1 <= 1",)
    assert rows.active(np.array([3.0, 1.1, 0.0]), names) == ()
    wide = HalfSpaces(np.ones((1, 4)), 4.0)
    assert wide.active(np.ones(4), ("a", "b", "c", "d")) == ("half-space 0",)
    both = Intersection(Ball(1.0), Box(0.0, INF))
    assert both.active(np.array([1.0, 0.0, 0.5]), names) == ("ball of radius 1", "b1 at its lower bound")


REFUSED = {
    "band without amplitudes enough": (lambda: AmplitudeBand(1, 2, (0, 1, 2)), "3 amplitudes of square 1"),
    "negative lower": (lambda: AmplitudeBand(-1, 2), "AmplitudeBand lower=-1"),
    "zero lower": (lambda: AmplitudeBand(0, 2), "AmplitudeBand lower=0"),
    "NaN budget": (lambda: AmplitudeBand(1, np.nan), "AmplitudeBand budget=nan"),
    "text as budget": (lambda: AmplitudeBand(1, "2"), "AmplitudeBand budget='2' is str"),
    "position twice": (lambda: AmplitudeBand(1, 9, (0, 0)), "distinct integers"),
    "negative position": (lambda: AmplitudeBand(1, 9, (-1,)), "distinct integers"),
    "half a position": (lambda: AmplitudeBand(1, 9, (0.5,)), "no sequence of integers"),
    "no position": (lambda: AmplitudeBand(1, 9, ()), "no sequence of integers"),
    "contradiction": (lambda: HalfSpaces([[1.0], [-1.0]], [0, -1]), "rows 0, 1 contradict"),
    "contradiction of three": (
        lambda: HalfSpaces([[1.0, 0], [0, 1.0], [-1.0, -1.0], [1, 5]], [0, 0, -1, 9]),
        "rows 0, 1, 2 contradict",
    ),
    "1-D normals": (lambda: HalfSpaces([1.0, 2.0], 1), r"A has shape \(2,\)"),
    "zero normal": (lambda: HalfSpaces([[1.0], [0.0]], 1), "row 1 is zero"),
    "NaN normal": (lambda: HalfSpaces([[np.nan]], 1), "not finite"),
    "infinite limit": (lambda: HalfSpaces([[1.0]], INF), "leave out rows"),
    "limits too many": (lambda: HalfSpaces([[1.0]], [1, 2]), r"b has shape \(2,\), but A has 1"),
    "text as normals": (lambda: HalfSpaces("A", 1), "A is str|A has shape"),
    "no sets": (lambda: Intersection(), "no sets"),
    "band in an intersection": (lambda: Intersection(Ball(1), AmplitudeBand(1, 2)), "got AmplitudeBand"),
    "a list of sets": (lambda: Intersection([Ball(1)]), "got list"),
    "balls apart": (lambda: Intersection(Ball(1), Ball(1, [2.1, 0])), "no point in common"),
    "ball beyond a plane": (lambda: Intersection(Ball(1), HalfSpaces([[1.0, 1.0]], -1.5)), "no point in common"),
    "box beyond a plane": (lambda: Intersection(Box(0, 1), HalfSpaces([[1.0, 1.0]], -0.1)), "boxes and half-spaces"),
    "ball outside the corner": (lambda: Intersection(Box([1, 1], INF), Ball(1.4)), "no point in common"),
    # Each pair has points in common; all three have not.
    "three balls": (
        lambda: Intersection(Ball(1, [0, 0]), Ball(1, [1.9, 0]), Ball(1, [0.95, 1.6])),
        "no point in common",
    ),
    "unequal dimensions": (lambda: Intersection(Ball(1, [0, 0]), Ball(1, [0, 0, 0])), "theta has 2 entries"),
}


@pytest.mark.parametrize(("make", "match"), REFUSED.values(), ids=REFUSED)
def test_sets_that_are_empty_or_none_are_refused_in_one_line(make, match):
    with pytest.raises(nlis.NlisError, match=match) as caught:
        make()
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_sets_that_just_have_a_point_are_not_refused():
    AmplitudeBand(0.1, 0.3, (0, 1, 2))  # 3 * 0.1 > 0.3 in floating point
    HalfSpaces([[1.0], [-1.0]], [1.0, -1.0])
    Intersection(Ball(1), Ball(1, [1.999, 0]))
    Intersection(Box([1, 1], INF), Ball(np.sqrt(2)))


X, Y, W = np.arange(8.0).reshape(4, 2), np.arange(4.0), np.ones(4)


def test_a_problem_refuses_a_band_that_its_network_cannot_meet():
    with pytest.raises(nlis.InputError, match=r"5 amplitudes of square 1 exceed budget=4"):
        nlis.Problem(nlis.ReluNetwork(5), constraint=AmplitudeBand(1.0, 4.0))
    with pytest.raises(nlis.InputError, match=r"3 amplitudes"):
        nlis.Problem(nlis.DeepReluNetwork((9, 3)), constraint=AmplitudeBand(1.0, 2.0))
    with pytest.raises(nlis.InputError, match=r"Linear has no outer weights.*amplitudes="):
        nlis.Problem(nlis.Linear(), constraint=AmplitudeBand(1.0, 4.0))


@pytest.mark.parametrize(
    ("constraint", "match"),
    [
        # Neither knows its dimension before the fit does.
        (Intersection(Ball(1.0), Box(0.9, 1.0)), "no point in common"),
        (HalfSpaces([[1.0, 1.0]], 1.0), "A has 2 columns, but theta has 3"),
        (AmplitudeBand(1.0, 4.0, (0, 3)), "holds 3, but theta has 3 entries"),
        (Intersection(HalfSpaces([[1.0, 1.0]], 1.0), Ball(1.0)), "A has 2 columns"),
    ],
)
def test_sets_that_do_not_suit_the_problem_are_refused_before_the_solve(constraint, match, monkeypatch):
    monkeypatch.setattr(import_module("dask_nlis.refit.verb"), "spectral_projected_gradient", None)
    with pytest.raises(nlis.InputError, match=match):
        nlis.refit(nlis.Problem(nlis.Linear(), constraint=constraint), X, Y, W)


NOUNS = {name: known.constraint for name, known in SETS.items() if not isinstance(known.constraint, SignedBand)}
NOUNS |= {"band": AmplitudeBand(0.1, 2.0, (0, 2)), "band of a network": AmplitudeBand(0.1, 2.0)}


@pytest.mark.parametrize("constraint", NOUNS.values(), ids=NOUNS)
def test_sets_are_nouns_that_survive_a_dictionary(constraint):
    copy = pickle.loads(pickle.dumps(constraint))
    assert copy == constraint
    assert hash(copy) == hash(constraint)
    assert tokenize(copy) == tokenize(constraint)
    assert repr(copy) == repr(constraint)
    problem = nlis.Problem(nlis.ReluNetwork(2), constraint=constraint)
    assert nlis.Problem.from_dict(problem.to_dict()) == problem


def test_what_sets_are_given_by_is_copied():
    rows = np.eye(2)
    constraint = HalfSpaces(rows, 1.0)
    rows[:] = 7
    np.testing.assert_array_equal(constraint.A, np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        constraint.A[0, 0] = 1


@pytest.mark.parametrize("value", [1j, [1j, 0.0], "1.0", ["1"], [10**400], np.array(["2020-01-01"], dtype="M8[D]")])
@pytest.mark.parametrize(
    "make",
    [
        lambda value: nlis.Box(value, np.inf),
        lambda value: nlis.Ball(1.0, value),
        lambda value: nlis.HalfSpaces([value], 1.0),
        lambda value: nlis.HalfSpaces([[1.0]], value),
    ],
    ids=["Box lower", "Ball center", "HalfSpaces A", "HalfSpaces b"],
)
def test_sets_take_real_numbers_alone(make, value):
    with pytest.raises((nlis.InputError, nlis.InputTypeError)):
        make(value)


def test_sets_near_the_largest_float_are_told_apart_without_a_warning():
    for low in (1e308, 1.7e308):
        with pytest.raises(nlis.InputError, match="empty"):
            nlis.Intersection(nlis.Ball(2.0, [0.0, 1.0]), nlis.Box(low, np.inf))
