"""The draw: what it depends on (scores, size, seed), what it does not (chunks, workers, units), what it refuses."""

from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from fractions import Fraction
from itertools import accumulate, pairwise
from multiprocessing import get_context

import dask
import dask.array as da
import numpy as np
import pytest
from counting import Tasks

import dask_nlis as nlis
from dask_nlis import phase, workers
from dask_nlis.kernels import draw as kernel, wide

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")
REPLACING = ("multinomial", "stratified")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)

N = 1_003


@pytest.fixture
def scores(rng) -> np.ndarray:
    """Skewed over many octaves; zero rows first, last, alone and a whole chunk of 100."""
    values = rng.lognormal(sigma=4, size=N)
    values[[0, 1, 17, N - 2, N - 1]] = 0.0
    values[300:400] = 0.0
    return values


def same_sample(a: nlis.Sample, b: nlis.Sample) -> None:
    """Bit-equal, in every field."""
    for name in ("indices", "counts", "probabilities", "weights", "variance_weights", "draws"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)
    assert a == b


@each_scheme
@pytest.mark.parametrize("chunks", [1, 7, 1_000, N, (400, 3, 500, 100)], ids=str)
@pytest.mark.parametrize("mix", [0, 0.1])
def test_a_sample_does_not_depend_on_chunks(scores, scheme, chunks, mix):
    rows = 60 if chunks == 1 else N  # one row a block: few rows are enough
    expected = nlis.draw(scores[:rows], 40, scheme=scheme, mix=mix, seed=11)
    lazy = da.from_array(scores[:rows], chunks=(chunks,))
    same_sample(nlis.draw(lazy, 40, scheme=scheme, mix=mix, seed=11), expected)


@each_scheme
@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_a_sample_does_not_depend_on_the_scheduler(scores, scheme, scheduler):
    expected = nlis.draw(scores, 50, scheme=scheme, seed=2)
    with dask.config.set(scheduler=scheduler, num_workers=2):
        same_sample(nlis.draw(da.from_array(scores, chunks=400), 50, scheme=scheme, seed=2), expected)


def test_a_sample_drawn_by_processes_is_the_sample_drawn_by_threads(scores):
    # One pool for both schemes: starting processes is what takes time here.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for scheme in SCHEMES:
            expected = nlis.draw(scores, 50, scheme=scheme, seed=2)
            with dask.config.set(scheduler="processes", pool=pool):
                same_sample(nlis.draw(da.from_array(scores, chunks=400), 50, scheme=scheme, seed=2), expected)


@each_scheme
def test_a_sample_is_equal_when_scores_do_not_fit_in_memory(scores, scheme, monkeypatch):
    expected = nlis.draw(scores, 50, scheme=scheme, seed=2)
    monkeypatch.setattr(workers, "fits_in_memory", lambda n_bytes: False)
    lazy = da.from_array(scores, chunks=((400, 3, 500, 100),))  # irregular: the scratch file is not
    same_sample(nlis.draw(lazy, 50, scheme=scheme, seed=2), expected)


@each_scheme
def test_a_sample_does_not_depend_on_how_many_blocks_are_asked_at_a_time(scores, scheme, monkeypatch):
    lazy = da.from_array(scores, chunks=20)
    expected = nlis.draw(lazy, 40, scheme=scheme, seed=11)
    monkeypatch.setattr(phase, "LOCAL_WAVE", 7)
    with Tasks() as tasks:
        same_sample(nlis.draw(lazy, 40, scheme=scheme, seed=11), expected)
    assert 10 < tasks.computes <= 8 * 8
    assert max(map(len, tasks.phases)) == 7


@each_scheme
def test_lazy_scores_are_computed_once(scores, scheme):
    computed = []

    def block(part):
        computed.append(len(part))
        return part

    lazy = da.from_array(scores, chunks=100).map_blocks(block, dtype=float, meta=np.empty(0))
    nlis.draw(lazy, 50, scheme=scheme, seed=0)
    assert sorted(computed) == [3, *[100] * 10]


@each_scheme
def test_a_sample_does_not_depend_on_the_unit_of_the_scores(scores, scheme):
    expected = nlis.draw(scores, 50, scheme=scheme, seed=4)
    for power in (-40, -1, 1, 300):
        scaled = nlis.draw(np.ldexp(scores, power), 50, scheme=scheme, seed=4)
        np.testing.assert_array_equal(scaled.indices, expected.indices)
        np.testing.assert_array_equal(scaled.weights, expected.weights)


