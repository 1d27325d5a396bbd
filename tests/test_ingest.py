"""A table becomes a store: what is written, from which files, what the encoding tells, and what is refused in one line."""

import gzip
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile

import dask
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from counting import same_bits
from refusals import check as check_error

import dask_nlis as nlis
from dask_nlis.adapters import pieces
from dask_nlis.cli.main import group, main
from dask_nlis.intake import csv_scan

pd = pytest.importorskip("pandas")

ingest_room = importlib.import_module("dask_nlis.adapters.ingest")  # which the function of that name hides

LINEAR = nlis.Problem(nlis.Linear())
N = 900
NAMES = ("carat", "cut=good", "cut=ideal", "cut=last", "new", "zone=101", "zone=102")


@pytest.fixture
def frame(rng):
    """A table with a category that the last row alone has."""
    found = pd.DataFrame(
        {
            "id": [f"r{k}" for k in range(N)],
            "carat": rng.normal(loc=5, scale=3, size=N),
            "cut": rng.choice(["ideal", "good", "fair"], N),
            "new": rng.random(N) > 0.5,
            "zone": rng.integers(100, 103, N),
            "price": rng.normal(size=N),
            "v": rng.random(N),
        }
    )
    found.loc[N - 1, "cut"] = "last"
    return found


HOW = {"target": "price", "sample_weight": "v", "exclude": "id", "categorical": "zone"}


def features(frame):
    """By pandas' own dummies, of the whole table at once."""
    kinds = {"zone": str, "new": float}
    kept = frame.drop(columns=["id", "price", "v"], errors="ignore").astype(kinds)
    dummies = pd.get_dummies(kept, columns=["cut", "zone"], prefix_sep="=", drop_first=True, dtype=float)
    return dummies[list(NAMES)].to_numpy()


def written(tmp_path, frame, kind):
    """The table in files of a kind."""
    where = tmp_path / f"t.{kind}"
    if kind == "folder":
        where = tmp_path / "folder"
        where.mkdir()
        for k in range(12):
            frame.iloc[k * 75 : (k + 1) * 75].to_parquet(where / f"part.{k}.parquet", index=False)
    elif kind == "parquet":
        frame.astype({"cut": "category"}).to_parquet(where, row_group_size=200, index=False)
    else:
        frame.to_csv(where, index=False)
    return where


