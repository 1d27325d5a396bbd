"""The place where a picture is drawn: Axes that are given or made, a headline, labels that keep out of each other's way.

Ink, the colour of all text and of lines that are no data, is that of matplotlib's settings where the picture is drawn, so
that a dark style has light text. Nothing here changes those settings, nor touches pyplot.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from dask_nlis.errors import InputTypeError, MissingExtraError

#: Opacity of notes and of the grid: ink that steps back on a light ground and on a dark one.
_NOTE, _GRID = 0.8, 0.14

#: Points: size of a title, of a note and of its lines, and of a letter of either on average.
_TITLE, _SMALL, _LINE = 11.5, 9.0, 11.2
_LETTER = 0.53

#: Points of a name of a line, and the share of the width that names beside the picture may take.
_NAME, _BESIDE = 9.5, 0.3

#: Points between a picture and the names beside it.
_STROKE = 14

#: Inches around a picture.
_PAD = 0.08

#: Decades that an axis shows with ticks between them, and with every second or third of them.
_FEW_DECADES, _MANY_DECADES = 1.6, 60

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def matplotlib() -> Any:
    """The library, or one line that says what to install."""
    try:
        import matplotlib as mpl
        import matplotlib.figure
    except ImportError as cause:
        raise MissingExtraError("plots need matplotlib; pip install 'dask-nlis[plot]'") from cause
    return mpl


def check_axes(ax: Any) -> None:
    """Raise unless there is matplotlib, and ax is None or Axes; to be called before anything is computed."""
    axes = matplotlib().axes.Axes
    if ax is not None and not isinstance(ax, axes):
        raise InputTypeError(f"ax is {type(ax).__name__}; give matplotlib Axes, or None for a new figure")


def panel(ax: Any, width: float = 6.4, height: float = 4.2) -> Any:
    """The Axes to draw on: those given, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    figure = matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=_PAD, h_pad=_PAD)
    return figure.add_subplot()


def ink() -> Any:
    """Colour of text."""
    return matplotlib().rcParams["text.color"]


def points(ax: Any) -> tuple[float, float]:
    """Width and height of Axes in points, as far as they are known before the figure is laid out."""
    box = ax.get_window_extent()
    return box.width / ax.figure.dpi * 72, box.height / ax.figure.dpi * 72


def headline(ax: Any, title: str, notes: Sequence[str] = ()) -> None:
    """Write a title above the picture, flush left, and notes in smaller type below it; lines are broken to the width."""
    width = points(ax)[0]
    small = [line for note in notes if note for line in textwrap.wrap(note, max(16, int(width / _LETTER / _SMALL)))]
    large = textwrap.wrap(title, max(14, int(width / _LETTER / _TITLE / 1.1)))
    above = 6.0 + (_LINE * len(small) + 4.0 if small else 0.0)
    ax.set_title("\n".join(large), loc="left", fontsize=_TITLE, fontweight="bold", pad=above, parse_math=False)
    if small:
        ax.annotate(
            "\n".join(small), (0, 1), (0, 6), "axes fraction", "offset points", va="bottom", fontsize=_SMALL, alpha=_NOTE,
            linespacing=1.2, parse_math=False,
        )  # fmt: skip


