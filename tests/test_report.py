"""The page of a run: values are those of the run, markup is whole and inert, sizes are bounded, mistakes are one line."""

import base64
import dataclasses
import os
import stat
import threading
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from counting import no_compute, rows_of
from pages import Page

import dask_nlis as nlis
from dask_nlis.cli.main import group, main
from dask_nlis.models import LayerOf, LayerStack
from dask_nlis.report import verb
from dask_nlis.report.images import images_of
from dask_nlis.report.manifest import manifest_of
from dask_nlis.report.parameters import SHOWN, parameters_of
from dask_nlis.report.rows import COLUMNS, Row, rows_of as ends_of
from dask_nlis.report.words import BAD, CARE, GOOD, verdict_of

HOSTILE = [
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>&amp;",
    "]]></svg><style>*{display:none}</style>-->",
    "right\u202eleft\u2066",
    "nul\0 and\ttab\nline",
    "$\\frac{x}$ {{ 7 * 7 }} {% raw %}",
    "n" * 10_000,
    "\u05d0\u05d1 \u200b",
    "https://me:word@host/x?sig=abc",
    "plain",
]
N, D = 600, len(HOSTILE)
X, Y = rows_of(97, N, D)
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(9.0))
HIGHEST, LOWEST = "Rows with the highest scores", "Rows with the lowest scores"
PARAMETERS, SIZES = "Parameters of the fit", "Sizes that were run"


def ran(problem=PROBLEM, x=X, y=Y, **options):
    """A run that says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nlis.NlisWarning)
        return nlis.run(problem, x, y, **({"size": 150, "seed": 0} | options))


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A finished run in a store."""
    return ran(size=300, store=tmp_path_factory.mktemp("report") / "run.zarr")


@pytest.fixture(scope="module")
def hostile():
    """A run on columns of hostile names."""
    pd = pytest.importorskip("pandas")
    return ran(x=pd.DataFrame(X, columns=HOSTILE))


def page_of(job, **options):
    found = Page(job.report(**options).html)
    found.assert_closed()
    assert len(found.html.encode()) < 2e6
    return found


