"""What pictures are made of: counts in bins and cells, exact, and the same from any blocks in any order."""

import itertools
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dask_nlis.plots import cells as plane, log_bins as line
from dask_nlis.plots.panel import apart, plain

LARGEST, SMALLEST = np.finfo(np.float64).max, 5e-324

#: Numbers of every kind that a row may have.
NUMBERS = {
    "log-normal": lambda rng: rng.lognormal(-7, 2, 5000),
    "an octave": lambda rng: rng.uniform(1, 2, 5000),
    "a hair": lambda rng: 1 + 1e-12 * rng.random(5000),
    "all equal": lambda rng: np.full(50, 0.3),
    "one": lambda rng: np.array([3.0]),
    "two neighbours": lambda rng: np.array([1.0, np.nextafter(1.0, 2.0)] * 5),
    "every float": lambda rng: np.exp2(rng.uniform(-1074, 1023.9, 5000)),
    "the ends": lambda rng: np.array([SMALLEST, LARGEST, 1.0]),
    "subnormal": lambda rng: rng.integers(1, 1000, 300) * SMALLEST,
    "whole": lambda rng: rng.integers(1, 7, 3000).astype(float),
}


@pytest.fixture(params=NUMBERS)
def numbers(request, rng):
    return NUMBERS[request.param](rng)


def binned(values, cuts=()):
    parts = np.split(values, cuts)
    starts = np.cumsum([0, *map(len, parts)])
    return reduce(line.joined, map(line.log_bins, parts, starts.tolist()), line.NONE)


def same(a, b):
    return (
        a[:2] == b[:2]
        and a[4:] == b[4:]
        and np.array_equal(a.counts, b.counts)
        and np.allclose(a.sums, b.sums, rtol=1e-12)
    )


def summed(values, edges, weights):
    """Sums between edges, the last closed, the slow way; NumPy's histogram takes differences of running sums."""
    places = np.minimum(np.searchsorted(edges, values, side="right") - 1, len(edges) - 2)
    with np.errstate(over="ignore"):
        return np.array([weights[places == k].sum() for k in range(len(edges) - 1)])


def test_bins_count_what_numpy_counts_between_their_edges(numbers):
    found = line.log_bins(numbers)
    assert len(found.counts) <= line.MOST
    assert found.counts[0] > 0
    assert found.counts[-1] > 0
    edges = found.edges
    assert (np.diff(edges) > 0).all()
    np.testing.assert_array_equal(found.counts, np.histogram(numbers, edges)[0])
    np.testing.assert_allclose(found.sums, summed(numbers, edges, numbers), rtol=1e-12)
    # As fine as may be: at one bit less, at least as many as half of the most bins would do.
    assert found.shift == 0 or len(found.counts) > line.MOST // 2 - 1