@each_scheme
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int16", "int8", "uint8", "bool", ">f8"])
def test_scores_of_any_real_type_count_as_their_float64_values(scheme, dtype):
    # Arithmetic in the narrow type would round probabilities, or overflow.
    values = np.array([3, 0, 1, 100, 7, 0, 1, 1] * 20).astype(dtype)
    same_sample(
        nlis.draw(values, 30, scheme=scheme, seed=3), nlis.draw(values.astype(float), 30, scheme=scheme, seed=3)
    )


@pytest.mark.parametrize("scheme", REPLACING)
@pytest.mark.parametrize("size", [1, 50, 3_000])
def test_counts_with_replacement_sum_to_size_and_weights_follow_from_them(scores, size, scheme):
    with pytest.warns(nlis.NlisWarning, match="drawn repeatedly") if size > N else nullcontext():
        sample = nlis.draw(scores, size, scheme=scheme, seed=1)
    assert sample.counts.sum() == size == sample.n_draws
    # Whole numbers of 62 bits: a row far below the largest has less digits.
    share = (scores / scores.sum())[sample.indices]
    np.testing.assert_allclose(sample.probabilities, share, rtol=1e-14, atol=2.0**-61)
    np.testing.assert_array_equal(sample.weights, sample.counts / (size * sample.probabilities))


@pytest.mark.parametrize("scheme", ["poisson", "systematic"])
@pytest.mark.parametrize("mix", [0, 0.1])
@pytest.mark.parametrize("size", [1, 50, 800])
def test_inclusion_probabilities_over_all_rows_sum_to_size(scores, size, mix, scheme):
    sample = nlis.draw(scores, size, scheme=scheme, mix=mix, seed=1)
    assert scheme == "poisson" or len(sample) == size
    inclusion = sample.expected_count(scores)
    assert float(sum(map(Fraction, inclusion.tolist()))) == pytest.approx(size, abs=1e-9)
    assert inclusion.max() <= 1
    assert (inclusion[scores == 0] == 0).all()
    assert (sample.counts == 1).all()
    np.testing.assert_array_equal(sample.probabilities, inclusion[sample.indices])
    np.testing.assert_array_equal(sample.weights, 1 / sample.probabilities)
    certain = np.flatnonzero(inclusion == 1)
    assert np.isin(certain, sample.indices).all()


@pytest.mark.parametrize("scheme", ["poisson", "systematic"])
def test_every_positive_row_is_drawn_once_at_the_largest_size(scores, scheme):
    sample = nlis.draw(scores, int((scores > 0).sum()), scheme=scheme, seed=0)
    np.testing.assert_array_equal(sample.indices, np.flatnonzero(scores))
    np.testing.assert_allclose(sample.weights, 1, rtol=1e-15)


@pytest.mark.parametrize("scheme", ["multinomial", "poisson"])
def test_samples_of_one_seed_are_nested_in_size(scores, scheme):
    large = nlis.draw(scores, 600, scheme=scheme, seed=8)
    for size in (1, 10, 599):
        small = nlis.draw(scores, size, scheme=scheme, seed=8)
        assert np.isin(small.indices, large.indices).all()
        if scheme == "multinomial":  # the draws themselves, in their order
            np.testing.assert_array_equal(small.indices[small.draws], large.indices[large.draws[:size]])


@each_scheme
def test_rows_with_zero_scores_are_never_drawn(scheme):
    values = np.array([0.0, 0.0, 1e-300, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0])
    for chunks in (1, 2, 10):
        lazy = da.from_array(values, chunks=chunks)
        drawn = [nlis.draw(lazy, 3, scheme=scheme, seed=seed).indices for seed in range(6)]
        assert np.isin(np.concatenate(drawn), [2, 4, 8]).all()


@pytest.mark.parametrize("chunks", [1, 2, 3, 10])
def test_targets_on_the_edges_of_rows_and_blocks_find_their_rows(chunks, monkeypatch):
    # No seed gives these within a lifetime: the first and the last integer of every row.
    values = [0, 1, 0, 0, 3, 2, 0, 1, 0, 0]
    q = [value * 2**60 for value in values]  # the exponent of 3 is 2
    edges = list(accumulate(q, initial=0))
    targets = [t for low, high in pairwise(edges) if high > low for t in (high - 1, low)]
    monkeypatch.setattr(kernel, "uniform_targets", lambda total, size, key: wide.from_whole(targets))
    sample = nlis.draw(da.from_array(np.array(values, dtype=float), chunks=chunks), len(targets), seed=0)
    assert sample.indices[sample.draws].tolist() == [1, 1, 4, 4, 5, 5, 7, 7]