class TestWords:
    """What the page says, without a picture."""

    def test_a_good_run_is_good_in_every_finding(self, job):
        found = verdict_of(job)
        assert [each.about for each in found.findings] == ["Fit", "Sample", "Loss", "Intervals"]
        assert job.certificate.epsilon < 0.5
        assert {each.state for each in found.findings} == {found.state} == {GOOD}
        (sample,) = (each.says for each in found.findings if each.about == "Sample")
        for word in (f"{100 * job.certificate.epsilon:.0f} % (epsilon)", f"{job.certificate.n_sample}", f"{N:,}"):
            assert word in sample

    def test_a_constraint_that_is_active_withholds_intervals_and_says_so(self):
        found = verdict_of(ran(nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(0.1))))
        assert found.state == CARE
        (says,) = (each.says for each in found.findings if each.about == "Intervals")
        assert "a constraint is active (ball of radius 0.1)" in says

    def test_a_fit_that_is_not_ok_is_not_to_be_used_and_one_in_a_kink_with_care(self):
        labels = (X[:, 0] > 0).astype(float)
        separable = ran(nlis.Problem(nlis.Linear(), loss=nlis.LogisticLoss()), y=labels)
        assert not separable.fit.ok
        assert verdict_of(separable).state == BAD
        kink = ran(nlis.Problem(nlis.ReluNetwork(2)), x=X[:, :3])
        if not kink.fit.ok:
            assert "kink" in kink.fit.reasons[0]
            assert verdict_of(kink).findings[0].state == CARE

    def test_too_few_rows_rows_left_out_and_norm_scores_are_told(self):
        x = X[:, :3].copy()
        x[5, 1] = np.nan
        told = verdict_of(ran(x=x, scores="norm", missing="drop"))
        assert {each.about: each.state for each in told.findings} == {
            "Fit": GOOD, "Sample": CARE, "Loss": GOOD, "Intervals": GOOD, "Left out": CARE,
        }  # fmt: skip
        assert told.findings[-1].says.startswith("1 rows")
        few = verdict_of(ran(size=8, scheme="systematic", rounds=1))
        assert next(each for each in few.findings if each.about == "Sample").state == BAD

    def test_rows_are_those_of_the_tables_and_the_lowest_of_the_drawn_without_x(self, job):
        found = ends_of(job, None, 7)
        top = nlis.top_rows(job.scores, 7)
        assert [row.number for row in found.highest] == top.indices.tolist()
        assert [row.score for row in found.highest] == top.scores.tolist()
        scores = np.asarray(job.scores)[job.sample.indices]
        order = np.argsort(scores, kind="stable")[:7]
        assert [row.number for row in found.lowest] == job.sample.indices[order].tolist()
        drawn = dict(zip(job.sample.indices.tolist(), range(len(job.sample)), strict=True))
        for row in (*found.highest, *found.lowest):
            place = drawn.get(row.number)
            assert (row.weight, row.labels) == (
                (None, None) if place is None else (job.sample.weights[place], (job.sample_y[place],))
            )
            assert (row.features is None) is (place is None)
            if place is not None:
                assert np.array_equal(row.features, X[row.number])

    def test_with_x_all_rows_have_features_and_the_lowest_are_of_all(self, job):
        found = ends_of(job, X, 7)
        assert [row.number for row in found.lowest] == nlis.bottom_rows(job.scores, 7).indices.tolist()
        for row in (*found.highest, *found.lowest):
            assert np.array_equal(row.features, X[row.number])
        assert found.n_unknown == 0

    def test_without_scores_the_rows_are_ranked_by_their_probability(self):
        bare = ran(keep_scores=False)
        found = ends_of(bare, None, 5)
        order = np.argsort(-bare.sample.probabilities, kind="stable")
        assert [row.number for row in found.highest] == bare.sample.indices[order[:5]].tolist()
        assert found.scored == "probability"

    def test_of_many_columns_those_are_shown_in_which_the_rows_stand_out(self):
        x, y = rows_of(98, 400, 40)
        x[:5, 33] += 1e3
        found = ends_of(ran(nlis.Problem(nlis.Linear()), x=x, y=y, size=200), x, 5)
        assert len(found.columns) == COLUMNS
        assert 33 in found.columns
        assert found.columns == sorted(found.columns)

    def test_parameters_are_all_or_those_furthest_from_zero(self, job):
        found = parameters_of(job)
        assert [line.estimate for line in found.lines] == job.fit.theta.tolist()
        low, high = job.fit.confidence_interval()
        assert [(line.low, line.high) for line in found.lines] == list(zip(low.tolist(), high.tolist(), strict=True))
        for line in found.lines:
            assert line.left <= line.x <= line.right
            assert line.clear is (line.low > 0 or line.high < 0)
            assert (line.estimate > 0) is (line.x > found.zero)
        x, y = rows_of(99, 900, SHOWN + 20)
        wide = ran(nlis.Problem(nlis.Linear()), x=x, y=y, size=600)
        chosen = {line.place for line in parameters_of(wide).lines}
        sizes = np.abs(wide.fit.theta) / wide.fit.standard_errors
        assert chosen == set(np.argsort(-sizes)[:SHOWN].tolist())

    def test_the_manifest_holds_what_makes_the_run_again_and_no_credentials(self, job):
        told = dict(manifest_of(job))
        assert told["seed"] == "0"
        assert told["data"].startswith(f"{N} rows of {D} columns, float64")
        assert told["reads of X"].startswith("5: pilot 2")
        assert told["model"] == repr(PROBLEM.model)
        assert told["content of the data"] == job.manifest["data"]["token"]
        assert {name for name, _ in manifest_of(job)} >= {
            "scheme",
            "versions",
            "started",
            "finished",
            "stages",
            "store",
        }