def test_bins_do_not_depend_on_blocks_or_their_order(numbers, rng):
    whole = binned(numbers)
    for cuts in ([1], [len(numbers) // 2], np.arange(1, len(numbers), max(1, len(numbers) // 7))):
        assert same(binned(numbers, cuts), whole)
    order = np.argsort(numbers)
    assert same(binned(numbers[order], [len(numbers) // 3]), whole)
    assert same(binned(numbers[order[::-1]], [len(numbers) // 3]), whole)


def test_rows_without_a_place_are_counted_apart():
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 2.0, 1.0])
    found = line.log_bins(values)
    assert (found.n_positive, found.n_zero, found.n_non_finite, found.negative) == (2, 2, 3, None)
    found = binned(np.array([0.0, 1.0, np.nan, -1.0, 2.0, -3.0]), [2, 4, 5])
    assert (found.n_positive, found.n_zero, found.n_non_finite, found.negative) == (2, 1, 1, 3)
    assert line.joined(line.NONE, line.NONE) == line.NONE


def test_sums_are_of_what_is_beside(rng):
    values, weights = rng.lognormal(0, 1, 900), rng.random(900)
    values[:5] = 0, np.nan, np.inf, 0, 0
    found = line.log_bins(values, beside=weights)
    assert found.sums.sum() == pytest.approx(weights[5:].sum())
    np.testing.assert_allclose(found.sums, summed(values[5:], found.edges, weights[5:]), rtol=1e-12)


@pytest.mark.parametrize("most", [1, 2, 60, 400])
def test_bars_are_exact_and_about_equal_on_a_log_axis(numbers, most):
    heights, edges = line.bars(line.log_bins(numbers), most)
    assert 1 <= len(heights) <= most or len(heights) == len(np.unique(numbers)) == 1
    np.testing.assert_array_equal(heights, np.histogram(numbers, edges)[0])
    assert heights.sum() == len(numbers)
    assert edges[0] <= numbers.min() < edges[1]


def test_widths_of_bars_differ_by_a_few_hundredths(rng):
    for spread in (0.05, 0.3, 2.0, 8.0):
        _, edges = line.bars(line.log_bins(rng.lognormal(0, spread, 20_000)), 60)
        widths = np.diff(np.log(edges))
        assert len(widths) == 60
        assert widths.max() / widths.min() < 1.06


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.0])
def test_beyond_an_edge_lies_at_most_a_share(rng, share):
    values, weights = rng.lognormal(0, 2, 9000), rng.random(9000)
    found = line.log_bins(values, beside=weights)
    edge = line.beyond(found, share)
    above = weights[values >= edge].sum() / weights.sum()
    assert above <= share + 1e-12
    # Nor does it lie farther out than a bin.
    before = found.edges[np.flatnonzero(found.edges == edge)[0] - 1]
    assert weights[values >= before].sum() / weights.sum() > share


KINDS = {
    "usual": lambda rng: rng.standard_normal(4000),
    "far from zero": lambda rng: 1e9 + rng.standard_normal(4000),
    "zeros": lambda rng: np.zeros(40),
    "one value": lambda rng: np.full(40, -2.5),
    "heavy": lambda rng: rng.standard_cauchy(4000),
    "huge": lambda rng: 1e300 * rng.uniform(-1, 1, 400),
    "tiny": lambda rng: SMALLEST * rng.integers(-40, 40, 400),
    "of one sign": lambda rng: -rng.random(4000),
}


def cells_of(across, up, weights, cuts=()):
    parts = zip(np.split(across, cuts), np.split(up, cuts), np.split(weights, cuts), strict=True)
    return reduce(plane.joined, itertools.starmap(plane.cells, parts), None)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_hold_what_numpy_counts_and_do_not_depend_on_blocks(kind, rng):
    up = KINDS[kind](rng)
    across, weights = rng.lognormal(-6, 2, len(up)), rng.integers(1, 9, len(up)).astype(float)
    found = cells_of(across, up, weights)
    assert max(found.sums.shape) <= plane.MOST
    expected, *_ = np.histogram2d(across, up, [found.across, found.up], weights=weights)
    # NumPy's last bin is closed above; ours are all half open and hold all rows.
    np.testing.assert_array_equal(found.sums, expected)
    assert found.sums.sum() == weights.sum()
    if kind in ("usual", "heavy", "huge", "of one sign"):
        assert found.sums.shape[1] > plane.MOST // 2 - 1
    for cuts in ([1], [len(up) // 2], np.arange(1, len(up), 97), [0, len(up)]):
        parted = cells_of(across, up, weights, cuts)
        assert parted[:4] == found[:4]
        np.testing.assert_array_equal(parted.sums, found.sums)
    order = np.argsort(up)
    assert cells_of(across[order], up[order], weights[order], [len(up) // 3])[:4] == found[:4]


def test_cells_of_no_row_are_none():
    empty = np.zeros(0)
    assert plane.cells(empty, empty, empty) is None
    assert plane.joined(None, None) is None


def test_cells_of_zeros_join_those_of_the_largest(rng):
    ones = np.ones(2)
    found = cells_of(np.array([0.5, 0.5, 1.0]), np.array([0.0, 0.0, 1e300]), np.ones(3), [2])
    assert found.sums.sum() == 3
    assert found.sums[0, 0 - found.bottom] == ones.sum()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_labels_lie_apart_in_their_order_and_inside(places):
    moved = apart(places, 0.1, 0.0, 1.0)
    order = np.argsort(places, kind="stable")
    assert (np.diff(np.array(moved)[order]) > 0.1 - 1e-9).all()
    assert min(moved) >= 0
    assert max(moved) <= 1 + 1e-9


def test_labels_that_lie_apart_stay_and_others_move_as_little_as_need_be():
    assert apart([0.7, 0.2, 0.45], 0.1, 0.0, 1.0) == pytest.approx([0.7, 0.2, 0.45])
    assert apart([0.5, 0.5, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.4, 0.5, 0.6])
    assert apart([0.99, 1.0], 0.1, 0.0, 1.0) == pytest.approx([0.9, 1.0])
    assert apart([0.0, 0.01], 0.1, 0.0, 1.0) == pytest.approx([0.0, 0.1])
    assert apart([], 0.1, 0.0, 1.0) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (0, "0"),
            (1, "1"),
            (0.002, "0.002"),
            (0.25, "0.25"),
            (1234, "1,234"),
            (50_000, "50,000"),
            (250_000, "250,000"),
        ),
        *((1e6, "10⁶"), (2e7, "2·10⁷"), (1e-4, "10⁻⁴"), (5e-12, "5·10⁻¹²"), (1e300, "10³⁰⁰")),
    ],
)
def test_numbers_are_written_plainly(value, text):
    assert plain(value) == text
