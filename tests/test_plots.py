"""Pictures: what is drawn is what the numbers are, in one read; nothing of matplotlib's state changes; colours and text."""

import dataclasses
import doctest
import functools
import html
import io
import itertools
import sys
import tracemalloc
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, Tasks, cut, no_compute
from spoils import BAD

import dask_nlis as nlis
from dask_nlis import plots
from dask_nlis.errors import NlisError, NlisWarning
from dask_nlis.plots.palette import COLOURS, GREY, MARKERS
from dask_nlis.plots.residual_leverage import _MOST_POINTS
from dask_nlis.plots.scores import _block as block_of_scores

pytestmark = pytest.mark.adapters
mpl = pytest.importorskip("matplotlib")
from matplotlib.axes import Axes  # noqa: E402 (after it is known to be there)
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.collections import PathCollection, QuadMesh  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from matplotlib.transforms import Bbox  # noqa: E402

N = 3_000


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(3).lognormal(-7, 1.5, N)


@pytest.fixture(scope="module")
def problem():
    return nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    return X, X @ [0.5, -0.2, 0.1] + 0.3 * rng.standard_normal(400)


@pytest.fixture(scope="module")
def comparison(problem, data):
    names = {"uniform": np.ones(400), "leverage": nlis.leverage_scores(data[0], nlis.factorize(data[0]))}
    best = nlis.refit(problem, *data, np.ones(400), n_starts=1).theta
    return nlis.compare(problem, *data, names, sizes=[30, 60, 120], seeds=7, theta=best, n_starts=1)


@pytest.fixture(scope="module")
def drifted(problem, data):
    return nlis.drift(problem, *data, [np.full(4, 0.02 * k**2) for k in range(1, 6)], top=20)


@pytest.fixture(scope="module")
def drawings(scores, comparison, drifted):
    """A call of each function that draws on given Axes."""
    rng = np.random.default_rng(7)
    many = rng.standard_normal(_MOST_POINTS + 1), rng.lognormal(-7, 1, _MOST_POINTS + 1)
    return {
        "scores": lambda ax=None: plots.scores(scores, ax=ax),
        "scores, sample": lambda ax=None: plots.scores(
            np.append(scores, [0, np.nan]), sample=nlis.draw(np.append(scores, [0, 0]), 300, seed=0), ax=ax
        ),
        "lorenz": lambda ax=None: plots.lorenz(scores, ax=ax),
        "loss_against_size": lambda ax=None: plots.loss_against_size(comparison, ax=ax),
        "gallery": lambda ax=None: plots.gallery(np.eye(16), (4, 4), titles=list("abcdefghijklmnop"), ax=ax)[0],
        "residual_leverage": lambda ax=None: plots.residual_leverage(many[0][:99], many[1][:99], ax=ax),
        "residual_leverage, cells": lambda ax=None: plots.residual_leverage(*many, ax=ax),
        "drift": lambda ax=None: plots.drift(drifted, ax=ax),
    }


NAMES = (
    *("scores", "scores, sample", "lorenz", "loss_against_size", "gallery", "residual_leverage"),
    *("residual_leverage, cells", "drift"),
)


