"""Faults of stored input: missing, damaged, changed and unreachable chunks raise in one line that names array and rows."""

import os
import pickle
import shutil
import time
import warnings
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from counting import rows_of, same_bits
from distributed import Client, LocalCluster
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import dask_nlis as nlis
from dask_nlis.intake.reader import Reader
from dask_nlis.intake.zarr_files import survey

PROBLEM = nlis.Problem(nlis.Linear())
X, Y = rows_of(3, 100, 3)

#: How X is stored: ten chunks or shards of ten rows.
LAYOUTS = {
    "zstd": {"chunks": (10, 3)},
    "plain": {"chunks": (10, 3), "compressors": None},
    "crc": {"chunks": (10, 3), "compressors": [ZstdCodec(), Crc32cCodec()]},
    "gzip": {"chunks": (10, 3), "compressors": [GzipCodec()]},
    "blosc": {"chunks": (10, 3), "compressors": [BloscCodec()]},
    "sharded": {"chunks": (5, 3), "shards": (10, 3)},
    "columns": {"chunks": (10, 2)},
    "v2": {"chunks": (10, 3), "zarr_format": 2},
}


def write(root, layout="zstd", x=X, y=Y, overwrite=False):
    options = dict(LAYOUTS[layout])
    group = zarr.open_group(root, mode="w" if overwrite else "w-", zarr_format=options.pop("zarr_format", 3))
    group.create_array("X", data=x, **options)
    group.create_array("y", data=y, chunks=(10,))
    return str(root)


def chunk(path, layout="zstd", k=3, name="X"):
    """The file of the k-th chunk of rows."""
    return f"{path}/{name}/{k}.0" if layout == "v2" else f"{path}/{name}/c/{k}" + ("/0" if name == "X" else "")


def opened(path, **options):
    return nlis.open_rows(path, X="X", y="y", block_bytes=500, **options)


def scored(x, y=None):
    return np.asarray(nlis.norm_scores(nlis.reference_matrix(PROBLEM, x, y)))


def in_one_line(caught):
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300
    return str(caught.value)


def said_by(error, call):
    with pytest.raises(error) as caught:
        call()
    return in_one_line(caught)


