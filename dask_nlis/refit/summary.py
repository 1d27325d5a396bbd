"""The table of a fit: a line for each parameter, readable in a terminal and in a notebook."""

import html
from io import StringIO
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_nlis.nouns import noun


@noun
class Summary:
    """Names, estimates, standard errors and interval ends (p,), with the lines above and below the table.

    `print` shows it; `_repr_html_` does in a notebook.
    """

    heading: str
    names: tuple[str, ...]
    estimates: np.ndarray
    standard_errors: np.ndarray
    low: np.ndarray
    high: np.ndarray
    confidence_level: float
    note: str

    def _columns(self) -> tuple[str, ...]:
        level = f"{100 * self.confidence_level:g} %"
        return "parameter", "estimate", "standard error", f"{level} from", "to"

    def _cells(self) -> list[tuple[str, ...]]:
        numbers = (self.estimates, self.standard_errors, self.low, self.high)
        return [
            (_printable(name), *("-" if np.isnan(value) else f"{value:.5g}" for value in line))
            for name, line in zip(self.names, np.column_stack(numbers), strict=True)
        ]

    def __str__(self) -> str:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for k, column in enumerate(self._columns()):
            table.add_column(column, justify="right" if k else "left", no_wrap=True)
        for line in self._cells():
            table.add_row(*(Text(cell) for cell in line))
        out = StringIO()
        # As wide as the table: numbers have at most 12 characters, a name as many as it has, two cells each at most.
        width = 120 + 2 * max(map(len, (cells[0] for cells in self._cells())))
        Console(file=out, width=width, color_system=None, legacy_windows=False).print(table)
        lines = [self.heading, *(line.rstrip() for line in out.getvalue().splitlines()), self.note]
        return "\n".join(line for line in lines if line)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def row(cells: Any, tag: str) -> str:
            sides = ("text-align:left", *["text-align:right; padding-left:1.5em"] * (len(cells) - 1))
            pairs = zip(sides, map(html.escape, cells), strict=True)
            inside = "".join(f"<{tag} style='{side}'>{cell}</{tag}>" for side, cell in pairs)
            return f"<tr>{inside}</tr>"

        body = "".join(row(line, "td") for line in self._cells())
        caption = f"<caption style='text-align:left'>{html.escape(self.heading)}</caption>"
        return f"<table>{caption}{row(self._columns(), 'th')}{body}</table><p>{html.escape(self.note)}</p>"


def _printable(name: str) -> str:
    """The name on one line, what is no character to see as its code."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
