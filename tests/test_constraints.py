"""Sets for theta: projections are nearest points, and quadratics are minimised to a vanishing duality gap."""

import pickle
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from dask.base import tokenize
from scipy.optimize import minimize

import dask_nlis as nlis
from dask_nlis import Ball, Box

INF = np.inf

#: Sets in three dimensions.
SETS = {
    "ball": Ball(1.0),
    "ball off the origin": Ball(2.0, [1.0, -2.0, 0.5]),
    "ball far away": Ball(0.5, [1e6, -1e6, 0.0]),  # the centre has more digits than the radius
    "small ball": Ball(1e-8),
    "large ball": Ball(1e8),
    "cube": Box(-1.0, 1.0),
    "box": Box([-1.0, 0.0, -5.0], [2.0, 0.1, -4.0]),
    "half-open box": Box([0.0, -INF, -1.0], INF),
    "box with a fixed entry": Box([0.5, -1.0, -1.0], [0.5, 1.0, 1.0]),
    "point": Box([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    "small box": Box(0.0, 1e-12),
}
each_set = pytest.mark.parametrize("constraint", SETS.values(), ids=SETS)
bounded = {name: s for name, s in SETS.items() if name != "half-open box"}
each_bounded = pytest.mark.parametrize("constraint", bounded.values(), ids=bounded)


def middle(constraint) -> np.ndarray:
    """A point of the set, the centre of a ball."""
    if isinstance(constraint, Ball):
        return np.zeros(3) if constraint.center is None else constraint.center.copy()
    low, high = (np.clip(bound, -1e6, 1e6) for bound in (constraint.lower, constraint.upper))
    return constraint.project((low + high) / 2 * np.ones(3))


def size(constraint) -> float:
    """Half of the extent of the set; for a point, its distance from the origin."""
    if isinstance(constraint, Ball):
        return constraint.radius
    width = np.atleast_1d(constraint.upper - constraint.lower)
    return float(width[np.isfinite(width)].max(initial=0.0)) / 2 or float(np.linalg.norm(middle(constraint)))


def around(constraint, rng, n: int) -> np.ndarray:
    """Points near the set, most of them outside."""
    return middle(constraint) + 2 * size(constraint) * rng.standard_normal((n, 3))


def support(constraint, direction: np.ndarray) -> float:
    """Smallest <direction, w> over the set, in closed form."""
    if isinstance(constraint, Ball):
        return float(direction @ middle(constraint) - constraint.radius * np.linalg.norm(direction))
    return float(np.minimum(direction * constraint.lower, direction * constraint.upper).sum())


@each_set
def test_the_projection_is_the_nearest_point(constraint, rng):
    # z is nearest to x exactly when <x - z, w - z> <= 0 for every w of the set.
    inside = np.array([constraint.project(w) for w in around(constraint, rng, 1_000)])
    for x in around(constraint, rng, 30):
        z = constraint.project(x)
        rounding = 1e-12 * size(constraint) ** 2 + 1e-15 * np.abs(z).max() * np.abs(x - z).max()
        assert ((inside - z) @ (x - z)).max() <= rounding


@each_set
def test_the_projection_is_in_the_set_and_leaves_points_of_the_set_alone(constraint, rng):
    for x in around(constraint, rng, 200):
        z = constraint.project(x)
        assert constraint.contains(z)
        np.testing.assert_allclose(constraint.project(z), z, rtol=0, atol=1e-15 * (size(constraint) + np.abs(z).max()))
    m = middle(constraint)
    np.testing.assert_array_equal(constraint.project(m), m)
    assert constraint.project(m) is not m


@each_set
def test_points_outside_by_a_millionth_of_the_size_are_not_contained(constraint, rng):
    assert constraint.contains(middle(constraint))
    for x in around(constraint, rng, 200):
        z = constraint.project(x)
        if np.linalg.norm(x - z) > 0.1 * size(constraint):
            assert not constraint.contains(z + 1e-6 * size(constraint) * (x - z) / np.linalg.norm(x - z))


def test_projections_of_huge_points_do_not_overflow():
    np.testing.assert_allclose(Ball(1.0).project(np.array([3e200, 4e200, 0.0])), [0.6, 0.8, 0.0], rtol=1e-15)
    np.testing.assert_array_equal(Box(-1, 1).project(np.array([1e308, -INF, 0.0])), [1, -1, 0])


NAMES = ("a", "b", "intercept")


def test_the_active_parts_are_named():
    assert Ball(5.0).active(np.array([3.0, 4.0, 0.0]), NAMES) == ("ball of radius 5",)
    assert Ball(5.0, [1.0, 0.0, 0.0]).active(np.array([3.0, 4.0, 0.0]), NAMES) == ()
    box = Box([0.0, -INF, -1.0], [1.0, 2.0, INF])
    assert box.active(np.array([0.0, 2.0, 0.0]), NAMES) == ("a at its lower bound", "b at its upper bound")
    assert box.active(np.array([0.5, 0.0, 0.0]), NAMES) == ()


def test_a_small_parameter_off_its_bound_is_not_active():
    # A column in large units has a small coefficient: 1e-9 is then as far from 0 as 1 is elsewhere.
    assert Box(0.0, INF).active(np.array([1e-9, 1.0, 1.0]), NAMES) == ()


def test_a_bound_far_away_does_not_blur_the_other_one():
    # A large number often stands for infinity.
    box = Box(0.0, 1e12)
    assert box.active(np.array([1e-3, 3.0, 1e11]), NAMES) == ()
    assert not box.contains(np.array([-1e-3, 3.0, 1.0]))


def quadratics(rng) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Hessian and gradient, by kind."""
    rows = rng.standard_normal((20, 3))
    full = rows.T @ rows
    collinear = np.column_stack([rows[:, 0], rows[:, 0], rows[:, 1]])
    return {
        "full rank": (full, 10 * rng.standard_normal(3)),
        "weak gradient": (full, 1e-3 * rng.standard_normal(3)),
        "zero gradient": (full, np.zeros(3)),
        # Gradients in the range of the Hessian, as squared error has them.
        "collinear columns": (collinear.T @ collinear, collinear.T @ rng.standard_normal(20)),
        "zero column": (full * np.outer([1, 1, 0], [1, 1, 0]), np.array([3.0, -20.0, 0.0])),
        "rank 1": (np.outer(rows[0], rows[0]), 5 * rows[0]),
        # And outside of it, as losses with flat tails have them: the minimum lies on the boundary.
        "linear": (np.zeros((3, 3)), rng.standard_normal(3)),
        "linear in one direction": (np.diag([1.0, 2.0, 0.0]), np.array([0.1, 0.1, 0.2])),
    }


@each_bounded
@pytest.mark.parametrize("kind", list(quadratics(np.random.default_rng(0))))
def test_the_minimum_of_a_quadratic_leaves_no_duality_gap(constraint, kind, rng):
    # For a convex q, q(z) - min q <= <grad q(z), z> - min over w of <grad q(z), w>.
    for _ in range(12):
        hessian, gradient = quadratics(rng)[kind]
        theta = constraint.project(around(constraint, rng, 1)[0])
        # The same shape of problem at every size of set.
        gradient = gradient * size(constraint)
        z = constraint.minimize_quadratic(hessian, gradient, theta)
        assert constraint.contains(z)
        slope = gradient + hessian @ (z - theta)
        gap = slope @ z - support(constraint, slope)
        terms = np.abs(gradient) + np.abs(hessian) @ np.abs(z - theta)  # what the slope is a difference of
        largest = max(np.abs(z).max(), size(constraint))
        rounding = 1e-14 * np.abs(hessian).sum() * largest * size(constraint) + 1e-15 * np.abs(slope).sum() * largest
        assert gap <= 1e-10 * terms.sum() * size(constraint) + rounding


@pytest.mark.parametrize("constraint", [Ball(1.0), Ball(2.0, [1.0, -2.0, 0.5]), Box(-1, 1), Box([0, -INF, -1], INF)])
def test_the_minimum_of_a_quadratic_is_scipys(constraint, rng):
    for _ in range(10):
        hessian, gradient = quadratics(rng)["full rank"]
        theta = constraint.project(rng.standard_normal(3))

        def value(w, hessian=hessian, gradient=gradient, theta=theta):
            return gradient @ (w - theta) + (w - theta) @ hessian @ (w - theta) / 2

        if isinstance(constraint, Ball):
            limits = {
                "type": "ineq",
                "fun": lambda w: constraint.radius**2 - ((w - middle(constraint)) ** 2).sum(),
            }
            other = minimize(value, theta, method="SLSQP", constraints=limits, options={"ftol": 1e-14}).x
        else:
            bounds = list(zip(constraint.lower * np.ones(3), constraint.upper * np.ones(3), strict=True))
            other = minimize(value, theta, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15}).x
        z = constraint.minimize_quadratic(hessian, gradient, theta)
        np.testing.assert_allclose(z, other, atol=1e-4)
        assert value(z) <= value(constraint.project(other)) + 1e-12


def exact_minimum(constraint, H, b):
    """Smallest -b'w + w'Hw/2 over the set, in the working precision of mpmath."""

    def value(w):
        return (-(b.T * w) + w.T * H * w / 2)[0]

    if isinstance(constraint, Ball):  # the secular equation, by bisection of log mu

        def point(power):
            return mp.lu_solve(H + mp.mpf(2) ** power * mp.eye(3), b)

        low, high = mp.mpf(-300), mp.log(mp.norm(b) / constraint.radius, 2)
        for _ in range(150):
            middle = (low + high) / 2
            low, high = (middle, high) if mp.norm(point(middle)) > constraint.radius else (low, middle)
        return value(point(high))
    best = mp.inf  # every choice of entries at a bound
    for choice in product((float(constraint.lower), None, float(constraint.upper)), repeat=3):
        free = [k for k in range(3) if choice[k] is None]
        w = mp.matrix([0.0 if c is None else c for c in choice])
        if free:
            rest = b - H * w
            inner = mp.matrix([[H[i, j] for j in free] for i in free])
            for k, entry in zip(free, mp.lu_solve(inner, mp.matrix([rest[k] for k in free])), strict=True):
                w[k] = entry
        if all(constraint.lower <= entry <= constraint.upper for entry in w):
            best = min(best, value(w))
    return best


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e7])
@pytest.mark.parametrize("make", [Ball, lambda size: Box(-size, size)], ids=["ball", "box"])
def test_the_minimum_is_right_for_columns_in_any_units(make, size):
    # Columns of sizes 1e-6, 1 and 1e6, whose Hessian has a condition of 1e24 that means nothing.
    scales = np.array([1e-6, 1.0, 1e6])
    rows = np.random.default_rng(3).standard_normal((20, 3)) * scales
    hessian, gradient = rows.T @ rows, -rows.T @ (rows @ (np.array([1.0, -1.0, 2.0]) / scales))
    z = make(size).minimize_quadratic(hessian, gradient, np.zeros(3))
    with mp.workdps(100):
        H, b, found = (mp.matrix(part.tolist()) for part in (hessian, -gradient, z))
        best = exact_minimum(make(size), H, b)
        assert (-(b.T * found) + found.T * H * found / 2)[0] - best <= mp.mpf(10) ** -8 * abs(best)


REFUSED = {
    "negative radius": (lambda: Ball(-1), nlis.InputError, "Ball radius=-1"),
    "zero radius": (lambda: Ball(0.0), nlis.InputError, "Ball radius"),
    "NaN radius": (lambda: Ball(np.nan), nlis.InputError, "Ball radius=nan"),
    "infinite radius": (lambda: Ball(INF), nlis.InputError, "Ball radius=inf"),
    "text as radius": (lambda: Ball("1"), nlis.InputTypeError, "Ball radius='1' is str"),
    "bool as radius": (lambda: Ball(True), nlis.InputTypeError, "Ball radius=True is bool"),
    "NaN in the centre": (lambda: Ball(1, [0, np.nan]), nlis.InputError, "Ball center"),
    "infinity in the centre": (lambda: Ball(1, [0, INF]), nlis.InputError, "Ball center"),
    "matrix as centre": (lambda: Ball(1, [[0.0]]), nlis.InputError, "Ball center"),
    "empty box": (lambda: Box(1, 0), nlis.InputError, "lower exceeds upper"),
    "box empty in one entry": (lambda: Box([0, 0, 2], 1), nlis.InputError, "Box is empty at entry 2"),
    "NaN bound": (lambda: Box(0, [1, np.nan]), nlis.InputError, "Box upper"),
    "bound at +inf from below": (lambda: Box(INF, INF), nlis.InputError, "Box is empty"),
    "unequal lengths": (lambda: Box([0, 0], [1, 1, 1]), nlis.InputError, r"\(2,\), upper \(3,\)"),
    "text as bound": (lambda: Box("a", 1), nlis.InputTypeError, "Box lower is str"),
}


@pytest.mark.parametrize(("make", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_sets_that_are_none_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()


@each_set
def test_sets_are_nouns(constraint):
    copy = pickle.loads(pickle.dumps(constraint))
    assert copy == constraint
    assert hash(copy) == hash(constraint)
    assert tokenize(copy) == tokenize(constraint)
    problem = nlis.Problem(nlis.Linear(), constraint=constraint)
    assert nlis.Problem.from_dict(problem.to_dict()) == problem


def test_bounds_are_copied():
    lower = np.zeros(3)
    box = Box(lower, 1)
    lower[:] = 5
    np.testing.assert_array_equal(box.lower, 0)