@pytest.fixture(scope="module")
def client():
    """Two workers in this process."""
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        LocalCluster(
            n_workers=2, processes=False, dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def everywhere(client):
    """The message with which a call ends on each scheduler: it must be the same."""

    def said(error, call):
        messages = set()
        for where in ("synchronous", "threads", client):
            with dask.config.set(scheduler=where):
                messages.add(said_by(error, call))
        assert len(messages) == 1, messages
        return messages.pop()

    return said


# -- missing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["zstd", "plain", "sharded", "v2"])
def test_a_missing_chunk_raises_at_opening_or_reads_as_fill_with_the_same_numbers(layout, tmp_path):
    path = write(tmp_path / "data", layout)
    os.unlink(chunk(path, layout, 3))
    numbers = "1 of 10 chunks is missing, the first holds rows 30 to 39; "
    for call in (lambda: opened(path), lambda: nlis.reference_matrix(PROBLEM, f"{path}/X")):
        message = said_by(nlis.MissingDataError, call)
        assert "X='" in message
        assert numbers in message
        assert "allow_missing=True" in message
    with pytest.warns(nlis.MissingDataWarning, match=numbers):
        x, _ = opened(path, allow_missing=True)
    wanted = X.copy()
    wanted[30:40] = 0
    assert same_bits(x.compute(), wanted)
    with (
        dask.config.set({"dask-nlis.allow-missing": True}),
        pytest.warns(nlis.MissingDataWarning, match=numbers),
    ):
        assert scored(zarr.open_array(f"{path}/X"))[35] == 1  # [0, 0, 0, 1 | 0]
    os.unlink(chunk(path, layout, 5))
    os.unlink(chunk(path, layout, 9))
    assert "3 of 10 chunks are missing, the first holds rows 30 to 39;" in said_by(
        nlis.MissingDataError, lambda: opened(path)
    )


def test_a_missing_chunk_of_y_and_one_of_some_columns_are_named(tmp_path):
    path = write(tmp_path / "data", "columns")
    os.unlink(f"{path}/X/c/9/1")
    assert "X='" in (message := said_by(nlis.MissingDataError, lambda: opened(path)))
    assert "1 of 20 chunks is missing, the first holds rows 90 to 99" in message
    shutil.rmtree(path)
    write(path)
    os.unlink(chunk(path, name="y", k=0))
    message = said_by(nlis.MissingDataError, lambda: opened(path))
    assert message.startswith("y='")
    assert "rows 0 to 9;" in message


@pytest.mark.parametrize("layout", ["zstd", "plain", "sharded", "columns", "v2"])
def test_a_chunk_removed_after_opening_raises_in_the_task_and_is_never_zeros(layout, tmp_path, everywhere):
    path = write(tmp_path / "data", layout)
    x, _ = opened(path)
    os.unlink(chunk(path, layout, 7))
    message = everywhere(nlis.MissingDataError, lambda: nlis.factorize(nlis.reference_matrix(PROBLEM, x)))
    total = 20 if layout == "columns" else 10
    assert f"1 of {total} chunks is missing, the first holds rows 70 to 79;" in message


class Named(WrapperStore):
    """A store of another kind than a local folder."""


@pytest.mark.parametrize("kind", ["memory", "wrapped"])
@pytest.mark.parametrize("layout", ["zstd", "sharded"])
def test_other_stores_are_judged_by_the_task(kind, layout, tmp_path):
    store = MemoryStore() if kind == "memory" else Named(LocalStore(tmp_path / "data"))
    group = zarr.create_group(store)
    array = group.create_array("X", data=X, **LAYOUTS[layout])
    assert same_bits(Reader(array, "t")[:], X)
    zarr.core.sync.sync(store.delete("X/c/3/0"))
    numbers = "X='/X': 1 of 10 chunks is missing, the first holds rows 30 to 39"
    x = nlis.reference_matrix(PROBLEM, array, block_bytes=500)
    assert numbers in said_by(nlis.MissingDataError, lambda: nlis.factorize(x))
    with dask.config.set({"dask-nlis.allow-missing": True, "scheduler": "threads"}):
        lazy = nlis.norm_scores(nlis.reference_matrix(PROBLEM, array, block_bytes=500))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert lazy.compute()[35] == 1
            lazy.compute()
    assert [numbers in str(each.message) for each in told] == [True]  # once a process


def test_chunks_that_a_shard_leaves_out_are_missing_and_those_beyond_the_array_are_not(tmp_path):
    options = {"shape": (95, 3), "dtype": "f8", "chunks": (5, 3), "shards": (20, 3)}
    array = zarr.create_array(tmp_path / "x", **options)
    array[:] = X[:95]  # the last shard holds three of its four chunks
    assert same_bits(Reader(array, "t")[:], X[:95])
    array[45:50] = 0.0  # written anew without the chunk
    message = said_by(nlis.MissingDataError, lambda: Reader(array, "t", "X")[40:60])
    assert message.startswith("X: 1 of 4 chunks of shard c/2/0 is missing, the first holds rows 45 to 49;")
    assert "1 of 4 chunks of shard" in said_by(nlis.MissingDataError, lambda: Reader(array, "t")[40:43])
    assert same_bits(Reader(array, "t")[60:95], X[60:95])
    with pytest.warns(nlis.MissingDataWarning, match="1 of 4 chunks of shard c/2/0"):
        assert (Reader(array, "inner", allow_missing=True)[45:50] == 0).all()
    start = zarr.create_array(tmp_path / "start", **options | {"shards": {"shape": (20, 3), "index_location": "start"}})
    start[:] = X[:95]
    assert same_bits(Reader(start, "t")[:], X[:95])
    start[90:95] = 0.0
    assert "1 of 3 chunks of shard c/4/0" in said_by(nlis.MissingDataError, lambda: Reader(start, "t")[80:95])


def test_an_array_of_very_many_chunks_is_counted_by_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr("dask_nlis.intake.zarr_files._MOST_KEYS", 5)
    path = write(tmp_path / "data")
    opened(path)
    os.unlink(chunk(path, k=3))
    os.unlink(chunk(path, k=4))
    assert "2 of 10 chunks are missing, the first holds rows 30 to 39" in said_by(
        nlis.MissingDataError, lambda: opened(path)
    )


def test_what_the_library_writes_holds_chunks_of_zeros(tmp_path):
    from dask_nlis.intake import write_rows

    zeros = dask.array.zeros((40, 2), chunks=(10, 2))
    write_rows(tmp_path / "data", zeros, zeros[:, 0])
    x, y = nlis.open_rows(tmp_path / "data", X="X", y="y")
    assert not x.compute().any()
    assert not y.compute().any()


def test_allow_missing_is_true_or_false(tmp_path):
    path = write(tmp_path / "data")
    assert "allow_missing='yes' is str; give True or False" in said_by(
        nlis.InputTypeError, lambda: opened(path, allow_missing="yes")
    )


# -- damaged ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "empty"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_chunk_is_named_with_its_rows(layout, damage, tmp_path, everywhere):
    path = write(tmp_path / "data", layout)
    file = chunk(path, layout, 4)
    whole = Path(file).read_bytes()
    stat = os.stat(file)
    with open(file, "wb") as out:
        out.write(whole[: len(whole) // 2] if damage == "cut" else b"")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as when it was damaged before the array was opened
    x, _ = opened(path)
    message = everywhere(nlis.DamagedDataError, lambda: nlis.factorize(nlis.reference_matrix(PROBLEM, x)))
    assert f"{os.path.relpath(file, path + '/X')!r} with rows 40 to 49 cannot be decoded (" in message
    assert message.startswith("X='")


def test_the_cause_of_a_damaged_chunk_is_kept(tmp_path):
    path = write(tmp_path / "data")
    with open(chunk(path), "r+b") as file:
        file.truncate(60)
    with pytest.raises(nlis.DamagedDataError, match="Zstd decompression error") as caught:
        Reader(zarr.open_array(f"{path}/X"), "t")[:]
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def outcome(reader):
    """What reading says; "" where it says nothing."""
    try:
        reader[20:30]
    except nlis.NlisError as error:
        return str(error)
    return ""


def test_a_flipped_bit_is_named_where_there_is_a_checksum(tmp_path):
    """Also: whatever comes of one where there is none is an error of ours, or other numbers, as documented."""
    rng = np.random.default_rng(0)
    for layout, seeds in (("crc", 200), ("zstd", 60), ("blosc", 60), ("sharded", 60)):
        path = write(tmp_path / layout, layout)
        file = chunk(path, layout, 2)
        whole = bytearray(Path(file).read_bytes())
        reader = Reader(zarr.open_array(f"{path}/X"), "t", "X")
        told = []
        for _ in range(seeds):
            bit = int(rng.integers(8 * len(whole)))
            whole[bit // 8] ^= 1 << bit % 8
            with open(file, "wb") as out:
                out.write(whole)
            told.append(outcome(reader))
            whole[bit // 8] ^= 1 << bit % 8
        assert all("rows 20 to 2" in each for each in told if each)
        assert all(told) if layout == "crc" else any(told), (layout, told)


@pytest.mark.parametrize("layout", ["zstd", "v2"])
@pytest.mark.parametrize("content", ["cut", "", "{}", '{"zarr_format": 3, "node_type": "array"}', "\xff"])
def test_damaged_metadata_are_named(layout, content, tmp_path):
    path = write(tmp_path / "data", layout)
    for where, call in (
        ("X", lambda: opened(path)),
        ("X", lambda: nlis.reference_matrix(PROBLEM, f"{path}/X")),
        ("", lambda: opened(path)),
    ):
        if (where, content) == ("", "{}"):  # is no fault: a group without attributes
            continue
        name = "zarr.json" if layout != "v2" else ".zarray" if where else ".zgroup"
        file = os.path.join(path, where, name)
        whole = Path(file).read_bytes()
        with open(file, "wb") as out:
            out.write(whole[: len(whole) // 2] if content == "cut" else content.encode("latin-1"))
        message = said_by(nlis.NlisError, call)
        if content == "cut":
            assert repr(file) in message
            assert "cut short" in message
        with open(file, "wb") as out:
            out.write(whole)
    opened(path)


# -- changed ------------------------------------------------------------------------------------------------------


def later(path):
    """As if what lies there was written a second later: clocks of file systems step by milliseconds."""
    for folder, _, files in os.walk(path):
        for name in files:
            stat = os.stat(os.path.join(folder, name))
            os.utime(os.path.join(folder, name), ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))


@pytest.mark.parametrize("layout", ["zstd", "plain", "sharded", "v2"])
@pytest.mark.parametrize("what", ["store", "chunk", "removed"])
def test_a_store_written_anew_or_removed_after_opening_is_not_mixed_with_the_old(what, layout, tmp_path, everywhere):
    path = write(tmp_path / "data", layout)
    x, _ = opened(path)
    if what == "chunk":
        zarr.open_array(f"{path}/X", mode="r+")[30:40] = 7.0
        later(chunk(path, layout, 3))
        os.utime(chunk(path, layout, 3), ns=(0, time.time_ns() + 10**9))
    else:
        shutil.rmtree(path)
    if what == "store":
        write(path, layout, x=X[::-1])
        later(path)
    error = nlis.MissingDataError if what == "removed" else nlis.ChangedDataError
    message = everywhere(error, lambda: nlis.factorize(nlis.reference_matrix(PROBLEM, x)))
    assert ("since it was opened" if what != "removed" else "") in message
    if what != "removed":
        x, _ = opened(path)
        assert same_bits(x.compute(), zarr.open_array(f"{path}/X")[:])


def test_a_store_exchanged_for_an_older_one_is_noticed_by_its_metadata(tmp_path):
    old, path = write(tmp_path / "old", x=X[::-1]), write(tmp_path / "data")
    later(path)
    x, _ = opened(path)
    os.rename(path, tmp_path / "away")
    os.rename(old, path)
    message = said_by(nlis.ChangedDataError, lambda: nlis.factorize(nlis.reference_matrix(PROBLEM, x)))
    assert "'zarr.json' is another one" in message


def test_on_another_machine_times_are_compared_in_seconds(tmp_path):
    array = zarr.open_array(f"{write(tmp_path / 'data')}/X")
    stamp = survey(array).stamp._replace(host="elsewhere")
    second = 10**9
    stamp = stamp._replace(metadata=tuple((p, s, t // second * second) for p, s, t in stamp.metadata))
    assert same_bits(Reader(array, "t", "X", stamp)[:], X)
    later(tmp_path / "data" / "X" / "c")
    assert "written anew" in said_by(nlis.ChangedDataError, lambda: Reader(array, "t", "X", stamp)[:])


def test_an_overwritten_store_is_scored_anew_on_a_cluster(client, tmp_path):
    """A3: a handle of the old content is held while the same path is opened again."""
    path = write(tmp_path / "data", x=np.ones((100, 3)))
    with dask.config.set(scheduler=client):
        old = opened(path)[0].persist()
        assert float(old.sum().compute()) == 300
        write(path, x=np.full((100, 3), 2.0), overwrite=True)
        new = opened(path)[0]
        assert float(new.persist().sum().compute()) == 600
        assert float(new.sum().compute(optimize_graph=False)) == 600


@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_files_written_anew_in_the_same_shape_are_refused(kind, tmp_path):
    h5py = pytest.importorskip("h5py")
    file = str(tmp_path / f"x.{kind}")

    def put(values):
        if kind == "npy":
            np.save(file, values)
            return file
        with h5py.File(file, "w") as out:
            out["X"] = values
        return nlis.open_rows(file, X="X")[0]

    A = nlis.reference_matrix(PROBLEM, put(X))
    assert same_bits(scored(A.source.x), scored(X))
    put(X[::-1])
    os.utime(file, ns=(0, time.time_ns() + 10**9))
    message = said_by(nlis.ChangedDataError, lambda: nlis.factorize(A))
    assert os.path.basename(file) in message


# -- by chance ----------------------------------------------------------------------------------------------------


class Flaky:
    """Rows that fail to be read a number of times, each block by itself."""

    def __init__(self, error, failures):
        self.error, self.failures = error, failures
        self.shape, self.dtype, self.ndim = X.shape, X.dtype, 2
        self.tries = dict.fromkeys(range(0, 100, 50), 0)

    def __getitem__(self, index):
        start = index[0].start
        self.tries[start] += 1
        if self.tries[start] <= self.failures:
            raise self.error
        return X[index]

    def __dask_tokenize__(self):
        return id(self)


@pytest.mark.parametrize("where", ["synchronous", "threads"])
@pytest.mark.parametrize(
    ("error", "tries", "kind", "says"),
    [
        (ConnectionResetError("by peer"), 4, nlis.ReadError, "4 attempts to read failed, the last with Connection"),
        (OSError(5, "Input/output error"), 4, nlis.ReadError, "4 attempts to read failed, the last with OSError"),
        (TimeoutError(), 4, nlis.ReadError, "4 attempts to read failed, the last with TimeoutError;"),
        (FileNotFoundError(2, "gone"), 1, nlis.MissingDataError, "nothing is there (FileNotFoundError"),
        (PermissionError(13, "denied"), 1, nlis.ReadError, "cannot be read (PermissionError"),
        (IsADirectoryError(21, "folder"), 1, nlis.ReadError, "cannot be read (IsADirectoryError"),
        (KeyError("token"), 1, nlis.ReadError, "cannot be read (KeyError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_reads_that_fail_by_chance_are_tried_four_times_and_others_once(error, tries, kind, says, where, monkeypatch):
    naps = []
    monkeypatch.setattr("tenacity.nap.time.sleep", naps.append)
    with dask.config.set(scheduler=where):
        mended = Flaky(error, 3)
        if tries == 4:
            assert same_bits(scored(nlis.reference_matrix(PROBLEM, mended, block_bytes=1200).source.x), scored(X))
            assert set(mended.tries.values()) == {4}
            assert all(0.1 <= a <= 0.2 <= 0.3 <= b <= 0.4 <= 0.9 <= c <= 1.0 for a, b, c in [sorted(naps)[::2]])
        lasting = Flaky(error, 1000)
        A = nlis.reference_matrix(PROBLEM, lasting, block_bytes=1200)
        message = said_by(kind, lambda: nlis.factorize(A))
    assert "X (Flaky), rows " in message
    assert says in message
    assert max(lasting.tries.values()) == tries


def test_what_a_url_carries_is_not_shown(monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    error = OSError("GET https://me:s3cret@host/x?X-Amz-Signature=s3cret failed for s3://bucket/x?token=s3cret")
    message = said_by(nlis.ReadError, lambda: Reader(Flaky(error, 9), "t")[0:50, 0:3])
    assert "s3cret" not in message
    assert "https://host/x failed for s3://bucket/x" in message


def test_memory_that_runs_out_in_a_read_names_rows_bytes_and_remedy():
    def call():
        A = nlis.reference_matrix(PROBLEM, Flaky(MemoryError(), 1000), block_bytes=1200)
        with dask.config.set({"dask-nlis.progress": False}):
            nlis.factorize(A)

    with dask.config.set(scheduler="synchronous"):
        message = said_by(nlis.MemoryLimitError, call)
    assert (
        "reading X (Flaky): memory ran out at rows 50 to 99, a block of 1,200 bytes where a process of 1 threads"
        in message
    )
    assert "give block_bytes=600, or fewer threads" in message
