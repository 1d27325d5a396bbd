"""The place where a picture is drawn: Axes that are given or made, a headline, labels that keep out of each other's way.

Ink, the colour of all text and lines that are no data, is that of matplotlib's settings where the picture is drawn, so
that a dark style has light text. Nothing here changes those settings, nor touches pyplot.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

from dask_nlis.errors import InputTypeError

#: Opacity of notes and of the grid: ink that steps back on a light ground and on a dark one.
_NOTE, _GRID = 0.75, 0.16

#: Points of a note, and of its lines.
_SMALL, _LINE = 9.0, 11.5


def matplotlib() -> Any:
    """The library, or one line that says what to install."""
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError as cause:
        raise ImportError("plots need matplotlib; pip install 'dask-nlis[plot]'") from cause
    return mpl


def panel(ax: Any, width: float = 6.4, height: float = 4.2) -> Any:
    """The Axes to draw on: those given, or those of a new figure of this size in inches."""
    mpl = matplotlib()
    if ax is None:
        return mpl.figure.Figure(figsize=(width, height), layout="constrained").add_subplot()
    if not isinstance(ax, mpl.axes.Axes):
        raise InputTypeError(f"ax is {type(ax).__name__}; give matplotlib Axes, or None for a new figure")
    return ax


def ink() -> str:
    """Colour of text."""
    colour: str = matplotlib().rcParams["text.color"]
    return colour


def headline(ax: Any, title: str, notes: Sequence[str] = ()) -> None:
    """Write a title above the picture, flush left, and notes in smaller type below it; lines are broken to the width."""
    inches = ax.get_window_extent().width / ax.figure.dpi
    small = [line for note in notes if note for line in textwrap.wrap(note, max(20, int(inches * 72 / (0.5 * _SMALL))))]
    large = textwrap.wrap(title, max(20, int(inches * 72 / 6.3)))
    ax.set_title(
        "\n".join(large), loc="left", fontsize=11.5, fontweight="bold", pad=6 + _LINE * len(small), parse_math=False
    )
    for k, line in enumerate(reversed(small)):
        ax.annotate(
            line, (0, 1), (0, 5 + _LINE * k), "axes fraction", "offset points", fontsize=_SMALL, alpha=_NOTE, parse_math=False
        )  # fmt: skip


def quiet(ax: Any, grid: str = "both") -> None:
    """Leave out what is no data: two of the four spines, and all but a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(visible=False, which="both")
    ax.grid(visible=True, which="major", axis=grid, color=ink(), alpha=_GRID, linewidth=0.8)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count in words: "1 row", "2,000 rows"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def apart(places: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Places on a line moved as little as need be to lie `distance` apart between low and high, in the same order."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    clusters: list[list[float]] = []  # sum of wanted starts, number of labels
    for m, k in enumerate(order):
        clusters.append([places[k] - m * distance, 1])
        while len(clusters) > 1 and clusters[-2][0] / clusters[-2][1] > clusters[-1][0] / clusters[-1][1]:
            last = clusters.pop()
            clusters[-1] = [clusters[-1][0] + last[0], clusters[-1][1] + last[1]]
    starts = [total / n for total, n in clusters for _ in range(int(n))]
    top = high - (len(places) - 1) * distance
    moved = [0.0] * len(places)
    for m, k in enumerate(order):
        moved[k] = max(low, min(starts[m], top)) + m * distance
    return moved
