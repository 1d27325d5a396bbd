"""A valid call of every public name, and values that belong in none: what `test_bad_arguments` spoils the calls with."""

import datetime
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import scipy.sparse
from counting import rows_of
from sklearn.linear_model import LinearRegression

import dask_nlis as nlis

N, D = 24, 3
X, Y = rows_of(0, N, D)
THETA = np.array([0.1, -0.2, 0.3, 0.05])
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
A = nlis.dual_matrix(PROBLEM, X, Y, theta=THETA)
TANGENT = nlis.tangent_matrix(PROBLEM, X, Y, theta=THETA)
FACTOR, BENT = nlis.factorize(A), nlis.factorize(TANGENT)
SCORES = np.asarray(nlis.leverage_scores(A, FACTOR))
SAMPLE, OTHER = (nlis.draw(SCORES, 16, seed=k) for k in range(2))
DRAWN = SAMPLE.take(X, Y)
FIT = nlis.refit(PROBLEM, *DRAWN, SAMPLE)
RUN = nlis.run(PROBLEM, X, Y, size=12, seed=0, rounds=1, missing="raise")


FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y, v=Y**2, d=0)
ENCODED = nlis.from_dataframe(FRAME, ["a", "b", "c"], target="y")


def value(theta, x):
    return x @ theta[:-1] + theta[-1]


def gradient(theta, x):
    return np.column_stack([x, np.ones(len(x))])


def half_square(prediction, y):
    return (prediction - y) ** 2 / 2


def residual(prediction, y):
    return prediction - y


def ones(prediction, y):
    return np.ones_like(prediction)


class Estimator:
    """The least that refit_with takes."""

    def fit(self, X, y, sample_weight=None):
        return self

    def get_params(self, deep=True):
        return {}


def sampler_fitted(**given):
    """An estimator keeps its arguments as they come and checks them in fit."""
    return nlis.NonlinearLeverageSampler(**given).fit(X, np.where(Y > 0, 1, -1))


def ingest(**given):
    """As if for the first time: an output that is there would be refused before anything else."""
    shutil.rmtree("out.zarr", ignore_errors=True)
    return nlis.ingest(**given)


_ROWS = {"problem": PROBLEM, "X": X, "y": Y, "sample_weight": Y**2, "missing": "raise", "device": "cpu"} | {
    "block_bytes": 10**6
}

