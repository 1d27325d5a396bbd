"""Train the 100-10-1 ReLU network of the Quick Draw tests: fish against bicycle, 6,000 drawings.

python tests/data/train_quickdraw.py        writes quickdraw_theta.npy beside this file; seconds

Drawings of 28 x 28 pixels become 10 x 10 by bilinear interpolation at pixel centres, over 255. The network has no
biases, one ReLU layer of ten units, and is trained on the logistic loss with a weight decay of 5e-4 by L-BFGS.
"""

from pathlib import Path

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits

import dask_nlis as nlis

HERE = Path(__file__).parent
DECAY = 5e-4
MODEL = nlis.ReluNetwork(10)
PROBLEM = nlis.Problem(MODEL, nlis.LogisticLoss())


def drawings() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (6000, 100) in [0, 1], and labels (6000,): 0 fish, 1 bicycle."""
    with np.load(HERE / "quickdraw_fish_bicycle_28x28.npz", allow_pickle=False) as found:
        images, labels = found["images"] / 255.0, found["labels"].astype(np.float64)
    to_ten = bilinear(28, 10)
    return (to_ten @ images @ to_ten.T).reshape(len(images), 100), labels


def bilinear(n: int, m: int) -> np.ndarray:
    """Matrix (m, n) that interpolates n pixels at the centres of m pixels on the same edge."""
    centres = (np.arange(m) + 0.5) * n / m - 0.5
    left = np.clip(np.floor(centres).astype(int), 0, n - 2)
    share = np.clip(centres - left, 0.0, 1.0)
    out = np.zeros((m, n))
    out[np.arange(m), left] = 1 - share
    out[np.arange(m), left + 1] += share
    return out


def objective(theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean logistic loss + decay / 2 |theta|^2, and its gradient."""
    parts = MODEL.unpack(theta)
    z = X @ parts["b"].T
    hidden = np.maximum(z, 0.0)
    u = hidden @ parts["a"]
    error = (expit(u) - y) / len(y)
    into_b = (error[:, None] * (z > 0) * parts["a"]).T @ X
    gradient = MODEL.pack(a=hidden.T @ error, b=into_b) + DECAY * theta
    return float(np.mean(np.logaddexp(0.0, u) - y * u) + DECAY / 2 * theta @ theta), gradient


def train(X: np.ndarray, y: np.ndarray) -> OptimizeResult:
    """L-BFGS from a start of random weights, always the same."""
    rng = np.random.default_rng(0)
    start = MODEL.pack(a=rng.normal(size=10) / np.sqrt(10), b=rng.normal(size=(10, 100)) / 10)
    options = {"maxiter": 500, "maxfun": 2000, "gtol": 1e-6, "ftol": 1e-12}
    with threadpool_limits(1):  # the same bits on any number of cores
        return minimize(objective, start, args=(X, y), jac=True, method="L-BFGS-B", options=options)


if __name__ == "__main__":
    pixels, kind = drawings()
    found = train(pixels, kind)
    right = np.mean((MODEL.predict(found.x, pixels) > 0) == kind)
    print(f"loss {found.fun:.6f}, largest gradient {np.abs(found.jac).max():.1e}, {right:.1%} right, {found.nit} steps")
    np.save(HERE / "quickdraw_theta.npy", found.x)