PARQUET = [pytest.param(kind, marks=pytest.mark.adapters) for kind in ("parquet", "folder")]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", *PARQUET])
def test_a_table_becomes_the_same_store_from_whatever_files(frame, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(csv_scan, "_PIECE", 3_000)
    monkeypatch.setattr(pieces, "_PIECE_ROWS", 64)
    path, out = written(tmp_path, frame, kind), tmp_path / "out.zarr"
    encoding = nlis.ingest(path, out, **HOW, block_bytes=100 * 8 * len(NAMES))
    assert encoding.feature_names == NAMES
    assert encoding.kinds == ("number", "category", "bool", "category")
    assert encoding.categories == (None, ("fair", "good", "ideal", "last"), None, ("100", "101", "102"))
    assert (encoding.n_rows, encoding.n_dropped) == (N, 0)
    assert nlis.Encoding.load(out) == encoding
    stored = zarr.open_group(out, mode="r")
    assert sorted(stored) == ["X", "weight", "y"]
    assert stored["X"].chunks == (100, len(NAMES))
    assert stored["X"].attrs["feature_names"] == list(NAMES)
    assert "crc32c" in [codec.to_dict()["name"] for codec in stored["X"].metadata.codecs]
    X, y = nlis.open_rows(out, X="X", y="y")
    _, weight = nlis.open_rows(out, X="X", y="weight")
    assert same_bits(X.compute(), features(frame))
    assert same_bits(y.compute(), frame["price"].to_numpy())
    assert same_bits(weight.compute(), frame["v"].to_numpy())
    assert same_bits(encoding.encode(frame).to_numpy(), features(frame))
    job = nlis.run(LINEAR, X, y, sample_weight=weight, size=60, seed=0)
    assert job.fit.names == (*NAMES, "intercept")
    assert os.listdir(tmp_path) == [path.name, "out.zarr"] or sorted(os.listdir(tmp_path)) == sorted(
        [path.name, "out.zarr"]
    )


def test_the_same_rows_by_ingest_and_by_from_dataframe(frame, tmp_path):
    encoding = nlis.ingest(written(tmp_path, frame, "csv"), tmp_path / "out.zarr", **HOW)
    table = frame.drop(columns="id").astype({"zone": str})
    other = nlis.from_dataframe(table, target="price", sample_weight="v")
    assert other.encoding.categories == encoding.categories
    assert same_bits(other.X.to_numpy(), nlis.open_rows(tmp_path / "out.zarr", X="X")[0].compute())


def test_columns_of_numbers_are_standardised_and_theta_comes_back(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_scan, "_PIECE", 3_000)
    path = written(tmp_path, frame, "csv")
    plain = nlis.ingest(path, tmp_path / "plain.zarr", **HOW)
    encoding = nlis.ingest(path, tmp_path / "scaled.zarr", **HOW, standardize=True)
    raw, scaled = (nlis.open_rows(tmp_path / f"{name}.zarr", X="X")[0].compute() for name in ("plain", "scaled"))
    np.testing.assert_allclose(scaled[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(scaled[:, 0].std(), 1, rtol=1e-12)
    assert same_bits(scaled[:, 1:], raw[:, 1:])  # 0 and 1 stay as they are
    assert nlis.Encoding.load(tmp_path / "scaled.zarr") == encoding
    np.testing.assert_allclose(encoding.standardization.mean[0], frame["carat"].mean(), rtol=1e-13)
    np.testing.assert_allclose(encoding.standardization.scale[0], frame["carat"].std(ddof=0), rtol=1e-13)
    theta = np.arange(1.0, len(NAMES) + 2)
    np.testing.assert_allclose(
        raw @ encoding.to_raw(theta)[:-1] + encoding.to_raw(theta)[-1], scaled @ theta[:-1] + theta[-1], rtol=1e-12
    )
    assert same_bits(plain.to_raw(theta), theta)
    assert same_bits(encoding.encode(frame).to_numpy(), scaled)


def test_rows_with_missing_cells_are_named_or_left_out_and_counted(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_scan, "_PIECE", 3_000)
    for row, column, value in (
        (17, "carat", np.nan),
        (3, "cut", None),
        (400, "price", np.nan),
        (400, "zone", np.nan),
        (5, "carat", np.inf),
    ):
        frame.loc[row, column] = value
    frame["zone"] = frame["zone"].astype("Int64")
    path, out = written(tmp_path, frame, "csv"), tmp_path / "out.zarr"
    with pytest.raises(
        nlis.NonFiniteError, match=r"table has 4 of 900 rows .* column 'cut' at row 3; .*missing='drop'"
    ):
        nlis.ingest(path, out, **HOW)
    assert not out.exists()
    encoding = nlis.ingest(path, out, **HOW, missing="drop", standardize=True)
    assert (encoding.n_rows, encoding.n_dropped) == (N - 4, 4)
    kept = frame.drop(index=[3, 5, 17, 400])
    X, y = nlis.open_rows(out, X="X", y="y")
    assert same_bits(y.compute(), kept["price"].to_numpy())
    found = features(kept)
    np.testing.assert_allclose(
        X.compute()[:, 0], (found[:, 0] - found[:, 0].mean()) / found[:, 0].std(), rtol=1e-10, atol=1e-12
    )
    assert same_bits(X.compute()[:, 1:], found[:, 1:])


def test_the_first_category_has_a_column_where_asked_for_and_x_may_be_float32(frame, tmp_path):
    encoding = nlis.ingest(
        written(tmp_path, frame, "csv"),
        tmp_path / "out.zarr",
        columns=["cut", "carat"],
        drop_first=False,
        dtype="float32",
    )
    assert encoding.feature_names == ("cut=fair", "cut=good", "cut=ideal", "cut=last", "carat")
    X, _ = nlis.open_rows(tmp_path / "out.zarr", X="X")
    assert X.dtype == np.float32
    assert (X.compute()[:, :4].sum(axis=1) == 1).all()
    assert same_bits(X.compute()[:, 4].astype(float), frame["carat"].to_numpy("f4").astype(float))
    assert sorted(zarr.open_group(tmp_path / "out.zarr", mode="r")) == ["X"]


def test_memory_is_that_of_a_piece_and_a_chunk_and_each_pass_reads_once(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_scan, "_PIECE", 2_000)
    path = written(tmp_path, frame, "csv")
    seen, real = [], pieces.parse_rows

    def spy(where, text, first, n_rows, *more):
        seen.append((first, n_rows, len(text)))
        return real(where, text, first, n_rows, *more)

    monkeypatch.setattr(pieces, "parse_rows", spy)
    nlis.ingest(path, tmp_path / "out.zarr", **HOW)
    half = len(seen) // 2
    assert seen[:half] == seen[half:]
    assert sum(rows for _, rows, _ in seen[:half]) == N
    assert max(size for _, _, size in seen) < 2_200


def test_dirty_and_strange_tables_of_two_parts_name_the_cell(tmp_path, monkeypatch):
    """Case A30: one "-" in a column of numbers, in the part behind the one that told its kind, and before it."""
    monkeypatch.setattr(csv_scan, "_PIECE", 16)
    for rows, at in ((["1,2"] * 9 + ["3,-"] + ["5,6"] * 9, 9), (["3,-"] + ["5,6"] * 30, 0)):
        (tmp_path / "t.csv").write_text("\n".join(["size,age", *rows]) + "\n")
        with pytest.raises(
            nlis.InputTypeError, match=f"table column 'age' holds '-' at row {at} beside numbers"
        ) as caught:
            nlis.ingest(tmp_path / "t.csv", tmp_path / "o.zarr")
        check_error(caught.value, nlis.InputTypeError)
        found = nlis.ingest(tmp_path / "t.csv", tmp_path / "o.zarr", na="-", missing="drop")
        assert (found.n_rows, found.n_dropped) == (len(rows) - 1, 1)
        (tmp_path / "o.zarr").rename(tmp_path / f"kept{at}.zarr")


REFUSED = {
    "text as the target": ("a,b\n1,x\n", {"target": "b"}, "InputTypeError", "target='b' holds 'x' at row 0, no number"),
    "text as weights": ("a,b\n1,x\n", {"sample_weight": "b"}, "InputTypeError", "sample_weight='b' holds 'x' at row 0"),
    "no such target": ("a,b\n1,2\n", {"target": "c"}, "InputError", "target: table has no column 'c'; it has 'a', 'b'"),
    "no such weights": ("a,b\n1,2\n", {"sample_weight": "c"}, "InputError", "sample_weight: table has no column 'c'"),
    "no such column": ("a,b\n1,2\n", {"columns": ["c"]}, "InputError", "columns: table has no column 'c'; it has 'a', 'b'"),
    "none such to leave out": ("a,b\n1,2\n", {"exclude": ["c"]}, "InputError", "exclude: table has no column 'c'"),
    "categories of none such": ("a,b\n1,2\n", {"categorical": "b", "exclude": "b"}, "InputError", "categorical names 'b', which"),
    "nothing left": ("a,b\n1,2\n", {"exclude": "a", "target": "b"}, "InputError", "columns are none"),
    "no rows": ("a,b\n", {}, "InputError", "table has no rows"),
    "only missing cells": ("a,b\n,1\n,2\n", {"missing": "drop"}, "NonFiniteError", "a missing cell in each of its 2 rows"),
    "ids": ("a\n" + "\n".join(f"r{k}" for k in range(101)), {}, "InputError", "column 'a' has 1[0-9][0-9] different values in .*exclude|leave it"),
    "one category": ("a\nx\nx\n", {}, "InputError", "one category each, which drop_first leaves out"),
    "two of one name": ("a,a\n1,2\n", {}, "InputError", "table has two columns 'a'"),
    "an index": (",a\n0,1\n", {}, "InputError", "a column without a name, number 1"),
    "a very long name": ("a" * 1_001 + ",b\n1,2\n", {}, "InputError", "a column with a name of 1,001 characters"),
    "features of one name": ("a,a=y\nx,1\ny,2\n", {}, "InputError", "two features 'a=y'"),
    "no UTF-8": (b"a,b\n1,\xff\n", {}, "InputError", "no UTF-8"),
    "no choice of missing": ("a\n1\n", {"missing": "fill"}, "InputError", "missing='fill' is not allowed; give 'raise' or 'drop'"),
    "no choice of dtype": ("a\n1\n", {"dtype": "float16"}, "InputError", "dtype='float16' is not allowed"),
    "words of columns": ("a\n1\n", {"exclude": 3}, "InputTypeError", "exclude is int; give text, or a list of texts"),
    "a large integer": ("a\n1\n9007199254740993\n", {}, "InputError", "column 'a' holds 9007199254740993 at row 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_in_one_line_and_leaves_nothing(tmp_path, case):
    text, how, kind, says = REFUSED[case]
    path, error = tmp_path / "t.csv", getattr(nlis, kind)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error, match=says) as caught:
        nlis.ingest(path, tmp_path / "out.zarr", **how)
    check_error(caught.value, error)
    assert os.listdir(tmp_path) == ["t.csv"]


def test_names_like_formulas_and_unnamed_columns_left_out_are_written(tmp_path):
    (tmp_path / "t.csv").write_text(',"=cmd|\'x\'!A1","<b>"\n0,1,2\n')
    encoding = nlis.ingest(tmp_path / "t.csv", tmp_path / "out.zarr", exclude="")
    assert encoding.feature_names == ("=cmd|'x'!A1", "<b>")


def test_paths_that_are_none_are_refused(frame, tmp_path):
    path = written(tmp_path, frame, "csv")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "t.bin").write_bytes(b"x")
    (tmp_path / "bad.csv.gz").write_bytes(b"x")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-6])
    out = tmp_path / "out.zarr"
    for table, where, kind, says in (
        (tmp_path / "no.csv", out, nlis.MissingDataError, "no.csv' does not exist"),
        (tmp_path / "t.bin", out, nlis.InputError, "is no table; give a file that ends in .csv"),
        (tmp_path / "bad.csv.gz", out, nlis.DamagedDataError, "cannot be decompressed"),
        (tmp_path / "cut.csv.gz", out, nlis.DamagedDataError, "cannot be decompressed"),
        ("https://host/t.csv", out, nlis.InputError, "table is a URL"),
        (frame, out, nlis.InputTypeError, "table is DataFrame; .*from_dataframe"),
        (path, tmp_path / "there", nlis.StoreExistsError, "there' exists; give another path"),
        (path, tmp_path / "link", nlis.StoreExistsError, "is a symbolic link"),
        (path, tmp_path / "no" / "out.zarr", nlis.MissingDataError, "no' does not exist; make it first"),
        (path, "s3://bucket/out.zarr", nlis.InputError, "out is a URL"),
        (path, "", nlis.InputError, "out='' is no path"),
        (path, "x" * 300, nlis.InputError, "out ends in a name of 300 characters"),
        (path, 3, nlis.InputTypeError, "out is int"),
    ):
        with pytest.raises(kind, match=says) as caught:
            nlis.ingest(table, where)
        check_error(caught.value, kind)
    assert not out.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_ends_in_between_leaves_nothing_under_the_name_or_beside_it(frame, tmp_path, monkeypatch, error):
    path = written(tmp_path, frame, "csv")

    def fail(self, blocks):
        raise error

    monkeypatch.setattr(ingest_room.NewRows, "add_rows", fail)
    with pytest.raises((KeyboardInterrupt, nlis.StoreWriteError)):
        nlis.ingest(path, tmp_path / "out.zarr", **HOW)
    assert os.listdir(tmp_path) == ["t.csv"]


def test_what_cannot_be_read_is_told_of_the_table_and_not_of_the_output(frame, tmp_path, monkeypatch):
    path = written(tmp_path, frame, "csv")
    real = ingest_room.check_rows
    monkeypatch.setattr(ingest_room, "check_rows", lambda *given: (real(*given), path.unlink()))
    with pytest.raises(nlis.MissingDataError, match=r"table=.* is gone: it was removed while it was read"):
        nlis.ingest(path, tmp_path / "out.zarr", **HOW)
    assert os.listdir(tmp_path) == []


def test_many_categories_are_made_a_few_rows_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_room, "_BLOCK", 8 * 50 * 7)
    words = [f"w{k % 50:02}" for k in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["t", *words]) + "\n")
    sizes, real = [], nlis.Encoding.block
    monkeypatch.setattr(nlis.Encoding, "block", lambda self, *given: sizes.append(real(self, *given)) or sizes[-1])
    nlis.ingest(tmp_path / "t.csv", tmp_path / "out.zarr", drop_first=False)
    assert max(map(len, sizes)) == 7
    X, _ = nlis.open_rows(tmp_path / "out.zarr", X="X")
    assert same_bits(X.compute(), np.eye(50)[np.arange(300) % 50])


