"""The pages of the guide: every block runs and gives what the page says."""

import doctest
import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "examples" / "guide"


def run(page):
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    "page",
    sorted(
        set(GUIDE.glob("*.md"))
        - {GUIDE / name for name in ("README.md", "pictures.md", "report.md", "torch.md", "xarray.md")}
    ),
    ids=lambda page: page.stem,
)
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # which a page may leave
    run(page)


@pytest.mark.adapters
def test_the_torch_page_runs_as_it_stands():
    pytest.importorskip("torch")
    run(GUIDE / "torch.md")


@pytest.mark.adapters
def test_the_xarray_page_runs_as_it_stands(tmp_path, monkeypatch):
    pytest.importorskip("xarray")
    monkeypatch.chdir(tmp_path)
    run(GUIDE / "xarray.md")


def links(page):
    """Files and headings that a page links to, as (path, heading); addresses of the web are left alone."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            name, _, heading = target.partition("#")
            yield (page.parent / name if name else page).resolve(), heading


def headings(page):
    """Headings of a page as links name them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", sorted(GUIDE.glob("*.md")), ids=lambda page: page.stem)
def test_what_a_page_links_to_is_there(page):
    for path, heading in links(page):
        assert path.exists(), path
        assert not heading or heading in headings(path), (path, heading)


def test_the_index_names_every_page():
    named = {path for path, _ in links(GUIDE / "README.md") if path.parent == GUIDE.resolve()}
    assert named == {page.resolve() for page in GUIDE.glob("*.md")} - {(GUIDE / "README.md").resolve()}


@pytest.mark.adapters
def test_the_report_page_runs_as_it_stands(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    run(GUIDE / "report.md")


@pytest.mark.adapters
def test_the_page_of_pictures_runs_as_it_stands(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    run(GUIDE / "pictures.md")
    assert {path.name for path in tmp_path.iterdir()} == {"plots.png", "scores.png"}
