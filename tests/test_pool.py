"""Samples joined: pooled over the same rows, concatenated over data sets, and kept in files."""

import json

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, no_compute

import dask_nlis as nlis

N = 60
SCHEMES = ("multinomial", "stratified", "poisson", "systematic")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def scores(rng):
    """Two scores that disagree; neither reaches all rows, together they do."""
    a, b = rng.lognormal(size=N), rng.lognormal(size=N)
    a[:5] = b[-5:] = 0.0
    return [a, b]


@pytest.fixture
def losses(rng):
    return rng.lognormal(size=N)


def mean_and_error(estimates):
    return np.mean(estimates), np.std(estimates, ddof=1) / np.sqrt(len(estimates))


@pytest.mark.parametrize(
    "schemes", [("multinomial", "multinomial"), ("stratified", "poisson"), ("systematic", "multinomial")]
)
def test_a_balanced_pool_estimates_sums_without_bias_and_says_its_variance(schemes, scores, losses):
    estimates, variances = [], []
    for seed in range(500):
        parts = [
            nlis.draw(s, 8 + 4 * k, scheme=c, seed=2 * seed + k)
            for k, (s, c) in enumerate(zip(scores, schemes, strict=True))
        ]
        pooled = nlis.pool(parts, scores)
        assert pooled.counts.sum() == sum(part.counts.sum() for part in parts)
        estimates.append(pooled.weights @ losses[pooled.indices])
        variances.append(pooled.variance_weights @ losses[pooled.indices] ** 2)
    mean, error = mean_and_error(estimates)
    assert abs(mean - losses.sum()) < 4 * error  # all rows, those out of reach of one score among them
    # The variance weights are those of uncentred, unrelated draws: never less than the true variance.
    assert np.var(estimates) < 1.1 * np.mean(variances)


def test_poisson_terms_of_a_pool_estimate_the_variance(scores, losses):
    estimates, variances = [], []
    for seed in range(500):
        parts = [nlis.draw(s, 10, scheme="poisson", seed=2 * seed + k) for k, s in enumerate(scores)]
        pooled = nlis.pool(parts, scores)
        estimates.append(pooled.weights @ losses[pooled.indices])
        variances.append(pooled.variance_weights @ losses[pooled.indices] ** 2)
    mean, error = mean_and_error(variances)
    assert np.var(estimates, ddof=1) == pytest.approx(mean, rel=0.25)
    assert error < 0.1 * mean


def test_a_union_has_each_row_once_with_the_chance_of_either_sample(scores, losses):
    estimates, sizes = [], []
    pi = [nlis.draw(s, 12, scheme="poisson", seed=0).expected_count(s) for s in scores]
    either = 1 - (1 - pi[0]) * (1 - pi[1])
    for seed in range(500):
        parts = [nlis.draw(s, 12, scheme="poisson", seed=2 * seed + k) for k, s in enumerate(scores)]
        union = nlis.pool(parts, scores, combine="union")
        assert union.scheme == "poisson"
        np.testing.assert_array_equal(union.indices, np.union1d(parts[0].indices, parts[1].indices))
        np.testing.assert_allclose(union.probabilities, either[union.indices], rtol=1e-12)
        np.testing.assert_array_equal(union.counts, 1)
        estimates.append(union.weights @ losses[union.indices])
        sizes.append(len(union))
    mean, error = mean_and_error(estimates)
    assert abs(mean - losses.sum()) < 4 * error
    mean, error = mean_and_error(sizes)
    assert abs(mean - either.sum()) < 4 * error


def adaptive(seed, combine, losses):
    """The second scores are made from the first sample, a design for which only stagewise is free of bias."""
    first_scores = np.ones(N)
    first = nlis.draw(first_scores, 12, seed=2 * seed)
    second_scores = np.full(N, 0.2)
    second_scores[first.indices] += losses[first.indices]
    second = nlis.draw(second_scores, 12, seed=2 * seed + 1)
    pooled = nlis.pool(
        [first, second], None if combine == "stagewise" else [first_scores, second_scores], combine=combine
    )
    return pooled.weights @ losses[pooled.indices]