#: A valid call of every public name that users call: the callable, and an argument for each parameter to be spoilt.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "AbsoluteError": (nlis.AbsoluteError, {"on_singular": "raise"}),
    "AmplitudeBand": (nlis.AmplitudeBand, {"lower": 0.1, "budget": 9.0, "amplitudes": (0, 1)}),
    "Ball": (nlis.Ball, {"radius": 3.0, "center": np.zeros(4)}),
    "Box": (nlis.Box, {"lower": np.zeros(4), "upper": np.ones(4)}),
    "CustomLoss": (nlis.CustomLoss, {"value": half_square, "derivative": residual, "curvature": ones}),
    "MultilayerPerceptron": (
        nlis.MultilayerPerceptron,
        {"widths": (2, 2), "activation": nlis.Tanh(), "unit": nlis.Relu(), "bias": True, "n_outputs": 1},
    ),
    "DeepReluNetwork": (nlis.DeepReluNetwork, {"widths": (2, 2), "activation": nlis.Tanh()}),
    "Factor.merge": (FACTOR.merge, {"other": nlis.factorize(nlis.dual_matrix(PROBLEM, X[:9], Y[:9], theta=THETA))}),
    "Factor.outside": (FACTOR.outside, {"A": A}),
    "Factor.from_dict": (nlis.Factor.from_dict, {"found": FACTOR.to_dict()}),
    "Fit.confidence_interval": (FIT.confidence_interval, {"confidence_level": 0.9, "target": "population"}),
    "Fit.summary": (FIT.summary, {"confidence_level": 0.9, "target": "population"}),
    "Fit.predict": (FIT.predict, {"X": X}),
    "Fit.from_dict": (nlis.Fit.from_dict, {"found": FIT.to_dict()}),
    "Certificate.from_dict": (
        nlis.Certificate.from_dict,
        {"found": nlis.certificate(A, FACTOR, SAMPLE).to_dict()},
    ),
    "HalfSpaces": (nlis.HalfSpaces, {"A": np.eye(4), "b": np.ones(4)}),
    "Homogeneous": (
        nlis.Homogeneous,
        {"value": value, "gradient": gradient, "degree": 1.0, "n_params": 4, "activation": nlis.Tanh()},
    ),
    "Huber": (nlis.Huber, {"delta": 1.0}),
    "LeakyRelu": (nlis.LeakyRelu, {"slope": 0.1}),
    "Linear": (nlis.Linear, {"intercept": True}),
    "LogisticLoss": (nlis.LogisticLoss, {"labels": (-1, 1)}),
    "NonlinearLeverageSampler": (
        sampler_fitted,
        {"problem": PROBLEM, "size": 16, "scheme": "stratified", "mix": 0.1, "theta": THETA, "pilot_size": 20}
        | {"min_per_group": 1, "estimator": Estimator(), "random_state": 0},
    ),
    "Numerical": (nlis.Numerical, {"value": value, "gradient": gradient, "n_params": 4, "tolerance": 1e-6}),
    "Problem": (
        nlis.Problem,
        {"model": nlis.Linear(), "loss": nlis.SquaredError(), "constraint": nlis.Ball(1.0), "outputs": "joint"},
    ),
    "Problem.from_dict": (nlis.Problem.from_dict, {"found": PROBLEM.to_dict()}),
    "PseudoHuber": (nlis.PseudoHuber, {"delta": 1.0}),
    "ReluNetwork": (
        nlis.ReluNetwork,
        {"n_hidden": 2, "activation": nlis.Tanh(), "per_unit": True, "hidden_bias": True, "unit": nlis.Relu()},
    ),
    "Sample.expected_count": (SAMPLE.expected_count, {"scores": SCORES[SAMPLE.indices]}),
    "Sample.from_probabilities": (
        nlis.Sample.from_probabilities,
        {
            "indices": [1, 3],
            "probabilities": [0.5, 0.25],
            "n_rows": N,
            "scheme": "poisson",
            "n_draws": 2,
            "seed": 0,
            "feature_names": ("a", "b"),
        },
    ),
    "Sample.from_dict": (nlis.Sample.from_dict, {"found": SAMPLE.to_dict()}),
    "Sample.save": (SAMPLE.save, {"path": "saved.csv", "overwrite": True}),
    "Sample.load": (nlis.Sample.load, {"path": "saved.csv"}),
    "Sample.take": (SAMPLE.take, {"arrays": X, "max_bytes": 10**9}),
    "SingleIndex": (nlis.SingleIndex, {"activation": nlis.Tanh(), "intercept": True}),
    "SoftmaxLoss": (nlis.SoftmaxLoss, {"n_classes": 3}),
    "Standardization.to_raw": (nlis.standardize(X, Y).transform.to_raw, {"theta": THETA}),
    "Swish": (nlis.Swish, {"c1": 1.0, "c2": 2.0, "zeta": 1.0}),
    "TallMatrix.block": (A.block, {"i": 0}),
    "active_learning_size": (
        nlis.active_learning_size,
        {"d": 3, "epsilon": 0.1, "paper": "gajjar-2024", "constant": 1.0, "n_rows": 100},
    ),
    "blend": (nlis.blend, {"scores": [SCORES, SCORES], "shares": [0.5, 0.5], "totals": [4.0, 4.0]}),
    "bottom_rows": (nlis.bottom_rows, {"scores": SCORES, "k": 3, "X": X}),
    "certificate": (
        nlis.certificate,
        {"A": A, "factor": FACTOR, "sample": SAMPLE, "scores": SCORES, "theta": THETA, "deep": True},
    ),
    "compare": (
        nlis.compare,
        _ROWS
        | {
            "scores": {"leverage": SCORES},
            "sizes": 9,
            "seeds": 1,
            "scheme": "poisson",
            "mix": 0.1,
            "theta": THETA,
            "ridge": 0.1,
            "start": THETA,
            "n_starts": 1,
            "max_bytes": 10**9,
        },
    ),
    "concat": (nlis.concat, {"samples": [SAMPLE, OTHER]}),
    "cross_leverage_scores": (nlis.cross_leverage_scores, {"A": A, "factor": FACTOR}),
    "draw": (
        nlis.draw,
        {"scores": SCORES, "size": 9, "scheme": "poisson", "mix": 0.1, "by": np.arange(N) % 2, "min_per_group": 1}
        | {"seed": 0},
    ),
    "drift": (nlis.drift, _ROWS | {"thetas": [THETA, 2 * THETA], "by": "leverage", "top": 5}),
    "dual_matrix": (nlis.dual_matrix, _ROWS | {"theta": THETA}),
    "excess_loss_bound": (
        nlis.excess_loss_bound,
        {"loss": 1.0, "epsilon": 0.1, "lipschitz": 1.0, "radius": 1.0, "sampled_lipschitz": 1.0},
    ),
    "factorize": (nlis.factorize, {"A": A, "method": "gram"}),
    "influence_scores": (nlis.influence_scores, {"T": TANGENT, "factor": BENT}),
    "leverage_scores": (nlis.leverage_scores, {"A": A, "factor": FACTOR}),
    "lipschitz_bound": (
        nlis.lipschitz_bound,
        {"problem": PROBLEM, "features": FACTOR, "index_range": 1.0, "labels": Y, "radius": 1.0, "steepest": 1.0},
    ),
    "log_net_size": (nlis.log_net_size, {"p": 3, "epsilon": 0.1}),
    "loss_scores": (nlis.loss_scores, {"A": A}),
    "measured_misestimation_factor": (nlis.measured_misestimation_factor, {"used": SCORES, "exact": SCORES}),
    "misestimation_factor": (nlis.misestimation_factor, {"problem": PROBLEM, "index_range": 1.0, "labels": Y}),
    "monitor": (nlis.monitor, {"report": "run.html", "progress": True}),
    "norm_misestimation_factor": (nlis.norm_misestimation_factor, {"factor": FACTOR}),
    "norm_scores": (nlis.norm_scores, {"A": A, "log2_scale": 1}),
    "open_rows": (
        nlis.open_rows,
        {"path": "data.zarr", "X": "X", "y": "y", "block_bytes": 10**6, "allow_missing": None},
    ),
    "open_run": (nlis.open_run, {"path": "nothing.zarr"}),
    "pilot": (nlis.pilot, _ROWS | {"size": 9, "seed": 0, "scheme": "poisson"}),
    "plan": (
        nlis.plan,
        _ROWS
        | {"size": 9, "scores": "two-stage", "scheme": "poisson", "rounds": 2, "pilot_size": 4, "theta": None}
        | {"method": "gram", "memory_limit": 10**9, "calibrate": False},
    ),
    "pool": (nlis.pool, {"samples": [SAMPLE, OTHER], "scores": [SCORES, SCORES], "combine": "balance"}),
    "reference_matrix": (nlis.reference_matrix, _ROWS),
    "refit": (
        nlis.refit,
        {"problem": PROBLEM, "X": DRAWN[0], "y": DRAWN[1], "sample": SAMPLE, "ridge": 0.1}
        | {"sample_weight": np.ones(len(SAMPLE)), "start": THETA, "n_starts": 1, "seed": 0},
    ),
    "refit_with": (nlis.refit_with, {"estimator": Estimator(), "X": DRAWN[0], "y": DRAWN[1], "sample": SAMPLE}),
    "run": (
        nlis.run,
        _ROWS
        | {"size": 9, "epsilon": None, "seed": 0, "store": None, "keep_scores": True, "theta": None}
        | {"resume": False, "verify": False, "data_version": None}
        | {"scores": "two-stage", "scheme": "poisson", "shares": None, "rounds": 2, "pilot_size": 4},
    ),
    "Encoding.encode": (ENCODED.encoding.encode, {"table": FRAME}),
    "Encoding.from_dict": (nlis.Encoding.from_dict, {"found": ENCODED.encoding.to_dict()}),
    "Encoding.load": (nlis.Encoding.load, {"path": "table.zarr"}),
    "Encoding.to_raw": (ENCODED.encoding.to_raw, {"theta": THETA}),
    "from_sklearn": (nlis.from_sklearn, {"estimator": LinearRegression().fit(X, Y)}),
    "from_dataframe": (
        nlis.from_dataframe,
        {"table": FRAME, "features": ["a", "b", "c"], "target": "y", "sample_weight": "v"}
        | {"drop_first": True, "max_categories": 9},
    ),
    "ingest": (
        ingest,
        {"table": "table.csv", "out": "out.zarr", "target": "y", "sample_weight": "v", "columns": ["a", "b", "c"]}
        | {"exclude": ["d"], "categorical": ["c"], "na": ["-"], "drop_first": True, "standardize": True}
        | {"missing": "raise", "max_categories": 99, "dtype": "float64", "block_bytes": 10**6},
    ),
    "extend": (
        nlis.extend,
        {"run": RUN, "X_new": X + 1.0, "y_new": Y, "size": 9, "seed": 1, "sample_weight": Y**2, "device": "cpu"}
        | {"block_bytes": 10**6},
    ),
    "sample_size": (
        nlis.sample_size,
        {"p": 3, "epsilon": 0.1, "delta": 0.1, "beta": 1.0, "rank": 3, "guarantee": "uniform", "n_rows": 100},
    ),
    "sandwich": (nlis.sandwich, _ROWS | {"theta": THETA}),
    "standardize": (nlis.standardize, {"X": X, "y": Y, "block_bytes": 10**6}),
    "suspects": (nlis.suspects, {"A": A, "factor": FACTOR, "k": 3, "by": "loss"}),
    "tangent_matrix": (nlis.tangent_matrix, _ROWS | {"theta": THETA}),
    "top_rows": (nlis.top_rows, {"scores": SCORES, "k": 3, "X": X}),
    "total_loss": (nlis.total_loss, _ROWS | {"theta": THETA}),
}

