"""Train the 100-10-1 ReLU network whose theta is stored beside this script; about a minute.

    python tests/data/train_quickdraw.py

Bitmaps of fish (label 0) and bicycles (label 1), 28 x 28 in 0 ... 255, become 10 x 10 by bilinear interpolation with
half-pixel centres (output pixel i lies at 2.8 i + 0.9 of the input, no smoothing before), divided by 255. The network
has no biases, theta is a_1, b_1, ..., a_10, b_10. Minimised: mean logistic loss + weight decay / 2 |theta|^2.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.ndimage import zoom
from scipy.optimize import minimize

import dask_nlis as nlis

HERE = Path(__file__).parent
THETA = HERE / "quickdraw_theta.npy"
SIDE, UNITS = 10, 10
WEIGHT_DECAY = 5e-4
PROBLEM = nlis.Problem(nlis.ReluNetwork(UNITS), nlis.LogisticLoss())


class Images(NamedTuple):
    """Pixels X (6000, 100) in [0, 1] and labels y (6000,), 0 for fish and 1 for bicycle."""

    X: np.ndarray
    y: np.ndarray


def load() -> Images:
    """Read the bitmaps and shrink them."""
    with np.load(HERE / "quickdraw_fish_bicycle_28x28.npz", allow_pickle=False) as file:
        images, labels = file["images"].astype(np.float64), file["labels"].astype(np.float64)
    factor = SIDE / images.shape[1]
    small = zoom(images, (1, factor, factor), order=1, mode="nearest", grid_mode=True)
    return Images(small.reshape(len(small), -1) / 255, labels)


def objective(theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean loss with weight decay, and its gradient (where a unit is at its kink, that of the inactive side)."""
    table = theta.reshape(UNITS, -1)
    a, b = table[:, 0], table[:, 1:]
    z = X @ b.T
    hidden = np.maximum(z, 0)
    u = hidden @ a
    slope = PROBLEM.loss.derivative(u, y) / len(y)
    back = slope[:, None] * (z > 0) * a
    gradient = np.column_stack([slope @ hidden, back.T @ X]).ravel() + WEIGHT_DECAY * theta
    return float(PROBLEM.loss.value(u, y).mean() + WEIGHT_DECAY / 2 * theta @ theta), gradient


def train(X: np.ndarray, y: np.ndarray, seed: int = 9) -> np.ndarray:
    """L-BFGS from uniform weights of 1 / sqrt(inputs) at most; theta (1010,) in float32, as float64.

    The loss has kinks, and minima lie on them: there the gradient stays finite and L-BFGS never stops by itself.
    Rounding to float32 moves such rows off the kink by more than float64's rounding, so that z > 0 is the same
    everywhere.
    """
    rng = np.random.default_rng(seed)
    d = X.shape[1]
    a = rng.uniform(-1, 1, UNITS) / np.sqrt(UNITS)
    b = rng.uniform(-1, 1, (UNITS, d)) / np.sqrt(d)
    start = PROBLEM.model.pack(a=a, b=b)
    options = {"maxiter": 12_000, "maxfun": 30_000, "maxcor": 30, "ftol": 0, "gtol": 1e-10}
    found = minimize(objective, start, (X, y), method="L-BFGS-B", jac=True, options=options)
    return found.x.astype(np.float32).astype(np.float64)


if __name__ == "__main__":
    images = load()
    theta = train(*images)
    np.save(THETA, theta.astype(np.float32), allow_pickle=False)
    print(f"{THETA.name}: mean loss with weight decay {objective(theta, *images)[0]:.6f}")
