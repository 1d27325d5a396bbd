"""Reads that fail by chance are tried again, and what remains is said in one line: which array, which rows, what came."""

import re
from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from dask_nlis.errors import MissingDataError, NlisError, ReadError

T = TypeVar("T")

#: Times a read is tried, and the seconds before it is tried again: 0.1, 0.3 and 0.9, with up to 0.1 by chance, so that
#: the tasks of many workers do not come back to an overloaded store all at once.
ATTEMPTS = 4
_WAIT = wait_exponential(multiplier=0.1, exp_base=3) + wait_random(0, 0.1)

#: What no second try mends.
_PERMANENT = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError, NlisError)


def is_transient(error: BaseException) -> bool:
    """Whether a second try may succeed: errors of the system or of the network, but not those of names and rights."""
    kind = type(error)
    of_obstore = kind.__module__.partition(".")[0] == "obstore" and kind.__name__ == "GenericError"
    return (isinstance(error, OSError) and not isinstance(error, _PERMANENT)) or of_obstore


def of_transport(error: BaseException) -> bool:
    """Whether an error comes from the way to the data, not from what the data are."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _TRANSPORT


#: Libraries by which stores are reached, and whose errors need not be OSErrors.
_TRANSPORT = ("obstore", "botocore", "aiobotocore", "aiohttp", "s3fs", "gcsfs", "adlfs", "fsspec")


def patiently(call: Callable[[], T]) -> T:
    """Return what `call` gives; transient errors are retried three times with back-off, and the last one is raised.

    Threads have no retries of their own, and a cluster's retries would recompute the whole task.

    Examples
    --------
    >>> answers = iter([ConnectionError("reset"), 7])
    >>> def read():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> patiently(read)
    7
    """
    tries = Retrying(
        retry=retry_if_exception(is_transient), stop=stop_after_attempt(ATTEMPTS), wait=_WAIT, reraise=True
    )
    return tries(call)


def failed(name: str, rows: str, cause: Exception) -> NlisError:
    """What to raise in place of an error with which reading these rows ended."""
    if is_transient(cause):
        return ReadError(f"{name}, {rows}: {ATTEMPTS} attempts to read failed, the last with {brief(cause)}; run again")
    if isinstance(cause, FileNotFoundError):
        return MissingDataError(f"{name}, {rows}: nothing is there ({brief(cause)}); put it where workers see it")
    return ReadError(f"{name}, {rows} cannot be read ({brief(cause)}); check that workers may and can read it")


def brief(cause: BaseException) -> str:
    """An error in a few words, without what a URL in it may carry: user names, passwords, signatures."""
    text = " ".join(str(cause).split())
    text = re.sub(r"://[^/\s]*@", "://", re.sub(r"(://[^\s'\"?]*)\?[^\s'\"]*", r"\1", text))
    return f"{type(cause).__name__}: {text[:100]}" if text else type(cause).__name__