def test_stagewise_is_unbiased_where_scores_depend_on_earlier_draws(losses):
    mean, error = mean_and_error([adaptive(seed, "stagewise", losses) for seed in range(800)])
    assert abs(mean - losses.sum()) < 4 * error


@pytest.mark.slow
def test_the_bias_of_adaptive_pooling_is_small_at_twenty_times_the_parameters():
    # n = 2000, p = 6: 60 rows by reference leverage, 60 more by the leverage at the fit to them.
    rng = np.random.default_rng(0)
    X = rng.standard_t(4, size=(2000, 5))
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(3.0))
    y = np.tanh(X @ rng.normal(size=5) * 0.4) + 0.2 * rng.normal(size=2000)
    at = np.zeros(6)
    loss = nlis.total_loss(problem, X, y, at)
    rows = (np.tanh(0.0) - y) ** 2
    reference = nlis.reference_matrix(problem, X, y)
    first_scores = nlis.leverage_scores(reference, nlis.factorize(reference))
    found = {"balance": [], "stagewise": []}
    for seed in range(400):
        first = nlis.draw(first_scores, 60, seed=2 * seed)
        X_s, y_s = first.take(X, y)
        theta = nlis.refit(problem, X_s, y_s, first, n_starts=1).theta
        A = nlis.dual_matrix(problem, X, y, theta=theta)
        second_scores = nlis.leverage_scores(A, nlis.factorize(A))
        parts = [first, nlis.draw(second_scores, 60, seed=2 * seed + 1)]
        for combine, estimates in found.items():
            pooled = nlis.pool(parts, [first_scores, second_scores], combine=combine)
            estimates.append(pooled.weights @ rows[pooled.indices] / loss)
    mean, error = mean_and_error(found["balance"])
    assert abs(mean - 1) < 0.01 + 3 * error
    mean, error = mean_and_error(found["stagewise"])
    assert abs(mean - 1) < 4 * error


