"""The four schemes against their definitions in Python integers and fractions, and what they may cost the client."""

import tracemalloc
from fractions import Fraction
from itertools import accumulate

import dask
import dask.array as da
import numpy as np
import pytest
from draw_oracle import bin_of, in_bins, plain_draw
from hypothesis import given, strategies as st

import dask_nlis as nlis
from dask_nlis.kernels import draw as kernel, wide
from dask_nlis.sampling.bins import BinTable, located

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")
REPLACING = ("multinomial", "stratified")

rng = np.random.default_rng(4)
SCORES = {
    "equal": np.full(40, 0.3),
    "skewed": rng.lognormal(sigma=3, size=120),
    "zeros around": np.concatenate([[0, 0], rng.uniform(size=20), [0], rng.uniform(size=20), [0, 0]]),
    # Rows that are certain, in several rounds: each taken makes the next one certain.
    "certain": np.concatenate([2.0 ** np.arange(12), np.ones(40)]),
    # Exactly at the edge: q s = Q.
    "just certain": np.array([*np.ones(12), 4.0, 4.0]),
    # Far below 2^-32 of the largest: one bin, in the order of rows.
    "deep": np.concatenate([[1.0], rng.lognormal(sigma=2, size=30) * 1e-12, [2e-10], rng.uniform(size=10)]),
    "edges of bins": np.sort(np.concatenate([2.0 ** np.arange(-6, 3), 0.5**0.5 * 2.0 ** np.arange(-6, 3)])),
    "ends of the float range": np.array([1.7e308, 5e-324, 1.0, 1e308, 1e-310, 1.5e308]),
    "one": np.array([0.0, 3.0, 0.0]),
}
CASES = [(name, mix) for name in SCORES for mix in (0.0, 0.1, 1.0)]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("name", "mix"), CASES, ids=str)
def test_a_sample_is_that_of_the_definition(name, mix, scheme):
    scores = SCORES[name]
    positive = int(np.count_nonzero(scores))
    for size in sorted({1, min(3, positive), positive // 3 or 1, positive}):
        seed = 7 + size
        plain = plain_draw(scores, size, scheme, mix=mix, seed=seed)
        with dask.config.set(scheduler="sync"):
            lazy = da.from_array(scores, chunks=max(1, len(scores) // 3))
            sample = nlis.draw(lazy, size, scheme=scheme, mix=mix, seed=seed) if plain.rows else None
        if sample is None:  # an empty Poisson sample warns, which has its own test
            continue
        assert sample.indices[sample.draws].tolist() == plain.rows
        assert dict(zip(sample.indices.tolist(), sample.counts.tolist(), strict=True)) == {
            row: plain.rows.count(row) for row in plain.rows
        }
        expected = np.array([float(p) for p in plain.expected])
        np.testing.assert_allclose(sample.expected_count(scores), expected, rtol=1e-15 * 4)
        drawn = expected[sample.indices]
        np.testing.assert_allclose(sample.weights, sample.counts / drawn, rtol=1e-15 * 4)
        certain = [k for k, p in enumerate(plain.expected) if p == 1]
        if scheme not in REPLACING:
            assert np.isin(certain, sample.indices).all()
        assert sum(plain.expected) == size
        if plain.shares is not None:
            lost = np.bincount(sample.draws, [float(1 - share) for share in plain.shares])
            np.testing.assert_allclose(sample.variance_weights, lost / drawn**2, rtol=1e-9, atol=1e-12)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(any), st.integers(1, 9))
def test_over_all_offsets_each_number_is_hit_as_often_as_there_are_slices(values, size):
    # So E[count of row i] = s q_i / Q exactly, for stratified and for systematic draws alike.
    total = sum(values)
    hits = np.zeros(total, dtype=int)
    for r in range(total):
        targets, where = kernel.slice_targets(total, size, wide.from_whole([r]))
        numbers = wide.to_whole(targets)
        assert numbers == [(k * total + r) // size for k in range(size)]
        np.testing.assert_allclose(
            where, [float(Fraction(t * size - k * total, total)) for k, t in enumerate(numbers)], atol=1e-15
        )
        hits += np.bincount(numbers, minlength=total)
    assert (hits == size).all()


@given(st.data())
def test_slice_targets_are_exact_at_any_size_of_total(data):
    total = data.draw(st.integers(1, 2**100))
    size = data.draw(st.one_of(st.integers(1, 40), st.just(2**16 + 1)))
    offsets = data.draw(st.lists(st.integers(0, total - 1), min_size=1, max_size=1))
    targets, _ = kernel.slice_targets(total, size, wide.from_whole(offsets))
    expected = [(k * total + offsets[0]) // size for k in range(size)]
    assert wide.to_whole(targets[:40]) == expected[:40]
    assert wide.to_whole(targets[-1:]) == expected[-1:]


WIDE = st.integers(0, 2**128 - 1) | st.integers(0, 300) | st.integers(2**64 - 2, 2**64 + 2)


@given(st.lists(WIDE, min_size=1, max_size=20), WIDE, st.integers(1, 2**32 - 1))
def test_wide_numbers_count_as_python_integers_do(values, other, divisor):
    words, single = wide.from_whole(values), wide.from_whole([other])
    assert wide.to_whole(words) == values
    assert wide.to_whole(wide.plus(words, single)) == [(v + other) % 2**128 for v in values]
    assert wide.to_whole(wide.minus(words, single)) == [(v - other) % 2**128 for v in values]
    assert wide.less(words, single).tolist() == [v < other for v in values]
    whole, remainder = wide.scaled(words, other)
    assert list(zip(wide.to_whole(whole), wide.to_whole(remainder), strict=True)) == [
        divmod(v * other, 2**128) for v in values
    ]
    order = wide.in_order(words)
    assert [values[k] for k in order] == sorted(values)
    for side, below in (("left", lambda a, b: a < b), ("right", lambda a, b: a <= b)):
        found = wide.search(words[order], single, side=side)
        assert found.tolist() == [sum(below(v, other) for v in values)]
    quotient, rest = wide.divided(words, divisor)
    assert wide.to_whole(quotient) == [v // divisor for v in values]
    assert rest.tolist() == [v % divisor for v in values]
    np.testing.assert_allclose(wide.to_float(words), [float(v) for v in values], rtol=4e-16)
    numbers = np.array([v % 2**32 for v in values], dtype=np.uint64)
    factor = other >> 32
    assert wide.to_whole(wide.times(factor, numbers)) == [factor * int(v) for v in numbers]


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=30))
def test_running_sums_are_exact_where_a_word_overflows(parts):
    high, low = np.array([p[0] for p in parts], np.uint64), np.array([p[1] for p in parts], np.uint32)
    expected = list(accumulate((h << 31) + low_ for h, low_ in parts))
    assert wide.to_whole(wide.running_sums(high, low)) == expected


@pytest.mark.parametrize("name", SCORES)
def test_bins_are_half_octaves_with_fixed_edges_merged_far_below_the_largest(name):
    scores = SCORES[name][SCORES[name] > 0]
    top = bin_of(max(scores))
    bins = kernel.half_octaves(scores, scores.max())
    assert bins.tolist() == [max(0, bin_of(s) - top + 64) for s in scores.tolist()]
    assert scores[bins == 0].max(initial=0) < 2.0**-31 * scores.max()


@given(st.lists(st.tuples(st.integers(0, 64), st.integers(0, 2**62 - 1)), max_size=30))
def test_bin_sums_are_the_sums_of_python_integers(rows):
    bins, q = np.array([r[0] for r in rows], np.uint8), np.array([r[1] for r in rows], np.uint64)
    expected = {}
    for b, v in rows:
        expected[b] = expected.get(b, 0) + v
    present, high, low = kernel.bin_sums(q, bins)
    found = {int(b): (int(h) << 31) + int(w) for b, h, w in zip(present, high, low, strict=True)}
    assert found == {b: v for b, v in expected.items() if v}


@pytest.mark.parametrize("chunks", [1, 5, 60, 1_000])
def test_targets_are_placed_where_counting_places_them(chunks):
    scores = np.random.default_rng(chunks).lognormal(sigma=4, size=200)
    scores[::9] = 0
    scale_exponent = kernel.largest_exponent(scores.max())
    q, bins = kernel.whole_numbers(scores, scale_exponent).astype(np.uint64), kernel.half_octaves(scores, scores.max())
    blocks = [range(a, min(a + chunks, 200)) for a in range(0, 200, chunks)]
    table = BinTable(range(len(blocks)))
    for k, block in enumerate(blocks):
        table.add(k, kernel.bin_sums(q[block], bins[block]))
    total = sum(map(int, q))
    assert table.total() == total
    ends = list(accumulate(int(q[row]) for row in in_bins(scores.tolist())))
    targets = sorted({0, total - 1, *(t for e in ends for t in (e - 1, e) if t < total)})
    placed = table.place(wide.from_whole(targets))
    found = {}
    for k, wanted in placed.items():
        rows, onward, before = located(q[blocks[k]], bins[blocks[k]], wanted)
        assert ((onward > 0) & (onward + before == q[blocks[k]][rows])).all()
        found |= {number: blocks[k][row] for number, row in zip(wanted.numbers.tolist(), rows, strict=True)}
    order = in_bins(scores.tolist())
    expected = [order[next(j for j, e in enumerate(ends) if e > t)] for t in targets]
    assert [found[k] for k in range(len(targets))] == expected


def test_the_client_holds_at_most_128_mb_for_100_000_blocks_with_every_bin_in_each():
    n_blocks, size = 100_000, 100_000
    bins = np.arange(65, dtype=np.uint8)
    sums = (bins, np.full(65, 2**40 + 3, np.uint64), np.full(65, 2**31 - 1, np.uint32))
    tracemalloc.start()
    try:
        table = BinTable(range(n_blocks))
        for block in range(n_blocks):
            table.add(block, sums)
        total = table.total()
        assert total == 65 * n_blocks * ((2**40 + 3 << 31) + 2**31 - 1)
        key = kernel.stream_key(0, 0, "stratified")
        targets, _ = kernel.slice_targets(total, size, kernel.uniform_targets(total, size, key))
        placed = table.place(targets)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(placed[block].numbers) for block in placed) == size
    assert peak < 128e6


@pytest.mark.slow
def test_a_billion_rows_are_summed_exactly():
    # k 2^-30 for k = 1 ... 10^9 are floats without rounding: the sum of their integers is known.
    rows, block, total = 10**9, 10**7, 0
    for start in range(0, rows, block):
        scores = np.arange(start + 1, start + block + 1, dtype=np.float64) * 2.0**-30
        total += kernel.limb_sum(kernel.whole_numbers(scores, 0).astype(np.uint64))
    assert total == rows * (rows + 1) // 2 * 2**32