def test_the_way_of_a_size_that_grows_is_what_ending_there_gives():
    way = ran(size="auto", epsilon=0.25).manifest["way"]
    assert len(way) >= 2
    assert [each["size"] for each in way[1:]] == [min(2 * each["size"], N // 2) for each in way[:-1]]
    for each in way:
        ended = ran(size="auto", epsilon=each["epsilon"])
        assert len(ended.manifest["way"]) == way.index(each) + 1
        assert (ended.manifest["size"], len(ended.sample)) == (each["size"], each["rows"])
        assert ended.certificate.epsilon == pytest.approx(each["epsilon"], rel=1e-12)
        assert ended.total_loss == pytest.approx(each["loss"], rel=1e-12)
    assert "way" not in ran().manifest


class TestArguments:
    """Mistakes, before anything is computed or written."""

    @pytest.fixture(autouse=True)
    def _drawable(self, monkeypatch):
        monkeypatch.setattr(verb, "find_spec", lambda name: True)

    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"path": 3}, nlis.InputTypeError, "path is int"),
            ({"path": ""}, nlis.InputError, "path='' is no path"),
            ({"path": "https://me:word@host/x.html"}, nlis.InputError, "no path of a file here"),
            ({"path": "."}, nlis.InputError, "is a folder"),
            ({"path": "no/report.html"}, nlis.MissingDataError, "its folder does not exist"),
            ({"path": "x" * 300}, nlis.NotWritableError, "cannot be written"),
            ({"overwrite": "yes"}, nlis.InputTypeError, "overwrite='yes'"),
            ({"k": 0}, nlis.InputError, "k=0"),
            ({"k": 2.5}, nlis.InputTypeError, "k=2.5"),
            ({"k": 101}, nlis.InputError, "k=101 is above the 100 rows"),
            ({"image_shape": "28x28"}, nlis.InputTypeError, "image_shape='28x28'"),
            ({"image_shape": 28}, nlis.InputTypeError, "image_shape='28' is no shape"),
            ({"image_shape": (2, 5, 7)}, nlis.InputError, r"image_shape=\(2, 5, 7\) is not allowed"),
            ({"image_shape": (3, 4)}, nlis.InputError, "makes 12 numbers, but a row has 10"),
            ({"X": np.zeros((N, 3))}, nlis.InputError, r"X has shape \(600, 3\), but the run scored \(600, 10\)"),
            ({"X": np.zeros(N)}, nlis.InputError, "X has shape"),
            ({"others": 3}, nlis.InputTypeError, "others holds a int"),
            ({"others": [None]}, nlis.InputTypeError, "others holds a NoneType"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_one_line_before_anything_is_computed(self, options, error, words, job, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(error, match=words) as caught, no_compute():
            job.report(**({"path": "report.html"} | options))
        assert len(str(caught.value)) <= 300
        assert "word@" not in str(caught.value)
        assert not list(tmp_path.iterdir())

    def test_runs_on_other_data_are_not_compared(self, job):
        other = ran(x=X[:500], y=Y[:500])
        with (
            pytest.raises(nlis.InputError, match="others holds a run of 500 rows, but this one is of 600"),
            no_compute(),
        ):
            job.report(others=[other])

    def test_a_file_that_exists_is_kept_unless_it_may_be_replaced(self, job, tmp_path):
        path = tmp_path / "report.html"
        path.write_text("mine")
        with pytest.raises(
            nlis.StoreExistsError, match=r"exists; give another path, or overwrite=True \(in a shell --over"
        ):
            job.report(path)
        assert path.read_text() == "mine"

    def test_a_link_that_leads_nowhere_exists(self, job, tmp_path):
        (tmp_path / "report.html").symlink_to(tmp_path / "nowhere")
        with pytest.raises(nlis.StoreExistsError):
            job.report(tmp_path / "report.html")

    def test_a_path_in_the_store_of_the_run_is_refused(self, job):
        before = sorted(Path(job.path).rglob("*"))
        with pytest.raises(nlis.InputError, match="lies in the store of the run"):
            job.report(Path(job.path) / "report.html")
        assert sorted(Path(job.path).rglob("*")) == before

    def test_without_matplotlib_the_extra_is_named(self, job, monkeypatch, tmp_path):
        monkeypatch.setattr(verb, "find_spec", lambda name: None)
        with pytest.raises(nlis.InputError, match=r"pip install 'dask-nlis\[plot\]'"):
            job.report(tmp_path / "report.html")
        assert not list(tmp_path.iterdir())


def code_of(words, capsys):
    """Exit code of the command line, and what it said on standard error."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return ended.value.code, capsys.readouterr().err


class TestShell:
    """dask-nlis report: what it refuses, in one line."""

    @pytest.fixture(autouse=True)
    def _drawable(self, monkeypatch):
        monkeypatch.setattr(verb, "find_spec", lambda name: True)

    def test_what_is_refused_is_one_line_and_exit_code_2(self, job, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("there.html").write_text("mine")
        Path("cut").mkdir()
        cases = {
            "exists; give another path": [job.path, "-o", "there.html"],
            "'nothing.zarr'": ["nothing.zarr", "-o", "r.html"],
            "'cut'": ["cut", "-o", "r.html"],
            "its folder does not exist": [job.path, "-o", "no/r.html"],
            "give height x width, such as 28x28": [job.path, "-o", "r.html", "--images", "28"],
            "makes 784 numbers, but a row has 10": [job.path, "-o", "r.html", "--images", "28x28"],
            "'none.zarr'": [job.path, "-o", "r.html", "--data", "none.zarr"],
            "Missing option '-o'": [job.path],
            "'other.zarr'": [job.path, "-o", "r.html", "--other", "other.zarr"],
        }
        cases["give height x width, such as 28x28"][-1] = "28by28"
        for words, arguments in cases.items():
            code, said = code_of(["report", *arguments], capsys)
            assert code == 2, (words, said)
            assert words in said
            assert len(said.strip().splitlines()[-1]) <= 330
        monkeypatch.setattr(verb, "find_spec", lambda name: None)
        code, said = code_of(["report", job.path, "-o", "r.html"], capsys)
        assert (code, len(said.splitlines())) == (2, 1)
        assert "pip install 'dask-nlis[plot]'" in said
        assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "there.html"]
        assert Path("there.html").read_text() == "mine"

    def test_a_run_that_was_never_finished_has_no_page(self, tmp_path, capsys):
        store = tmp_path / "run.zarr"
        ran(store=store)
        (marker,) = (path for path in store.rglob("*") if "complete" in path.name.lower())
        marker.unlink()
        code, said = code_of(["report", store, "-o", tmp_path / "r.html"], capsys)
        assert code == 1
        assert said.startswith("dask-nlis: IncompleteRunError: ")
        assert len(said.splitlines()) == 1
        assert not (tmp_path / "r.html").exists()


@pytest.mark.adapters
class TestPage:
    """The page itself, with its pictures."""

    def test_values_are_those_of_the_run(self, job):
        page = page_of(job, X=X, k=7)
        top, low = nlis.top_rows(job.scores, 7), nlis.bottom_rows(job.scores, 7)
        for table, found in ((HIGHEST, top), (LOWEST, low)):
            assert page.head(table)[:4] == ["row", "score", "weight", "label y"]
            assert [cell.value for cell in page.column(table, 0)] == found.indices.tolist()
            assert [cell.value for cell in page.column(table, 1)] == found.scores.tolist()
            shown = [int(name[1:]) for name in page.head(table)[4:]]
            assert len(shown) == COLUMNS
            for k, j in enumerate(shown):
                assert [cell.value for cell in page.column(table, 4 + k)] == X[found.indices, j].tolist()
        drawn = dict(zip(job.sample.indices.tolist(), job.sample.weights.tolist(), strict=True))
        assert [cell.value for cell in page.column(HIGHEST, 2)] == [drawn.get(i) for i in top.indices.tolist()]
        assert [cell.text for cell in page.column(PARAMETERS, 0)] == list(job.fit.names)
        low, high = job.fit.confidence_interval()
        for k, values in enumerate((job.fit.theta, job.fit.standard_errors, low, high), 1):
            assert [cell.value for cell in page.column(PARAMETERS, k)] == values.tolist()
        read = page.read()
        for word in (
            f"{len(job.sample)} of {N} rows", f"{job.certificate.epsilon:.3g}", f"{job.total_loss:,.5g}", "Gini coefficient",
            f"Weights of {len(job.sample)} drawn rows", "Words on this page", repr(PROBLEM.model),
        ):  # fmt: skip
            assert word in read, word
        assert not [title for title in page.titles if "onerror" in title]

    def test_pictures_are_inline_text_in_the_colours_of_the_page(self, job):
        page = page_of(job)
        charts = [part.partition("</svg>")[0] for part in page.html.split('<svg class="chart"')[1:]]
        assert len(charts) == 4
        for chart in charts:
            assert len(chart) < 60_000
            assert "<text" in chart
            assert "var(--ink)" in chart
            assert "#000000" not in chart
            assert "<style" not in chart

    def test_a_run_without_scores_factor_or_intervals_has_a_page(self):
        bare = page_of(ran(keep_scores=False, scores="norm"))
        assert "The run kept no scores" in bare.read()
        assert "residuals" not in bare.ids
        active = page_of(ran(nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(0.1))))
        assert {cell.value for cell in active.column(PARAMETERS, 2)} == {None}
        assert "boundary of its set: ball of radius 0.1" in active.read()

    @pytest.mark.parametrize("scheme", ["multinomial", "stratified", "systematic"])
    def test_every_scheme_and_row_weights_have_a_page(self, scheme):
        weight = np.linspace(0.5, 3, N)
        page = page_of(
            ran(scheme=scheme, sample_weight=weight, problem=nlis.Problem(nlis.Linear(), loss=nlis.Huber(1.0)))
        )
        assert "the data have weights of their own" in page.read()
        assert "the signed root of the row's loss" in page.read()
        assert "residuals" in page.ids

    def test_sizes_that_were_tried_or_run_are_compared(self, job):
        grown = ran(size="auto", epsilon=0.25)
        page = page_of(grown)
        way = grown.manifest["way"]
        assert len(way) > 1
        for k, name in enumerate(("size", "rows", "epsilon", "loss")):
            assert [cell.value for cell in page.column(SIZES, k)] == [each[name] for each in way]
        assert way[-1]["loss"] == grown.total_loss
        assert "No fit could be made" not in page.read()
        gap = [{**way[0], "size": 1_100, "loss": None}, *way]
        page = page_of(dataclasses.replace(grown, manifest={**grown.manifest, "way": gap}))
        assert "No fit could be made of the rows drawn at 1,100." in page.read()
        assert [cell.value for cell in page.column(SIZES, 0)] == [each["size"] for each in way]
        other = ran(size=400)
        page = page_of(job, others=[other])
        assert [cell.value for cell in page.column(SIZES, 3)] == [job.total_loss, other.total_loss]
        compared = nlis.compare(PROBLEM, X, Y, {"uniform": np.ones(N)}, sizes=[60, 120], seeds=2)
        assert "sizes" in page_of(job, others=compared).ids
        assert "sizes" not in page_of(job).ids
        assert "sizes" not in page_of(job, others=[ran(size=300)]).ids  # of the same size

    def test_rows_that_are_images_are_shown_with_a_text_each(self):
        rng = np.random.default_rng(3)
        x = rng.uniform(size=(300, 48))
        drawn = ran(nlis.Problem(nlis.Linear()), x=x, y=x.sum(axis=1), size=150)
        assert page_of(drawn).tags.count("img") == 0
        for shape in ((6, 8), (4, 4, 3), (3, 4, 4), (1, 6, 8)):
            page = page_of(drawn, X=x, image_shape=shape, k=5)
            assert page.tags.count("img") == 10
            for alt, row in zip(page.alts, nlis.top_rows(drawn.scores, 5).indices.tolist(), strict=False):
                assert alt.startswith(f"row {row}, score ")

    @pytest.mark.parametrize("outputs", ["joint", "separate", "classes"])
    def test_several_outputs_have_a_label_each_and_one_residual(self, outputs):
        model, x = nlis.MultilayerPerceptron((), n_outputs=2), X[:, :3]
        y = np.arange(N) % 3 if outputs == "classes" else x[:, :2] + 0.1 * np.column_stack([Y, -Y])
        problem = (
            nlis.Problem(model, nlis.SoftmaxLoss(3)) if outputs == "classes" else nlis.Problem(model, outputs=outputs)
        )
        drawn = ran(problem, x=x, y=y)
        page = page_of(drawn)
        labels = ["label y"] if outputs == "classes" else ["label y[0]", "label y[1]"]
        assert [name for name in page.head(HIGHEST) if "label" in name] == labels
        assert "root of the row's loss over all outputs" in page.read()
        assert page.tags.count("figure") == 4

    def test_rows_shaped_as_the_model_takes_them_are_features_and_images(self):
        rng = np.random.default_rng(5)
        layers = (LayerOf("reshape"), LayerOf("dense", rng.normal(size=(1, 48)), None, "w", "", True))
        x = rng.uniform(size=(200, 1, 6, 8))
        model = LayerStack(layers, (1, 6, 8))
        drawn = ran(nlis.Problem(model), x=x, y=x.sum(axis=(1, 2, 3)), size=120, theta=model.theta)
        page = page_of(drawn, X=x, k=5)
        assert page.tags.count("img") == 10
        with pytest.raises(nlis.InputError, match="X has shape"):
            drawn.report(X=x[:, :, :5])

    def test_large_images_in_colour_lose_pixels_before_the_page_grows(self):
        from matplotlib.image import imread

        rng = np.random.default_rng(4)
        rows = [Row(k, 1.0, None, None, rng.uniform(size=96 * 80 * 3)) for k in range(100)]
        for shape in ((96, 80, 3), (3, 96, 80)):
            found = images_of(rows, shape, "score")
            assert len(found) == 100
            assert 2 * sum(len(each.source) for each in found) < 1.2e6
        one = images_of(rows[:1], (96, 80, 3), "score")[0]
        pixels = imread(BytesIO(base64.b64decode(one.source.partition(",")[2])))
        values = rows[0].features.reshape(96, 80, 3)[::2, ::2]
        expected = (values - values.min()) / (values.max() - values.min())
        np.testing.assert_allclose(pixels[..., :3], expected, atol=1 / 255)

    def test_hostile_names_are_text(self, hostile):
        scores = {name: np.ones(N) for name in (*HOSTILE, ' id="theme" style="fill: red"', "收入")}
        page = page_of(hostile, others=nlis.compare(PROBLEM, X, Y, scores, sizes=[60, 90], seeds=1))
        names = [cell.text for cell in page.column(PARAMETERS, 0)]
        assert names[0] == "<script>alert(1)</script>"
        assert names[1] == "'\"><img src=x onerror=alert(1)>&amp;"
        assert names[2].startswith("]]></svg><style>")
        assert names[3] == "right\\u202eleft\\u2066"
        assert names[4] == "nul\\x00 and\\ttab\\nline"
        assert names[5].startswith("$\\frac{x}$ {{ 7 * 7 }}")
        assert names[6] == "n" * 37 + "..."
        assert names[7] == "\u05d0\u05d1 \\u200b"
        assert "word" not in names[8]
        assert "sig=abc" not in page.html
        assert "收入" in page.read()
        assert page.tags.count("script") == page.tags.count("style") == 1
        assert max(map(len, page.titles)) <= 200
        assert page.html.isprintable() or not set(page.html) & {"\0", "\u202e", "\u2066"}

    @pytest.mark.parametrize("shape", ["wide", "long"])
    def test_the_page_stays_small_whatever_the_run(self, shape):
        rng = np.random.default_rng(5)
        if shape == "wide":
            x = rng.normal(size=(2000, 400))
            big = ran(nlis.Problem(nlis.Linear()), x=x, y=x[:, 0], size=900)
            page = page_of(big, X=x, image_shape=(20, 20), k=100)
            assert page.tags.count("img") == 200
            assert len(page.column(PARAMETERS, 0)) == SHOWN
            assert "Of 401 parameters 100 are listed" in page.read()
        else:
            x = rng.normal(size=(200_000, 3))
            big = ran(nlis.Problem(nlis.Linear()), x=x, y=x[:, 0] + rng.normal(size=len(x)), size=30_000)
            page = page_of(big, k=100)
        assert len(page.html.encode()) < 1.5e6

    def test_the_file_is_written_whole_with_the_mode_of_files_here(self, job, tmp_path):
        umask = os.umask(0o027)
        try:
            made = job.report(tmp_path / "report.html")
        finally:
            os.umask(umask)
        assert made.path == str(tmp_path / "report.html")
        assert Path(made.path).read_text("utf-8") == made.html
        assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o640
        again = job.report(made.path, overwrite=True, k=3)
        assert Path(made.path).read_text("utf-8") == again.html != made.html
        assert os.listdir(tmp_path) == ["report.html"]

    def test_no_reader_meets_half_a_page_and_a_failure_leaves_the_old_one(self, job, tmp_path, monkeypatch):
        path = tmp_path / "report.html"
        whole = job.report(path).html
        seen, ended = set(), threading.Event()

        def look():
            while not ended.is_set():
                seen.add(path.read_text("utf-8"))

        reader = threading.Thread(target=look)
        reader.start()
        for _ in range(3):
            job.report(path, overwrite=True)
        ended.set()
        reader.join()
        assert seen == {whole}  # which also is the same in every bit each time

        def full(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(nlis.NotWritableError, match="No space left"):
            job.report(path, overwrite=True)
        assert path.read_text("utf-8") == whole
        assert os.listdir(tmp_path) == ["report.html"]

    def test_the_command_writes_the_page_of_the_method(self, job, tmp_path):
        import zarr

        data = zarr.open_group(tmp_path / "data.zarr", mode="w")
        data.create_array("X", data=X)
        np.save(tmp_path / "X.npy", X)
        out = tmp_path / "report.html"
        for more in (
            [],
            ["--data", tmp_path / "data.zarr"],
            ["--data", tmp_path / "X.npy"],
            ["--data", _csv(tmp_path)],
        ):
            words = ["report", job.path, "-o", out, "--overwrite", "--rows", "5", *more]
            result = CliRunner().invoke(group, [*map(str, words)], catch_exceptions=False)
            assert result.exit_code == 0
            assert result.output == f"{out}: {out.stat().st_size:,} bytes\n"
            given = X if more else None
            assert out.read_text("utf-8") == nlis.open_run(job.path).report(X=given, k=5).html

    def test_a_notebook_shows_the_page_in_a_frame_of_its_own(self, job):
        made = job.report(k=2)
        assert made.path is None
        assert repr(made) == f"Report(bytes={len(made.html.encode()):_}, path=None)"
        frame = made._repr_html_()
        assert frame.startswith('<iframe title="Report of a run" sandbox="allow-scripts"')
        assert "<script" not in frame

    def test_the_settings_of_matplotlib_are_left_alone(self, job):
        import matplotlib as mpl

        before = dict(mpl.rcParams)
        job.report(k=2)
        assert dict(mpl.rcParams) == before


def _csv(folder):
    path = folder / "table.csv"
    lines = [",".join(f"x{j}" for j in range(D)), *(",".join(map(repr, row)) for row in X.tolist())]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.adapters
@pytest.mark.slow
def test_ten_million_scores_make_a_small_page_in_bounded_memory(tmp_path):
    """With the scores in the store, as many blocks of a million; the process grows by far less than they take."""
    import resource

    import dask.array as da
    import zarr

    n, block = 10_000_000, 1_000_000
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    for name, shape in (("X", (n, 2)), ("y", (n,))):
        group.create_array(name, shape=shape, chunks=(block, *shape[1:]), dtype="float64")
    x = da.random.default_rng(0).normal(size=(n, 2), chunks=(block, 2))
    x.to_zarr(group["X"])
    group["y"][:] = np.random.default_rng(1).normal(size=n)
    features, labels = nlis.open_rows(tmp_path / "data.zarr", X="X", y="y", block_bytes=16 * block)
    big = ran(nlis.Problem(nlis.Linear()), x=features, y=labels, size=2_000, store=tmp_path / "run.zarr")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    page = page_of(nlis.open_run(big.path))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert "Scores of 10,000,000 rows" in page.read()
    assert len(page.html.encode()) < 5e5
    assert grown < 8 * n / 2
