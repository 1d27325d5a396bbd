"""Every loss against its definition in mpmath: value, derivatives, signed root and the slope of the root."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest

from dask_nlis import AbsoluteError, Huber, LogisticLoss, PoissonDeviance, PseudoHuber, SquaredError

EPS = np.finfo(np.float64).eps
#: Differences of roots at arguments 1e-300 apart, and 1 + 1e-300, are formed exactly enough.
DIGITS = 700


class Definition(NamedTuple):
    """A loss beside its value, its first two derivatives and the sign of its root, once more for mpf arguments."""

    loss: Any
    labels: tuple[float, ...]
    value: Callable[[Any, Any], Any]
    derivative: Callable[[Any, Any], Any]
    curvature: Callable[[Any, Any], Any]
    sign: Callable[[Any, Any], Any] = lambda p, y: mp.sign(p - y)

    def root(self, p, y):
        return self.sign(p, y) * mp.sqrt(self.value(p, y))

    def root_slope(self, a, b, y):
        """The divided difference; its limit root' = l' / (2 root) at a = b, and sqrt(l'' / 2) in the minimum."""
        if a != b:
            return (self.root(a, y) - self.root(b, y)) / (a - b)
        root = self.root(a, y)
        return self.derivative(a, y) / (2 * root) if root else mp.sqrt(self.curvature(a, y) / 2)


def _huber(delta):
    delta = mp.mpf(delta)
    return Definition(
        Huber(float(delta)),
        REAL,
        lambda p, y: (p - y) ** 2 if abs(p - y) <= delta else 2 * delta * abs(p - y) - delta**2,
        lambda p, y: 2 * (p - y) if abs(p - y) <= delta else 2 * delta * mp.sign(p - y),
        lambda p, y: mp.mpf(2) if abs(p - y) <= delta else mp.mpf(0),
    )


def _pseudo_huber(delta):
    delta = mp.mpf(delta)

    def long(p, y):
        return mp.sqrt(1 + ((p - y) / delta) ** 2)

    return Definition(
        PseudoHuber(float(delta)),
        REAL,
        lambda p, y: 2 * (p - y) ** 2 / (1 + long(p, y)),  # 2 delta^2 (S - 1), S^2 - 1 = (t / delta)^2
        lambda p, y: 2 * (p - y) / long(p, y),
        lambda p, y: 2 / long(p, y) ** 3,
    )


def _logistic(labels):
    def s(y):
        return 1 if y == labels[1] else -1

    return Definition(
        LogisticLoss(labels),
        tuple(map(float, labels)),
        lambda u, y: mp.log(1 + mp.exp(-s(y) * u)),
        lambda u, y: -s(y) / (1 + mp.exp(s(y) * u)),
        lambda u, y: 1 / (1 + mp.exp(u)) / (1 + mp.exp(-u)),
        lambda u, y: -s(y),
    )


def _deviance(u, y):
    found = 2 * (y * mp.log(y / mp.exp(u)) - y + mp.exp(u)) if y else 2 * mp.exp(u)
    return found if found > 0 else mp.mpf(0)  # the last of the digits


#: Zero, either side of a corner, huge.
REAL = (0.0, 0.3, 0.79999, 0.8, -1.7, 1.0 + 1e-12, -1000.0, 1e12, -1e200)
COUNTS = (0.0, 0.37, 1.0, 1 + 1e-12, 3.0, 1000.0, 1e-300, 1e300)


def fourth(p, y):
    return (p - y) ** 2 + (p - y) ** 4


def fourth_slope(p, y):
    return 2 * (p - y) + 4 * (p - y) ** 3


def fourth_bend(p, y):
    return 2 + 12 * (p - y) ** 2


DEFINITIONS = {
    "squared": Definition(
        SquaredError(), REAL, lambda p, y: (p - y) ** 2, lambda p, y: 2 * (p - y), lambda p, y: mp.mpf(2)
    ),
    **{f"huber {delta:g}": _huber(delta) for delta in (0.8, 1e-3, 1e300, 1e-300)},
    **{f"pseudo-huber {delta:g}": _pseudo_huber(delta) for delta in (0.8, 1e150, 1e300, 1e-300)},
    "absolute": Definition(
        AbsoluteError(), REAL, lambda p, y: abs(p - y), lambda p, y: mp.sign(p - y), lambda p, y: mp.mpf(0)
    ),
    **{f"logistic {labels}": _logistic(labels) for labels in ((0, 1), (-1, 1))},
    "poisson": Definition(
        PoissonDeviance(),
        COUNTS,
        _deviance,
        lambda u, y: 2 * (mp.exp(u) - y),
        lambda u, y: 2 * mp.exp(u),
        lambda u, y: mp.sign(mp.exp(u) - y),
    ),
}
each = pytest.mark.parametrize("name", DEFINITIONS)

_POINTS = [0.0, 1e-300, -1e-300, 1e-17, -1e-8, 0.3, -0.3, 0.8, 1.0, -1.5, 1.6, 6.9, -30.0, 31.0, 40.0, 800.0, -800.0]


def _pairs():
    """a and b: equal, neighbours, close, of both signs, and far apart."""
    pairs = [(a, b) for a in _POINTS for b in (0.0, 1.0, -1.5, 31.0, -800.0)]
    for a in _POINTS:
        pairs += [
            (a, a),
            (a, np.nextafter(a, 9.9)),
            (a, a * (1 + 1e-12)),
            (a, a * (1 + 1e-5) + 1e-7),
            (a, 1.3 * a + 0.1),
        ]
    return pairs


def _grid(name, arguments):
    """Arrays a, b, y (or prediction, y) of the loss, and the same as tuples of floats."""
    labels = DEFINITIONS[name].labels
    points = _pairs() if arguments == 3 else [(a,) for a in sorted({x for pair in _pairs() for x in pair})]
    rows = [(*point, y) for point in points for y in labels]
    if name == "poisson":  # the roots of log y, where the deviance has its minimum
        rows += [
            (*([u] if arguments == 2 else [u, b]), y)
            for y in COUNTS
            if y
            for u in (float(np.log(y)), float(np.log(y)) + 0.1, float(np.log(y)) - 1e-7)
            for b in ([0.0] if arguments == 2 else [0.0, float(np.log(y)) + 1e-9, float(np.log(y)) - 2.0])
        ]
    return rows


METHODS = ("value", "derivative", "curvature", "root", "root_slope")


@cache
def _oracle(name, method):
    """Exact values on the grid with their condition: the relative change by a relative change of each argument."""
    exact = getattr(DEFINITIONS[name], method)
    rows = _grid(name, 3 if method == "root_slope" else 2)
    values, conditions = [], []
    with mp.workdps(DIGITS):
        nudge = 1 + mp.mpf(10) ** -20
        for row in rows:
            at = [mp.mpf(float(x)) for x in row]
            value = exact(*at)
            moved = []
            for k in range(len(at) - (name.startswith("logistic"))):  # a label of a class is no number
                near = [x * nudge if j == k else x for j, x in enumerate(at)]
                if method == "root_slope" and row[0] == row[1]:
                    near[:2] = [near[0], near[0]] if k < 2 else near[:2]
                moved.append(abs(exact(*near) - value) * mp.mpf(10) ** 20)
            values.append(value)
            conditions.append(sum(moved))
    return rows, values, conditions


def _singular(name, row):
    """Absolute error has no slope between two zero residuals; a test of its own says what it gives instead."""
    return name == "absolute" and len(row) == 3 and max(abs(row[0] - row[2]), abs(row[1] - row[2])) < 2.3e-308


def _representable(value):
    return abs(value) < mp.mpf(np.finfo(float).max)


@pytest.mark.parametrize("method", METHODS)
@each
def test_agrees_with_mpmath_to_eight_eps_times_its_condition_without_a_warning(name, method):
    rows, values, conditions = _oracle(name, method)
    # A corner has no derivative; where the exact number is no float64, neither is ours.
    kept = [k for k, (row, value) in enumerate(zip(rows, values, strict=True)) if _representable(value)]
    kept = [k for k in kept if not _singular(name, rows[k])]
    if method in ("derivative", "curvature"):
        kept = [k for k in kept if not _corner(name, rows[k])]
    assert len(kept) > 0.6 * len(rows)
    arrays = [np.array(column) for column in zip(*(rows[k] for k in kept), strict=True)]
    with np.errstate(all="raise", under="ignore"):
        got = getattr(DEFINITIONS[name].loss, method)(*arrays)
    wrong = []
    with mp.workdps(50):
        for k, value in zip(kept, got, strict=True):
            allowed = 8 * EPS * (abs(values[k]) + conditions[k]) + 4 * mp.mpf(5e-324)
            if not abs(mp.mpf(float(value)) - values[k]) <= allowed:
                wrong.append((rows[k], float(value), float(values[k]), float(abs(value - values[k]) / allowed)))
    assert not wrong, (len(wrong), wrong[:4], max(w[3] for w in wrong))


def _corner(name, row):
    """Where the definition has a kink (absolute error) or a jump of its curvature (Huber), or rounds into one."""
    t = abs(row[0] - row[1])
    delta = {"absolute": 0.0, "huber 0.8": 0.8, "huber 1e-3": 1e-3, "huber 1e-300": 1e-300}.get(name)
    return delta is not None and abs(t - delta) <= 4 * EPS * max(abs(row[0]), abs(row[1]))
