"""What counts as a number in an argument: Python's and NumPy's, bools not."""

from typing import TypeGuard

import numpy as np


def is_whole(value: object) -> TypeGuard[int]:
    """Whether the value is an integer of Python or NumPy; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a real number of Python or NumPy; a bool is none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
