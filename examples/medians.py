"""What examples say of values that vary from seed to seed: medians and means, with their standard errors."""

import numpy as np


def standard_error(values: np.ndarray) -> float:
    """Of the median, by the bootstrap."""
    rng = np.random.default_rng(0)
    return float(np.median(rng.choice(values, (400, len(values))), axis=1).std())


def median(values: np.ndarray, digits: int = 2) -> str:
    """A median and its standard error, as text."""
    return f"{np.median(values):.{digits}f} ± {standard_error(np.asarray(values)):.{digits}f}"


def mean_error(values: np.ndarray) -> tuple[float, float]:
    """A mean and its standard error; NaN for the error of a single value."""
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else float("nan")


def apart(a: np.ndarray, b: np.ndarray) -> tuple[float, float, str]:
    """Mean of a - b, paired by seed, its standard error, and at three of them "below", "above" or "not to be told from"."""
    mean, error = mean_error(np.asarray(a) - np.asarray(b))
    return mean, error, "below" if mean < -3 * error else "above" if mean > 3 * error else "not to be told from"