def quiet(ax: Any, grid: str = "both") -> None:
    """Leave out what is no data: two of the four spines, and all but a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    ax.grid(visible=False, which="both")
    ax.grid(visible=True, which="major", axis=grid, color=ink(), alpha=_GRID, linewidth=0.8)


def log_axis(ax: Any, which: str) -> None:
    """Make the x or y axis, whose limits are set, logarithmic: ticks at 1, 2, 5 or at powers of ten, in plain numbers."""
    ticker = matplotlib().ticker
    ax.set(**{f"{which}scale": "log"})
    axis = {"x": ax.xaxis, "y": ax.yaxis}[which]
    low, high = axis.get_view_interval()
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if last - first > _MANY_DECADES:  # matplotlib's own go beyond the largest float64
        powers = range(first, last + 1, (last - first) // 5)
        axis.set_major_locator(ticker.FixedLocator([10.0**power for power in powers]))
        axis.set_minor_locator(ticker.NullLocator())
    elif high < 3 * low:
        axis.set_major_locator(ticker.MaxNLocator(5))
        axis.set_minor_locator(ticker.NullLocator())
    else:
        few = high < low * 10**_FEW_DECADES
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def plain_axis(axis: Any) -> None:
    """Write the numbers of a linear axis plainly."""

    def text(value: float, _: Any) -> str:
        return plain(value) if value >= 0 else f"\u2212{plain(-value)}"

    axis.set_major_formatter(matplotlib().ticker.FuncFormatter(text))


def plain(value: float) -> str:
    """A number as people write it: 0.002, 50,000, 2·10⁷."""
    if value <= 0 or 1e-3 <= value < 1e6:
        return f"{value:,.6g}" if value < 1e5 else f"{value:,.0f}"
    digits, power = f"{value:.2e}".split("e")
    factor = "" if float(digits) == 1 else f"{float(digits):g}·"
    return factor + "10" + str(int(power)).translate(_RAISED)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count in words: "1 row", "2,000 rows"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def short(name: str, room: float) -> str:
    """A name on one line of so many points, cut in its middle."""
    most = max(8, int(room / _LETTER / _NAME))
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())
    return line if len(line) <= most else f"{line[: most - most // 2 - 1]}…{line[len(line) - most // 2 :]}"


def name_lines(ax: Any, names: Sequence[str], lines: Sequence[Any]) -> None:
    """Write the name of each line beside its right end, with a stroke of its colour to it; below the picture where narrow.

    The limits of the axes are final.
    """
    if max(map(len, names)) * _LETTER * _NAME > points(ax)[0] * _BESIDE:
        _name_below(ax, names, lines)
        return
    beside = ax.transAxes + matplotlib().transforms.ScaledTranslation(_STROKE / 72, 0, ax.figure.dpi_scale_trans)
    ends = [_end(line) for line in lines]
    ax.get_xlim(), ax.get_ylim()  # which settles them: transforms alone do not
    places = [ax.transAxes.inverted().transform(ax.transData.transform(end))[1] for end in ends]
    places = apart(places, 12.5 / points(ax)[1], 0.03, 0.97)
    for name, line, end, place in zip(names, lines, ends, places, strict=True):
        stroke = {"arrowstyle": "-", "color": line.get_color(), "linewidth": 1, "shrinkA": 1, "shrinkB": 4}
        ax.annotate(
            name, end, (1, place), "data", beside, va="center", fontsize=_NAME, parse_math=False, annotation_clip=False,
            arrowprops=stroke | {"relpos": (0, 0.5)},
        )  # fmt: skip


def _end(line: Any) -> tuple[float, float]:
    """The last point of a line that has a place."""
    known = [(x, y) for x, y in zip(*line.get_data(), strict=True) if math.isfinite(y)]
    return known[-1] if known else (line.get_xdata()[-1], line.axes.get_ylim()[0])


def _name_below(ax: Any, names: Sequence[str], lines: Sequence[Any]) -> None:
    mpl = matplotlib()
    shown = [short(name, 0.85 * points(ax)[0]) for name in names]
    room = points(ax)[0] / (max(map(len, shown)) * _LETTER * _NAME + 34.0)
    below = mpl.transforms.ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
    legend = ax.legend(
        lines, shown, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=ax.transAxes + below, ncols=max(1, int(room)),
        frameon=False, fontsize=_NAME, handlelength=1.6, columnspacing=1.2, borderpad=0, borderaxespad=0,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def apart(places: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Places on a line moved as little as need be to lie `distance` apart between low and high, in the same order.

    >>> [round(place, 9) for place in apart([0.5, 0.5, 0.9], 0.1, 0.0, 1.0)]
    [0.45, 0.55, 0.9]
    """
    order = sorted(range(len(places)), key=lambda k: places[k])
    # Labels that touch form a cluster, whose start is the mean of the starts that its labels want.
    clusters: list[tuple[float, int]] = []
    for m, k in enumerate(order):
        total, many = places[k] - m * distance, 1
        while clusters and clusters[-1][0] / clusters[-1][1] > total / many:
            before = clusters.pop()
            total, many = total + before[0], many + before[1]
        clusters.append((total, many))
    starts = [total / many for total, many in clusters for _ in range(many)]
    top = high - (len(places) - 1) * distance
    moved = [0.0] * len(places)
    for m, k in enumerate(order):
        moved[k] = max(low, min(starts[m], top)) + m * distance
    return moved
