"""Scores at many checkpoints, compared in one read or two: against all scores held at once."""

import dask
import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, Tasks, no_compute, rows_of
from scipy.stats import spearmanr

import dask_nlis as nlis
from dask_nlis.diagnostics import drift_sums

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(1, 2)))
N = 740
X, Y = rows_of(81, N, 3)
BY = ("leverage", "norm", "loss")
PAIRS = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]


def checkpoints(rng, p=4, k=4):
    """A path that settles down."""
    return np.cumsum(rng.normal(size=(k, p)) * np.array([1.0, 0.5, 0.1, 1e-3])[:k, None], axis=0)


def scores_of(problem, x, y, theta, by, **options):
    A = nlis.dual_matrix(problem, x, y, theta=theta, **options)
    if by == "leverage":
        return nlis.leverage_scores(A, nlis.factorize(A))
    return {"norm": nlis.norm_scores, "loss": nlis.loss_scores}[by](A)


def rounded(scores):
    """Scores down to eighths of an octave, by their binary digits."""
    octave = 2.0 ** np.floor(np.log2(np.where(scores > 0, scores, 1.0)))
    return np.where(scores > 0, np.floor(scores / octave * 8) / 8 * octave, 0.0)


def by_definition(scores, top):
    """Comparisons of all pairs from whole scores (k, n)."""
    tau = scores / scores.sum(axis=1, keepdims=True)
    heads = [set(np.lexsort((np.arange(len(t)), -t))[:top]) for t in tau]
    found = {"rank_correlation": [], "top_overlap": [], "affinity": [], "beta": []}
    for i, j in PAIRS:
        found["rank_correlation"].append(spearmanr(rounded(scores[i]), rounded(scores[j])).statistic)
        found["top_overlap"].append(len(heads[i] & heads[j]) / top)
        found["affinity"].append(np.sqrt(tau[i] * tau[j]).sum())
        there = tau[j] > 0
        found["beta"].append((tau[i][there] / tau[j][there]).min())
    return found


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("rows", [N, 20])
def test_pairs_are_compared_by_the_definitions(by, rows, rng):
    thetas = checkpoints(rng)
    weight = rng.uniform(0.5, 2, N)
    found = nlis.drift(PROBLEM, da.from_array(X, (rows, 3)), Y, thetas, by=by, top=25, sample_weight=weight)
    scores = np.array([scores_of(PROBLEM, X, Y, theta, by, sample_weight=weight) for theta in thetas])
    assert found.pairs.tolist() == [list(pair) for pair in PAIRS]
    for name, expected in by_definition(scores, 25).items():
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(found.losses, nlis.total_loss(PROBLEM, X, Y, thetas, sample_weight=weight), rtol=1e-12)
    assert (found.by, found.top, found.n_rows, len(found)) == (by, 25, N, 5)
    # The path settles: neighbours get closer, and nothing here is 1 for want of anything to compare.
    assert found.beta[0] < found.beta[1] < found.beta[2] < 1
    assert found.beta[0] < 0.8


def test_rounding_of_ranks_is_finer_than_what_they_tell(rng):
    thetas = checkpoints(rng)
    scores = np.array([scores_of(PROBLEM, X, Y, theta, "leverage") for theta in thetas])
    found = nlis.drift(PROBLEM, X, Y, thetas)
    exact = [spearmanr(scores[i], scores[j]).statistic for i, j in PAIRS]
    np.testing.assert_allclose(found.rank_correlation, exact, atol=0.01)


def test_bins_are_eighths_of_an_octave_at_every_size():
    scores = np.array([0.0, 5e-324, 1.0, 1.1249, 1.125, 1.99, 2.0, 1e300])
    bins = drift_sums.binned(scores)
    assert (np.diff(bins) >= 0).all()
    assert (bins[2] == bins[3], bins[3] + 1 == bins[4], bins[5] - bins[2], bins[6] - bins[2]) == (True, True, 7, 8)
    assert bins[0] < bins[1] - 1_000_000


@pytest.mark.parametrize(("by", "reads"), [("leverage", 2), ("norm", 1), ("loss", 1)])
def test_reads_do_not_grow_with_the_checkpoints(by, reads, rng):
    counted = CountingArray(X), CountingArray(Y)
    x, y = (array.dask(20) for array in counted)
    for k in (2, 4):
        with Tasks() as tasks:
            found = nlis.drift(PROBLEM, x, y, checkpoints(rng, k=k), by=by)
        assert [array.reads() for array in counted] == [reads] * 2
        assert found.reads == reads
        assert tasks.labels["nlis-factor"] == reads * 37


def test_chunks_and_schedulers_do_not_matter(rng):
    thetas = checkpoints(rng)
    whole = nlis.drift(PROBLEM, X, Y, thetas)
    cut = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            cut.append(nlis.drift(PROBLEM, da.from_array(X, (20, 3)), Y, thetas))
    assert cut[0] == cut[1]
    assert cut[0].top_overlap.tolist() == whole.top_overlap.tolist()
    np.testing.assert_allclose(cut[0].beta, whole.beta, rtol=1e-10)
    np.testing.assert_allclose(cut[0].rank_correlation, whole.rank_correlation, rtol=1e-12)


@pytest.mark.parametrize("by", BY)
def test_sums_of_a_block_are_those_of_its_parts(by, rng, monkeypatch):
    thetas = checkpoints(rng)
    whole = nlis.drift(PROBLEM, X, Y, thetas, by=by)
    monkeypatch.setattr(drift_sums, "_HELD", 1)
    monkeypatch.setattr("dask_nlis.device.memory._SUB_BLOCK_BYTES", {"cpu": 1})
    parts = nlis.drift(PROBLEM, X, Y, thetas, by=by)
    for name in ("losses", "beta", "affinity", "rank_correlation", "top_overlap"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-11, err_msg=name)


