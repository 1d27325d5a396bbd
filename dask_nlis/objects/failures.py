"""Failures of object storage as errors of ours; what a client says is never shown, for it may name keys."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dask_nlis.errors import ClusterError, MissingDataError, NlisError, StoreWriteError

_NO_BUCKET = "its bucket does not exist"
_DENIED = "access is denied: check the credentials in the environment"

#: Signs in what a client says, in the order in which they tell.
_SIGNS = (
    (r"NoSuchBucket|ContainerNotFound|specified bucket does not exist", _NO_BUCKET),
    (r"169\.254\.|metadata\.google|computeMetadata", "there are no credentials in the environment of this machine"),
    (r"status code: 40[13]|AccessDenied|SignatureDoesNotMatch", _DENIED),
    (
        r"status code: 301|PermanentRedirect",
        "its bucket is in another region: set dask-nlis.storage.region or AWS_REGION",
    ),
    (r"status code: 501|not yet implemented|not supported", "it cannot do what is asked"),
    (r"timed out|TimedOut|kind: Timeout", "it did not answer in time"),
    (r"error sending request|Connect|dns error", "it cannot be reached"),
)


def reason(error: BaseException) -> str:
    """Why a request failed, in words that hold nothing of what was sent."""
    name, text = type(error).__name__, str(error)
    if name in ("PermissionDeniedError", "UnauthenticatedError"):
        return _DENIED
    for sign, meaning in _SIGNS:
        if re.search(sign, text):
            return meaning
    status = re.search(r"status code: (\d{3})", text)
    return f"it answered with status {status[1]}" if status else f"it failed with {name}"


def _is_of_storage(error: BaseException) -> bool:
    ours = isinstance(error, NlisError)
    return not ours and (type(error).__module__.partition(".")[0] == "obstore" or isinstance(error, OSError))


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Raise ClusterError, or MissingDataError without a bucket, where something cannot be read that may be there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if not _is_of_storage(error):
            raise
        why = reason(error)
        if why == _NO_BUCKET:
            raise MissingDataError(f"{url!r} cannot be used: {why}; make it first, or check the URL") from None
        raise ClusterError(f"{url!r} cannot be read: {why}; run again once it can") from None


@contextmanager
def store_writing(url: str, what: str) -> Iterator[None]:
    """Raise StoreWriteError where something cannot be written inside."""
    try:
        yield
    except Exception as error:
        if not _is_of_storage(error):
            raise
        why = reason(error)
        found = StoreWriteError(
            f"store={url!r}: {what} could not be written ({why}); what was finished is kept: run again with resume=True"
        )
        found.strerror = why
        raise found from None
