"""`report_on`: look at the arguments, collect what the page shows, render it, write it whole."""

import os
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dask_nlis.diagnostics import Comparison
from dask_nlis.diagnostics.row_tables import check_count
from dask_nlis.errors import InputError, InputTypeError, MissingExtraError
from dask_nlis.intake import open_array
from dask_nlis.pages import STYLE, check_page, policy, template, write_page
from dask_nlis.report.charts import charts_of
from dask_nlis.report.images import image_shape_of, images_of
from dask_nlis.report.manifest import manifest_of, moment
from dask_nlis.report.noun import Report
from dask_nlis.report.parameters import WIDTH, parameters_of
from dask_nlis.report.rows import rows_of
from dask_nlis.report.sizes import Size, sizes_of, unfitted
from dask_nlis.report.weights import weights_of
from dask_nlis.report.words import counted_rows, cut, number, percent, scores_in_words, verdict_of

if TYPE_CHECKING:
    from dask_nlis.pipeline import Run

#: Most rows of a table, so that no page grows large.
MOST_ROWS = 100


def report_on(
    run: "Run",
    path: str | os.PathLike[str] | None,
    *,
    X: Any,
    image_shape: Sequence[int] | None,
    others: Any,
    k: int,
    overwrite: bool,
) -> Report:
    """Make the page of a run and write it; the arguments are those of `Run.report`."""
    if not isinstance(overwrite, bool):
        raise InputTypeError(f"overwrite={overwrite!r} is {type(overwrite).__name__}; give True or False")
    check_count("k", k)
    if k > MOST_ROWS:
        raise InputError(f"k={k} is above the {MOST_ROWS} rows a page holds; give fewer, or look at nlis.top_rows")
    if find_spec("matplotlib") is None:
        raise MissingExtraError("report draws with matplotlib; pip install 'dask-nlis[plot]'")
    target = None if path is None else check_page("path", path, overwrite=overwrite)
    if target is not None and run.path is not None and _is_inside(target, run.path):
        raise InputError(f"path={target[:120]!r} lies in the store of the run; give a path outside of it")
    shape = image_shape_of(run, image_shape)
    _check_features(run, X)
    sizes = sizes_of(run, others)
    page = _page(run, X, shape, sizes, unfitted(run, others), int(k))
    if target is not None:
        write_page("path", target, page)
    return Report(page, target)


def _is_inside(target: str, store: str) -> bool:
    if "://" in store:
        return False
    inside, folder = os.path.realpath(target), os.path.realpath(store)
    return inside == folder or inside.startswith(folder + os.sep)


def _check_features(run: "Run", X: Any) -> None:
    if X is None:
        return
    shape, wanted = open_array("X", X).array.shape, (run.sample.n_rows, len(run.fit.feature_names))
    stated = run.problem.input_shape
    if shape != wanted and (stated is None or shape != (wanted[0], *stated)):
        raise InputError(f"X has shape {shape}, but the run scored {wanted}; give the X it was made of")


def _page(
    run: "Run",
    X: Any,
    shape: tuple[int, ...] | None,
    sizes: Comparison | list[Size] | None,
    without_fit: list[int],
    k: int,
) -> str:
    rows = rows_of(run, X, k, as_images=shape is not None)
    pictures = None
    if shape is not None:
        pictures = {
            "highest": images_of(rows.highest, shape, rows.scored),
            "lowest": images_of(rows.lowest, shape, rows.scored),
        }
    room = files("dask_nlis.report")
    style = STYLE + room.joinpath("page.css").read_text("utf-8")
    script = room.joinpath("page.js").read_text("utf-8")
    return template(
        "dask_nlis.report",
        "page.html.jinja",
        {"number": number, "percent": percent, "moment": moment, "cut": cut, "repr": repr},
    ).render(
        run=run,
        verdict=verdict_of(run),
        n_rows=counted_rows(run),
        about_scores=scores_in_words(run),
        rows=rows,
        images=pictures,
        charts=charts_of(run, sizes),
        sizes=() if sizes is None or isinstance(sizes, Comparison) else sizes,
        without_fit=without_fit,
        parameters=parameters_of(run),
        width=WIDTH,
        weights=weights_of(run),
        manifest=manifest_of(run),
        style=style,
        script=script,
        policy=policy(style, script),
    )
