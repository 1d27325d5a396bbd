"""Networks refitted in the paper's set on drawings, against the minimum that a weight decay finds on its sphere."""

import warnings

import numpy as np
import pytest
import scripts
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import dask_nlis as nlis


@pytest.fixture(scope="module")
def pixels():
    return scripts.training().load()


def decayed(model, X, y, w, decay, seed):
    """Minimum of weighted loss + decay |theta|^2 by L-BFGS from a random start."""
    rng = np.random.default_rng(seed)
    loss = nlis.LogisticLoss()

    def value(theta):
        return w @ loss.value(model.predict(theta, X), y) + decay * theta @ theta

    def gradient(theta):
        slopes = loss.derivative(model.predict(theta, X), y)
        return model.jacobian(theta, X).T @ (w * slopes) + 2 * decay * theta

    start = rng.standard_normal(model.n_parameters(X.shape[1])) / 4
    return minimize(value, start, jac=gradient, method="L-BFGS-B", options={"maxiter": 400}).x


@pytest.mark.slow
@pytest.mark.parametrize(("units", "n_starts"), [(2, 5), (4, 2)])
def test_a_network_is_refitted_in_the_papers_set(units, n_starts, pixels):
    X, y = pixels
    model, loss = nlis.ReluNetwork(units), nlis.LogisticLoss()
    # Weights of drawn rows, by the leverage of the reference matrix.
    reference = nlis.reference_matrix(nlis.Problem(model, loss), X, y)
    sample = nlis.draw(nlis.leverage_scores(reference, nlis.factorize(reference)), 600, seed=1)
    X_s, y_s = sample.take(X, y)
    with threadpool_limits(1):
        others = [decayed(model, X_s, y_s, sample.weights, 10.0, seed) for seed in range(5)]
        # A minimum with a decay is one on the sphere of its own length; all lie in the ball of the longest.
        lower, budget = 0.25, max(other @ other for other in others)
        constraint = nlis.AmplitudeBand(lower, budget)
        problem = nlis.Problem(model, loss, constraint=constraint)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nlis.ConvergenceWarning)
            fit = nlis.refit(problem, X_s, y_s, sample, n_starts=n_starts)
            again = nlis.refit(problem, X_s, y_s, sample, start=others[0], n_starts=1)

    def value(theta):
        return sample.weights @ loss.value(model.predict(theta, X_s), y_s)

    for found in (fit, again):
        assert (model.unpack(found.theta)["a"] ** 2 >= lower * (1 - 1e-8)).all()
        assert found.theta @ found.theta <= budget * (1 + 1e-8)
        assert found.loss == pytest.approx(value(found.theta), rel=1e-10)
        # Minima of such networks lie in kinks, of which the verdict says that no slope vanishes there.
        assert found.ok or "minimum in a kink" in found.reasons[0]
    # Local optima differ by half of the loss, and which start finds the best of them is chance: a fit from a few
    # starts has to do as well as one descent does in the median.
    assert fit.loss <= np.median([value(other) for other in others])
    positions = tuple(model.unpack(np.arange(len(fit.theta)))["a"].tolist())
    inside = nlis.AmplitudeBand(lower, budget, positions).project(others[0])
    assert again.loss <= value(inside) * (1 + 1e-12)
    assert np.mean((model.predict(fit.theta, X) > 0) == y) > 0.8
    assert "|theta|^2 at the budget" in " ".join(fit.active)