def rendered(figure):
    """Lay a figure out, all but the pixels, and return what its text is measured with."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return canvas.get_renderer()


def axes(width=6.4, height=4.2):
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def texts(ax):
    """All text that is drawn."""
    hidden = {
        id(label)
        for axis in (ax.xaxis, ax.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not axis.get_view_interval()[0] <= tick.get_loc() <= axis.get_view_interval()[1]
    }
    found = [text for text in ax.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in found if id(text) not in hidden]


def notes(ax):
    return " ".join(" ".join(text.get_text() for text in ax.texts).split())


# What is drawn.


@pytest.mark.parametrize("bins", [1, 13, 60, 400])
def test_bars_are_numpy_s_histogram_over_a_log_axis(scores, bins):
    ax = plots.scores(scores, bins=bins)
    (steps,) = ax.patches
    heights, edges, _ = steps.get_data()
    assert len(heights) == bins
    np.testing.assert_array_equal(heights, np.histogram(scores, edges)[0])
    assert heights.sum() == N
    assert mpl.colors.to_hex(steps.get_edgecolor()) == GREY  # which stands out, as the paler inside need not
    assert (steps.get_linewidth(), steps.get_edgecolor()[3]) == (1, 1)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("score", "rows")
    assert ax.get_title(loc="left") == "Scores of 3,000 rows"
    low, high = ax.get_xlim()
    assert low < scores.min()
    assert high > scores.max()


def test_drawn_rows_are_a_second_outline_of_the_same_bars(scores):
    sample = nlis.draw(scores, 500, seed=1)
    ax = plots.scores(da.from_array(scores, 700), sample=sample)
    whole, drawn = (patch.get_data() for patch in ax.patches)
    np.testing.assert_array_equal(whole.edges, drawn.edges)
    np.testing.assert_array_equal(drawn.values, np.histogram(scores[sample.indices], drawn.edges)[0])
    assert drawn.values.sum() == len(sample)
    assert (drawn.values <= whole.values).all()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["all 3,000 rows", f"{len(sample)} rows drawn"]


def test_rows_of_score_zero_and_rows_that_are_not_finite_are_counted_beside(scores):
    values = np.concatenate([scores, [0, 0, np.nan, np.inf]])
    for one in (values, da.from_array(values, 450)):
        ax = plots.scores(one)
        assert notes(ax) == "besides: 2 rows of score zero, 2 rows not finite"
        assert ax.patches[0].get_data().values.sum() == N
    assert notes(plots.scores(scores)) == ""


@pytest.mark.parametrize("values", [[0.0, 0.0], [np.nan, np.inf], [0.3] * 5, [5e-324, 1e300], [1.0, 1.0 + 2**-52]])
def test_scores_of_few_kinds_are_drawn(values):
    ax = plots.scores(np.array(values))
    rendered(ax.figure)
    positive = [value for value in values if 0 < value < np.inf]
    assert sum(patch.get_data().values.sum() for patch in ax.patches) == len(positive)


def gini(values):
    """Half of the mean difference of all pairs over the mean: the definition."""
    return float(np.abs(np.subtract.outer(values, values)).mean() / (2 * values.mean()))


POPULATIONS = {
    "log-normal": lambda rng: rng.lognormal(-7, 1.5, 1500),
    "heavy": lambda rng: rng.pareto(1.1, 1500),
    "with zeros": lambda rng: np.where(rng.random(1500) < 0.4, 0.0, rng.random(1500)),
    "equal": lambda rng: np.full(1500, 0.25),
    "all in one": lambda rng: np.eye(1500)[7],
    "nearly equal": lambda rng: 1 + 1e-9 * rng.random(1500),
}


@pytest.mark.parametrize("kind", POPULATIONS)
def test_the_lorenz_curve_and_gini_are_by_their_definitions(kind, rng):
    values = POPULATIONS[kind](rng)
    ax = plots.lorenz(da.from_array(values, 400))
    diagonal, curve, half = ax.lines[:3]
    np.testing.assert_array_equal(diagonal.get_data(), [[0, 1], [0, 1]])
    rows, carried = curve.get_data()
    ordered = np.concatenate([[0], np.cumsum(np.sort(values))]) / values.sum()
    np.testing.assert_allclose(carried, np.interp(rows, np.linspace(0, 1, 1501), ordered), atol=1e-9)
    assert (np.diff(rows) >= 0).all()
    area = 1 - np.sum(np.diff(rows) * (carried[1:] + carried[:-1]))
    assert area == pytest.approx(gini(values), abs=2e-4)
    shown = next(text.get_text() for text in ax.texts if "Gini" in text.get_text())
    assert abs(float(shown.split()[-1]) - gini(values)) <= 0.005 + 2e-4
    # The share of the highest rows that carries half: exact to a row.
    highest = np.cumsum(np.sort(values)[::-1]) / values.sum()
    count = np.searchsorted(highest, 0.5 - 1e-12) + 1
    share = 1 - half.get_xdata()[0]
    assert (count - 1) / 1500 - 1e-3 <= share <= count / 1500 + 1e-3
    said = ax.get_title(loc="left").removesuffix(" % of rows carry half the sum")
    assert float(said) == pytest.approx(100 * count / 1500, rel=0.06)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (0, 1))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("share of rows, lowest scores first", "share of the sum of scores")


def test_the_lorenz_curve_leaves_out_what_is_not_finite_and_says_so(scores):
    with_others = plots.lorenz(np.append(scores, [np.nan, np.inf]))
    np.testing.assert_array_equal(with_others.lines[1].get_data(), plots.lorenz(scores).lines[1].get_data())
    assert "2 rows not finite, left out" in notes(with_others)


def test_losses_are_the_quartiles_of_the_comparison(comparison):
    ax = plots.loss_against_size(comparison)
    found = comparison.quartiles()
    for name, line, band in zip(("uniform", "leverage"), ax.lines, ax.collections, strict=True):
        x, y = line.get_data()
        assert x.tolist() == [30, 60, 120]
        assert y.tolist() == [found[name, size][1] for size in (30, 60, 120)]
        corners = band.get_paths()[0].vertices
        for size in (30, 60, 120):
            mine = corners[corners[:, 0] == size, 1]
            assert (mine.min(), mine.max()) == (found[name, size][0], found[name, size][2])
    assert {text.get_text() for text in ax.texts} >= {"uniform", "leverage"}
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_ylabel() == "excess loss / reference loss"
    assert "median and quartiles of 7 seeds, multinomial draws" in notes(ax)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["30", "60", "120"]


def test_runs_of_one_size_are_seeds(problem, data):
    runs = [nlis.run(problem, *data, size=size, seed=seed) for size in (40, 80) for seed in range(3)]
    ax = plots.loss_against_size(runs)
    (line,) = ax.lines
    assert line.get_xdata().tolist() == [40, 80]
    assert line.get_ydata().tolist() == [np.median([run.total_loss for run in three]) for three in (runs[:3], runs[3:])]
    assert ax.get_ylabel() == "loss over all rows"
    assert "6 runs on 400 rows; median and quartiles of up to 3 seeds" in notes(ax)
    assert "seeds" not in notes(plots.loss_against_size(runs[::3]))


def test_losses_below_that_of_the_reference_are_drawn_on_a_linear_axis(problem, data):
    X, y = data
    names = {"uniform": np.ones(400)}
    found = nlis.compare(problem, X, y, names, sizes=[100, 200], seeds=5, theta=np.full(4, 0.9), n_starts=1)
    assert (found.excess < 0).all()
    ax = plots.loss_against_size(found)
    assert ax.get_yscale() == "linear"
    assert ax.lines[0].get_ydata().tolist() == [found.quartiles()["uniform", size][1] for size in (100, 200)]


def test_a_band_that_goes_below_zero_leaves_the_picture(comparison):
    excess = np.array(comparison.excess)
    excess[(comparison.name == 0) & (comparison.size == 60) & (comparison.seed < 3)] = -0.1
    found = dataclasses.replace(comparison, excess=excess)
    low, middle, _ = found.quartiles()["uniform", 60]
    assert low < 0 < middle
    ax = plots.loss_against_size(found)
    assert ax.get_yscale() == "log"
    positive = [value for cell in found.quartiles().values() for value in cell if value > 0]
    assert ax.get_ylim()[0] == pytest.approx(min(positive) / 1.3)
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[corners[:, 0] == 60, 1].min() < ax.get_ylim()[0]


def test_a_gallery_shows_rows_as_images_in_one_grey_scale():
    rows = np.arange(24.0).reshape(4, 6)
    for images in (rows, da.from_array(rows, (3, 6)), rows.tolist()):
        found = plots.gallery(images, (2, 3), titles=["a", "b", "c", "$d"], columns=3)
        assert found.shape == (4,)
        for ax, row in zip(found, rows, strict=True):
            (image,) = ax.images
            np.testing.assert_allclose(image.get_array(), row.reshape(2, 3) / 23)
            assert image.get_clim() == (0, 1)
        assert [ax.get_title() for ax in found] == ["a", "b", "c", "$d"]
    rendered(found[0].figure)
    boxes = np.array([ax.get_window_extent().bounds for ax in found])
    assert len(set(boxes[:3, 1].round(6))) == 1
    assert boxes[3, 1] < boxes[0, 1]
    assert boxes[3, 0] == pytest.approx(boxes[0, 0])


@pytest.mark.parametrize("channels", [3, 4])
def test_images_of_channels_are_in_colour(channels, rng):
    rows = rng.random((2, 4 * 5 * channels))
    found = plots.gallery(rows, (4, 5, channels))
    scaled = (rows - rows.min()) / (rows.max() - rows.min())
    for ax, row in zip(found, scaled, strict=True):
        np.testing.assert_allclose(ax.images[0].get_array(), row.reshape(4, 5, channels), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_images_of_one_value_are_drawn(value):
    (ax,) = plots.gallery(np.full((1, 4), value), (2, 2))
    assert not ax.images[0].get_array().any()


def test_residuals_are_points_whose_area_is_by_weight(rng):
    r, h, w = rng.standard_normal(200), rng.lognormal(-5, 1, 200), rng.uniform(1, 2, 200)
    h[7], r[8] = 0, np.nan
    ax = plots.residual_leverage(r, h, weights=w, label="residual, EUR")
    drawn = [each for each in ax.collections if isinstance(each, PathCollection)]
    offsets = np.concatenate([each.get_offsets() for each in drawn])
    areas = np.concatenate([np.full(len(each.get_offsets()), each.get_sizes()[0]) for each in drawn])
    kept = np.delete(np.arange(200), [7, 8])
    assert sorted(map(tuple, offsets.tolist())) == sorted(zip(h[kept].tolist(), r[kept].tolist(), strict=True))
    by_place = {place: w[row] for row, place in zip(kept, zip(h[kept], r[kept], strict=True), strict=True)}
    ratio = areas / [by_place[tuple(place)] for place in offsets.tolist()]
    assert ratio.max() / ratio.min() <= 1.2 * (1 + 1e-9)
    assert areas.max() / areas.min() > 1.6
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == ("leverage", "residual, EUR", "log")
    assert "left out: 2 rows of leverage 0 or not finite" in notes(ax)


@pytest.mark.parametrize("n", [300, 600, _MOST_POINTS + 1, 20_000])
def test_curves_have_their_share_of_the_weights_beyond_them(n, rng):
    r, h, w = rng.standard_normal(n), rng.lognormal(-6, 1, n), rng.random(n)
    ax = plots.residual_leverage(da.from_array(r, 997), h, weights=w)
    curves = [line for line in ax.lines if len(line.get_xdata()) > 2]
    shares = (0.1, 0.01) if n >= 500 else (0.1,)
    assert len(curves) == 2 * len(shares)
    for share, above, below in zip(reversed(shares), curves[::2], curves[1::2], strict=True):
        x, y = above.get_data()
        np.testing.assert_array_equal(y, -below.get_ydata())
        edge = y * np.sqrt(x)
        np.testing.assert_allclose(edge, edge[0])
        beyond = w[np.abs(r) * np.sqrt(h) >= edge[0]].sum() / w.sum()
        assert share - 3 / n - 0.01 * share <= beyond <= share + 1e-9
    assert ("10 % and 1 %" in notes(ax)) == (n >= 500)


def test_many_residuals_are_counted_in_cells(rng):
    n = _MOST_POINTS + 1
    r, h, w = rng.standard_normal(n), rng.lognormal(-6, 1, n), rng.integers(1, 5, n).astype(float)
    h[:3] = 0
    for weights, each in ((None, np.ones(n)), (w, w)):
        ax = plots.residual_leverage(da.from_array(r, 800), da.from_array(h, 1000), weights=weights)
        (mesh,) = [found for found in ax.collections if isinstance(found, QuadMesh)]
        corners = mesh.get_coordinates()
        across, up = corners[0, :, 0], corners[:, 0, 1]
        expected, *_ = np.histogram2d(h[3:], r[3:], [across, up], weights=each[3:])
        np.testing.assert_array_equal(mesh.get_array().filled(0).reshape(expected.T.shape), expected.T)
        assert f"up to {expected.max():.0f}" in notes(ax)
        assert not [found for found in ax.collections if isinstance(found, PathCollection)]


def test_drift_is_drawn_against_the_last_and_the_next(drifted):
    ax = plots.drift(drifted)
    lines = {line.get_label(): line.get_data() for line in ax.lines}
    assert len(lines) == 8
    pairs = drifted.pairs.tolist()
    for name, field in (
        ("affinity", "affinity"),
        ("rank correlation", "rank_correlation"),
        ("shared top rows", "top_overlap"),
        ("beta", "beta"),
    ):
        values = getattr(drifted, field)
        for which, later in (("last", lambda k: 4), ("next", lambda k: k + 1)):
            x, y = lines[f"{name}, {which}"]
            assert x.tolist() == [0, 1, 2, 3]
            assert y.tolist() == [values[pairs.index([k, later(k)])] for k in range(4)]
    assert {text.get_text() for text in ax.texts} >= {"affinity", "rank correlation", "shared top rows", "beta"}
    assert "loss over all rows from" in notes(ax)


def test_drift_of_two_checkpoints_is_a_point_each(problem, data):
    ax = plots.drift(nlis.drift(problem, *data, [np.zeros(4), np.full(4, 0.1)]))
    assert [line.get_xdata().tolist() for line in ax.lines] == [[0]] * 4
    rendered(ax.figure)


# How it is read.


def test_each_array_is_read_once_in_one_compute_of_a_task_a_block(scores):
    sample = nlis.draw(scores, 100, seed=0)
    r, h, w = (CountingArray(np.abs(np.roll(np.resize(scores, 8000), k))) for k in range(3))
    one = CountingArray(scores)
    calls = [
        (lambda: plots.scores(one.dask(500), sample=sample), [one], 6),
        (lambda: plots.lorenz(one.dask(500)), [one], 6),
        (lambda: plots.residual_leverage(r.dask(1000), h.dask(1000), weights=w.dask(1000)), [r, h, w], 8),
    ]
    for call, arrays, blocks in calls:
        with Tasks() as tasks:
            call()
        assert [array.reads() for array in arrays] == [1] * len(arrays)
        assert tasks.computes == 1
        assert tasks.labels == {"nlis-plot": blocks}


def test_images_are_read_once(rng):
    rows = CountingArray(rng.random((30, 4)))
    plots.gallery(rows.dask(8), (2, 2))
    assert rows.reads() == 1


@pytest.mark.parametrize("sizes", [(N,), (1, 7, 0, 300), (64,)])
def test_pictures_do_not_depend_on_blocks(scores, sizes, rng):
    lazy = da.from_array(scores, (cut(N, sizes) if 0 not in sizes else (1, 7, 0, N - 8),))
    sample = nlis.draw(scores, 200, seed=0)
    for mine, other in zip(
        plots.scores(lazy, sample=sample).patches, plots.scores(scores, sample=sample).patches, strict=True
    ):
        np.testing.assert_array_equal(mine.get_data().values, other.get_data().values)
        np.testing.assert_array_equal(mine.get_data().edges, other.get_data().edges)
    for mine, other in zip(plots.lorenz(lazy).lines, plots.lorenz(scores).lines, strict=True):
        np.testing.assert_allclose(mine.get_data(), other.get_data(), rtol=1e-12)


def test_pictures_are_drawn_on_a_cluster(scores, client):
    sample = nlis.draw(scores, 200, seed=0)
    many = np.resize(scores, _MOST_POINTS + 1)

    def drawn(block):
        lazy, long = da.from_array(scores, block), da.from_array(many, block)
        steps = [patch.get_data().values for patch in plots.scores(lazy, sample=sample).patches]
        mesh = plots.residual_leverage(long, long).collections[0].get_array().filled(0)
        return [*steps, *plots.lorenz(lazy).lines[1].get_data(), mesh]

    on_cluster = drawn(450)
    with dask.config.set(scheduler="synchronous"):
        here = drawn(N)
    for mine, other in zip(on_cluster, here, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_series_data_arrays_and_paths_serve(scores, tmp_path):
    pd = pytest.importorskip("pandas")
    xr = pytest.importorskip("xarray")
    whole = plots.scores(scores).patches[0].get_data().values
    zarr.save_array(tmp_path / "scores.zarr", scores)
    for form in (
        tmp_path / "scores.zarr",
        pd.Series(scores),
        xr.DataArray(scores, dims="row"),
        scores[:, None],
        scores.tolist(),
    ):
        np.testing.assert_array_equal(plots.scores(form).patches[0].get_data().values, whole)
    whole32 = plots.scores(scores.astype(np.float32)).patches[0].get_data().values
    assert whole32.sum() == N


def test_a_block_answers_with_as_many_numbers_as_there_are_bins_however_many_rows_it_has(rng):
    values = np.exp(rng.uniform(-700, 700, 1_000_000))
    answer = block_of_scores(values, 0, np.zeros(0, np.int64))
    assert sum(part.counts.nbytes + part.sums.nbytes for part in answer) <= 2**16


def test_nothing_of_length_n_is_held():
    """Twenty million scores are 160 MB; a block of them is 4 MB."""
    n, rows = 20_000_000, 500_000
    made = {"dtype": np.float64, "meta": np.empty(0), "chunks": ((rows,) * (n // rows),)}
    lazy = da.map_blocks(lambda block_id: np.random.default_rng(block_id).lognormal(0, 2, rows), **made)
    with dask.config.set(scheduler="synchronous"):
        plots.scores(lazy[:rows])  # matplotlib itself takes some
        tracemalloc.start()
        try:
            ax = plots.scores(lazy)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert ax.patches[0].get_data().values.sum() == n
    assert most < 50e6


# What does not belong.


@functools.cache
def valid():
    scores = np.linspace(0.1, 1, 24)
    X, y = np.arange(24.0).reshape(24, 1), np.arange(24.0) ** 1.1
    problem = nlis.Problem(nlis.Linear())
    return {
        "scores": {"scores": scores, "sample": nlis.draw(scores, 9, seed=0), "bins": 10, "ax": None},
        "lorenz": {"scores": scores, "ax": None},
        "loss_against_size": {
            "comparison": nlis.compare(problem, X, y, {"uniform": scores}, sizes=[9, 12], seeds=2, n_starts=1),
            "ax": None,
        },
        "gallery": {"images": np.eye(4), "shape": (2, 2), "titles": ["a", "b", "c", "d"], "columns": 2, "ax": None},
        "residual_leverage": {"residuals": scores, "leverage": scores, "weights": scores, "label": "r", "ax": None},
        "drift": {"drift": nlis.drift(problem, X, y, [[0.1, 0.1], [1.0, 0.0]]), "ax": None},
    }


VALID = [(name, argument) for name, given in valid().items() for argument in given]


def test_every_argument_is_spoilt():
    assert {name for name, _ in VALID} == set(plots.__all__)


@pytest.mark.parametrize(("name", "argument"), VALID)
def test_what_does_not_belong_is_a_picture_or_one_error_of_ours_naming_the_argument(name, argument):
    wrong = []
    for kind, bad in BAD.items():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                found = getattr(plots, name)(**valid()[name] | {argument: bad()})
                rendered((found[0] if name == "gallery" else found).figure)
            except NlisError as error:
                text = str(error)
                if "\n" in text or len(text) > 300 or argument not in text or "; " not in text:
                    wrong.append(f"{kind}: {text}")
            except Exception as error:
                wrong.append(f"{kind}: {type(error).__name__}: {error}")
        wrong += [f"{kind}: warns {each.message}" for each in seen if not issubclass(each.category, NlisWarning)]
    assert not wrong


def test_what_metadata_show_is_refused_before_any_compute(scores):
    lazy = da.from_array(scores, 500)
    sample = nlis.draw(scores[:100], 9, seed=0)
    with no_compute():
        for call, message in (
            (lambda: plots.scores(lazy, sample=sample), "sample is drawn from 100 rows, but there are 3,000 scores"),
            (lambda: plots.scores(lazy, bins=401), "bins=401 is not allowed; give a whole number from 1 to 400"),
            (lambda: plots.scores(lazy[:, None] * np.ones(2)), r"scores has shape \(3000, 2\)"),
            (lambda: plots.lorenz(lazy, ax=3), "ax is int; give matplotlib Axes"),
            (
                lambda: plots.residual_leverage(lazy, lazy[:9]),
                "leverage has 9 rows, but residuals 3,000; give as many of both",
            ),
            (lambda: plots.residual_leverage(lazy, lazy, label=3), "label is int"),
            (
                lambda: plots.gallery(da.ones((2000, 4), chunks=9), (2, 2)),
                "images have 2,000 rows of 4; give 1 to 1,000",
            ),
            (
                lambda: plots.gallery(da.ones((9, 4), chunks=9), (2, 3)),
                r"images have shape \(9, 4\); for shape=\(2, 3\)",
            ),
            (lambda: plots.gallery(da.ones((9, 4), chunks=9), (2, 2), titles=["a"]), "titles has 1 texts"),
            (lambda: plots.gallery(da.ones((9, 8), chunks=9), (2, 2, 2)), "has 2 channels"),
        ):
            with pytest.raises((nlis.InputError, nlis.InputTypeError), match=message):
                call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.scores(np.array([1.0, -2.0])), "scores hold a negative value, first at row 1; give scores >= 0"),
        (lambda: plots.scores(da.from_array([1.0, 2, 3, -1], 1)), "first at row 3"),
        (lambda: plots.scores(np.array([1.0, 1e301])), "scores hold values beyond 1e[+]300"),
        (lambda: plots.lorenz(np.zeros(3)), "scores hold no positive finite value in 3 rows"),
        (lambda: plots.lorenz(np.full(3, 1e308)), "scores have a sum above the largest float64"),
        (lambda: plots.gallery([[1.0, np.nan]], (1, 2)), "images hold values that are not finite, first in row 0"),
        (lambda: plots.residual_leverage([1.0, 1], [0.1, -0.1]), "leverage hold a value .* first at row 1"),
        (lambda: plots.residual_leverage([1.0, 1], [0.1, 0.1], weights=[np.nan, 1]), "weights hold .* first at row 0"),
        (lambda: plots.residual_leverage([1.0, 1], [0.1, 0.1], weights=[0, 0]), "weights are 0 in all rows"),
        (lambda: plots.residual_leverage(np.ones(6000), np.ones(6000), weights=np.zeros(6000)), "weights are 0 in all"),
        (lambda: plots.residual_leverage([1.0, 1], [0.0, np.nan]), "leverage is 0, or"),
        (lambda: plots.residual_leverage([1.0, -1e301], [0.1, 0.1]), "residuals hold .* first at row 1"),
        (lambda: plots.loss_against_size([]), "comparison is empty; give what compare returned"),
        (lambda: plots.loss_against_size([3]), "comparison holds a int"),
    ],
)
def test_what_values_show_is_one_error(call, message):
    with pytest.raises((nlis.InputError, nlis.InputTypeError), match=message):
        call()


def test_runs_on_other_rows_are_refused(problem, data):
    X, y = data
    runs = [nlis.run(problem, X[:n], y[:n], size=40, seed=0) for n in (300, 400)]
    with pytest.raises(
        nlis.InputError, match="comparison holds runs on 300 and on 400 rows; give runs on the same rows"
    ):
        plots.loss_against_size(runs)


def test_without_matplotlib_a_line_says_what_to_install_before_anything_is_computed(scores, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with no_compute(), pytest.raises(ImportError, match=r"plots need matplotlib; pip install 'dask-nlis\[plot\]'"):
        plots.scores(da.from_array(scores, 500))


# How it looks.


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_drawn_where_they_are_told_to_be_and_change_no_state(drawings, name):
    before = dict(mpl.rcParams)
    import matplotlib.pyplot as plt

    ax = axes()
    made = drawings[name](ax)
    assert isinstance(made, Axes)
    assert made.figure is ax.figure
    if name != "gallery":
        assert made is ax
    own = drawings[name]()
    assert own.figure is not ax.figure
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("size", [(6.4, 4.2), (3.4, 3.6)])
@pytest.mark.parametrize("name", NAMES)
def test_text_lies_inside_the_picture_and_no_text_on_another(drawings, name, size):
    ax = drawings[name](axes(*size))
    figure = ax.figure
    renderer = rendered(figure)
    whole = figure.bbox.padded(1)
    seen = []
    for text in {id(text): text for one in figure.axes for text in texts(one)}.values():
        box = text.get_tightbbox(renderer) if text.get_rotation() else text.get_window_extent(renderer)
        seen.append((text.get_text(), box))
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1, text.get_text()
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1, text.get_text()
    assert len(seen) > 4
    for (a, box_a), (b, box_b) in itertools.combinations(seen, 2):
        overlap = Bbox.intersection(box_a.padded(-1), box_b.padded(-1))
        assert overlap is None, f"{a!r} on {b!r}"


@pytest.mark.parametrize("name", NAMES)
def test_text_follows_the_style(drawings, name):
    with mpl.style.context("dark_background"):
        ax = drawings[name]()
        assert {mpl.colors.to_rgb(text.get_color()) for one in ax.figure.axes for text in texts(one)} == {(1, 1, 1)}
    ax = drawings[name]()
    assert {mpl.colors.to_rgb(text.get_color()) for one in ax.figure.axes for text in texts(one)} == {(0, 0, 0)}


def test_names_are_text_whatever_they_hold(problem, data):
    hostile = ("$x_$ <script>alert(1)</script>", "\\frac{", "a\nb\tc", "_hidden", "long " * 60)
    found = nlis.compare(problem, *data, {name: np.ones(400) for name in hostile}, sizes=[50, 90], seeds=2, n_starts=1)
    for width in (3.4, 9):
        ax = plots.loss_against_size(found, ax=axes(width))
        rendered(ax.figure)
        legend = ax.get_legend()
        names = [text.get_text() for text in (legend.get_texts() if legend else ax.texts)]
        assert names[:4] == ["$x_$ <script>alert(1)</script>", "\\frac{", "a b c", "_hidden"] or width < 5
        assert "…" in names[-1]
    ax = plots.residual_leverage([1.0, 2.0], [0.1, 0.2], label="$r_ {")
    rendered(ax.figure)
    assert ax.get_ylabel() == "$r_ {"


#: Cones of the eye that are missing, as matrices on linear RGB (Machado, Oliveira & Fernandes 2009, severity 1).
SIGHT = {
    "all": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    rgb = np.array(mpl.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """WCAG 2.2: relative luminances, 1 to 21."""
    low, high = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (a, b))
    return (high + 0.05) / (low + 0.05)


def oklab(rgb):
    """Ottosson 2020: a space in which distances are about those seen."""
    cones = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]]) @ np.clip(rgb, 0, 1)  # fmt: skip
    return np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]]) @ np.cbrt(cones)  # fmt: skip


@pytest.mark.parametrize("ground", ["#ffffff", "#14161a"])
@pytest.mark.parametrize("colour", [*COLOURS, GREY])
def test_colours_stand_out_from_light_and_dark_grounds(colour, ground):
    assert contrast(colour, ground) >= 3


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart_by_everybody(sight):
    seen = {colour: oklab(np.array(SIGHT[sight]) @ linear(colour)) for colour in COLOURS}
    closest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen.values(), 2))
    assert closest > 0.08
    assert len(MARKERS) > len(COLOURS)


@pytest.mark.parametrize("name", plots.__all__)
def test_docstrings_run(name):
    found = doctest.testmod(sys.modules[f"dask_nlis.plots.{name}"])
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_small_as_svg_with_their_text_as_text(drawings, name):
    figure = drawings[name]().figure
    with mpl.rc_context({"svg.fonttype": "none"}):
        file = io.StringIO()
        figure.savefig(file, format="svg")
    drawn = file.getvalue()
    assert len(drawn) < 60_000
    assert all(text.get_text().splitlines()[0] in html.unescape(drawn) for one in figure.axes for text in texts(one))


def test_a_thousand_weighted_points_are_small_as_svg(rng):
    r, h, w = rng.standard_normal(1000), rng.lognormal(-6, 1, 1000), rng.lognormal(0, 1, 1000)
    file = io.StringIO()
    plots.residual_leverage(r, h, weights=w).figure.savefig(file, format="svg")
    assert len(file.getvalue()) < 250_000