def test_a_row_of_scores_1e300_times_smaller_is_drawn_with_its_own_probability():
    # One part in 2^61 is the smallest probability: the row stays reachable and its weight says how rare it is.
    sample = nlis.draw(np.array([1.0, 1e-300]), 1, seed=0)
    np.testing.assert_allclose(sample.expected_count(np.array([1.0, 1e-300])), [1, 2.0**-61], rtol=1e-12)


def test_a_single_heavy_row_takes_all_draws_with_weight_1_over_s_each():
    values = np.zeros(100)
    values[42] = 3.0
    sample = nlis.draw(values, 25, seed=0)
    assert sample.indices.tolist() == [42]
    assert sample.counts.tolist() == [25]
    np.testing.assert_allclose(sample.weights / sample.counts, 1 / 25, rtol=1e-15)


EXTREME = {
    "their sum overflows": [1e308, 1e308],
    "subnormal": [5e-324, 5e-324],
    "both ends": [1.7e308, 5e-324, 1.0],
}


@each_scheme
@pytest.mark.filterwarnings("ignore:no row was drawn")
@pytest.mark.parametrize("values", EXTREME.values(), ids=EXTREME)
def test_scores_at_the_ends_of_the_float_range_are_drawn(values, scheme):
    sample = nlis.draw(np.array(values), 1, scheme=scheme, seed=3)
    assert np.isfinite(sample.weights).all()
    assert sample.expected_count(values).sum() == pytest.approx(1, abs=1e-9)
    assert sample.expected_count(values)[0] == pytest.approx(1 if len(values) == 3 else 0.5, abs=1e-9)


def test_a_poisson_sample_may_be_empty_and_says_so():
    with pytest.warns(nlis.NlisWarning, match=r"no row was drawn \(expected 1\)"):
        sample = next(s for s in (nlis.draw(np.ones(10), 1, scheme="poisson", seed=k) for k in range(99)) if not len(s))
    assert sample.take(np.ones((10, 2))).shape == (0, 2)
    assert sample.effective_size == 0


@each_scheme
def test_a_seed_of_none_is_drawn_and_recorded(scores, scheme):
    first, second = (nlis.draw(scores, 20, scheme=scheme) for _ in range(2))
    assert first.seed != second.seed
    same_sample(nlis.draw(scores, 20, scheme=scheme, seed=first.seed), first)


@each_scheme
def test_drawing_leaves_the_global_random_state_alone(scores, scheme):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    nlis.draw(scores, 20, scheme=scheme)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


REFUSED_SEEDS = {
    "negative": (-1, nlis.InputError, "seed=-1 is negative"),
    "float": (1.0, nlis.InputTypeError, r"seed=1\.0 is float"),
    "bool": (True, nlis.InputTypeError, "seed=True is bool"),
    "text": ("7", nlis.InputTypeError, "seed='7' is str"),
    # Its state is not recorded; the remedy makes an integer of it.
    "generator": (np.random.default_rng(0), nlis.InputTypeError, r"Generator.*int\(rng\.integers"),
}


@pytest.mark.parametrize(("seed", "error", "match"), REFUSED_SEEDS.values(), ids=REFUSED_SEEDS)
def test_seeds_that_are_no_recordable_integers_are_refused(seed, error, match):
    with pytest.raises(error, match=match):
        nlis.draw(np.ones(5), 2, seed=seed)


REFUSED_SCORES = {
    "one NaN": ([1, np.nan, 1], r"1 NaN, infinite or negative value, first at row 1;"),
    "an infinity": ([1, 1, np.inf], r"first at row 2;"),
    "a negative": ([-1e-300, 1, 1], r"first at row 0;"),
    # Counted in full, listed up to five, in order of rows although they lie in several chunks.
    "seven bad ones": ([np.nan, 1, -1, np.inf, 1, -2, np.nan, -3, np.nan], r"7 NaN.*first at rows 0, 2, 3, 5, 6;"),
    "all zero": ([0, 0, 0], "all 3 scores are zero"),
    "none": ([], "scores are empty"),
    "two columns": ([[1, 2], [3, 4]], r"scores have shape \(2, 2\)"),
}


@each_scheme
@pytest.mark.parametrize(("values", "match"), REFUSED_SCORES.values(), ids=REFUSED_SCORES)
def test_bad_scores_are_refused_with_how_many_and_where(values, match, scheme):
    values = np.array(values, dtype=float)
    for chunks in (2, 100):
        with pytest.raises(nlis.InputError, match=match) as caught:
            nlis.draw(da.from_array(values, chunks=chunks), 1, scheme=scheme, seed=0)
        assert len(str(caught.value)) <= 300
        assert "\n" not in str(caught.value)


