"""The integer arithmetic of the draw against Python integers and fractions."""

import math
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from draw_oracle import plain_targets
from hypothesis import given, strategies as st
from scipy.stats import chi2

from dask_nlis.kernels import draw as kernel, exact_sums, wide

SCORES = {
    "equal": np.ones(7),
    "skewed": np.random.default_rng(0).lognormal(sigma=6, size=300),
    # Zero rows first, last and between: never drawn, and they must not shift their neighbours.
    "zeros around": np.array([0.0, 0.0, 0.3, 0.0, 0.7, 0.0]),
    # Far below one unit of the integers, yet it must stay reachable: q = 1.
    "tiny beside 1": np.array([1e-300, 1.0, 1e-300, 5e-324]),
    # No normal number at all.
    "subnormal": np.array([5e-324, 1e-320, 3e-310]),
    # Their sum overflows.
    "huge": np.array([1e308, 1.7e308, 1e308]),
    # The largest is a power of two: its exponent is one above its logarithm.
    "powers of two": np.array([1.0, 2.0, 0.5, 4.0]),
    "one": np.array([0.1]),
    # Mantissas of 53 ones, so that every limb carries.
    "full mantissas": np.nextafter(np.ldexp(np.ones(40), np.arange(40) % 5), 0),
}
each_scores = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)


def integers(scores: np.ndarray) -> list[int]:
    """The definition of q, in fractions."""
    exponent = math.frexp(max(scores))[1]
    return [max(1, math.floor(Fraction(s) * Fraction(2) ** (62 - exponent))) if s else 0 for s in scores.tolist()]


@each_scores
def test_whole_numbers_of_scores_are_the_floors_of_exact_fractions(scores):
    q = kernel.whole_numbers(scores, kernel.largest_exponent(scores.max())).astype(np.uint64)
    assert q.tolist() == integers(scores)
    assert 2**61 <= int(q.max()) < 2**62


def test_limb_sum_is_exact_where_uint64_would_wrap():
    q = np.full(1_000, 2**62 - 1, dtype=np.uint64)
    assert kernel.limb_sum(q) == 1_000 * (2**62 - 1)
    assert kernel.limb_sum(q[:0]) == 0


@given(st.lists(st.integers(0, 2**62 - 1), max_size=50))
def test_limb_sum_equals_the_sum_of_python_integers(values):
    assert kernel.limb_sum(np.array(values, dtype=np.uint64)) == sum(values)


def located(values: list[int], targets: list[int]) -> list[int]:
    """The first row whose cumulated sum exceeds the target, by counting."""
    sums = list(accumulate(values))
    return [next(i for i, total in enumerate(sums) if total > target) for target in targets]


def check_located(values: list[int], targets: list[int]) -> None:
    rows, onward = kernel.locate_targets(np.array(values, dtype=np.uint64), wide.from_whole(targets))
    expected = located(values, targets)
    assert rows.tolist() == expected
    assert onward.tolist() == [sum(values[: i + 1]) - t for i, t in zip(expected, targets, strict=True)]


QUANTISED = {
    # All sums below 2^31: the high limb is 0 everywhere, and the low limb alone decides.
    "small": [3, 0, 1, 5, 0],
    # Runs of equal high limbs in the middle.
    "ties on the high limb": [2**40, 1, 1, 0, 2**31 - 2, 1, 0, 5, 2**40, 1],
    # The low limbs of the sums carry in every row.
    "carries": [2**31 - 1] * 9,
    "zeros around": [0, 0, 2**61, 0, 1, 0, 2**61, 0],
    "whole block": [0, 0, 0, 2**62 - 1],
    "largest": [2**62 - 1] * 5,
}


@pytest.mark.parametrize("values", QUANTISED.values(), ids=QUANTISED)
def test_targets_are_found_where_counting_finds_them(values):
    edges = {0, sum(values) - 1, *(t + d for t in accumulate(values) for d in (-1, 0, 1))}
    targets = sorted(t for t in edges if 0 <= t < sum(values))
    check_located(values, targets)