if find_spec("xarray"):
    import xarray as xr

    CALLS["from_xarray"] = (
        nlis.from_xarray,
        {"ds": xr.Dataset({"a": ("x", Y), "b": ("x", Y**2)}), "features": ["a"], "target": "b", "sample_weight": "b"}
        | {"feature_dim": None, "block_bytes": 10**6},
    )
    GRIDDED = nlis.from_xarray(xr.Dataset({"a": (("x", "y"), X)}), ["a"])
    CALLS["XarrayRows.restore"] = (GRIDDED.restore, {"scores": np.ones(N * D), "name": "a"})
    CALLS["XarrayRows.coordinates"] = (GRIDDED.coordinates, {"sample": [0, 5], "dim": "drawn"})

if find_spec("jax"):
    CALLS["from_jax"] = (
        nlis.from_jax,
        {"function": value, "theta": [np.ones(3), np.ones(1)], "n_outputs": 1, "tolerance": 1e-6},
    )

if find_spec("torch"):
    import torch

    CALLS["from_torch"] = (
        nlis.from_torch,
        {"module": torch.nn.Linear(3, 1), "wrt": "weight", "input_shape": (3,), "tolerance": 1e-6},
    )

#: What does not belong: made anew for each call, since a generator lasts only once.
BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "dict": lambda: {"a": 1},
    "empty dict": dict,
    "set": lambda: {1, 2},
    "generator": lambda: (k for k in range(N)),
    "text": lambda: "abc",
    "empty text": str,
    "long text": lambda: "word\n" * 200,
    "bytes": lambda: b"abc",
    "True": lambda: True,
    "NaN": lambda: np.nan,
    "infinity": lambda: np.inf,
    "negative": lambda: -1,
    "minus half": lambda: -0.5,
    "huge integer": lambda: 10**400,
    "huge float": lambda: 1e300,
    "complex": lambda: 1 + 1j,
    "date": lambda: datetime.date(2020, 1, 1),
    "object": object,
    "class": lambda: nlis.Linear,
    "module function": lambda: nlis.draw,
    "0-d": lambda: np.array(1.5),
    "3-d": lambda: np.ones((2, 3, 4)),
    "object array": lambda: np.array([1, None, "a"] * (N // 3), dtype=object),
    "text array": lambda: np.array(["a"] * N),
    "dates": lambda: np.zeros(N, dtype="M8[s]"),
    "complex array": lambda: np.ones(N, dtype=complex),
    "masked": lambda: np.ma.masked_greater(np.arange(float(N)), 3),
    "masked table": lambda: np.ma.masked_greater(X, 1),
    "sparse": lambda: scipy.sparse.csr_array(X),
    "structured": lambda: np.zeros(N, dtype=[("a", "f8")]),
    "unequal lists": lambda: [[1, 2], [3]],
    "list of None": lambda: [None, 1.0],
    "nested list": lambda: [[1.0, 2.0], [3.0, 4.0]],
    "empty list": list,
    "empty": lambda: np.empty(0),
    "empty table": lambda: np.empty((0, D)),
    "NaN array": lambda: np.full(N, np.nan),
    "negative array": lambda: np.full(N, -1.0),
    "zeros": lambda: np.zeros(N),
    "huge array": lambda: np.full(N, 1e308),
    "other length": lambda: np.ones(N + 1),
    "other width": lambda: np.ones((N, D + 2)),
    "lazy of another length": lambda: da.ones(N + 5, chunks=7),
    "lazy table": lambda: da.ones((N + 5, D), chunks=7),
    "lazy text": lambda: da.from_array(np.array(["a"] * N), chunks=7),
    "lazy scalar": lambda: da.ones((), chunks=()),
    "lazy unknown": lambda: da.ones(N, chunks=7)[da.ones(N, chunks=7) > 0],
}
