"""Weights of drawn rows and the two Kish diagnostics."""

import numpy as np


def hansen_hurwitz(counts: np.ndarray, n_draws: int, probabilities: np.ndarray) -> np.ndarray:
    """counts / (n_draws p): unbiased for totals when draws are made with replacement (Hansen & Hurwitz 1943)."""
    return counts / (n_draws * probabilities)


def horvitz_thompson(inclusion: np.ndarray) -> np.ndarray:
    """1 / pi: unbiased for totals when each row is in or out (Horvitz & Thompson 1952)."""
    return 1.0 / inclusion


def effective_sample_size(weights: np.ndarray, counts: np.ndarray) -> float:
    """Kish's (sum of weights)^2 / (sum of squared weights), each draw on its own.

    Pessimistic here: it takes weights for unrelated to the values, and importance weights are made to be related.
    """
    per_draw = weights / counts
    return float(weights.sum() ** 2 / (counts * per_draw**2).sum())
