"""A Poisson stage beside earlier ones: the union has as many rows as asked for, on average, and estimates without bias."""

import dask
import dask.array as da
import numpy as np
import pytest
from scipy.optimize import brentq

import dask_nlis as nlis
from dask_nlis.sampling import Stage, draw_beside, draw_held

rng = np.random.default_rng(12)
FIRST = rng.lognormal(sigma=2, size=400)
SCORES = {
    "like the first": FIRST * rng.uniform(0.5, 2, 400),
    "unlike the first": rng.lognormal(sigma=2, size=400),
    "equal": np.ones(400),
    "with zeros": np.where(rng.random(400) < 0.3, 0.0, rng.lognormal(sigma=3, size=400)),
    "a few huge ones": np.concatenate([rng.uniform(size=380), 1e9 * rng.uniform(0.1, 1, 20)]),
    "ends of the float range": np.concatenate([[1.7e308, 5e-324, 1e-310], rng.lognormal(sigma=2, size=397)]),
}


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def stages(scores, first_size, n_more, chunks=400, seed=3):
    """The first stage and the one beside it, with the lazy scores of both."""
    before, after = (da.from_array(values, chunks) for values in (FIRST, scores))
    first = draw_held(before, first_size, "poisson", seed, 0)
    return first, draw_beside(after, [Stage(first, before)], n_more, seed, 1)


@pytest.mark.parametrize(("first_size", "n_more"), [(10, 30), (60, 1), (120, 100), (200, 120)])
@pytest.mark.parametrize("name", SCORES)
def test_the_union_has_as_many_rows_as_asked_for_on_average(name, first_size, n_more):
    scores = SCORES[name]
    first, second = stages(scores, first_size, n_more)
    missed, chance = 1 - first.expected_count(FIRST), second.expected_count(scores)
    if n_more > (reachable := missed[scores > 0].sum()):
        pytest.fail(f"only {reachable} rows are left")
    assert (missed * chance).sum() == pytest.approx(n_more, rel=1e-12)
    # The definition, solved by another library: c of min(1, c score).
    with np.errstate(over="ignore"):
        relative = scores / np.median(scores[scores > 0])
        c = np.exp(brentq(lambda t: (missed * np.minimum(1, np.exp(t) * relative)).sum() - n_more, -700, 700))
        np.testing.assert_allclose(chance, np.minimum(1, c * relative), rtol=1e-9, atol=1e-300)
    assert second.n_draws == n_more
    assert set(second.stage) == {1}


@pytest.mark.parametrize("chunks", [1, 7, 100])
@pytest.mark.parametrize("name", SCORES)
def test_the_stages_do_not_depend_on_chunks(name, chunks):
    assert stages(SCORES[name], 60, 80, chunks) == stages(SCORES[name], 60, 80)


def test_samples_of_one_seed_are_nested_in_size():
    smaller, larger = (stages(SCORES["unlike the first"], 60, n_more)[1] for n_more in (40, 120))
    assert set(smaller.indices) < set(larger.indices)


def test_weighted_sums_over_the_union_estimate_sums_without_bias():
    scores, losses = SCORES["unlike the first"], rng.lognormal(size=400)
    sums, sizes = [], []
    for seed in range(500):
        union = nlis.pool(stages(scores, 40, 60, seed=seed), [FIRST, scores], combine="union")
        sums.append(union.weights @ losses[union.indices])
        sizes.append(len(union))
    for found, expected in ((sums, losses.sum()), (sizes, 100)):
        assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(500)


def test_all_that_is_left_may_be_asked_for_and_no_more():
    scores = np.where(np.arange(400) < 200, FIRST, 0.0)
    lazy, before = da.from_array(scores, 100), da.from_array(FIRST, 100)
    first = draw_held(da.from_array(np.where(np.arange(400) < 200, 0.0, FIRST), 100), 50, "poisson", 3, 0)
    every = draw_beside(lazy, [Stage(first, before * (np.arange(400) >= 200))], 200, 3, 1)
    assert every.indices.tolist() == list(range(200))
    with pytest.raises(nlis.InputError, match=r"201 rows besides .* only 200.0 of 200 rows"):
        draw_beside(lazy, [Stage(first, before * (np.arange(400) >= 200))], 201, 3, 1)
