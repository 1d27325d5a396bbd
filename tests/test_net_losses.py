"""Scores, jobs and losses of every network and model of the user with every loss that it allows; see test_law_table."""

import dask
import dask.array as da
import numpy as np
import pytest
from counting import same_bits
from nets import NETS, setting
from tables import LABELS, LOSSES, allowed

import dask_nlis as nlis
from dask_nlis import problem as problems
from dask_nlis.activations import Identity
from dask_nlis.models import is_layered

EPS = np.finfo(np.float64).eps

#: A loss with its link inside wants the linear predictor.
ALL = [
    (net, loss)
    for net, model in NETS.items()
    for loss in LOSSES
    if LOSSES[loss].takes == "prediction" or isinstance(getattr(model, "activation", None), Identity)
]


def integrated(net, loss):
    return not problems.has_closed_form(nlis.Problem(NETS[net], LOSSES[loss]), True)


def followed(net, loss):
    """Whether the ray of the net reaches the loss: no vertical tangent, and a corner of the slope only by its pieces."""
    return loss == "huber" and is_layered(NETS[net])


PAIRS = [
    (net, loss)
    for net, loss in ALL
    if not (loss in ("absolute", "huber") and integrated(net, loss)) or followed(net, loss)
]
every_pair = pytest.mark.parametrize(("net", "loss"), PAIRS)


pytestmark = [  # rows of very unlike sizes are part of the setting
    pytest.mark.filterwarnings("ignore::dask_nlis.ScaleWarning"),
    pytest.mark.filterwarnings("ignore::dask_nlis.RankAmbiguityWarning"),
]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def made(net, loss, labels, rng):
    """Problem, theta, x, y, and f at theta and at 0 by the definition."""
    problem = nlis.Problem(NETS[net], LOSSES[loss])
    theta, x, _ = setting(problem.model, rng, n=120)
    theta = theta / 4 if net == "user's wave" else theta
    y = allowed(problem.loss, LABELS[labels](problem.model.predict(theta, x), rng))
    f, at_zero = problem.model.predict(theta, x), problem.model.predict(np.zeros_like(theta), x)
    if y is not None:
        f, at_zero = problem.loss.root(f, y), problem.loss.root(at_zero, y)
    return problem, theta, x, y, f, at_zero


def test_the_table_has_every_model_and_every_loss():
    assert {net for net, _ in PAIRS} == set(NETS)
    assert {loss for _, loss in PAIRS} == set(LOSSES)
    assert {loss for _, loss in ALL if (_, loss) not in PAIRS} == {"absolute", "huber"}


@every_pair
def test_leverage_is_that_of_the_dense_svd(net, loss, rng):
    problem, theta, x, y, _, _ = made(net, loss, "noisy", rng)
    A = nlis.dual_matrix(problem, da.from_array(x, (50, x.shape[1])), y, theta=theta)
    F = A.to_dask_array().compute()
    np.testing.assert_allclose(nlis.norm_scores(A).compute(), (F**2).sum(axis=1), rtol=1e-12)
    factor = nlis.factorize(A)
    h = nlis.leverage_scores(A, factor).compute()
    columns = np.linalg.norm(F, axis=0)
    left, values, _ = np.linalg.svd(F / np.where(columns > 0, columns, 1.0), full_matrices=False)
    kept = values > 10 * F.shape[1] * EPS * values[0]
    assert factor.rank == kept.sum()
    assert h.sum() == pytest.approx(factor.rank, abs=1e-6)
    tolerance = 1e-12 + 100 * factor.condition * EPS
    np.testing.assert_allclose(h, (left[:, kept] ** 2).sum(axis=1), atol=tolerance)
    assert (factor.nodes > 0) == integrated(net, loss)


@pytest.mark.parametrize(
    ("net", "loss"),
    [pytest.param(*pair, marks=() if k % 3 == 0 else pytest.mark.slow) for k, pair in enumerate(PAIRS)],
)
def test_row_weights_are_repetitions(net, loss, rng):
    problem, theta, x, y, _, _ = made(net, loss, "noisy", rng)
    v = rng.integers(0, 3, size=len(x))
    owner = np.repeat(np.arange(len(x)), v)
    matrices = (
        nlis.dual_matrix(problem, x, y, theta=theta, sample_weight=v),
        nlis.dual_matrix(problem, x[owner], y[owner], theta=theta),
    )
    factors = [nlis.factorize(M, method="tsqr") for M in matrices]
    weighted, repeated = map(nlis.leverage_scores, matrices, factors)
    tolerance = 1e-12 + 100 * factors[1].condition * EPS
    np.testing.assert_allclose(weighted, np.bincount(owner, repeated, minlength=len(x)), atol=10 * tolerance)


#: No row has the corner of its loss on the ray.
LUCKY = {("phi on each unit", "huber")}


@pytest.mark.parametrize(("net", "loss"), [pair for pair in ALL if pair not in PAIRS])
def test_what_the_integral_does_not_reach_is_refused_with_its_residual(net, loss, rng):
    problem, theta, x, y, _, _ = made(net, loss, "equal to f", rng)
    A = nlis.dual_matrix(problem, x, y, theta=theta)
    if (net, loss) in LUCKY:
        assert nlis.factorize(A).identity_residual <= 1e-6
        return
    with pytest.raises((nlis.IdentityResidualError, nlis.ZeroLossSingularityError)) as e:
        nlis.factorize(A)
    assert len(str(e.value)) <= 300


@pytest.mark.filterwarnings("ignore::dask_nlis.ConvergenceWarning")  # a minimum on a kink is not stationary
@pytest.mark.parametrize("net", NETS)
def test_the_whole_job_needs_no_theta(net, rng):
    problem = nlis.Problem(NETS[net])
    theta, x, _ = setting(problem.model, rng, n=400)
    y = problem.model.predict(theta, x) + 0.01 * rng.normal(size=400)
    A = nlis.reference_matrix(problem, x, y)
    factor = nlis.factorize(A)
    assert A.shape[1] == len(factor.columns) == A.to_dask_array().shape[1] == problem.model.inputs(x).shape[1] + 1
    made = nlis.run(problem, x, y, size=200, seed=0, scores="leverage")
    assert np.isfinite(made.fit.loss)
    assert made.scores.sum() == pytest.approx(made.factor.rank, abs=1e-6)
    staged = nlis.run(problem, x, y, size=200, seed=0)
    assert np.isfinite(staged.fit.loss)
    assert staged.certificate.rank == staged.factor.rank
    assert bool(staged.why_one_stage) == (staged.pilot is None)


@every_pair
def test_total_loss_and_reference_rows_are_the_definition(net, loss, rng):
    problem, theta, x, y, f, at_zero = made(net, loss, "noisy", rng)
    assert nlis.total_loss(problem, x, y, theta) == pytest.approx(float((f**2).sum()), rel=1e-12)
    reference = nlis.reference_matrix(problem, x, y).to_dask_array().compute()
    assert same_bits(np.ascontiguousarray(reference[:, : x.shape[1]]), x)
    np.testing.assert_allclose(reference[:, -1], at_zero, rtol=1e-14, atol=1e-15)