def test_a_file_that_grows_while_it_is_read_is_told(frame, tmp_path, monkeypatch):
    path = written(tmp_path, frame, "csv")
    real = ingest_room.check_rows

    def and_grow(survey, missing):
        real(survey, missing)
        with path.open("a") as file:
            file.write("r900,1.0,fair,True,100,1.0,1.0\n")

    monkeypatch.setattr(ingest_room, "check_rows", and_grow)
    with pytest.raises(nlis.ChangedDataError, match="table"):
        nlis.ingest(path, tmp_path / "out.zarr", **HOW)
    assert os.listdir(tmp_path) == ["t.csv"]


@pytest.mark.adapters
def test_columns_of_parquet_files_of_every_kind(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "decimal": pa.array([1, None, 3]).cast(pa.decimal128(25, 2)),
        "int": pa.array([1, 2, 3], pa.int8()),
        "bool": pa.array([True, False, True]),
        "text": pa.array(["7", "8", "7"]),  # typed as text: no numbers
        "codes": pa.array([5, 6, 5]),
        "null": pa.nulls(3),
        "day": pa.array([1, 2, 3], pa.date32()),
        "list": pa.array([[1], [2], [3]]),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=2)
    found = nlis.ingest(
        path,
        tmp_path / "a.zarr",
        columns=["decimal", "int", "bool", "text", "codes"],
        missing="drop",
        categorical="codes",
    )
    assert found.feature_names == ("decimal", "int", "bool", "text=8", "codes=6")
    assert nlis.open_rows(tmp_path / "a.zarr", X="X")[0].compute().tolist() == [[1, 1, 1, 0, 0], [3, 3, 1, 0, 0]]
    for name, says in {
        "day": r"type date32\[day\], neither numbers nor text; .*days since",
        "list": "type list<",
    }.items():
        with pytest.raises(nlis.InputTypeError, match=f"table column '{name}' has {says}"):
            nlis.ingest(path, tmp_path / "b.zarr", columns=["int", name])
    with pytest.raises(nlis.InputError, match="na names words of CSV files"):
        nlis.ingest(path, tmp_path / "b.zarr", columns="int", na="-")
    with pytest.raises(nlis.InputError, match=r"out=.* lies in the folder of the table"):
        nlis.ingest(tmp_path, tmp_path / "b.zarr", columns="int")


