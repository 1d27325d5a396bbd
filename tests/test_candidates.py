"""Rows kept before c is known: a draw from them is that from all rows whenever their cut reaches c, and only then."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq

from dask_nlis.kernels import draw as kernel
from dask_nlis.kernels.candidates import EVERYTHING, NOTHING, candidates, cut_of, expected_scale, reaches
from dask_nlis.sampling.beside import beside, block_sums, unpacked
from dask_nlis.sampling.passes import Part, carry_out_on
from dask_nlis.sampling.plan import Plan
from dask_nlis.sampling.poisson import poisson
from dask_nlis.sampling.summary import NONE, block_summary, joined

rng = np.random.default_rng(5)
N = 400
SCORES = {
    "even": rng.uniform(0.5, 1, N),
    "equal": np.ones(N),
    "skew": rng.lognormal(sigma=3, size=N),
    "a few huge": np.concatenate([rng.uniform(size=380), 1e9 * rng.uniform(0.1, 1, 20)]),
    "zeros": np.where(rng.random(N) < 0.4, 0.0, rng.lognormal(sigma=2, size=N)),
    "powers of two": 2.0 ** rng.integers(-8, 8, N),
    "ends of the float range": np.concatenate([[1.7e308, 5e-324, 1e-310], rng.lognormal(sigma=2, size=N - 3)]),
}
KEY = kernel.stream_key(3, 0, "poisson")
COINS = np.where(np.arange(N) % 97 == 5, 0.0, kernel.row_uniforms(KEY, 0, N))


def plan_of(scores, size):
    summary = joined(NONE, block_summary(Part(scores, 0, N, None)))
    return Plan("poisson", size, 0.0, 3, 0, summary._replace(blocks=(0,)))


def draw(scores, size, kept, missed):
    """The sample from the kept rows alone, given what is known of all, and its c."""
    part = Part(scores[kept], 0, N, kept, None if missed is None else missed[kept], COINS[kept])
    plan = plan_of(scores, size)
    if missed is None:
        sample = carry_out_on(part, poisson(plan))
    else:
        sums = unpacked(block_sums(Part(scores, 0, N, None, missed)))
        sample = carry_out_on(part, beside(plan, sums))
    return sample, cut_of(sample.scale.factor, -sample.scale.exponent)


def number(cut):
    return Fraction(cut[1]) * Fraction(2) ** cut[0]


@pytest.mark.parametrize("with_missed", [False, True])
@pytest.mark.parametrize("size", [1, 30, 150, 235])
@pytest.mark.parametrize("name", SCORES)
def test_a_draw_from_candidates_is_that_from_all_rows_where_the_cut_reaches_c(name, size, with_missed):
    scores = SCORES[name]
    if name == "ends of the float range":  # else of u = 0 and chances below the normal numbers weights would overflow
        size = max(size, 5)
    missed = np.where(rng.random(N) < 0.1, 0.0, rng.uniform(0.3, 1, N)) if with_missed else None
    if missed is not None and missed[scores > 0].sum() < size:
        size = int(missed[scores > 0].sum())
    everything = np.arange(N)
    whole, c = draw(scores, size, everything, missed)
    wide = 2.0 ** np.concatenate([np.linspace(-4, 4, 33), [-0.001, -0.0005, 0.0005, 0.001, 0.002]])
    reached = 0
    for times in wide:
        cut = cut_of(c[1] * times, c[0])
        kept, own = candidates(scores, COINS, cut, None)
        assert own == cut
        # All that may be certain is there.
        certain = [k for k in everything if scores[k] > 0 and Fraction(scores[k]) * number(cut) >= 1]
        assert set(certain) <= set(kept)
        found, c_found = draw(scores, size, kept, missed)
        assert reaches(cut, c_found) == (times > 1.00098), times
        if reaches(cut, c_found):
            reached += 1
            assert c_found == c
            assert found == whole
    assert reached > 16


@pytest.mark.parametrize("name", SCORES)
def test_where_there_are_too_many_the_smallest_keys_are_kept_and_the_cut_says_how_far(name):
    scores = SCORES[name]
    everything, _ = candidates(scores, COINS, EVERYTHING, None)
    assert set(everything) == set(np.flatnonzero(scores > 0))
    coins = [Fraction(u) for u in COINS]
    keys = {k: coins[k] / Fraction(scores[k]) for k in everything.tolist()}
    for most in (1, 30, 200):
        kept, cut = candidates(scores, COINS, EVERYTHING, most)
        assert len(kept) <= most
        left_out = [keys[k] for k in keys if k not in set(kept)]
        assert max((keys[k] for k in kept), default=0) <= min(left_out)
        if cut == NOTHING:  # more rows of u = 0 than may be kept
            assert sorted(left_out)[0] == 0
        elif name == "ends of the float range":  # next to 1.7e308 the others have no key in float64
            assert number(cut) < min(left_out)
        else:
            assert number(cut) == pytest.approx(float(min(left_out)), rel=1e-12)
            assert len(kept) == most
    for size in (5, 20, 60):
        whole, _ = draw(scores, size, np.arange(N), None)
        kept, cut = candidates(scores, COINS, EVERYTHING, 150)
        found, c = draw(scores, size, kept, None)
        if reaches(cut, c):
            assert found == whole


def test_rows_of_u_0_are_kept_whatever_their_chance_is_rounded_to():
    kept, _ = candidates(np.array([1e-300, 1e-300, 0.0]), np.array([0.0, 0.5, 0.0]), cut_of(0.5, -200), None)
    assert kept.tolist() == [0]


def test_cuts_compare_as_numbers_beyond_the_floats():
    values = [
        NOTHING,
        cut_of(5e-324, -3000),
        cut_of(1e-300),
        cut_of(0.75),
        cut_of(1.0),
        cut_of(1e300, 5000),
        EVERYTHING,
    ]
    assert values == sorted(values)
    assert cut_of(0.0) == NOTHING
    assert reaches(EVERYTHING, cut_of(1e308, 1000))
    assert not reaches(cut_of(1.0), cut_of(1.0))
    assert reaches(cut_of(1.0), cut_of(0.99))


@pytest.mark.parametrize("name", ["even", "skew", "a few huge", "zeros"])
@pytest.mark.parametrize("size", [5, 100, 220])
def test_the_expected_c_solves_its_equation(name, size):
    scores, weights = SCORES[name], rng.uniform(0.9, 3, N)
    c = expected_scale(scores, weights, size)

    def expected(t):
        return (weights * np.minimum(1, np.exp(t) * scores)).sum() - size

    assert np.log(c) == pytest.approx(brentq(expected, -60, 60), abs=1e-9)


def test_the_expected_c_of_too_few_rows_makes_all_certain_and_of_none_is_unknown():
    assert expected_scale(np.array([0.5, 2.0]), np.ones(2), 5) == 2.0
    assert expected_scale(np.array([0.5, 2.0]), np.array([1.0, 0.0]), 1) == 2.0
    assert expected_scale(np.zeros(3), np.ones(3), 1) == 0.0
    assert expected_scale(np.ones(3), np.zeros(3), 1) == 0.0
