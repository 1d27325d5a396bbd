"""Every pass over the blocks of a matrix, for tests of the devices they run on."""

from types import SimpleNamespace

import dask.array as da
import numpy as np
from counting import rows_of

import dask_nlis as nlis
from dask_nlis.diagnostics.deep import read_deep
from dask_nlis.factor.ladder import factorize_together
from dask_nlis.scores import Share, lazy_deletion, lazy_scores, mixture_scorer

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(63, 500, 3)
WEIGHT = np.linspace(0.5, 2, len(X))
THETA = np.array([0.3, -0.2, 0.1, 0.05])
CHUNKS = (100, 150, 100, 150)
BLOCKS = len(CHUNKS)


def dual(where="cuda", x=X, y=Y, weight=WEIGHT, **options):
    lazy = da.from_array(x, (CHUNKS, x.shape[1]))
    return nlis.dual_matrix(SWISH, lazy, y, theta=THETA, sample_weight=weight, device=where, **options)


def tangent(where="cuda", x=X):
    lazy = da.from_array(x, (CHUNKS, x.shape[1]))
    return nlis.tangent_matrix(SWISH, lazy, Y, theta=THETA, sample_weight=WEIGHT, device=where)


def scores_of(where, made, score):
    """Scores on a device by a factor made on the CPU, so that there is one pass there."""
    return score(made(where), nlis.factorize(made("cpu"))).compute()


def mixture(where):
    factors = nlis.factorize(dual("cpu")), nlis.factorize(tangent("cpu"))
    matrix = dual(where)
    return lazy_scores(matrix, mixture_scorer(matrix, tangent(where), factors, Share(0.1, 0.2, 0.3))).compute()


def deep(where):
    found = nlis.factorize(dual("cpu"))
    scores = nlis.leverage_scores(dual("cpu"), found).compute()
    made = read_deep(dual(where), found, scores, SimpleNamespace(known=[THETA, 2 * THETA]))
    return np.array([float(made.ratio), *made.losses, made.residual > 1e-12])


def total_loss(where):
    thetas = np.stack([THETA, 2 * THETA])
    return nlis.total_loss(SWISH, dual().source.x, Y, thetas, sample_weight=WEIGHT, device=where)


def drift(where):
    """The comparison at two thetas, by losses."""
    x = da.from_array(X, (CHUNKS, 3))
    return nlis.drift(SWISH, x, Y, [THETA, 2 * THETA], by="loss", sample_weight=WEIGHT, device=where).losses


def flat():
    return nlis.factorize(nlis.dual_matrix(SWISH, X * [1.0, 0.0, 1.0], Y, theta=THETA, device="cpu"))


#: One pass each; how many arrays besides the data its blocks share (theta, whiteners); what comes back of each block.
PASSES = {
    "gram": (lambda where: nlis.factorize(dual(where), method="gram").r, 1, 1),
    "tree": (lambda where: nlis.factorize(dual(where), method="tsqr").r, 1, 1),
    "sketch": (lambda where: nlis.factorize(dual(where), method="sketch-only").r, 1, 1),
    "two Gram matrices": (lambda where: factorize_together([dual(where), tangent(where)])[0][1].r, 1, 2),
    "leverage": (lambda where: scores_of(where, dual, nlis.leverage_scores), 2, 1),
    "norms": (lambda where: nlis.norm_scores(dual(where)).compute(), 1, 1),
    "scaled norms": (lambda where: nlis.norm_scores(dual(where), log2_scale=3).compute(), 1, 1),
    "influence": (lambda where: scores_of(where, tangent, nlis.influence_scores), 2, 1),
    "mixture": (mixture, 3, 1),
    "losses": (lambda where: nlis.loss_scores(dual(where)).compute(), 1, 1),
    "deletion": (lambda where: scores_of(where, dual, lazy_deletion), 2, 1),
    "cross": (lambda where: nlis.cross_leverage_scores(dual(where), flat()).compute(), 3, 1),
    "outside": (lambda where: flat().outside(dual(where)).compute(), 2, 1),
    "rows": (lambda where: dual(where).to_dask_array().compute(), 1, 1),
    "total loss": (total_loss, 2, 1),
    "deep": (deep, 3, 1),
    "drift": (drift, 2, 5),  # of each sub-block; there are 4 in some and 6 in others
}