REFUSED_SIZES = {
    "zero": (0, nlis.InputError),
    "negative": (-1, nlis.InputError),
    "fraction": (2.5, nlis.InputTypeError),
    "negative share": (-0.5, nlis.InputTypeError),
    "NaN": (np.nan, nlis.InputTypeError),
    "text": ("10", nlis.InputTypeError),
    "bool": (True, nlis.InputTypeError),
}


@each_scheme
@pytest.mark.parametrize(("size", "error"), REFUSED_SIZES.values(), ids=REFUSED_SIZES)
def test_sizes_that_are_no_positive_integers_are_refused_before_the_scores_are_computed(size, error, scheme):
    def never(part):
        raise AssertionError("computed")

    lazy = da.ones(5, chunks=5).map_blocks(never, dtype=float, meta=np.empty(0))
    with pytest.raises(error, match="size="):
        nlis.draw(lazy, size, scheme=scheme, seed=0)


@pytest.mark.parametrize("scheme", ["poisson", "systematic"])
def test_more_rows_than_can_be_drawn_once_are_refused(scheme):
    with pytest.raises(nlis.InputError, match=f"size=4 exceeds the 3 rows, and {scheme}"):
        nlis.draw(np.ones(3), 4, scheme=scheme, seed=0)
    with pytest.raises(nlis.InputError, match=f"size=3 exceeds the 2 positive scores, and {scheme}"):
        nlis.draw(np.array([1.0, 0.0, 1.0]), 3, scheme=scheme, seed=0)


def test_a_size_from_0_to_1_is_a_share_of_the_rows(scores):
    assert nlis.draw(scores, 0.05, seed=1) == nlis.draw(scores, 50, seed=1)
    assert nlis.draw(scores, 1e-9, seed=1).n_draws == 1
    assert nlis.draw(scores, np.float32(1.0), seed=1).n_draws == N
    assert nlis.draw(scores, 1, seed=1).n_draws == 1


REFUSED_MIXES = {
    "negative": (-0.1, nlis.InputError),
    "above 1": (1.5, nlis.InputError),
    "NaN": (np.nan, nlis.InputError),
    "text": ("0.1", nlis.InputTypeError),
    "bool": (True, nlis.InputTypeError),
}


@pytest.mark.parametrize(("mix", "error"), REFUSED_MIXES.values(), ids=REFUSED_MIXES)
def test_a_mix_that_is_no_share_is_refused(mix, error):
    with pytest.raises(error, match="mix="):
        nlis.draw(np.ones(5), 2, mix=mix, seed=0)


@each_scheme
def test_mix_bounds_the_weights_and_blends_probabilities_with_uniform(scores, scheme):
    positive = np.count_nonzero(scores)
    for mix in (1e-3, 0.1, 1.0):
        sample = nlis.draw(scores, 40, scheme=scheme, mix=mix, seed=5)
        assert (sample.weights / sample.counts).max() <= positive / (40 * mix) * (1 + 1e-12)
        if scheme in REPLACING:
            blended = (1 - mix) * scores / scores.sum() + mix * (scores > 0) / positive
            np.testing.assert_allclose(sample.expected_count(scores), 40 * blended, rtol=1e-13)
    assert nlis.draw(scores, 40, scheme=scheme, mix=0, seed=5) == nlis.draw(scores, 40, scheme=scheme, seed=5)


@pytest.mark.parametrize("scheme", ["stratified", "systematic"])
def test_slices_beyond_32_bits_are_refused_before_anything_is_computed(scheme):
    with pytest.raises(nlis.InputError, match=f"too large for {scheme}; give size <= 4,294,967,295"):
        nlis.draw(da.ones(2**33, chunks=2**33), 2**32, scheme=scheme, seed=0)


def test_an_unknown_scheme_is_refused_naming_those_that_exist():
    with pytest.raises(nlis.InputError, match=r"'uniform' is not known; give one of 'multinomial', 'stratified', "):
        nlis.draw(np.ones(3), 1, scheme="uniform", seed=0)


@pytest.mark.parametrize("scheme", ["multinomial", "stratified", "systematic"])
def test_rounding_of_the_scores_leaves_the_sample_as_it_is(scheme, rng):
    # They sum to 1, so that the sum of the integers lies on either side of a power of two.
    values = rng.lognormal(sigma=2, size=N)
    values /= values.sum()
    expected = nlis.draw(values, 200, scheme=scheme, seed=3)
    for k in range(10):
        rounded = values * (1 + np.random.default_rng(k).choice([-1, 0, 1], size=N) * 2.0**-52)
        sample = nlis.draw(rounded, 200, scheme=scheme, seed=3)
        np.testing.assert_array_equal(sample.indices, expected.indices)
        np.testing.assert_allclose(sample.weights, expected.weights, rtol=1e-14)
