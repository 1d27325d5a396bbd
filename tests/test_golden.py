"""Golden values of four real data sets: the fit to all rows, and seven scores at its theta."""

import dask.array as da
import numpy as np
import pytest
from datasets import NAMES, golden, load

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))

every_dataset = pytest.mark.parametrize("name", NAMES)

#: MSE of the fit to all rows, where it is known to nine digits from elsewhere.
MSE = {"insurance": 0.239726396, "california": 0.393172117, "diamonds": 0.084174537}


@pytest.fixture(scope="module")
def fits():
    """The library's own fits to all rows, made once each."""
    made = {}

    def fit(name):
        if name not in made:
            X, y = load(name)
            made[name] = nlis.refit(PROBLEM, X, y, np.ones(len(y)), n_starts=2)
        return made[name]

    return fit


def _tau(which, X, y, theta):
    """A score by the name the golden values give it: LS leverage, RN row norms; -L linear, -A adjoint, y with label."""
    kind, _, rows = which.partition("-")
    lazy = da.from_array(X, chunks=(5000, X.shape[1]))
    A = {
        "L": lambda: lazy,
        "Ly": lambda: nlis.reference_matrix(PROBLEM, lazy, y),
        "A": lambda: nlis.dual_matrix(PROBLEM, lazy, y, theta=theta),
        "A-noy": lambda: nlis.dual_matrix(PROBLEM, lazy, theta=theta),
    }[rows]()
    scores = (nlis.leverage_scores(A, nlis.factorize(A)) if kind == "LS" else nlis.norm_scores(A)).compute()
    return scores / scores.sum()


@every_dataset
def test_fit_to_all_rows_reaches_the_golden_loss_and_theta(name, fits):
    known, fit = golden(name), fits(name)
    assert fit.ok
    mse = fit.loss / known["n"]
    assert mse == pytest.approx(known["mse_star"], rel=1e-6)
    assert mse == pytest.approx(MSE.get(name, mse), rel=1e-6)
    np.testing.assert_allclose(fit.theta, known["theta_star"], atol=1e-6)
    X, y = load(name)
    assert nlis.total_loss(PROBLEM, X, y, fit.theta) == pytest.approx(known["L_star"], rel=1e-6)


@pytest.mark.parametrize("which", ["LS-L", "RN-L", "LS-A", "RN-A", "LS-A-noy", "RN-A-noy", "LS-Ly"])
@every_dataset
def test_scores_at_the_golden_theta(name, which):
    X, y = load(name)
    known = golden(name)["scores"][which]
    tau = _tau(which, X, y, golden(name)["theta_star"])
    assert tau.sum() == pytest.approx(1.0, rel=1e-12)
    top = nlis.top_rows(tau, 10)
    assert top.indices.tolist() == known["top10_rows"]
    np.testing.assert_allclose(top.scores, known["top10_tau"], rtol=1e-6)
    assert nlis.bottom_rows(tau, 3).indices.tolist() == known["bottom3_rows"]
    n = len(tau)
    assert n * tau.max() == pytest.approx(known["n_times_max"], rel=1e-6)
    assert (tau**2).sum() == pytest.approx(known["sum_tau_sq"], rel=1e-6)
    levels = {float(level): value for level, value in known["quantiles_n_tau"].items()}
    np.testing.assert_allclose(np.quantile(n * tau, list(levels)), list(levels.values()), rtol=1e-6)


@every_dataset
def test_singular_values_of_the_dual_matrix(name):
    X, y = load(name)
    known = golden(name)
    A = nlis.dual_matrix(PROBLEM, da.from_array(X, chunks=(3000, X.shape[1])), y, theta=known["theta_star"])
    factor = nlis.factorize(A)
    assert factor.rank == known["d"] + 2
    np.testing.assert_allclose(np.linalg.svd(factor.r, compute_uv=False), known["fhat_sv"], rtol=1e-9)
    assert factor.frobenius == pytest.approx(np.linalg.norm(known["fhat_sv"]), rel=1e-9)


@every_dataset
def test_leading_rows_at_the_fit_of_the_library_itself(name, fits):
    X, y = load(name)
    known = golden(name)["scores"]["LS-A"]
    top = nlis.top_rows(_tau("LS-A", X, y, fits(name).theta), 3)
    assert top.indices.tolist() == known["top10_rows"][:3]
    np.testing.assert_allclose(top.scores, known["top10_tau"][:3], rtol=1e-4)


def test_known_data_errors_of_diamonds_come_first_in_order(fits):
    # Rows with y = 58.9 mm, z = 31.8 mm and y = 31.8 mm: slips of the decimal point.
    X, y = load("diamonds")
    table = nlis.top_rows(_tau("LS-A", X, y, fits("diamonds").theta), 4, X=X)
    assert table.indices.tolist()[:3] == [24067, 48410, 49189]
    assert table.scores[2] > 4 * table.scores[3]


def test_most_crowded_block_group_of_california_comes_first(fits):
    # 7,460 persons in 6 households.
    X, y = load("california")
    assert nlis.top_rows(_tau("LS-A", X, y, fits("california").theta), 1).indices.tolist() == [19006]


def test_built_in_california_data_are_those_of_the_golden_values():
    X, y = nlis.datasets.california_housing(standardized=True)
    expected = load("california")
    np.testing.assert_allclose(X.compute(), expected.X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(y.compute(), expected.y, rtol=1e-12, atol=1e-12)


@every_dataset
def test_residuals_at_the_golden_theta_rank_the_same_rows(name):
    X, y = load(name)
    known = golden(name)
    A = nlis.dual_matrix(PROBLEM, X, y, theta=known["theta_star"])
    rows = A.to_dask_array().compute()
    residual = rows[:, :-1] @ np.array(known["theta_star"]) + rows[:, -1]  # f = f(0) + <theta, f*>
    top = nlis.top_rows(residual**2, 10)
    assert top.indices.tolist() == known["top10_rows_by_sq_residual"]