def test_the_highest_rows_are_those_of_a_full_sort_with_ties_by_row(rng):
    scores = rng.integers(0, 5, (3, 400)) / 5
    numbers = np.tile(rng.permutation(400), (3, 1))
    rows, heights = drift_sums.highest(numbers, scores, 30)
    for line in range(3):
        pairs = sorted(zip(-scores[line], numbers[line], strict=True))[:30]
        assert rows[line].tolist() == [row for _, row in pairs]
        assert heights[line].tolist() == [-score for score, _ in pairs]
    assert drift_sums.highest(numbers[:, :2], scores[:, :2], 3)[0][:, 2].tolist() == [-1] * 3


def test_equal_checkpoints_serve_each_other_and_a_net_is_compared_as_well(rng):
    problem = nlis.Problem(nlis.ReluNetwork(3), nlis.LogisticLoss())
    theta = rng.normal(size=12)
    y = (Y > 0).astype(float)
    found = nlis.drift(problem, X, y, [theta, theta, 2 * theta])
    for values in (found.rank_correlation, found.top_overlap, found.affinity, found.beta):
        assert values[0] == pytest.approx(1, abs=1e-12)
        assert values[1] <= values[0]
    scores = np.array([scores_of(problem, X, y, theta * c, "leverage") for c in (1, 2)])
    tau = scores / scores.sum(axis=1, keepdims=True)
    assert found.beta[1] == pytest.approx((tau[0] / tau[1]).min(), rel=1e-8)


def test_a_row_that_earlier_scores_cannot_draw_makes_beta_zero():
    x = np.vstack([np.eye(2), [[1.0, 1.0]]])
    problem = nlis.Problem(nlis.Linear(intercept=False))
    found = nlis.drift(problem, x, np.array([1.0, 2.0, 3.0]), [[1.0, 0.0], [0.5, 0.5], [1.0, 2.0]], by="loss", top=1)
    # Losses 0, 4, 4; then 0.25, 2.25, 4; then none at all.
    assert found.losses.tolist() == [8.0, 6.5, 0.0]
    assert found.beta.tolist() == [0.0, 0.0, 0.0]
    assert found.affinity[0] == pytest.approx((3 + 4) / np.sqrt(8 * 6.5))
    assert np.isnan(found.rank_correlation[1:]).all()
    assert found.top_overlap.tolist()[0] == 0.0


def test_dropped_and_weightless_rows_are_not_compared(rng):
    thetas = checkpoints(rng)
    x, weight = X.copy(), np.ones(N)
    x[[0, 7], 1], weight[[3, 700]] = np.nan, 0.0
    away = [0, 3, 7, 700]
    found = nlis.drift(PROBLEM, da.from_array(x, (50, 3)), Y, thetas, missing="drop", sample_weight=weight)
    left = nlis.drift(PROBLEM, np.delete(X, away, axis=0), np.delete(Y, away), thetas)
    assert found.n_rows == left.n_rows == N - 4
    for name in ("losses", "beta", "affinity", "rank_correlation", "top_overlap"):
        np.testing.assert_allclose(getattr(found, name), getattr(left, name), rtol=1e-9, err_msg=name)
    with pytest.raises(nlis.NonFiniteError, match=r"column 1 .* row 0 \(2 rows in all\)"):
        nlis.drift(PROBLEM, x, Y, thetas)


def test_a_tidy_frame_and_a_line(rng):
    pytest.importorskip("pandas")
    found = nlis.drift(PROBLEM, X, Y, checkpoints(rng))
    frame = found.to_frame()
    assert list(frame.columns) == [
        "from", "to", "loss_from", "loss_to", "rank_correlation", "top_overlap", "affinity", "beta",
    ]  # fmt: skip
    assert frame[["from", "to"]].values.tolist() == [list(pair) for pair in PAIRS]
    assert frame.loss_to.tolist() == found.losses[found.pairs[:, 1]].tolist()
    assert repr(found).startswith("Drift(checkpoints=4, by='leverage', losses='")
    assert f"beta_to_last={found.beta[3]:.6g}" in repr(found)


@pytest.mark.parametrize(
    ("thetas", "options", "kind", "message"),
    [
        ([[0.0] * 4], {}, nlis.InputError, r"thetas have shape \(1, 4\)"),
        ([0.0] * 4, {}, nlis.InputError, r"thetas have shape \(4,\)"),
        ([[0.0] * 4, [0.0]], {}, nlis.InputError, "unequal lengths"),
        ([[0.0] * 3] * 2, {}, nlis.InputError, r"thetas\[0\] has shape \(3,\).*expects \(4,\)"),
        ([[0.0] * 4, [np.nan] * 4], {}, nlis.InputError, r"thetas\[1\]\[0\]=nan"),
        ([[0.0] * 4] * 2, {"by": "rank"}, nlis.InputError, "by='rank' is not known"),
        ([[0.0] * 4] * 2, {"top": 0}, nlis.InputError, "top=0"),
        ([[0.0] * 4] * 2, {"top": 1.5}, nlis.InputTypeError, "top=1.5"),
        ([[0.0] * 4] * 2, {"missing": "keep"}, nlis.InputError, "missing='keep'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(thetas, options, kind, message):
    with no_compute(), pytest.raises(kind, match=message) as caught:
        nlis.drift(PROBLEM, X, Y, thetas, **options)
    assert len(str(caught.value)) <= 300
    with no_compute(), pytest.raises(nlis.InputTypeError, match="y is None"):
        nlis.drift(PROBLEM, X, None, [[0.0] * 4] * 2)
