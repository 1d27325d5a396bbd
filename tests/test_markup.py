"""Names that hold HTML stay text in everything of ours that a notebook shows (R6.6)."""

import numpy as np
import pytest
from counting import rows_of
from markup import assert_inert

import dask_nlis as nlis

EVIL = "<script>alert(1)</script>"
IMAGE = "'\"><img src=x onerror=alert(1)>&amp;"
X, Y = rows_of(66, 300, 3)
NAMES = [EVIL, IMAGE, "plain"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Every noun that can hold names, made with hostile ones: name -> (noun, texts that must be read in it)."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=NAMES)
    twice = pd.DataFrame(np.column_stack([X, X[:, 0]]), columns=[*NAMES, "again"])
    problem = nlis.Problem(nlis.Linear(), constraint=nlis.Box(-1e-3, 1e-3))
    store = tmp_path_factory.mktemp("markup") / f"run {EVIL.replace('/', '|')}.zarr"
    job = nlis.run(problem, frame, Y, size=100, seed=0, store=store)
    A = nlis.reference_matrix(problem, frame, Y)
    fit = nlis.refit(problem, frame, Y, np.ones(len(Y)))
    factor = nlis.factorize(nlis.reference_matrix(nlis.Problem(nlis.Linear()), twice, Y))
    labels = np.where(np.arange(len(Y)) % 2, EVIL, IMAGE)
    grouped = nlis.draw(np.ones(len(Y)), 20, by=labels, min_per_group=2, seed=0)
    scores = nlis.leverage_scores(A, nlis.factorize(A))
    free = nlis.Problem(nlis.Linear())
    return {
        "run": (job, ["alert(1)"]),
        "fit": (fit, [EVIL]),
        "summary": (fit.summary(), [EVIL, IMAGE]),
        "factor": (factor, [EVIL]),
        "matrix": (A, []),
        "sample": (grouped, []),
        "group scale": (grouped.scale, [EVIL, IMAGE]),
        "row table": (nlis.top_rows(scores, 3, X=frame), []),
        "suspects": (nlis.suspects(nlis.dual_matrix(problem, frame, Y, theta=fit.theta), k=3), []),
        "comparison": (nlis.compare(free, frame, Y, scores={EVIL: scores}, sizes=[40], seeds=2), []),
        "plan": (nlis.plan(free, frame, Y, size=100, calibrate=False), []),
        "standardization": (nlis.standardize(frame, Y).transform, []),
        "problem": (problem, []),
        "certificate": (job.certificate, []),
    }


@pytest.mark.parametrize(
    "name",
    [
        "run", "fit", "summary", "factor", "matrix", "sample", "group scale", "row table", "suspects", "comparison", "plan",
        "standardization", "problem", "certificate",
    ],
)  # fmt: skip
def test_names_with_markup_are_text_in_what_a_notebook_shows(shown, name):
    noun, texts = shown[name]
    page = noun._repr_html_()
    read = assert_inert(page)
    assert "<script" not in page.lower()
    for text in texts:
        assert text in read or repr(text)[1:-1] in read


def test_every_noun_escapes_any_text_it_holds():
    """Also nouns that no verb gives names: the shared method itself, with a name in the place of each field."""

    @nlis.nouns.noun
    class Anything:
        text: str
        names: tuple[str, ...]
        table: dict

    page = Anything(EVIL, (IMAGE,) * 9, {EVIL: IMAGE})._repr_html_()
    assert EVIL in assert_inert(page)


def test_a_page_with_a_script_is_found_out():
    for page in (EVIL, "<td onclick='x'>", "<a href='javascript:x'>", "<p style='background:url(x)'>", "<!-- x -->"):
        with pytest.raises(AssertionError):
            assert_inert(page)
