"""Secrets out of text: what stands in a URL or beside a telling name and only its owner may know.

Every error and warning of the library passes its message through `redacted` when it is made; `scrubbed` does the same to
errors of other libraries that ours are raised from, or that leave a task.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

HIDDEN = "***"

E = TypeVar("E", bound=BaseException)
P = ParamSpec("P")
R = TypeVar("R")

#: The user and password of a URL, which may have lost a slash as a path; also a password that holds the slashes it should not.
_USER = re.compile(r"(:/+)(?:[^/@\s'\"]*|[^/@:\s'\"]*:[^@\s'\"]*)@")

#: A URL from its scheme on, with what it is asked for and with which words.
_QUERY = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:/+[^\s'\"?#]*)([?#][^\s'\"]*)")

_VALUE = re.compile(r"=[^&#;]*|(?<=#).+|(?<=[?&;])[^=&#;]+(?=[&#;]|$)")

#: Names of secrets with their value, in query strings, connection strings, headers and reprs of options.
_NAMED = re.compile(
    r"""(?ix)
    ((?<![a-z0-9])
     (?: x-(?:amz|goog|ms)-[a-z0-9-]+ | (?:shared)?access_?key(?:_?id)? | account_?key | shared_?access_?signature
       | aws_?[a-z_]*(?:key|token)[a-z_]* | awsaccesskeyid | signature | sig | sas | sas_?token | (?:access|session|auth|refresh|id)_?token
       | token | api_?key | pass(?:word|wd|phrase) | pwd | secret[a-z_]* | client_?secret | credentials? | authorization )
     ['"]?\s*[=:]\s*(?:bearer\s+|basic\s+)?)
    (['"]?)[^\s'"&;,)}\]]+
    """
)


def redacted(text: str) -> str:
    """Return the text without user names and passwords, query values and fragments of URLs, and values of named secrets.

    Parameters
    ----------
    text : str
        A path, a URL (chained ones too), a message, a repr.

    Returns
    -------
    str
        The same with `***` in place of what is hidden; paths, hosts and names of query values stay.

    Examples
    --------
    >>> redacted("simplecache::https://me:word@host/x.zarr?sig=abc&v=1#part")
    'simplecache::https://***@host/x.zarr?sig=***&v=***#***'
    >>> redacted("AccountName=me;AccountKey=abc==;EndpointSuffix=core")
    'AccountName=me;AccountKey=***;EndpointSuffix=core'
    """
    if ":/" in text:
        text = _USER.sub(rf"\1{HIDDEN}@", text)
        text = _QUERY.sub(lambda found: found[1] + _asked(found[2]), text)
    return _NAMED.sub(rf"\1\2{HIDDEN}", text) if any(mark in text for mark in "=:") else text


def _asked(query: str) -> str:
    return _VALUE.sub(lambda found: f"={HIDDEN}" if found[0].startswith("=") else HIDDEN, query)


def scrubbed(error: E) -> E:
    """Return an error after hiding secrets in its arguments, notes and attributes, and in all it was raised from.

    Examples
    --------
    >>> scrubbed(OSError("no answer from https://me:word@host/"))
    OSError('no answer from https://***@host/')
    """
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.args = tuple(map(_without, one.args))
        for name in ("filename", "filename2"):
            if isinstance(getattr(one, name, None), str):
                setattr(one, name, redacted(getattr(one, name)))
        for name, value in list(vars(one).items()):
            vars(one)[name] = [_without(note) for note in value] if isinstance(value, list) else _without(value)
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
        waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    return error


def _without(value: object) -> object:
    """A value without secrets: text is cleaned, and what shows some is replaced by what it shows."""
    if value is None or isinstance(value, BaseException | bool | int | float):
        return value
    if isinstance(value, str):
        return redacted(value)
    shown = repr(value)
    clean = redacted(shown)
    return value if clean == shown else clean


def without_secrets(function: Callable[P, R]) -> Callable[P, R]:
    """Make what a function raises show no secrets: for what runs in tasks, whose errors are logged where they run."""

    @wraps(function)
    def wrapped(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except Exception as error:
            scrubbed(error)
            raise

    return wrapped
