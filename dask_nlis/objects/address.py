"""Where something lies in object storage, without anything that is secret.

An address is all that travels: to workers, in graphs and in messages. Credentials are found by each process in its own
environment, under the names that the provider's own tools use: AWS_ACCESS_KEY_ID and the like, files of web identities,
the metadata service of the machine. They are in no argument, so that they can get into no graph, manifest or message.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import dask

from dask_nlis.errors import InputError
from dask_nlis.redact import redacted

#: Schemes of object storage, with what the first part of a URL names.
SCHEMES = {"s3": "bucket", "gs": "bucket", "az": "container"}

#: Seconds: to connect; for one request; after which a request is not sent again. An endpoint that is gone is an error of
#: ours within the sum of the last two, which is less than the silence after which a lock is taken over.
DEFAULTS = {"connect-seconds": 10.0, "request-seconds": 60.0, "retry-seconds": 120.0}
dask.config.update_defaults({"dask-nlis": {"storage": DEFAULTS}})


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 86400


#: Options of the Dask config key dask-nlis.storage; none of them is secret.
OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "endpoint": (_is_text, "a URL, such as 'https://minio.example.org'"),
    "region": (_is_text, "a name, such as 'eu-central-1'"),
    "account": (_is_text, "the name of an Azure storage account"),
    "anonymous": (_is_flag, "True or False"),
    "allow-http": (_is_flag, "True or False"),
    "connect-seconds": (_is_time, "a positive number"),
    "request-seconds": (_is_time, "a positive number"),
    "retry-seconds": (_is_time, "a positive number"),
}

#: A user name or password before the host, also in chained URLs such as simplecache::s3://...
_USER = re.compile(r"://[^/]*@")


def has_scheme(text: str) -> bool:
    """Whether a text is a URL of object storage."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def check_url(argument: str, text: str) -> None:
    """Raise, without printing it, where a text is a URL that carries a user name, a password or a query.

    Names are appended to URLs, which no query or fragment outlives: what stands there is a signature or another secret.
    """
    if "://" in text and (_USER.search(text) or redacted(text) != text):
        raise InputError(
            f"{argument} is a URL with credentials or a query in it; give the URL without, and the credentials by environment"
        )


@dataclass(frozen=True, slots=True)
class Address:
    """A URL of object storage and the options it is opened with: plain values, none of them secret.

    Examples
    --------
    >>> Address.of("store", "s3://bucket/run.zarr/").url
    's3://bucket/run.zarr'
    """

    url: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, argument: str, text: str) -> "Address":
        """Return the address that a URL and the Dask config key dask-nlis.storage give; raise where either is not allowed."""
        check_url(argument, text)
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        if not has_scheme(text):
            shown = text.partition("://")[0][:20]
            raise InputError(f"{argument} is a URL of {shown!r}, which is not known; give a path, or one of {known}")
        parts = urlsplit(text)
        path = parts.path.strip("/")
        if not parts.netloc or not path or parts.query or parts.fragment or "?" in text or "#" in text:
            raise InputError(
                f"{argument} is a URL that names no objects; give {parts.scheme}://{SCHEMES[parts.scheme]}/path, with no '?' or '#'"
            )
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise InputError(f"{argument}={text[:80]!r} has an empty part or dots for one; give the plain URL")
        return cls(f"{parts.scheme}://{parts.netloc}/{path}", _options(dask.config.get("dask-nlis.storage", {})))

    def below(self, name: str) -> "Address":
        """The address of something inside."""
        return Address(f"{self.url}/{name}", self.options)

    def option(self, name: str) -> Any:
        """An option; None where it is not given."""
        return dict(self.options).get(name, DEFAULTS.get(name))

    @property
    def parents(self) -> list["Address"]:
        """Addresses of all that this one lies in, without the bucket itself."""
        scheme, _, rest = self.url.partition("://")
        parts = rest.split("/")
        return [Address(f"{scheme}://{'/'.join(parts[:k])}", self.options) for k in range(len(parts) - 1, 1, -1)]


def _options(given: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(given, Mapping):
        raise InputError(f"dask-nlis.storage is {type(given).__name__}; give a table of {', '.join(OPTIONS)}")
    found = {}
    for key, value in given.items():
        name = str(key).replace("_", "-")
        if name not in OPTIONS:  # the value may be secret
            raise InputError(
                f"dask-nlis.storage has {name[:40]!r}; allowed are {', '.join(OPTIONS)}, and credentials come by environment"
            )
        if value is None:
            continue
        allowed, what = OPTIONS[name]
        if not allowed(value):
            raise InputError(f"dask-nlis.storage.{name} is {type(value).__name__} of no allowed value; give {what}")
        found[name] = value
    endpoint = found.get("endpoint", "")
    check_url("dask-nlis.storage.endpoint", endpoint)
    if endpoint.startswith("http://") and not found.get("allow-http"):
        raise InputError(
            "dask-nlis.storage.endpoint is not encrypted; give one of https://, or set allow-http where the network is trusted"
        )
    return tuple(sorted(found.items()))
