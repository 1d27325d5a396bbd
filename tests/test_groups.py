"""Groups of rows: each drawn from on its own, in one sample; and designs of one's own."""

from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
from test_unbiased import deviation

import dask_nlis as nlis
from dask_nlis import workers
from dask_nlis.sampling.groups import shared_sizes
from dask_nlis.sampling.summary import Summary

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")
REPLACING = ("multinomial", "stratified")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)

N = 403
NAMES = np.array(["north", "south", "east"])


@pytest.fixture
def scores(rng) -> np.ndarray:
    values = rng.lognormal(sigma=2, size=N)
    values[::9] = 0.0
    return values


@pytest.fixture
def by(rng) -> np.ndarray:
    return NAMES[rng.choice(3, p=[0.7, 0.25, 0.05], size=N)]


@each_scheme
def test_every_group_is_a_sample_of_its_own(scores, by, scheme):
    sizes = {"north": 20, "south": 7, "east": 5}
    sample = nlis.draw(scores, sizes, scheme=scheme, by=by, mix=0.1, seed=3)
    assert sample.scale.labels == ("east", "north", "south")
    assert sample.scale.n_draws == (5, 20, 7)
    assert sample.n_draws == 32
    assert (np.diff(sample.indices) > 0).all()
    expected = sample.expected_count(scores, by=by)
    assert np.array_equal(np.unique(sample.stage), [0, 1, 2])
    for k, label in enumerate(sample.scale.labels):
        mine = by == label
        # As the same scheme on the rows of the group alone, but for the random numbers.
        alone = nlis.draw(scores[mine], sizes[label], scheme=scheme, mix=0.1, seed=3)
        assert alone.scale == sample.scale.scales[k]
        np.testing.assert_array_equal(expected[mine], alone.expected_count(scores[mine]))
        drawn = sample.indices[sample.draws[sample.stage == k]]
        assert (by[drawn] == label).all()
        assert scheme == "poisson" or len(drawn) == sizes[label]
    np.testing.assert_allclose(sample.weights, sample.counts / expected[sample.indices], rtol=1e-14)
    if scheme in REPLACING:
        np.testing.assert_allclose(sample.weights, sample.counts / (32 * sample.probabilities), rtol=1e-14)
        assert sample.counts.sum() == 32
        np.testing.assert_array_equal(sample.counts, np.bincount(sample.draws))
    else:
        np.testing.assert_array_equal(sample.weights, 1 / sample.probabilities)
    assert nlis.Sample.from_dict(sample.to_dict()) == sample


@each_scheme
def test_groups_do_not_depend_on_chunks_containers_or_memory(scores, by, scheme, monkeypatch):
    pd = pytest.importorskip("pandas")
    expected = nlis.draw(scores, 40, scheme=scheme, by=by, min_per_group=6, seed=2)
    containers = {
        "list": by.tolist(),
        "series": pd.Series(by),
        "categories": pd.Series(by, dtype="category"),
        "objects": by.astype(object),
        "dask": da.from_array(by, chunks=90),
        "dask objects": da.from_array(by.astype(object), chunks=403),
    }
    for name, labels in containers.items():
        lazy = da.from_array(scores, chunks=((100, 3, 300),))
        assert nlis.draw(lazy, 40, scheme=scheme, by=labels, min_per_group=6, seed=2) == expected, name
    monkeypatch.setattr(workers, "fits_in_memory", lambda n_bytes: False)
    lazy = da.from_array(scores, chunks=((100, 3, 300),))
    assert nlis.draw(lazy, 40, scheme=scheme, by=by, min_per_group=6, seed=2) == expected


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "uint64"])
def test_integer_labels_of_any_type_name_groups_by_number(scores, dtype):
    labels = (np.arange(N) % 2).astype(dtype)
    sample = nlis.draw(scores, {0: 5, 1: 9}, by=labels, seed=0)
    assert sample == nlis.draw(scores, {0: 5, 1: 9}, by=(np.arange(N) % 2).tolist(), seed=0)
    huge = np.where(np.arange(N) % 2, 2**63 + 1, 2**63).astype(np.uint64)  # one float64, two labels
    assert nlis.draw(scores, 9, by=huge, seed=0).scale.labels == (2**63, 2**63 + 1)


@each_scheme
def test_weighted_sums_over_groups_are_without_bias(scores, by, scheme):
    losses = scores * np.where(by == "east", 5.0, 1.0)
    with dask.config.set(scheduler="sync"):
        samples = [nlis.draw(scores, 30, scheme=scheme, by=by, min_per_group=6, seed=seed) for seed in range(200)]
    for inside in (np.ones(N, dtype=bool), by == "east"):
        values = losses * inside * np.linspace(0.5, 1.5, N)
        assert deviation([float(s.weights @ values[s.indices]) for s in samples], values.sum()) < 4
    if scheme == "multinomial":
        # Draws centred within their stage: the variance of the total.
        values = losses * np.linspace(0.5, 1.5, N)
        totals, estimates = [], []
        for s in samples:
            z = (s.weights / s.counts * values[s.indices])[s.draws]
            parts = [z[s.stage == k] for k in range(3)]
            estimates.append(sum(len(p) * p.var(ddof=1) for p in parts))
            totals.append(z.sum())
        assert np.mean(estimates) == pytest.approx(np.var(totals, ddof=1), rel=0.35)