def test_without_what_reads_tables_the_extra_is_named(tmp_path, monkeypatch):
    for name, path in {"pyarrow": "t.parquet", "pandas": "t.csv"}.items():
        (tmp_path / path).write_bytes(b"PAR1")
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(nlis.InputError, match=rf"needs {name}; pip install 'dask-nlis\[dataframe\]'"):
                nlis.ingest(tmp_path / path, tmp_path / "out.zarr")


def test_stores_that_tell_no_encoding_are_refused(tmp_path):
    zarr.create_group(tmp_path / "a.zarr").create_array("X", data=np.ones((3, 2)))
    zarr.create_group(
        tmp_path / "b.zarr", attributes={"dask_nlis": {"encoding": {"noun": "Encoding", "columns": ["a"]}}}
    )
    for path, kind, says in (
        (tmp_path / "a.zarr", nlis.InputError, "does not tell how its rows were made"),
        (tmp_path / "b.zarr", nlis.InputError, "stored with other fields"),
        (tmp_path / "c.zarr", nlis.MissingDataError, "does not exist"),
        (tmp_path, nlis.InputError, "no store that ingest wrote"),
    ):
        with pytest.raises(kind, match=says):
            nlis.Encoding.load(path)


WORDS = st.text("ab,\"\n é=;'", min_size=1, max_size=6).map(lambda word: f"w{word}")


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    cells=st.lists(
        st.tuples(st.floats(allow_nan=False, allow_infinity=False), WORDS, st.booleans()), min_size=1, max_size=40
    ),
    size=st.integers(20, 400),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_whatever_words_and_numbers_a_csv_file_holds_they_come_back(cells, size, ending):
    frame = pd.DataFrame(cells, columns=["number", "word", "flag"])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_scan, "_PIECE", size)
        path, out = f"{folder}/t.csv", f"{folder}/o.zarr"
        frame.to_csv(path, index=False, lineterminator=ending)
        encoding = nlis.ingest(path, out, drop_first=False)
        X = nlis.open_rows(out, X="X")[0].compute()
        Y, _ = nlis.open_rows(path, X=["flag", "number"], block_bytes=16 * 7)
        assert same_bits(Y.compute(), frame[["flag", "number"]].to_numpy(float))
    words = encoding.categories[1]
    assert words == tuple(sorted(set(frame["word"])))
    assert same_bits(X[:, 0], frame["number"].to_numpy())
    assert [words[k] for k in X[:, 1:-1].argmax(axis=1)] == frame["word"].tolist()
    assert same_bits(X[:, -1], frame["flag"].to_numpy(float))


