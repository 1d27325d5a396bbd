"""Templates of pages: text is escaped, shows no secrets, and holds no character that cannot be seen."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import jinja2

from dask_nlis.redact import redacted

#: The style sheet of all pages, on one look.
STYLE = files("dask_nlis.pages").joinpath("style.css").read_text("utf-8")


def template(package: str, name: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> jinja2.Template:
    """Load a template of a package, in which every text that is put out is escaped, redacted and printable."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= dict(filters or {})
    return environment.get_template(name)


def printable(text: str) -> str:
    r"""Text on one line, with characters that are not to be seen, or that turn what follows round, as their codes.

    Examples
    --------
    >>> printable("price\0 \u202eEUR") == r"price\x00 \u202eEUR"
    True
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def policy(style: str, script: str = "") -> str:
    """Content security policy of a page: this style sheet, this script, inline images, and nothing from anywhere.

    Examples
    --------
    >>> policy("p { margin: 0 }").partition("; ")[0]
    "default-src 'none'"
    """
    scripts = f"; script-src {_hash_of(script)}" if script else ""
    return (
        f"default-src 'none'; style-src {_hash_of(style)}; img-src data:{scripts}; base-uri 'none'; form-action 'none'"
    )


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shown(value: Any) -> Any:
    """What a template puts out for a value: markup of ours as it is, all other text without secrets and to be seen."""
    return printable(redacted(value)) if isinstance(value, str) and not hasattr(value, "__html__") else value
