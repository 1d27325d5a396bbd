"""Parquet and CSV files by path: columns by name, rows and blocks, what is read when, and what is refused."""

import os
import pickle
import shutil
import threading

import numpy as np
import pytest
from counting import Tasks, no_compute, same_bits
from refusals import check as check_error

import dask_nlis as nlis
from dask_nlis.intake import csv_files, csv_scan, parquet_files

pd = pytest.importorskip("pandas")

LINEAR = nlis.Problem(nlis.Linear())
N = 1_000
FEATURES = ["carat", "depth", "table", "new"]


def frame_of(rng):
    found = pd.DataFrame(
        {
            "price": rng.normal(size=N),
            "carat": rng.normal(size=N) * 10.0 ** rng.integers(-30, 30, N),
            "depth": rng.integers(-5, 5, N),
            "table": rng.random(N).astype("f4"),
            "new": rng.random(N) > 0.5,
            "v": rng.random(N),
        }
    )
    found.loc[7, "carat"] = np.nan
    return found


def numbers(frame, columns=FEATURES):
    return frame[list(columns)].astype(float).to_numpy()


@pytest.fixture
def frame(rng):
    return frame_of(rng)


@pytest.fixture(params=["csv", pytest.param("parquet", marks=pytest.mark.adapters)])
def path(request, frame, tmp_path):
    """The table as a file of either kind."""
    where = tmp_path / f"table.{request.param}"
    if request.param == "csv":
        frame.astype({"table": float}).to_csv(where, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(where, row_group_size=130, index=False)
    return where


def refused(kind, says, path, **how):
    with no_compute(), pytest.raises(kind, match=says) as caught:
        nlis.open_rows(path, **how)
    check_error(caught.value, kind)


# -- Either kind ------------------------------------------------------------------------------------------------------------


def test_columns_come_by_name_and_in_the_order_given(path, frame):
    with no_compute():
        X, y = nlis.open_rows(path, X=FEATURES, y="price", block_bytes=300 * 8 * 4)
    assert same_bits(X.compute(), numbers(frame))
    assert same_bits(y.compute(), frame["price"].to_numpy())
    assert X.dtype == y.dtype == np.float64
    assert X.chunks[0] == y.chunks[0]
    assert len(X.chunks[0]) > 3
    backwards = nlis.open_rows(path, X=FEATURES[::-1])
    assert same_bits(backwards[0].compute(), numbers(frame, FEATURES[::-1]))
    assert backwards[1] is None
    one, _ = nlis.open_rows(path, X="depth")
    assert one.shape == (N, 1)
    every, _ = nlis.open_rows(path, y="price")
    assert every.shape == (N, 5)
    assert same_bits(every.compute()[:, -1], frame["v"].to_numpy())
    A = nlis.reference_matrix(LINEAR, X, y, missing="drop")
    assert A.columns[:5] == (*FEATURES, "intercept")
    assert nlis.factorize(A).n_dropped == 1


def test_each_block_is_one_task_that_carries_its_own_part_alone(path):
    X, y = nlis.open_rows(path, X=FEATURES, y="price", block_bytes=300 * 8 * 4)
    A = nlis.reference_matrix(LINEAR, X, y, missing="drop")
    with Tasks() as tasks:
        factor = nlis.factorize(A)
        nlis.leverage_scores(A, factor).compute()
    blocks = len(X.chunks[0])
    assert tasks.labels["nlis-factor"] == tasks.labels["nlis-score"] == blocks
    assert not [label for label in tasks.labels if "read" in label]
    layer = X.dask.layers[X.name]
    sizes = [len(pickle.dumps(layer[key])) for key in layer]
    assert max(sizes) < 2_500


def test_the_same_file_is_the_same_matrix_and_a_file_written_anew_another(path, frame):
    def matrix():
        return nlis.reference_matrix(LINEAR, *nlis.open_rows(path, X=FEATURES, y="price"), missing="drop")

    first = matrix()
    assert matrix() == first
    stat = os.stat(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))
    assert matrix() != first
    with pytest.raises(nlis.ChangedDataError, match="was written anew since it was opened"):
        nlis.factorize(first)