def test_a_group_left_out_is_never_drawn_and_the_weights_stand_for_the_others(scores, by):
    sample = nlis.draw(scores, {"north": 40, "south": 0, "east": 10}, scheme="systematic", by=by, seed=0)
    assert not (by[sample.indices] == "south").any()
    assert (sample.expected_count(scores, by=by)[by == "south"] == 0).all()


def parts_of(*groups: list[float]) -> list[Summary]:
    from dask_nlis.kernels.exact_sums import exponent_sums

    arrays = [np.array(group) for group in groups]
    return [Summary(len(a), int((a > 0).sum()), a.max(), 0, (), exponent_sums(a), (0,)) for a in arrays]


def test_sizes_are_proportional_between_the_bounds_and_sum_to_the_size(rng):
    for _ in range(60):
        groups = [rng.lognormal(sigma=3, size=rng.integers(1, 30)) for _ in range(rng.integers(1, 7))]
        for group in groups:
            group[rng.random(len(group)) < 0.2] = 0.0
        groups[0][0] = 1.0
        parts = parts_of(*groups)
        positive = [part.n_positive for part in parts]
        for scheme in ("multinomial", "systematic"):
            least = int(rng.integers(0, 4))
            low = [min(least, count) if scheme == "systematic" else least * (count > 0) for count in positive]
            size = int(rng.integers(max(1, sum(low)), max(sum(positive), sum(low)) + 1))
            sizes = shared_sizes(size, least, 0.0, scheme, parts)
            assert sum(sizes) == size
            high = positive if scheme == "systematic" else [size * (count > 0) for count in positive]
            totals = [sum(map(Fraction, group.tolist())) for group in groups]
            assert all(a <= s <= b for a, s, b in zip(low, sizes, high, strict=True))
            # Between the bounds no group is further than one row from proportion to any other.
            free = [k for k in range(len(sizes)) if low[k] < sizes[k] < high[k]]
            for i in free:
                for j in free:
                    assert (sizes[i] - 1) / totals[i] <= (sizes[j] + 1) / totals[j]


def test_with_mix_the_sizes_follow_the_blended_shares():
    parts = parts_of([8.0, 1.0], [1.0] * 10)  # 9 of 19 by scores, 2 of 12 by rows
    assert shared_sizes(1_900, 0, 0.0, "multinomial", parts) == [900, 1_000]
    assert shared_sizes(1_200, 0, 1.0, "multinomial", parts) == [200, 1_000]


ONES = np.ones(6)
BY = np.array([0, 0, 0, 1, 1, 2])
REFUSED = {
    "a mapping without groups": (({0: 3},), {}, nlis.InputTypeError, "by is not given"),
    "least without groups": ((3,), {"min_per_group": 1}, nlis.InputTypeError, "but by is not;"),
    "least besides a mapping": (({0: 3},), {"by": BY, "min_per_group": 1}, nlis.InputTypeError, "min_per_group"),
    "least as a float": ((3,), {"by": BY, "min_per_group": 1.0}, nlis.InputTypeError, r"min_per_group=1\.0"),
    "negative least": ((3,), {"by": BY, "min_per_group": -1}, nlis.InputError, "min_per_group=-1"),
    "a group is missing": (({0: 3, 1: 1},), {"by": BY}, nlis.InputError, "no count for the group 2; "),
    "an unknown group": (({0: 3, 1: 1, 2: 1, 7: 2},), {"by": BY}, nlis.InputError, "names the group 7"),
    "a negative count": (({0: -3, 1: 1, 2: 1},), {"by": BY}, nlis.InputError, r"size\[0\]=-3"),
    "a count as a float": (({0: 0.5, 1: 1, 2: 1},), {"by": BY}, nlis.InputTypeError, r"size\[0\]=0\.5"),
    "nothing at all": (({0: 0, 1: 0, 2: 0},), {"by": BY}, nlis.InputError, "all counts of size are 0"),
    "too small for all": ((4,), {"by": BY, "min_per_group": 2}, nlis.InputError, "give size >= 6 or"),
    "too many of a group": (
        ({0: 3, 1: 1, 2: 2},),
        {"by": BY, "scheme": "systematic"},
        nlis.InputError,
        r"size\[2\]=2 exceeds the 1 positive scores",
    ),
    "labels too short": ((3,), {"by": BY[:5]}, nlis.InputError, r"by has shape \(5,\)"),
    "two columns": ((3,), {"by": np.ones((6, 2), dtype=int)}, nlis.InputError, r"by has shape \(6, 2\)"),
    "floats": ((3,), {"by": BY * 1.0}, nlis.InputTypeError, "by has dtype float64"),
    "mixed objects": ((3,), {"by": np.array(["a", "b", None, 1, 2, 3], dtype=object)}, nlis.InputTypeError, "by holds"),
}


