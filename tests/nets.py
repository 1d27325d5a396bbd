"""The table of models beyond one linear index; a new one is one line."""

from typing import Any

import numpy as np

from dask_nlis import (
    DeepReluNetwork,
    Homogeneous,
    Identity,
    LeakyRelu,
    Logistic,
    MultilayerPerceptron,
    Numerical,
    ReluNetwork,
    SquaredRelu,
    Swish,
    Tanh,
)

D = 4


def cubed(theta, x):
    return (x @ theta) ** 3


def cubed_gradient(theta, x):
    return 3 * ((x @ theta) ** 2)[:, None] * x


def wave(theta, x):
    xp = theta.__array_namespace__()
    return xp.sin(x @ theta[:D]) + theta[D] ** 2


def wave_gradient(theta, x):
    xp = theta.__array_namespace__()
    inner = xp.cos(x @ theta[:D])[:, None] * x
    return xp.concat([inner, 2 * theta[D] * xp.ones((x.shape[0], 1), dtype=x.dtype)], axis=1)


NETS: dict[str, Any] = {
    "relu net": ReluNetwork(3),
    "one unit": ReluNetwork(1, Tanh()),
    "relu net, logistic": ReluNetwork(3, Logistic()),  # phi(0) is not 0
    "relu net with biases": ReluNetwork(2, Swish(1, 2), hidden_bias=True),
    "phi on each unit": ReluNetwork(3, Logistic(), per_unit=True),  # a closed form under squared error only
    "phi on each unit, biases": ReluNetwork(2, Tanh(), per_unit=True, hidden_bias=True),
    "identity on each unit": ReluNetwork(3, Identity(), per_unit=True),
    "leaky relu net": ReluNetwork(3, Tanh(), unit=LeakyRelu(0.1)),
    "squared relu net": ReluNetwork(2, Tanh(), unit=SquaredRelu()),  # degree 3
    "deep relu net, two layers": DeepReluNetwork((5,), Logistic()),
    "deep relu net, identity": DeepReluNetwork((4, 3)),  # every loss
    "deep relu net, four layers": DeepReluNetwork((4, 3, 3), Tanh()),  # degree 4
    "perceptron, two layers": MultilayerPerceptron((4, 3)),
    "perceptron, three layers": MultilayerPerceptron((3, 3, 2), unit=LeakyRelu(0.1)),
    "perceptron, tanh": MultilayerPerceptron((4,), unit=Tanh()),
    "user's cubic index": Homogeneous(cubed, cubed_gradient, 3, D, Tanh()),
    "user's wave": Numerical(wave, wave_gradient, D + 1),  # not homogeneous
}
INDEXED = {name: model for name, model in NETS.items() if model.form == "index"}
#: Nets with kinks along the ray, which plain quadrature does not see (`test_perceptron.py` does).
KINKED = {name for name, model in NETS.items() if isinstance(model, MultilayerPerceptron) and model.nodes}
RECTIFIED = {name: model for name, model in NETS.items() if isinstance(model, ReluNetwork)}


def setting(model: Any, rng: np.random.Generator, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """theta, x and noisy labels; some rows are zero, tiny or large, some units dead or always active."""
    theta = 0.7 * rng.normal(size=model.n_parameters(D))
    x = rng.normal(size=(n, D))
    x[0] = 0.0
    x[1] *= 1e-12
    x[2] *= 30.0
    return theta, x, model.predict(theta, x) + rng.normal(size=n)
