"""The paper's first figure: the cells that decide between the scores, on three data sets (minutes).

Medians of the log excess loss over 200 seeds; the thresholds leave three standard errors of a median where a
difference was measured at 100 to 500 seeds. Uses the functions of examples/paper_figure1.py.
"""

from functools import cache

import numpy as np
import pytest
import scripts

import dask_nlis as nlis

pytestmark = pytest.mark.slow

SEEDS = 200
WEIGHTED, IN_A_BALL, UNWEIGHTED = 0, 1, 2


@cache
def example():
    """The example as a module; it needs pandas and matplotlib."""
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    return scripts.example("paper_figure1")


@cache
def prepared(name, steep=False):
    return example().prepare(name, nlis.Swish(c1=0.04, c2=2, zeta=3) if steep else None)


@cache
def medians(name, score, size, scheme="multinomial"):
    return np.median(example().cell(prepared(name), score, size, SEEDS, scheme), axis=0)


@pytest.mark.parametrize(
    ("name", "mse"), [("insurance", 0.239726396), ("california", 0.393172117), ("diamonds", 0.084174537)]
)
def test_the_fit_on_all_rows_has_the_published_loss(name, mse):
    of = prepared(name)
    assert of.best.loss / len(of.y) == pytest.approx(mse, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "size", "below_linear", "below_uniform"),
    [("insurance", 134, -0.15, -0.25), ("california", 413, -0.25, -3.0), ("diamonds", 539, -0.1, -2.0)],
)
def test_nonlinear_leverage_beats_linear_leverage_beats_uniform(name, size, below_linear, below_uniform):
    mine, linear, uniform = (medians(name, score, size)[WEIGHTED] for score in ("LS-A", "LS-L", "UN"))
    assert mine - linear < below_linear
    assert mine - uniform < below_uniform


def test_without_weights_the_order_is_lost():
    weighted, _, unweighted, _ = medians("insurance", "LS-A", 134)
    assert unweighted - weighted > 0.7
    assert unweighted > medians("insurance", "LS-L", 134)[UNWEIGHTED]


def test_a_ball_saves_the_uniform_sample_from_its_worst():
    found = medians("california", "UN", 103)
    assert found[IN_A_BALL] - found[WEIGHTED] < -1.5


def test_slices_in_score_order_beat_independent_draws():
    assert (
        medians("insurance", "LS-A", 401, "stratified")[WEIGHTED] - medians("insurance", "LS-A", 401)[WEIGHTED] < -0.3
    )


def test_a_steep_activation_is_what_the_nonlinear_part_is_for():
    of = prepared("insurance", steep=True)
    labelled = np.column_stack([of.X, np.ones(len(of.y)), of.y])
    linear = nlis.leverage_scores(labelled, nlis.factorize(labelled))
    both = of._replace(scores={**of.scores, "LS-Ly": linear})
    mine, other = (np.median(example().cell(both, s, 134, SEEDS), axis=0)[WEIGHTED] for s in ("LS-A", "LS-Ly"))
    assert mine - other < -0.1


@pytest.mark.parametrize(("name", "size"), [("insurance", 134), ("california", 413), ("diamonds", 539)])
def test_scores_at_a_pilot_fit_cost_little(name, size):
    of = prepared(name)
    pilot = nlis.pilot(of.problems[1], of.X, of.y, 10 * len(of.best.theta), seed=0)
    dual = nlis.dual_matrix(of.problems[0], of.X, of.y, theta=pilot.theta)
    at_pilot = of._replace(scores={"pilot": nlis.leverage_scores(dual, nlis.factorize(dual))})
    found = np.median(example().cell(at_pilot, "pilot", size, SEEDS), axis=0)[WEIGHTED]
    assert found - medians(name, "LS-A", size)[WEIGHTED] < 0.35


@pytest.mark.parametrize("name", ["insurance", "california", "diamonds"])
@pytest.mark.parametrize("score", ["UN", "LS-L", "RN-L", "LS-A", "RN-A"])
def test_the_weighted_loss_of_a_sample_estimates_the_loss_on_all_rows(name, score):
    of = prepared(name)
    shares = []
    for seed in range(100):
        sample = nlis.draw(of.scores[score], 134, seed=seed)
        X, y = sample.take(of.X, of.y)
        shares.append(nlis.total_loss(of.problems[0], X, y, of.best.theta, sample_weight=sample.weights) / of.best.loss)
    assert abs(np.mean(shares) - 1) < 4 * np.std(shares) / 10