@pytest.mark.parametrize(("given", "options", "error", "match"), REFUSED.values(), ids=REFUSED)
def test_groups_and_sizes_that_do_not_fit_are_refused_in_one_line(given, options, error, match):
    with pytest.raises(error, match=match) as caught:
        nlis.draw(ONES, *given, seed=0, **options)
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_bad_scores_are_named_in_the_order_of_rows_whatever_their_groups():
    values = np.array([1.0, np.nan, 1.0, -1.0, 1.0, np.inf])
    with pytest.raises(nlis.InputError, match=r"3 NaN.*at rows 1, 3, 5;"):
        nlis.draw(values, 3, by=BY[::-1].copy(), seed=0)
    with pytest.raises(nlis.InputError, match=r"all scores of the group 2 are zero; give size\[2\]=0"):
        nlis.draw(np.array([1.0, 1, 1, 1, 1, 0]), {0: 1, 1: 1, 2: 1}, by=BY, seed=0)
    # A group that cannot be drawn from takes no share of a common size.
    assert nlis.draw(np.array([1.0, 1, 1, 1, 1, 0]), 5, by=BY, seed=0).scale.n_draws[2] == 0


def test_expected_counts_need_the_groups_the_sample_was_drawn_by():
    sample = nlis.draw(ONES, 4, by=BY, seed=0)
    with pytest.raises(nlis.InputTypeError, match="give by="):
        sample.expected_count(ONES)
    with pytest.raises(nlis.InputError, match="by=9 is no group"):
        sample.expected_count(ONES[:2], by=[0, 9])
    with pytest.raises(nlis.InputError, match="one label a score"):
        sample.expected_count(ONES, by=[0, 1])
    with pytest.raises(nlis.InputTypeError, match="without groups"):
        nlis.draw(ONES, 4, seed=0).expected_count(ONES, by=BY)


@each_scheme
def test_a_design_of_ones_own_has_the_weights_of_its_scheme(scores, scheme):
    drawn = nlis.draw(scores, 40, scheme=scheme, seed=5)
    rows = drawn.indices[drawn.draws]
    chances = drawn.probabilities[drawn.draws]
    own = nlis.Sample.from_probabilities(rows, chances, n_rows=N, scheme=scheme, n_draws=40, seed=5)
    for name in ("indices", "counts", "probabilities", "weights", "draws", "stage", "n_draws", "n_rows", "scheme"):
        np.testing.assert_array_equal(getattr(own, name), getattr(drawn, name), err_msg=name)
    if scheme == "stratified":  # without the shares an upper bound
        assert (own.variance_weights >= drawn.variance_weights).all()
        np.testing.assert_array_equal(own.variance_weights, own.weights**2 / own.counts)
    else:
        np.testing.assert_array_equal(own.variance_weights, drawn.variance_weights)
    with pytest.raises(nlis.InputError, match="made from probabilities"):
        own.expected_count(scores)
    assert nlis.Sample.from_dict(own.to_dict()) == own
    np.testing.assert_array_equal(own.take(scores), scores[own.indices])


REFUSED_DESIGNS = {
    "a row twice": ([1, 1], [0.5, 0.5], {"scheme": "poisson"}, "row 1 stands twice"),
    "a row outside": ([1, 10], [0.5, 0.5], {}, "holds row 10; give rows from 0 to n_rows - 1 = 9"),
    "a negative row": ([-1], [0.5], {}, "holds row -1"),
    "probability 0": ([1, 2], [0.5, 0.0], {}, r"holds 0\.0 at draw 1"),
    "probability above 1": ([1], [1.5], {}, r"holds 1\.5 at draw 0"),
    "NaN": ([1], [np.nan], {}, "holds nan at draw 0"),
    "differing": ([1, 1], [0.5, 0.4], {}, "row 1 has differing"),
    "unequal lengths": ([1, 2], [0.5], {}, "1 values for 2 indices"),
    "draws unknown": ([1, 2], [0.5, 0.1], {"n_draws": 5}, "n_draws=5 but 2 rows"),
    "no draws": ([], [], {}, r"shape \(0,\)"),
    "floats as rows": ([1.0], [0.5], {}, "indices has dtype float64"),
    "an unknown scheme": ([1], [0.5], {"scheme": "pps"}, "scheme='pps'"),
    "n_rows 0": ([1], [0.5], {"n_rows": 0}, "n_rows=0"),
    "n_rows as a float": ([1], [0.5], {"n_rows": 10.0}, r"n_rows=10\.0"),
}


@pytest.mark.parametrize(("rows", "chances", "options", "match"), REFUSED_DESIGNS.values(), ids=REFUSED_DESIGNS)
def test_designs_that_cannot_be_are_refused(rows, chances, options, match):
    with pytest.raises((nlis.InputError, nlis.InputTypeError), match=match) as caught:
        nlis.Sample.from_probabilities(rows, chances, **{"n_rows": 10} | options)
    assert len(str(caught.value)) <= 300
