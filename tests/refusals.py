"""Shared by the tests of bad inputs: tables with blocks of different sizes, and what every refusal must be."""

import threading
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from counting import rows_of

import dask_nlis as nlis
from dask_nlis.errors import NlisError

#: Call, exact class, what the message must say: the argument and the value found.
Refusal = tuple[Callable[[], Any], type[Exception], str]

VALUE, TYPE, NON_FINITE = nlis.InputError, nlis.InputTypeError, nlis.NonFiniteError
LINEAR = nlis.Problem(nlis.Linear())
SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(0, 20, 3)
LAZY = da.from_array(X, ((3, 9, 8), (3,)))  # uneven: a row of a block is never the row of X
BAD = 14  # in the last block, where it is row 2
LOCK = threading.Lock()


def at_bad(values: np.ndarray, value: float) -> np.ndarray:
    """Values with another one in row 14 (and column 1)."""
    values = np.array(values)
    values[(BAD, 1) if values.ndim == 2 else BAD] = value
    return values


def lazy(values: np.ndarray) -> da.Array:
    """An array in the uneven blocks of LAZY."""
    return da.from_array(np.asarray(values), (LAZY.chunks[0], *((n,) for n in np.shape(values)[1:])))


def matrix(x: Any, y: Any = None, **options: Any) -> nlis.TallMatrix:
    """The reference matrix of a linear model."""
    return nlis.reference_matrix(LINEAR, x, y, **options)


def dual(theta: Any) -> nlis.TallMatrix:
    """The dual matrix of a linear model at a theta."""
    return nlis.dual_matrix(LINEAR, X, Y, theta=theta)


def check(error: Exception, kind: type[Exception]) -> None:
    """Exactly the class asked for, which is also the built-in one; one short line with one remedy and no secret."""
    text = str(error)
    assert type(error) is kind
    assert issubclass(kind, NlisError)
    assert issubclass(kind, ValueError | TypeError | OSError | RuntimeError)
    assert "\n" not in text
    assert len(text) <= 300
    assert "s3cret" not in text
    assert text.count("; ") + text.count(": give ") >= 1


def refused(refusal: Refusal) -> None:
    """The call raises what it must."""
    call, kind, says = refusal
    with pytest.raises(kind, match=says) as caught:
        call()
    check(caught.value, kind)
