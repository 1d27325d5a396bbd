"""The pictures of the page, drawn by `plots` in the colours of the page."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_nlis import plots
from dask_nlis.diagnostics import Comparison
from dask_nlis.errors import InputError
from dask_nlis.plots.palette import COLOURS, GREY
from dask_nlis.plots.panel import headline
from dask_nlis.report.residuals import Residuals, residuals_of
from dask_nlis.report.sizes import Size
from dask_nlis.report.svg import figure, inline

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: What text, ticks and lines are drawn in: colours of no meaning but the variables that they become.
_INK, _SOFT, _LINE = "#010203", "#020304", "#030405"

_CSS = {
    _INK: "var(--ink)",
    _SOFT: "var(--soft)",
    _LINE: "var(--soft)",
    COLOURS[0]: "var(--read)",
    COLOURS[1]: "var(--second)",
    GREY: "var(--grey)",
}

_RC: Any = {
    "text.color": _INK,
    "axes.labelcolor": _SOFT,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "axes.edgecolor": _LINE,
}

#: Inches that the name of a line may take below a picture.
_NAME = 0.3

#: Points of a picture above which they are pixels rather than shapes, of which each takes a line.
_SHAPES = 60


class Chart(NamedTuple):
    """A picture: its SVG, and what to see in it."""

    svg: str
    says: str


def charts_of(run: "Run", sizes: Comparison | list[Size] | None) -> dict[str, Chart]:
    """Pictures by the section they stand in; a section whose picture is not known has none. Reads the scores twice."""
    out: dict[str, Chart] = {}

    def add(name: str, text: str, says: str, draw: Callable[[Any], Any], more: float = 0.0) -> None:
        with _drawn_in_ink():
            made, ax = figure(more)
            try:
                draw(ax)
            except InputError:  # there is nothing to be seen, as where all scores are 0
                return
            for points in ax.collections:
                points.set_rasterized(len(points.get_offsets()) > _SHAPES or bool(points.get_rasterized()))
            out[name] = Chart(inline(made, name, text, _CSS), says)

    if run.scores is not None:
        add(
            "scores",
            f"Histogram of the scores of {run.sample.n_rows:,} rows on a logarithmic axis, with the drawn rows outlined",
            "Grey: all rows, by their score. Outlined: the drawn ones. Where the outline meets the bars every row was drawn; to the "
            "left ever fewer were, and each of them stands for more.",
            lambda ax: plots.scores(run.scores, sample=run.sample, ax=ax),
        )
        add(
            "lorenz",
            "Lorenz curve of the scores: share of their sum over share of the rows",
            "The further the curve hangs below the dashed line, the more a few rows matter, and the more sampling by scores gains "
            "over picking rows by chance.",
            lambda ax: plots.lorenz(run.scores, ax=ax),
        )
    add(
        "weights",
        f"Histogram of the weights of the {len(run.sample):,} drawn rows",
        "Rows at 1 were sure to be drawn and stand for themselves; those at the right stand for many alike.",
        lambda ax: _weights(run, ax),
    )
    found = residuals_of(run)
    if found is not None:
        add(
            "residuals",
            f"Residual against leverage of the {len(run.sample):,} drawn rows",
            f"Points are drawn rows (cells, where they are many) with their residual, {found.what}, at the fit. To the right lie rows that are unlike the others, "
            "far from the middle those that the fit misses. A row that is both pulls the fit: beyond each curve lies the share of the "
            "rows, by weight, that stands at it. Look at the outermost first.",
            lambda ax: _residuals(run, found, ax),
        )
    if sizes is not None:
        add(
            "sizes",
            "Loss over all rows against the number of rows drawn",
            "Where the line is flat, more rows would bring little.",
            lambda ax: _sizes(sizes, ax),
            more=_NAME * len(sizes.names) if isinstance(sizes, Comparison) else 0.0,
        )
    return out


def _weights(run: "Run", ax: Any) -> None:
    plots.scores(run.sample.weights, bins=40, ax=ax)
    _untitled(ax)
    headline(ax, f"Weights of {len(run.sample):,} drawn rows")
    ax.set_xlabel("weight: rows that a drawn one stands for")
    ax.set_ylabel("drawn rows")


def _residuals(run: "Run", found: Residuals, ax: Any) -> None:
    weights = run.sample.weights if run.sample_weight is None else run.sample.weights * run.sample_weight
    plots.residual_leverage(found.residuals, found.leverage, weights=weights, ax=ax)


def _sizes(sizes: Comparison | list[Size], ax: Any) -> None:
    plots.loss_against_size(sizes, ax=ax)
    if not isinstance(sizes, Comparison):
        _untitled(ax)
        headline(ax, f"Loss over all rows at {len({size.sample.n_draws for size in sizes})} sizes")


def _untitled(ax: Any) -> None:
    """Take the title and the notes off a picture that shows something else."""
    ax.set_title("", loc="left")
    for note in list(ax.texts):
        note.remove()


@contextmanager
def _drawn_in_ink() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(_RC), warnings.catch_warnings():
        # Text stays text, and the reader's browser has the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield
