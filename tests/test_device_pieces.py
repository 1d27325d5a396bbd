"""A block on a GPU that is none: what crosses and how often, in pieces where memory is short, on the CPU where it ends."""

import sys
import threading
import warnings
from types import ModuleType, SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from counting import FakeGPU, rows_of, same_bits
from distributed import Client, LocalCluster

import dask_nlis as nlis
from dask_nlis import device
from dask_nlis.device import Kept, fit, memory
from dask_nlis.factor.ladder import factorize_together
from dask_nlis.matrix.on_device import _HALVINGS
from dask_nlis.scores import Share, lazy_deletion, lazy_mixture

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(63, 500, 3)
WEIGHT = np.linspace(0, 2, len(X))
THETA = np.array([0.3, -0.2, 0.1, 0.05])
CHUNKS = (100, 150, 100, 150)
BLOCKS = len(CHUNKS)


@pytest.fixture(autouse=True)
def one_thread():
    """Blocks in their order, and no time for threads."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def small_sub_blocks(monkeypatch):
    """Sub-blocks of 26 rows and more, so that a block has several."""
    monkeypatch.setattr(memory, "_SUB_BLOCK_BYTES", {"cpu": 2**20, "cuda": 2**10})
    monkeypatch.setattr(memory, "_FEWEST_ROWS", 4)


@pytest.fixture
def gpu(monkeypatch, small_sub_blocks):
    return install(monkeypatch, FakeGPU())


def install(monkeypatch, gpu):
    monkeypatch.setattr(device, "opened", gpu.opened)
    return gpu


def dual(where="cuda", x=X, y=Y, weight=WEIGHT, **options):
    lazy = da.from_array(x, (CHUNKS, x.shape[1]))
    return nlis.dual_matrix(SWISH, lazy, y, theta=THETA, sample_weight=weight, device=where, **options)


def tangent(where="cuda", x=X):
    lazy = da.from_array(x, (CHUNKS, x.shape[1]))
    return nlis.tangent_matrix(SWISH, lazy, Y, theta=THETA, sample_weight=WEIGHT, device=where)


# Each is one pass, of arrays besides the data that blocks share: theta is one of them, but for plain rows.
def leverage(where):
    return nlis.leverage_scores(dual(where), nlis.factorize(dual("cpu"))).compute()


def mixture(where):
    factors = nlis.factorize(dual("cpu")), nlis.factorize(tangent("cpu"))
    return lazy_mixture(dual(where), tangent(where), factors, Share(0.1, 0.2, 0.3)).compute()


def deep(where):
    found = nlis.factorize(dual("cpu"))
    scores = nlis.leverage_scores(dual("cpu"), found).compute()
    sample = nlis.draw(scores, 200, seed=0)
    made = nlis.certificate(dual(where), found, sample, scores=scores, theta=2 * THETA, deep=True)
    return np.array([made.beta, made.full_loss if hasattr(made, "full_loss") else made.epsilon])


def flat():
    return nlis.factorize(nlis.dual_matrix(SWISH, X * [1.0, 0.0, 1.0], Y, theta=THETA, device="cpu"))


PASSES = {
    "gram": (lambda where: nlis.factorize(dual(where), method="gram").r, 1),
    "tree": (lambda where: nlis.factorize(dual(where), method="tsqr").r, 1),
    "sketch": (lambda where: nlis.factorize(dual(where), method="sketch-only").r, 1),
    "two Gram matrices": (lambda where: factorize_together([dual(where), tangent(where)])[0][1].r, 1),
    "leverage": (leverage, 2),
    "norms": (lambda where: nlis.norm_scores(dual(where)).compute(), 1),
    "scaled norms": (lambda where: nlis.norm_scores(dual(where), log2_scale=3).compute(), 1),
    "influence": (
        lambda where: nlis.influence_scores(tangent(where), nlis.factorize(tangent("cpu"), method="gram")).compute()
        if where == "cpu"
        else nlis.influence_scores(tangent(where), nlis.factorize(tangent("cpu"), method="gram")).compute(),
        2,
    ),
    "mixture": (mixture, 3),
    "losses": (lambda where: nlis.loss_scores(dual(where)).compute(), 1),
    "deletion": (lambda where: lazy_deletion(dual(where), nlis.factorize(dual("cpu"))).compute(), 2),
    "cross": (lambda where: nlis.cross_leverage_scores(dual(where), flat()).compute(), 3),
    "outside": (lambda where: flat().outside(dual(where)).compute(), 2),
    "rows": (lambda where: dual(where).to_dask_array().compute(), 1),
    "total loss": (
        lambda where: nlis.total_loss(
            SWISH, dual().source.x, Y, np.stack([THETA, 2 * THETA]), sample_weight=WEIGHT, device=where
        ),
        2,
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_data_cross_once_a_block_and_pass_and_one_result_comes_back(name, gpu):
    function, shared = PASSES[name]
    expected = function("cpu")
    assert gpu.transfers() == (0, 0, 0)
    found = function("cuda")
    assert gpu.transfers() == (3 * BLOCKS, shared, BLOCKS)  # X, y and weights; what blocks share, once; a result each
    assert gpu.releases == BLOCKS
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
