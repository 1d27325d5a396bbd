"""Every public function on 200,000 rows in one block, in a process of 16 GB of addresses: n x n would take 320 GB.

python tests/large_rows.py prints a line for each function: its name, and what it raised or "ok". It has no pytest in
it, nor anything beside NumPy's core, for their libraries take addresses too.
"""

import inspect
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

import dask_nlis as nlis

N = 200_000
LIMIT = 16 * 2**30


class Mean:
    """An estimator that takes weights."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Mean":
        self.mean_ = np.average(y, weights=sample_weight)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}


def calls(folder: Path) -> dict[str, Callable[[], Any]]:
    """A call of each public function, and of the methods that take rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3))
    y = 1 / (1 + np.exp(-X[:, 0])) + 0.1 * rng.standard_normal(N)
    problem = nlis.Problem(nlis.SingleIndex(nlis.Logistic()), constraint=nlis.Ball(5.0))
    theta = np.array([0.9, 0.1, -0.1, 0.1])
    A = nlis.dual_matrix(problem, X, y, theta=theta)
    T = nlis.tangent_matrix(problem, X, y, theta=theta)
    factor, second = nlis.factorize(A), nlis.factorize(T)
    scores = nlis.leverage_scores(A, factor)
    one, two = (nlis.draw(scores, 500, seed=seed) for seed in (0, 1))
    fit = nlis.refit(problem, *one.take(X, y), one)
    nlis.run(problem, X, y, size=400, seed=0, store=folder / "stored.zarr")
    by = np.arange(N) % 5
    return {
        "n x n": lambda: np.empty((N, N)),
        "active_learning_size": lambda: nlis.active_learning_size(3, 0.5, n_rows=N),
        "blend": lambda: nlis.blend([scores, np.ones(N)], [0.9, 0.1]),
        "bottom_rows": lambda: nlis.bottom_rows(scores, 20, X=X),
        "certificate": lambda: nlis.certificate(A, factor, one, scores=scores, theta=theta, deep=True),
        "compare": lambda: nlis.compare(problem, X, y, {"leverage": scores}, sizes=[300], seeds=2, n_starts=1),
        "concat": lambda: nlis.concat([one, two]),
        "cross_leverage_scores": lambda: nlis.cross_leverage_scores(A, factor),
        "draw": lambda: [
            nlis.draw(scores, N // 2, scheme=scheme, mix=0.1, by=groups, seed=0)
            for scheme in ("multinomial", "stratified", "poisson", "systematic")
            for groups in (None, by)
        ],
        "drift": lambda: nlis.drift(problem, X, y, [theta, 1.1 * theta]),
        "dual_matrix": lambda: nlis.dual_matrix(problem, X, y, theta=theta, sample_weight=np.ones(N)),
        "excess_loss_bound": lambda: nlis.excess_loss_bound(1.0, 0.1),
        "from_dataframe": lambda: nlis.from_dataframe(_frame(X, y), target="y"),
        "ingest": lambda: _ingested(folder, X, y),
        "from_sklearn": lambda: nlis.from_sklearn(LinearRegression().fit(X, y)),
        **({"from_xarray": lambda: _restored(X)} if find_spec("xarray") else {}),
        "factorize": lambda: [nlis.factorize(A, method=method) for method in ("auto", "tsqr", "sketch", "sketch-only")],
        "influence_scores": lambda: nlis.influence_scores(T, second),
        "leverage_scores": lambda: nlis.leverage_scores(A, factor),
        "lipschitz_bound": lambda: nlis.lipschitz_bound(problem, factor, labels=y),
        "log_net_size": lambda: nlis.log_net_size(4, 0.1),
        "loss_scores": lambda: nlis.loss_scores(A),
        "measured_misestimation_factor": lambda: nlis.measured_misestimation_factor(scores + 1e-6, scores),
        "misestimation_factor": lambda: nlis.misestimation_factor(problem, index_range=3.0),
        "monitor": lambda: _monitored(folder, A),
        "norm_misestimation_factor": lambda: nlis.norm_misestimation_factor(factor),
        "norm_scores": lambda: nlis.norm_scores(A),
        "open_rows": lambda: nlis.open_rows(folder / "stored.zarr" / "data", X="X", y="y"),
        "open_run": lambda: nlis.open_run(folder / "stored.zarr").scores.compute(),
        "pilot": lambda: nlis.pilot(problem, X, y, 500, seed=0),
        "pool": lambda: nlis.pool([one, two], [scores, scores]),
        **({"plots.scores": lambda: _drawn(scores, one, y)} if find_spec("matplotlib") else {}),
        "reference_matrix": lambda: nlis.reference_matrix(problem, X, y).to_dask_array().compute(),
        "refit": lambda: nlis.refit(problem, X, y, np.ones(N), n_starts=1).summary(),
        "refit_with": lambda: nlis.refit_with(Mean(), X, y, np.ones(N)),
        "plan": lambda: nlis.plan(problem, X, y, size=400),
        "extend": lambda: nlis.extend(nlis.run(problem, X, y, size=400, seed=0), X + 1.0, y, size=400, seed=1),
        "run": lambda: nlis.run(problem, X, y, size=0.02, seed=0),
        "sample_size": lambda: nlis.sample_size(4, 0.1, n_rows=N),
        "sandwich": lambda: nlis.sandwich(problem, X, theta, y),
        "standardize": lambda: nlis.standardize(X, y),
        "suspects": lambda: [nlis.suspects(A, factor, by=by) for by in ("loss", "deletion", "norm", "leverage")],
        "tangent_matrix": lambda: nlis.tangent_matrix(problem, X, y, theta=theta).to_dask_array().compute(),
        "top_rows": lambda: nlis.top_rows(scores, 20, X=X),
        "total_loss": lambda: nlis.total_loss(problem, X, y, np.tile(theta, (20, 1))),
        "Factor.outside": lambda: factor.outside(A),
        "Fit.predict": lambda: fit.predict(X),
        "Sample.from_probabilities": lambda: nlis.Sample.from_probabilities(np.arange(N), np.full(N, 1 / N), n_rows=N),
        "Sample.take": lambda: nlis.draw(scores, N, seed=2).take(X, y),
        "datasets.generated_rows": lambda: nlis.datasets.generated_rows(N, 3)[1].compute(),
    }


def _monitored(folder: Path, A: nlis.TallMatrix) -> None:
    with nlis.monitor(folder / "run.html", progress=False):
        nlis.norm_scores(A)


def _drawn(scores: Any, sample: nlis.Sample, residuals: np.ndarray) -> None:
    nlis.plots.scores(scores, sample=sample)
    nlis.plots.lorenz(scores)
    nlis.plots.residual_leverage(residuals, scores)


def _frame(X: np.ndarray, y: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=list("abc")).assign(y=y, t=np.where(y > 0, "high", "low"))


def _ingested(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    _frame(X, y).to_csv(folder / "table.csv", index=False)
    nlis.ingest(folder / "table.csv", folder / "table.zarr", target="y")


def _restored(X: np.ndarray) -> None:
    import xarray as xr

    rows = nlis.from_xarray(xr.DataArray(X.reshape(400, -1, 3), dims=("y", "x", "band")), feature_dim="band")
    rows.restore(nlis.norm_scores(rows.X))


def functions() -> set[str]:
    """Names of the public functions."""
    found = {name for name in nlis.__all__ if inspect.isfunction(getattr(nlis, name))}
    # A module or a function has no rows.
    return found - {"from_jax", "from_torch"} - (set() if find_spec("xarray") else {"from_xarray"})


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls(Path(folder)).items():
            try:
                call()
            except BaseException as error:
                print(json.dumps([name, f"{type(error).__name__}: {error}"]), flush=True)
            else:
                print(json.dumps([name, "ok"]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
