"""Gauss-Legendre quadrature on [0, 1]."""

from functools import cache

import numpy as np


@cache
def legendre(n: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights of n points on [0, 1]; exact for polynomials of degree 2n - 1."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return tuple(((nodes + 1) / 2).tolist()), tuple((weights / 2).tolist())
