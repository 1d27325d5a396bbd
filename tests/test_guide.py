"""The pages of the guide: every block runs and gives what the page says."""

import doctest
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "examples" / "guide"


def run(page):
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    "page",
    sorted(set(GUIDE.glob("*.md")) - {GUIDE / "pictures.md", GUIDE / "torch.md", GUIDE / "xarray.md"}),
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


@pytest.mark.adapters
def test_the_page_of_pictures_runs_as_it_stands(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    run(GUIDE / "pictures.md")
    assert {path.name for path in tmp_path.iterdir()} == {"plots.png", "scores.png"}