def test_a_file_that_is_gone_or_cut_short_is_named_by_the_task(path):
    X, _ = nlis.open_rows(path, X=["depth"])
    stat, content = os.stat(path), path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises((nlis.ChangedDataError, nlis.DamagedDataError), match=r"table\.|written anew"):
        X.compute()
    path.unlink()
    with pytest.raises(nlis.MissingDataError, match=r"table\.\w+' is not there.*put it back"):
        X.compute()


def test_reads_that_fail_by_chance_are_tried_again(path, frame, monkeypatch):
    X, _ = nlis.open_rows(path, X=["depth"])
    failing, lock = [2], threading.Lock()

    def flaky(real):
        def read(*args, **named):
            with lock:
                failing[0] -= 1
                if failing[0] >= 0:
                    raise OSError(5, "Input/output error")
            return real(*args, **named)

        return read

    if path.suffix == ".csv":
        monkeypatch.setattr(csv_scan, "_opened", flaky(csv_scan._opened))
    else:
        monkeypatch.setattr(parquet_files, "column_values", flaky(parquet_files.column_values))
    assert same_bits(X.compute(), numbers(frame, ["depth"]))


def test_a_table_is_read_on_processes_of_a_cluster(path, frame, cluster):
    X, y = nlis.open_rows(path, X=FEATURES, y="price", block_bytes=300 * 8 * 4)
    assert same_bits(X.compute(), numbers(frame))
    job = nlis.run(LINEAR, X, y, size=60, seed=0, missing="drop")
    assert job.n_dropped == 1
    assert job.fit.names == (*FEATURES, "intercept")


def test_a_run_on_a_table_is_taken_up_again_and_refused_on_another(path, frame, tmp_path):
    def job(**how):
        X, y = nlis.open_rows(path, X=["depth", "table"], y="price", block_bytes=300 * 8 * 2)
        return nlis.run(LINEAR, X, y, size=60, seed=0, store=tmp_path / "run.zarr", **how)

    first = job()
    assert job(resume=True).fit == first.fit
    assert same_bits(first.sample_X, numbers(frame, ["depth", "table"])[first.sample.indices])
    frame.loc[3, "price"] = 9.0
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(
        path, row_group_size=130, index=False
    )
    with pytest.raises(nlis.FingerprintMismatchError, match="data"):
        job(resume=True)


def test_names_that_are_no_columns_are_refused_with_those_there_are(path):
    for how, says in (
        ({"X": ["carat", "colour"]}, "X: .* has no column 'colour'; it has 'price', 'carat'"),
        ({"X": ["carat"], "y": "cost"}, "y: .* has no column 'cost'; it has 'price'"),
        ({"X": []}, "X is an empty list"),
        ({"X": ["carat", "carat"]}, "X names 'carat' twice"),
        ({"X": ["carat", "price"], "y": "price"}, "X names 'price', which is y; leave it out"),
        ({"X": ""}, "X: .* has a column without a name"),
    ):
        refused(nlis.InputError, says, path, **how)
    refused(nlis.InputTypeError, "X is int; give the name of a column", path, X=3)
    refused(nlis.InputTypeError, "X is int; give the name of a column", path, X=["carat", 3])
    refused(nlis.InputTypeError, "y is list; give the name of a column", path, X="carat", y=["price"])
    refused(nlis.MissingDataError, "does not exist", f"{path.parent}/nothing{path.suffix}", X="carat")
    refused(nlis.InputError, "is a URL", f"s3://bucket/table{path.suffix}", X="carat")


def test_a_table_given_as_an_array_names_the_way_to_open_it(path):
    with no_compute(), pytest.raises(nlis.InputError, match=r"X=.* is a table; open it with dask_nlis.open_rows"):
        nlis.reference_matrix(LINEAR, path)


