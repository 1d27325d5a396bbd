"""What all pages share: one style sheet, templates in which text stays text, numbers as a person reads them, whole files."""

from dask_nlis.pages.files import check_page, write_page
from dask_nlis.pages.numbers import big, bytes_text, seconds_text
from dask_nlis.pages.templates import STYLE, policy, printable, template

__all__ = [
    "STYLE",
    "big",
    "bytes_text",
    "check_page",
    "policy",
    "printable",
    "seconds_text",
    "template",
    "write_page",
]
