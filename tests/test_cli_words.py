"""Messages in a shell: one line each, in the words of its options, with a remedy."""

import csv
import random

import click
import pytest

from dask_nlis.cli import main
from dask_nlis.cli.main import group
from dask_nlis.cli.words import in_shell, usage


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """cars.csv as a person might have it: names of rows, gaps, text, a constant; and a store made of it."""
    where = tmp_path_factory.mktemp("cars")
    chance = random.Random(0)
    with open(where / "cars.csv", "w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["id", "km", "age", "fuel", "wheels", "price"])
        for i in range(600):
            km, age, fuel = chance.expovariate(1 / 80), chance.uniform(0, 20), chance.choice(["petrol", "diesel"])
            price = 30 - km / 40 - age + chance.gauss(0, 1)
            write.writerow([f"c{i}", "" if i % 50 == 7 else round(km, 2), round(age, 1), fuel, 4, round(price, 2)])
    table, drop = str(where / "cars.csv"), ["--exclude", "id", "--missing", "drop"]
    assert left(["ingest", table, "--target", "price", *drop, "--out", str(where / "cars.zarr")]) == 0
    assert left(["ingest", table, *drop, "--out", str(where / "unlabelled.zarr")]) == 0
    return where


def left(words):
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


INGEST = ["ingest", "cars.csv", "--target", "price", "--exclude", "id", "--missing", "drop", "--out"]
RUN = ["run", "cars.zarr", "--y", "y", "--model", "linear", "--size", "100", "--store"]

#: What somebody may type, and what is said: what came, and a remedy that can be typed.
MISTAKES = {
    "names of rows": (
        ["ingest", "cars.csv", "--target", "price", "--missing", "drop", "--out", "new.zarr"],
        ("table column 'id' has 600 different values in 600 rows, above --max-categories 100; leave it out (--exclude) if they "
        "are names of rows, or give a larger --max-categories"),
    ),
    "gaps": (
        ["ingest", "cars.csv", "--target", "price", "--exclude", "id", "--out", "new.zarr"],
        ("table has 12 of 600 rows with a missing or infinite cell, the first in column 'km' at row 7; fill it in, or give "
        "--missing 'drop' to leave such rows out"),
    ),
    "a wrong target": (
        ["ingest", "cars.csv", "--target", "prices", "--out", "new.zarr"],
        "--target: table has no column 'prices'; it has 'id', 'km', 'age', 'fuel', 'wheels', 'price'",
    ),
    "names of rows as the target": (
        ["ingest", "cars.csv", "--target", "id", "--missing", "drop", "--out", "new.zarr"],
        "--target 'id' holds 'c0' at row 0, no number; give a column of numbers, or write labels as 0 and 1",
    ),
    "text as weights": (
        [*INGEST, "new.zarr", "--weight", "fuel"],
        "--weight 'fuel' holds 'diesel' at row 0, no number; give a column of numbers, or write labels as 0 and 1",
    ),
    "nothing left": (
        [*INGEST, "new.zarr", "--columns", "km", "--exclude", "km"],
        "columns are all among --exclude; leave one at least",
    ),
    "no output": (["ingest", "cars.csv"], "Missing option '--out'; see dask-nlis ingest --help"),
    "a choice that is none": (
        [*INGEST, "new.zarr", "--missing", "dropp"],
        "Invalid value for '--missing': 'dropp' is not one of 'raise', 'drop'; see dask-nlis ingest --help",
    ),
    "a word that is no command": (["rum"], "No such command 'rum'. Did you mean 'run'? see dask-nlis --help"),
    "no labels named": (
        ["run", "cars.zarr", "--model", "linear", "--size", "100", "--store", "new.zarr"],
        "--y is missing, but a fit needs labels; give --y",
    ),
    "no labels there": (
        ["run", "unlabelled.zarr", "--y", "y", "--model", "linear", "--size", "100", "--store", "new.zarr"],
        "--y 'y' is no array of this group; it holds: X (588, 5)",
    ),
    "a column of text": (
        ["run", "cars.csv", "--x", "km,fuel", "--y", "price", "--model", "linear", "--size", "100", "--store", "new.zarr"],
        ("--x: column 'fuel' holds 'diesel' at row 0, no number; correct the cell, leave it empty if missing, or encode a "
        "column of text: dask-nlis ingest"),
    ),
    "too many rows": (
        ["run", "cars.zarr", "--y", "y", "--model", "linear", "--size", "9999", "--store", "new.zarr"],
        "--size 9999 exceeds the 588 rows, and poisson draws each once; give size <= 588",
    ),
    "no problem": (
        ["run", "cars.zarr", "--y", "y", "--size", "100", "--store", "new.zarr"],
        "no problem is named; give --problem FILE, or --model SPEC such as single-index; see dask-nlis run --help",
    ),
    "no run": (["inspect", "cars.zarr"], "'cars.zarr' holds no run; give the --store of a run"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_in_the_words_of_the_shell(case, folder, monkeypatch, capsys):
    words, says = MISTAKES[case]
    monkeypatch.chdir(folder)
    before = {path.name for path in folder.iterdir()}
    assert left(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"dask-nlis: {says}\n"
    assert len(says) <= 300
    assert {path.name for path in folder.iterdir()} == before


def test_an_output_that_exists_is_named_with_its_option_and_left_alone(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    kept = (folder / "cars.zarr" / "zarr.json").read_bytes()
    assert left([*INGEST, "cars.zarr"]) == 2
    assert capsys.readouterr().err == f"dask-nlis: --out '{folder}/cars.zarr' exists; give another path, or remove it\n"
    assert (folder / "cars.zarr" / "zarr.json").read_bytes() == kept

    assert left([*RUN, "run.zarr", "--seed", "0"]) == 0
    assert "dependent: wheels, intercept" in capsys.readouterr().out
    assert left([*RUN, "run.zarr"]) == 2
    said = "dask-nlis: --store 'run.zarr' exists; --resume returns it; give a new path for another\n"
    assert capsys.readouterr().err == said
    assert left([*RUN, "run.zarr", "--seed", "1", "--resume"]) == 2
    said = "dask-nlis: --store 'run.zarr' was begun with --seed 0, but now it is 1; give the same, or a new path\n"
    assert capsys.readouterr().err == said


def test_help_is_shown_where_nothing_is_asked_for(capsys):
    assert left([]) == 2
    shown = "".join(capsys.readouterr())
    assert shown.startswith("Usage: dask-nlis [OPTIONS] COMMAND [ARGS]...")
    assert "\n  ingest " in shown


def test_only_the_options_of_the_command_are_put_in():
    run, ingest = group.commands["run"], group.commands["ingest"]
    said = "give store=, resume=True, block_bytes=348,147,709 or device='cpu'; n_store=1, X and y are no options"
    assert in_shell(said, run) == (
        "give --store, --resume, --block-bytes 348147709 or --device 'cpu'; n_store=1, X and y are no options"
    )
    assert in_shell(said, ingest) == (
        "give store=, resume=True, --block-bytes 348147709 or device='cpu'; n_store=1, X and y are no options"
    )
    assert in_shell(said, None) == said
    assert in_shell("size=0.5 and seed=12", run) == "--size 0.5 and --seed 12"
    assert usage(click.UsageError("no such thing")) == "no such thing; see dask-nlis --help"