# -- Parquet ------------------------------------------------------------------------------------------------------------------


def arrow():
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    return pyarrow, pyarrow.parquet


@pytest.mark.adapters
def test_blocks_are_whole_row_groups_and_footers_alone_are_read(tmp_path, frame, monkeypatch):
    _, parquet = arrow()
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=130, index=False)
    with monkeypatch.context() as patch:
        patch.setattr(parquet.ParquetFile, "read_row_group", None)
        X, _ = nlis.open_rows(tmp_path / "t.parquet", X=FEATURES, block_bytes=300 * 8 * 4)
    assert X.chunks[0] == (260, 260, 260, 220)  # groups of 130 rows, the last of 90
    asked, real = [], parquet.ParquetFile.read_row_group

    def spy(self, group, columns=None, **named):
        asked.append((group, tuple(columns)))
        return real(self, group, columns=columns, **named)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", spy)
    X.compute()
    assert sorted(asked) == [(k, tuple(FEATURES)) for k in range(8)]  # each once, of the columns asked for alone
    asked.clear()
    nlis.Sample.from_probabilities([5, 900], [0.1, 0.1], n_rows=N).take(X)
    assert {group for group, _ in asked} == {0, 1, 6, 7}  # of the blocks touched


@pytest.mark.adapters
def test_a_folder_of_files_is_read_in_natural_order(tmp_path, frame):
    arrow()
    folder = tmp_path / "pieces"
    folder.mkdir()
    for k in range(12):
        frame.iloc[k * 80 : (k + 1) * 80].to_parquet(folder / f"part.{k}.parquet", index=False)
    (folder / "_SUCCESS").touch()
    X, y = nlis.open_rows(folder, X=FEATURES, y="price", block_bytes=250 * 8 * 4)
    assert X.chunks[0] == (240, 240, 240, 240)  # small files are joined
    assert same_bits(X.compute(), numbers(frame.iloc[:960]))
    assert same_bits(y.compute(), frame["price"].to_numpy()[:960])
    frame.iloc[:3].drop(columns="depth").to_parquet(folder / "part.12.parquet", index=False)
    refused(
        nlis.InputError, r"'part.12.parquet' has other columns \('depth'\) than those in 'part.0", folder, X="carat"
    )
    frame.iloc[:3].astype({"depth": float}).to_parquet(folder / "part.12.parquet", index=False)
    refused(nlis.InputError, "'part.12.parquet' has 'depth' as double in place of int64 in 'part.0", folder, X="carat")


