"""The noun Report: a page, where it was written, and how a notebook shows it."""

import html
from typing import Any

from dask_nlis.nouns import noun


@noun
class Report:
    """The page of a run, one HTML file that loads nothing.

    Attributes
    ----------
    html : str
        The page.
    path : str or None
        Where it was written, absolute; None where it was not.

    Examples
    --------
    >>> import dask_nlis as nlis
    >>> X, y = nlis.datasets.california_housing(standardized=True)
    >>> job = nlis.run(nlis.Problem(nlis.Linear()), X, y, size=300, seed=0)
    >>> page = job.report()
    >>> page.path, page.html.startswith("<!DOCTYPE html>")
    (None, True)
    """

    html: str
    path: str | None

    def _repr_html_(self) -> str:
        """The page in a frame of its own, whose script reaches nothing outside it."""
        page = html.escape(self.html)
        return f'<iframe title="Report of a run" sandbox="allow-scripts" width="100%" height="720" srcdoc="{page}"></iframe>'

    def _summary(self) -> dict[str, Any]:
        return {"bytes": len(self.html.encode()), "path": self.path}