PEAKS = """
import resource
import dask
import dask_nlis as nlis

dask.config.set(scheduler="synchronous")  # each thread has memory of its own that it does not give back
for name in ("short", "long"):
    for _ in range(2):
        nlis.ingest(f"{name}.csv", f"{name}{_}.zarr", target="y", standardize=True, block_bytes=2**22)
        X, y = nlis.open_rows(f"{name}.csv", X=["a", "b"], y="y", block_bytes=2**22)
        nlis.factorize(nlis.reference_matrix(nlis.Problem(nlis.Linear()), X, y))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_a_table_of_four_times_the_rows_takes_no_more_memory(tmp_path, rng):
    rows = "".join(
        f"{a!r},{b!r},{'uvw'[k % 3]},{y!r}\n" for k, (a, b, y) in enumerate(rng.normal(size=(100_000, 3)).tolist())
    )
    for name, times in {"short": 10, "long": 40}.items():
        with (tmp_path / f"{name}.csv").open("w") as file:
            file.write("a,b,word,y\n")
            for _ in range(times):
                file.write(rows)
    assert (tmp_path / "long.csv").stat().st_size > 220 * 2**20
    found = subprocess.run(
        [sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=280
    )
    short, long = map(int, found.stdout.split())
    assert long - short < 40  # MiB, beside 170 more of the file


# -- In a shell -----------------------------------------------------------------------------------------------------------------


def run(*words):
    result = CliRunner().invoke(group, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_table_goes_through_ingest_plan_and_run_in_a_shell(frame, tmp_path):
    path, out = written(tmp_path, frame, "csv"), tmp_path / "out.zarr"
    words = ["ingest", path, "--target", "price", "--weight", "v", "--exclude", "id,new", "--categorical", "zone"]
    text = run(*words, "--out", out, "--standardize")
    for part in (
        "rows",
        "900",
        "6, numbers standardised",
        "fair, good, ideal, last (the first, 'fair', has no column)",
        "dask-nlis plan",
    ):
        assert part in text
    assert nlis.Encoding.load(out).standardization is not None
    found = json.loads(run(*words, "--out", tmp_path / "other.zarr", "--keep-first", "--json"))
    assert found["n_rows"] == N
    assert found["columns"][2] == {"name": "zone", "kind": "category", "categories": ["100", "101", "102"]}
    assert "zone=100" in found["feature_names"]
    model = ["--y", "y", "--weight", "weight", "--model", "linear", "--size", 60]
    assert "900 rows x 6 columns" in run("plan", out, *model)
    job = json.loads(run("run", out, *model, "--seed", 0, "--store", tmp_path / "run.zarr", "--json"))
    assert [each["name"] for each in job["parameters"]][:2] == ["carat", "cut=good"]


@pytest.mark.parametrize("kind", ["csv", PARQUET[0]])
def test_a_table_of_numbers_goes_straight_into_plan_and_run(frame, tmp_path, kind):
    path = written(tmp_path, frame.drop(columns=["id", "cut"]).assign(cut="x") if kind == "parquet" else frame, kind)
    words = [path, "--y", "price", "--weight", "v", "--x", "carat,zone", "--model", "linear", "--size", 60]
    assert "900 rows x 2 columns" in run("plan", *words)
    job = json.loads(run("run", *words, "--seed", 0, "--store", tmp_path / "run.zarr", "--json"))
    assert [each["name"] for each in job["parameters"]] == ["carat", "zone", "intercept"]
    X, y = nlis.open_rows(path, X=["carat", "zone"], y="price")
    same = nlis.run(LINEAR, X, y, sample_weight=nlis.open_rows(path, X="carat", y="v")[1], size=60, seed=0)
    np.testing.assert_allclose([each["estimate"] for each in job["parameters"]], same.fit.theta, rtol=1e-9)


def test_all_columns_but_labels_and_weights_are_features_by_default(frame, tmp_path):
    path = written(tmp_path, frame[["carat", "zone", "price", "v"]], "csv")
    assert "900 rows x 2 columns" in run("plan", path, "--y", "price", "--weight", "v", "--model", "linear")


MISTAKES = {
    "a wrong column": (["ingest", "t.csv", "--target", "cost", "--out", "o.zarr"], "target: table has no column 'cost'"),
    "a text target": (["ingest", "t.csv", "--target", "cut", "--exclude", "id", "--out", "o.zarr"], "--target 'cut' holds"),
    "an output that exists": (["ingest", "t.csv", "--target", "price", "--out", "t.csv"], "t.csv' exists; give another path"),
    "no such file": (["ingest", "no.csv", "--target", "price", "--out", "o.zarr"], "no.csv' does not exist"),
    "ids": (["ingest", "t.csv", "--target", "price", "--out", "o.zarr"], "'id' has [0-9]+ different values.*--max-categories 100"),
    "no output": (["ingest", "t.csv"], "Missing option '--out'"),
    "an empty table": (["ingest", "empty.csv", "--out", "o.zarr"], "table has no rows"),
    "text in plan": (["plan", "t.csv", "--y", "price", "--model", "linear"], "column 'id' holds 'r0' at row 0, no number"),
    "no such x": (["plan", "t.csv", "--y", "price", "--x", "size", "--model", "linear"], "--x: .* has no column 'size'"),
    "no such weight": (["plan", "t.csv", "--x", "carat", "--weight", "w", "--model", "linear"], "--weight: .* has no column 'w'"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_every_mistake_is_one_line_with_a_remedy_and_exit_code_2(frame, tmp_path, monkeypatch, capsys, case):
    words, says = MISTAKES[case]
    written(tmp_path, frame, "csv")
    (tmp_path / "empty.csv").write_text("a,b\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert re.search(says, said)
    assert "Traceback" not in said
    assert said.count("\n") == 1
    assert not (tmp_path / "o.zarr").exists()


def test_an_interrupt_is_exit_code_130_and_progress_is_shown_where_asked_for(frame, tmp_path, monkeypatch, capsys):
    path = written(tmp_path, frame, "csv")
    words = ["ingest", str(path), "--target", "price", "--exclude", "id", "--out", str(tmp_path / "o.zarr")]
    with monkeypatch.context() as patch:
        patch.setattr(ingest_room, "check_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 130
        assert not (tmp_path / "o.zarr").exists()
    seen = []
    monkeypatch.setattr(ingest_room, "watched", lambda compute: seen.append(compute) or _advance(seen))
    with dask.config.set({"dask-nlis.progress": True}):
        nlis.ingest(path, tmp_path / "o.zarr", target="price", exclude="id")
    assert seen[0].label == "nlis-ingest"
    assert sum(seen[1:]) == seen[0].n_tasks


class _advance:
    """A watcher that notes what it is told."""

    def __init__(self, seen):
        self.seen = seen

    def __enter__(self):
        return self.seen.append

    def __exit__(self, *_):
        return None