@pytest.mark.adapters
def test_nulls_and_every_kind_of_number_become_float64(tmp_path):
    pa, parquet = arrow()
    columns = {
        "int8": pa.array([1, None, -3], pa.int8()),
        "uint64": pa.array([1, None, 2**53], pa.uint64()),
        "half": pa.array(np.array([1.5, 2, 3], dtype="f2"), pa.float16()),
        "bool": pa.array([True, None, False]),
        "double": pa.array([1.0, None, np.inf]),
        "a.b": pa.array([7, 8, 9]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    X, _ = nlis.open_rows(tmp_path / "t.parquet")
    nan = np.nan
    expected = [[1, 1, 1.5, 1, 1, 7], [nan, nan, 2, nan, nan, 8], [-3, 2**53, 3, 0, np.inf, 9]]
    assert same_bits(X.compute(), np.array(expected, dtype=float))


@pytest.mark.adapters
def test_columns_that_are_no_numbers_are_named_with_their_type(tmp_path):
    pa, parquet = arrow()
    columns = {
        "ok": pa.array([1, 2]),
        "text": pa.array(["a", "b"]),
        "decimal": pa.array([1, 2]).cast(pa.decimal128(25, 2)),
        "day": pa.array([1, 2], pa.date32()),
        "list": pa.array([[1], [2]]),
        "dictionary": pa.array(["a", "b"]).dictionary_encode(),
        "null": pa.nulls(2),
    }
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table(columns), path)
    for name in list(columns)[1:]:
        refused(
            nlis.InputTypeError, f"X column '{name}' of .* has type .*no numbers; leave it out", path, X=["ok", name]
        )
    refused(nlis.InputTypeError, "y column 'text' .* has type", path, X="ok", y="text")
    refused(nlis.InputTypeError, "X column 'text'", path, y="ok")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    parquet.write_table(twice, path)
    refused(nlis.InputError, "has two columns 'a'; write it with a name for each", path)


@pytest.mark.adapters
def test_an_integer_beyond_float64_is_named_with_its_row(tmp_path):
    pa, parquet = arrow()
    values = np.arange(20)
    values[13] = -(2**53) - 1
    parquet.write_table(pa.table({"id": values}), tmp_path / "t.parquet", row_group_size=5)
    X, _ = nlis.open_rows(tmp_path / "t.parquet")
    with pytest.raises(nlis.InputError, match=r"column 'id' holds -9007199254740993 at row 13, beyond 2\*\*53"):
        X.compute()


@pytest.mark.adapters
def test_row_groups_far_larger_than_a_block_are_refused_with_the_figures(tmp_path, frame):
    arrow()
    frame.to_parquet(tmp_path / "t.parquet")
    says = "row groups of up to 1,000 rows, which take 8,000 bytes, above 16 blocks of 100; .*block_bytes=500"
    refused(nlis.InputError, says, tmp_path / "t.parquet", X="carat", block_bytes=100)
    assert nlis.open_rows(tmp_path / "t.parquet", X="carat", block_bytes=500)[0].chunks == ((N,), (1,))


@pytest.mark.adapters
def test_folders_by_hive_damaged_files_and_links_out_are_refused(tmp_path, frame):
    arrow()
    (tmp_path / "hive" / "year=2024").mkdir(parents=True)
    refused(
        nlis.InputError, r"is partitioned into folders \('year=2024', ...\).*read_parquet", tmp_path / "hive", X="a"
    )
    bad = tmp_path / "bad.parquet"
    for content in (b"", b"PAR1", b"PAR1" + os.urandom(200) + b"\xff\xff\xff\x7fPAR1", b"PAR1" * 30):
        bad.write_bytes(content)
        refused(nlis.DamagedDataError, "has no Parquet footer that can be read", bad, X="a")
    (tmp_path / "linked").mkdir()
    frame.to_parquet(tmp_path / "secret.parquet")
    (tmp_path / "linked" / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    refused(nlis.InputError, "is a link out of", tmp_path / "linked", X="carat")


@pytest.mark.adapters
def test_altered_bytes_of_a_file_are_told(tmp_path, frame):
    arrow()
    path = tmp_path / "t.parquet"
    frame.to_parquet(path, index=False, compression="zstd", write_page_checksum=True)
    X, _ = nlis.open_rows(path, X=FEATURES)
    stat, content = os.stat(path), bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(nlis.DamagedDataError, match="row group from row 0 on cannot be read"):
        X.compute()


def test_what_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    refused(
        nlis.MissingExtraError, r"needs pyarrow; pip install 'dask-nlis\[dataframe\]'", tmp_path / "t.parquet", X="a"
    )
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    (tmp_path / "t.csv").write_text("a\n1\n")
    refused(nlis.MissingExtraError, r"needs pandas; pip install 'dask-nlis\[dataframe\]'", tmp_path / "t.csv", X="a")


# -- CSV ----------------------------------------------------------------------------------------------------------------------


def csv(tmp_path, text, **how):
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return nlis.open_rows(path, **how)


@pytest.mark.parametrize("size", [40, 64, 1_000, 2**22])
def test_rows_are_found_whatever_pieces_are_read(tmp_path, rng, size, monkeypatch):
    monkeypatch.setattr(csv_scan, "_PIECE", size)
    frame = pd.DataFrame({"a": rng.normal(size=200), "t": ['say "hi",\nnow'] * 200, "b": np.arange(200)})
    path = tmp_path / "t.csv"
    for ending in ("\n", "\r\n"):
        frame.to_csv(path, index=False, lineterminator=ending)
        X, y = nlis.open_rows(path, X=["b"], y="a", block_bytes=8 * 30)
        assert sum(X.chunks[0]) == 200
        assert max(X.chunks[0]) <= 30
        assert same_bits(X.compute()[:, 0], np.arange(200.0))
        assert same_bits(y.compute(), frame["a"].to_numpy())


CSV = {
    "no line break at the end": ("a,b\n1,2\n3,4", [[1, 2], [3, 4]]),
    "blank rows": ("a,b\r\n1,2\r\n\r\n\r\n3,4\r\n\r\n", [[1, 2], [3, 4]]),
    "a byte order mark": ("\ufeffa,b\n1,2\n", [[1, 2]]),
    "empty cells and bools": ("a,b\nTrue,\n,NA\nfalse,nan\n", [[1, np.nan], [np.nan, np.nan], [0, np.nan]]),
    "names like formulas": ('"=cmd|x",b\n1,2\n', [[1, 2]]),
    "numbers in quotation marks": ('a,b\n"1","2e3"\n', [[1, 2000]]),
    "infinity": ("a,b\ninf,-inf\n", [[np.inf, -np.inf]]),
}


@pytest.mark.parametrize("case", CSV)
def test_what_a_cell_may_say(tmp_path, case):
    text, expected = CSV[case]
    X, _ = csv(tmp_path, text)
    assert same_bits(X.compute(), np.array(expected, dtype=float))


BAD_CSV = {
    "a dash among numbers": ("a,b\n1,2\n3,-\n5,6\n", "InputTypeError", "column 'b' holds '-' at row 1, no number"),
    "text": ("a,b\n1,x\n", "InputTypeError", "column 'b' holds 'x' at row 0, no number.*ingest"),
    "a long row": ("a,b\n1,2\n3,4,5\n", "InputError", "row 1 has 3 cells, the header 2"),
    "a short row": ("a,b\n1,2\n3\n", "InputError", "row 1 has 1 cells, the header 2"),
    "two of one name": ("a,a\n1,2\n", "InputError", "has two columns 'a'"),
    "an index": (",a\n0,1\n", "InputError", "has a column without a name, number 1.*index=False"),
    "no names": ("\n1,2\n", "InputError", "has no names in its first row"),
    "nothing": ("", "InputError", "has no names in its first row"),
    "an open quotation": ('a,b\n1,"2\n3,4\n', "InputError", "row 0 does not end"),
    "a large integer": ("a\n9007199254740993\n", "InputError", "column 'a' holds 9007199254740993 at row 0, beyond"),
    "names that are no UTF-8": (b"a\xff,b\n1,2\n", "InputError", "is no UTF-8"),
    "cells that are no UTF-8": (b"a,b\n1,\xff\n", "InputError", "rows 0 to 0: no UTF-8"),
    "other separators": ("a;b\n1;2\n", "InputTypeError", "column 'a;b' holds '1;2' at row 0"),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_what_is_no_csv_of_numbers_is_named_at_the_call_or_by_its_task(tmp_path, case):
    text, kind, says = BAD_CSV[case]
    error = getattr(nlis, kind)
    with pytest.raises(error, match=says) as caught:
        csv(tmp_path, text)[0].compute()
    check_error(caught.value, error)


def test_a_dirty_cell_in_a_later_block_is_named_with_its_row_in_the_file(tmp_path):
    rows = [f"{k},{k * k}" for k in range(5_000)]
    rows[4_321] = "4321,-"
    X, _ = csv(tmp_path, "\n".join(["a,b", *rows]), block_bytes=100 * 16)
    assert X.chunks[0] == (100,) * 50
    with pytest.raises(nlis.InputTypeError, match="column 'b' holds '-' at row 4321, no number"):
        nlis.factorize(nlis.reference_matrix(LINEAR, X))


def test_a_table_without_rows_has_none(tmp_path):
    X, _ = csv(tmp_path, "a,b\n")
    with pytest.raises(nlis.InputError, match="no rows"):
        nlis.reference_matrix(LINEAR, X)


def test_a_row_longer_than_memory_should_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_scan, "LONGEST_ROW", 1_000)
    monkeypatch.setattr(csv_scan, "_PIECE", 300)
    with pytest.raises(nlis.InputError, match=r"row 1 does not end .*more than 1,000 bytes"):
        csv(tmp_path, 'a,b\n1,2\n3,"' + "x" * 5_000 + '"\n')
    with pytest.raises(nlis.InputError, match="first row of more than 1,000 bytes"):
        csv(tmp_path, "a" * 5_000 + "\n1\n")


def test_compressed_files_and_folders_name_the_remedy(tmp_path):
    (tmp_path / "t.csv.gz").touch()
    refused(nlis.InputError, "is compressed, .*dask-nlis ingest", tmp_path / "t.csv.gz", X="a")
    (tmp_path / "t.csv").mkdir()
    refused(nlis.InputError, "is a folder; give one file", tmp_path / "t.csv", X="a")


def test_text_of_a_file_is_never_evaluated(tmp_path):
    for cell in ("__import__('os').system('touch canary')", "=1+1", "1_000", "0x10", "1+1", "None()"):
        with pytest.raises(nlis.InputTypeError, match="no number"):
            csv(tmp_path, f'a\n1\n"{cell}"\n')[0].compute()
    assert not (tmp_path / "canary").exists()


def test_a_csv_file_is_read_once_at_the_call_and_its_stretches_once_a_pass(tmp_path, rng, monkeypatch):
    frame = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("aby"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    asked, real = [], csv_files.parse_rows

    def spy(path, text, first, n_rows, *more):
        asked.append((first, n_rows))
        return real(path, text, first, n_rows, *more)

    monkeypatch.setattr(csv_files, "parse_rows", spy)
    X, _ = nlis.open_rows(tmp_path / "t.csv", X=["a", "b"], block_bytes=100 * 16)
    assert len(asked) == 1  # the first rows, to name text at once
    asked.clear()
    nlis.factorize(nlis.reference_matrix(LINEAR, X))
    assert sorted(asked) == [(0, 100), (100, 100), (200, 100), (300, 100)]


def outcome(call):
    """What a call came to: "read", or the name of one error of ours in one line."""
    try:
        call()
    except nlis.NlisError as error:
        return type(error).__name__ if "\n" not in str(error) and len(str(error)) <= 300 else f"bad: {error}"
    return "read"


def test_altered_files_of_either_kind_are_a_result_or_one_error_of_ours(path, rng, tmp_path):
    good, bad, out = path.read_bytes(), tmp_path / f"bad{path.suffix}", tmp_path / "out.zarr"
    outcomes = set()
    for k in range(60):
        content = bytearray(good)
        for place in rng.integers(len(good), size=3):
            content[place] = rng.integers(256)
        content[-rng.integers(1, 400)] = rng.integers(256)  # a footer, where there is one
        bad.write_bytes(content[: rng.integers(len(content))] if k % 5 == 0 else content)
        outcomes.add(outcome(lambda: nlis.open_rows(bad, X=["carat"])[0].compute(scheduler="synchronous")))
        outcomes.add(outcome(lambda: nlis.ingest(bad, out, target="price", missing="drop")))
        shutil.rmtree(out, ignore_errors=True)
        assert not list(tmp_path.glob(".out*"))
    assert len(outcomes) >= 2
    assert not [each for each in outcomes if each.startswith("bad")]