@given(st.data())
def test_any_target_is_found_where_counting_finds_it(data):
    sizes = st.one_of(st.just(0), st.integers(1, 3), st.integers(2**31 - 2, 2**31 + 2), st.integers(0, 2**62 - 1))
    values = data.draw(st.lists(sizes, min_size=1, max_size=30).filter(any))
    targets = sorted(data.draw(st.lists(st.integers(0, sum(values) - 1), max_size=20)))
    check_located(values, targets)


def test_keys_of_seeds_stages_and_schemes_are_distinct():
    keys = {
        kernel.stream_key(seed, stage, scheme, group).tobytes()
        for seed in (*range(100), 2**32, 2**64, 2**200)
        for stage in (0, 1)
        for scheme in kernel.STREAMS
        for group in (None, 0, 1)  # the first group is not the draw without groups
    }
    assert len(keys) == 103 * 2 * len(kernel.STREAMS) * 3


# 2^96 is the largest total foreseen; just above 2^127 half of the candidates are rejected.
TOTALS = [1, 2, 3, 2**61, 2**62 + 1, 2**64 - 1, 2**64, 2**64 + 1, 3 * 2**70, 2**96 - 1, 2**96, 2**127 + 1]


@pytest.mark.parametrize("total", TOTALS)
def test_targets_are_uniform_below_the_total_and_nested_in_size(total):
    key = kernel.stream_key(5, 0, "multinomial")
    targets = wide.to_whole(kernel.uniform_targets(total, 4_000, key))
    assert targets == plain_targets(total, 4_000, key)
    assert len(targets) == 4_000
    assert min(targets) >= 0
    assert max(targets) < total
    for size in (1, 2, 63, 64, 65, 1_000):
        assert wide.to_whole(kernel.uniform_targets(total, size, key)) == targets[:size]
    cells = min(total, 32)
    for place in ([t * cells // total for t in targets], [t % cells for t in targets]):  # high and low digits
        counts = np.bincount(place, minlength=cells)
        assert ((counts - 4_000 / cells) ** 2).sum() / (4_000 / cells) <= chi2.ppf(1 - 1e-6, max(cells - 1, 1))


@pytest.mark.parametrize("total", [2**62, 2**65, 3 * 2**70])
def test_a_total_off_in_its_last_digits_moves_targets_in_theirs(total):
    # The sum of rounded scores crosses a power of two where their exact sum is one, as that of leverage at rank 8.
    key = kernel.stream_key(5, 0, "multinomial")
    off = total // 2**50
    exact, *others = (wide.to_whole(kernel.uniform_targets(total + by, 1_000, key)) for by in (0, -off, off))
    for other in others:
        assert max(abs(a - b) for a, b in zip(exact, other, strict=True)) <= off + 1


def test_another_seed_gives_other_targets():
    keys = [kernel.stream_key(seed, 0, "multinomial") for seed in range(50)]
    found = {wide.to_whole(kernel.uniform_targets(2**80, 1, key))[0] for key in keys}
    assert len(found) == 50


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 1_001, 10**9 + 1, 2**40 + 3, 10**12])
def test_row_uniforms_are_equal_under_any_split(start):
    key = kernel.stream_key(3, 0, "poisson")
    # The definition: row i has word i % 4 of counter i // 4 of the Philox stream.
    stream = np.random.Philox(key=key)
    stream.advance(start // 4)
    words = stream.random_raw(start % 4 + 60)[start % 4 :]
    whole = kernel.row_uniforms(key, start, 60)
    np.testing.assert_array_equal(whole, (words >> np.uint64(11)) / 2.0**53)
    for length in (1, 2, 3, 4, 5, 7, 60):
        parts = [kernel.row_uniforms(key, start + a, min(length, 60 - a)) for a in range(0, 60, length)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert len(kernel.row_uniforms(key, start, 0)) == 0


def test_row_uniforms_are_uniform_on_the_unit_interval():
    uniforms = kernel.row_uniforms(kernel.stream_key(0, 0, "poisson"), 17, 50_000)
    assert uniforms.min() >= 0
    assert uniforms.max() < 1
    counts = np.bincount((uniforms * 50).astype(int), minlength=50)
    assert ((counts - 1_000) ** 2).sum() / 1_000 < chi2.ppf(1 - 1e-6, 49)


@each_scores
def test_exponent_sums_hold_the_exact_total_however_the_scores_are_split(scores):
    sums = exact_sums.exponent_sums(scores)
    assert exact_sums.exact_total(sums) == sum(map(Fraction, scores.tolist()))
    assert exact_sums.unpacked(exact_sums.packed(sums)) == sums
    assert exact_sums.unpacked(exact_sums.packed({})) == {}
    positive = scores[scores > 0].tolist()
    exponents = [math.frexp(s)[1] for s in positive]
    assert {e: count for e, (count, _) in sums.items()} == {e: exponents.count(e) for e in set(exponents)}
    for length in (1, 3, 1_000):
        parts = [exact_sums.exponent_sums(scores[a : a + length]) for a in range(0, len(scores), length)]
        assert exact_sums.merge_sums(parts) == sums
        assert exact_sums.merge_sums(parts[::-1]) == sums


@given(st.lists(st.floats(0, 1e300, allow_subnormal=True), max_size=40))
def test_the_exact_total_rounds_to_fsum(values):
    assert float(exact_sums.exact_total(exact_sums.exponent_sums(np.array(values)))) == math.fsum(values)


def scale_of(scores: np.ndarray, size: int) -> tuple[float, int]:
    """Run both steps as the draw does; the number of scores sent to the client is returned as well."""
    sums = exact_sums.exponent_sums(scores)
    boundary, some_certain = exact_sums.boundary_bin(sums, size)
    inside = scores[(scores > 0) & (np.frexp(scores)[1] == boundary)] if some_certain else np.empty(0)
    return exact_sums.poisson_scale(sums, size, boundary, inside), len(inside)


def exact_scale(scores: np.ndarray, size: int) -> Fraction:
    """Solve sum of min(1, c score) = size: set the largest apart one by one until the rest stay below 1."""
    ordered = sorted((Fraction(s) for s in scores.tolist() if s > 0), reverse=True)
    rest = sum(ordered)
    for certain, score in enumerate(ordered):
        factor = (size - certain) / rest
        if factor * score <= 1:
            return factor
        rest -= score
    raise AssertionError("size exceeds the number of positive scores")


def check_scale(scores: np.ndarray, size: int) -> None:
    found, sent = scale_of(scores, size)
    assert found == float(exact_scale(scores, size))
    expected = sum(min(Fraction(1), Fraction(found) * Fraction(s)) for s in scores.tolist())
    assert abs(expected - size) <= 1e-9 * size
    assert sent <= 2 * size  # what makes it cheap to send them


POISSON = {
    "equal": np.full(50, 0.3),
    # One row is certain from size 2 on.
    "one heavy": np.array([1e6, *np.ones(30)]),
    # All but one are certain.
    "one light": np.array([1e-9, *np.ones(9)]),
    # Gaps of many octaves: the threshold falls where there are no scores.
    "gaps": np.array([2.0**900, 2.0**900, 1.0, 3.0, 2.0**-900, 2.0**-1000, 0.0]),
    # Many scores in one octave, so that some of a bin are certain and some are not.
    "one octave": np.linspace(1.0, 1.999, 60),
    "powers of two": np.ldexp(1.0, np.arange(-20, 20)),
    "tiny beside 1": np.array([1.0, 1e-300, 3e-290, 0.5]),
    "zeros": np.array([0.0, 1.0, 0.0, 2.0, 4.0]),
}


@pytest.mark.parametrize("scores", POISSON.values(), ids=POISSON)
def test_inclusion_probabilities_sum_to_every_possible_size(scores):
    for size in range(1, int(np.count_nonzero(scores)) + 1):
        check_scale(scores, size)


@pytest.mark.parametrize("case", range(60))
def test_inclusion_probabilities_sum_to_size_for_skewed_scores(case):
    rng = np.random.default_rng(case)
    n = int(rng.integers(1, 80))
    scores = rng.lognormal(sigma=rng.choice([0.1, 1.0, 5.0, 20.0]), size=n)
    if case % 3 == 0:
        scores = np.exp2(np.round(np.log2(scores)))  # many ties, all on the edges of bins
    if case % 4 == 0:
        scores[rng.random(n) < 0.3] = 0.0
        scores[0] = 1.0
    largest = int(np.count_nonzero(scores))
    for size in {1, int(rng.integers(1, largest + 1)), largest}:
        check_scale(scores, size)