def test_scores_are_read_in_the_blocks_of_the_drawn_rows_only(rng):
    values = [rng.random(10_000) + 0.5 for _ in range(2)]
    parts = [nlis.draw(v, 3, seed=k) for k, v in enumerate(values)]
    counted = [CountingArray(v) for v in values]
    pooled = nlis.pool(parts, [c.dask(100) for c in counted])
    drawn = np.bincount(pooled.indices // 100, minlength=100) > 0
    assert drawn.sum() < 10
    for source in counted:
        np.testing.assert_array_equal(source.rows.reshape(100, 100), np.repeat(drawn[:, None], 100, axis=1))
    assert pooled == nlis.pool(parts, values)


def test_stages_draws_and_rows_of_a_pool_are_those_of_its_samples(scores):
    parts = [nlis.draw(s, 10, scheme=c, seed=3) for s, c in zip(scores, ("multinomial", "stratified"), strict=True)]
    for combine, given in (("balance", scores), ("stagewise", None)):
        pooled = nlis.pool(parts, given, combine=combine)
        assert pooled.scheme == "pooled"
        assert pooled.n_draws == 20
        for k, part in enumerate(parts):
            np.testing.assert_array_equal(pooled.indices[pooled.draws[pooled.stage == k]], part.indices[part.draws])
        np.testing.assert_allclose(pooled.weights, pooled.counts / (pooled.n_draws * pooled.probabilities), rtol=1e-14)
    with pytest.raises(nlis.InputError, match="probabilities"):
        pooled.expected_count(scores[0])


def test_one_sample_pooled_with_another_of_the_same_scores_is_one_of_twice_the_size(scores):
    parts = [nlis.draw(scores[0], 10, seed=k) for k in range(2)]
    pooled = nlis.pool(parts, [scores[0], scores[0]])
    share = scores[0] / scores[0].sum()
    np.testing.assert_allclose(pooled.weights, pooled.counts / (20 * share[pooled.indices]), rtol=1e-12)
    np.testing.assert_allclose(pooled.variance_weights, pooled.weights**2 / pooled.counts, rtol=1e-12)
    np.testing.assert_allclose(nlis.pool(parts, combine="stagewise").weights, pooled.weights, rtol=1e-12)


def good(scores):
    return [nlis.draw(scores[0], 5, seed=1), nlis.draw(scores[1], 5, seed=2)]


REFUSED = {
    "one sample": (lambda p, s: nlis.pool(p[:1], s), nlis.InputError, "samples has 1 sample; give pool two or more"),
    "no list": (lambda p, s: nlis.pool(p[0], s), nlis.InputError, "samples has 1 sample"),
    "something else": (lambda p, s: nlis.pool([p[0], 3], s), nlis.InputTypeError, "samples hold int"),
    "a number": (lambda p, s: nlis.concat(3), nlis.InputTypeError, "samples hold int"),
    "equal seed and scheme": (
        lambda p, s: nlis.pool([p[0], p[0]], [s[0], s[0]]),
        nlis.InputError,
        "seed=1 and scheme='multinomial'",
    ),
    "other rows": (
        lambda p, s: nlis.pool([p[0], nlis.draw(s[1][:30], 5, seed=3)], s),
        nlis.InputError,
        "drawn from 60, 30 rows",
    ),
    "scores missing": (lambda p, s: nlis.pool(p), nlis.InputError, "scores is None for 2 samples"),
    "one score": (lambda p, s: nlis.pool(p, s[:1]), nlis.InputError, "scores is 1 for 2 samples"),
    "scores swapped": (lambda p, s: nlis.pool(p, s[::-1]), nlis.InputError, r"scores\[0\] are not those sample 0"),
    "scores of other rows": (lambda p, s: nlis.pool(p, [s[0][:30], s[1]]), nlis.InputError, r"scores\[0\] has 30 rows"),
    "groups": (
        lambda p, s: nlis.pool([nlis.draw(s[0], 5, by=np.arange(N) % 2, seed=3), p[1]], s),
        nlis.InputError,
        "sample 0 was drawn by groups",
    ),
    "unknown way": (lambda p, s: nlis.pool(p, s, combine="mean"), nlis.InputError, "combine='mean' is not known"),
    "union of multinomial": (lambda p, s: nlis.pool(p, s, combine="union"), nlis.InputError, "is for poisson samples"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_pooled_is_refused_in_one_line(case, scores):
    call, error, says = REFUSED[case]
    with pytest.raises(error, match=says) as e:
        call(good(scores), scores)
    assert "\n" not in str(e.value)
    assert len(str(e.value)) <= 300


def test_joined_samples_keep_the_scheme_of_every_stage(scores):
    parts = {c: nlis.draw(scores[0], 9, scheme=c, seed=k) for k, c in enumerate(SCHEMES)}
    pooled = nlis.pool(list(parts.values())[:3], combine="stagewise")
    assert pooled.stage_schemes == SCHEMES[:3]
    again = nlis.concat([pooled, parts["systematic"]])
    assert (again.scheme, again.stage_schemes) == ("pooled", SCHEMES)
    for k, part in enumerate(parts.values()):
        offset = N if k == 3 else 0
        np.testing.assert_array_equal(again.indices[again.draws[again.stage == k]], part.indices[part.draws] + offset)
    alike = nlis.concat([parts["poisson"], parts["poisson"]])
    assert (alike.scheme, alike.stage_schemes) == ("poisson", ())
    assert parts["poisson"].stage_schemes == ()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_concatenated_samples_estimate_the_sum_over_both_data_sets(scheme, scores, losses, rng):
    other = rng.lognormal(size=N)
    values = np.concatenate([losses, other])
    X = np.arange(2.0 * N)
    for k in range(3):
        parts = [nlis.draw(s + 1.0, 10, scheme=scheme, seed=2 * k + i) for i, s in enumerate(scores)]
        with no_compute():
            both = nlis.concat(parts)
        expected = sum(p.weights @ v[p.indices] for p, v in zip(parts, (losses, other), strict=True))
        assert both.weights @ values[both.indices] == pytest.approx(expected, rel=1e-13)
        np.testing.assert_array_equal(both.take(da.from_array(X, chunks=25)), both.indices)
        assert (both.n_rows, both.n_draws, both.scheme) == (2 * N, 20, scheme)
        assert set(both.stage) == {0, 1}
        scale = both.n_draws if scheme in ("multinomial", "stratified") else 1
        np.testing.assert_allclose(both.weights, both.counts / (scale * both.probabilities), rtol=1e-13)
        np.testing.assert_array_equal(both.variance_weights, np.concatenate([p.variance_weights for p in parts]))


# -- files -------------------------------------------------------------------------------------------------------------

FORMATS = ["csv", "zarr", pytest.param("parquet", marks=pytest.mark.adapters)]


def every_kind(scores):
    parts = good(scores)
    labels = np.arange(N) % 3
    return {
        **{scheme: nlis.draw(scores[0], 9, scheme=scheme, mix=0.1, seed=4) for scheme in SCHEMES},
        "pooled": nlis.pool(parts, scores),
        "union": nlis.pool(
            [nlis.draw(s, 9, scheme="poisson", seed=k) for k, s in enumerate(scores)], scores, combine="union"
        ),
        "concat": nlis.concat(parts),
        "groups": nlis.draw(scores[0], 12, by=labels, seed=1),
        "names": nlis.draw(da.from_array(scores[0], chunks=7), 9, seed=2),
        "given": nlis.Sample.from_probabilities([3, 1, 3], [0.5, 0.25, 0.5], n_rows=9),
    }


@pytest.mark.parametrize("ending", FORMATS)
def test_a_sample_comes_back_from_its_file_in_every_bit(ending, scores, tmp_path):
    for name, sample in every_kind(scores).items():
        path = tmp_path / f"{name}.{ending}"
        sample.save(path)
        again = nlis.Sample.load(str(path))
        assert again == sample, name
        if name in SCHEMES:
            np.testing.assert_array_equal(again.expected_count(scores[0]), sample.expected_count(scores[0]))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{name}.{ending}" for name in every_kind(scores))


@pytest.mark.parametrize("ending", FORMATS)
def test_an_existing_file_is_kept_unless_told_otherwise(ending, scores, tmp_path):
    path = tmp_path / f"sample.{ending}"
    first, second = good(scores)
    first.save(path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        second.save(path)
    assert nlis.Sample.load(path) == first
    second.save(path, overwrite=True)
    assert nlis.Sample.load(path) == second
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_save_that_fails_leaves_what_was_there(scores, tmp_path, monkeypatch):
    path = tmp_path / "sample.csv"
    first, second = good(scores)
    first.save(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("csv.writer", full)
    with pytest.raises(OSError, match="No space left"):
        second.save(path, overwrite=True)
    monkeypatch.undo()
    assert nlis.Sample.load(path) == first
    assert [p.name for p in tmp_path.iterdir()] == ["sample.csv"]


def test_files_that_hold_no_sample_are_refused_in_one_line(scores, tmp_path):
    sample = good(scores)[0]
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        nlis.Sample.load(tmp_path / "nothing.csv")
    with pytest.raises(FileNotFoundError, match="folder"):
        sample.save(tmp_path / "nowhere" / "sample.csv")
    for path in (tmp_path / "sample", tmp_path / "sample.npz"):
        with pytest.raises(nlis.InputError, match=r"ends in \.zarr, \.parquet, \.csv"):
            sample.save(path)
    with pytest.raises(nlis.InputTypeError, match="path is int"):
        sample.save(3)
    path = tmp_path / "other.csv"
    for text in ("", "a,b\n1,2\n", "# {}\nrow,stage\n1,2\n", "# {not json\nrow\n", f"# {json.dumps({'noun': 'Fit'})}\nrow,stage,probability,weight,variance_weight\n"):  # fmt: skip
        path.write_text(text)
        with pytest.raises(nlis.InputError) as e:
            nlis.Sample.load(path)
        assert "\n" not in str(e.value)
        assert len(str(e.value)) <= 300
