"""NPY and HDF5 files are opened inside the task, and chunks that no block can hold are refused (A29)."""

import errno
import os
import pickle
import sys
import tracemalloc
from pathlib import Path

import dask
import h5py
import numpy as np
import pytest
import zarr
from counting import Tasks, no_compute, rows_of, same_bits
from distributed import Client, LocalCluster

import dask_nlis as nlis
from dask_nlis.intake import hdf5_files, npy_files, open_array

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(29, 500, 3)
BLOCK = 40 * 3 * 8  # bytes of 40 rows


def scores_of(x, y=Y):
    A = nlis.reference_matrix(PROBLEM, x, y, block_bytes=BLOCK)
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A)))


@pytest.fixture(scope="module")
def expected():
    return scores_of(X)


# Name: how the file is written.
LAYOUTS = {
    "rows one by one": lambda: X,
    "Fortran order": lambda: np.asfortranarray(X),
    "big-endian": lambda: X.astype(">f8"),
}


def npy(folder, array, name="x.npy"):
    np.save(folder / name, array)
    return folder / name


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by", ["path", "text", "map"])
def test_an_npy_file_gives_the_scores_of_its_array(layout, by, tmp_path, expected):
    path = npy(tmp_path, LAYOUTS[layout]())
    x = {"path": path, "text": os.fspath(path), "map": np.load(path, mmap_mode="r")}[by]
    y = npy(tmp_path, Y, "y.npy")
    with no_compute():
        A = nlis.reference_matrix(PROBLEM, x, y, block_bytes=BLOCK)
    assert A.source.chunks == (40,) * 12 + (20,)
    assert same_bits(scores_of(x, y), expected)
    if by == "path":
        job = nlis.run(PROBLEM, x, y, size=200, seed=0, block_bytes=BLOCK)
        assert job.sample == nlis.run(PROBLEM, X, Y, size=200, seed=0, block_bytes=BLOCK).sample
        assert np.array_equal(job.sample_X, X[job.sample.indices])
        assert nlis.total_loss(PROBLEM, x, y, job.fit.theta) == pytest.approx(job.total_loss, rel=1e-14)


# Parts of a memory map, and whether a task can read them from the file.
PARTS = {
    "rows": (np.s_[37:411], True),
    "every third row": (np.s_[5::3], True),
    "columns": (np.s_[:, 1:], True),
    "one column": (np.s_[:, 2:3], True),
    "rows and columns": (np.s_[100:, :2], True),
    "backwards": (np.s_[::-1], False),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_part_of_a_memory_map_is_read_from_its_place_in_the_file(part, layout, tmp_path):
    index, in_file = PARTS[part]
    mapped = np.load(npy(tmp_path, LAYOUTS[layout]()), mmap_mode="r")[index]
    opened = open_array("X", mapped, BLOCK)
    assert opened.container.kind == "numpy"
    assert np.array_equal(opened.array.compute(scheduler="sync"), X[index])
    assert open_array("X", mapped, BLOCK).array.name == opened.array.name
    assert (npy_files.of_memmap(mapped) is not None) == in_file


def test_a_map_that_is_written_to_gives_what_was_written_and_a_private_copy_its_own(tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype="f8", shape=X.shape)
    mapped[:] = X
    before = open_array("X", mapped, BLOCK).array
    assert np.array_equal(before.compute(scheduler="sync"), X)
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[:] = 7
    assert (open_array("X", private, BLOCK).array.compute(scheduler="sync") == 7).all()
    mapped[3] = 1
    after = open_array("X", mapped, BLOCK).array
    assert after.name != before.name
    assert (after[3].compute(scheduler="sync") == 1).all()


@pytest.mark.parametrize("index", [3, -1, [5, 2, 400], [], slice(10, 3), slice(None, None, -7), np.s_[4:90:5, 1]])
def test_a_file_is_indexed_as_an_array(index, tmp_path):
    for make in LAYOUTS.values():
        assert np.array_equal(npy_files.open_npy("X", os.fspath(npy(tmp_path, make())))[index], X[index])


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory from /proc")
def test_a_file_of_half_a_gigabyte_is_opened_by_its_header_alone(fortran, tmp_path):
    path, shape = tmp_path / "x.npy", (4_000_000, 16)
    with open(path, "wb") as file:  # sparse: nothing but the header is on disk
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": fortran, "shape": shape})
        file.truncate(file.tell() + 8 * shape[0] * shape[1])
    for x in (path, np.load(path, mmap_mode="r")):
        before = resident()
        with no_compute():
            A = nlis.reference_matrix(PROBLEM, x, block_bytes=4_000_000)
        assert A.source.chunks[:2] == (31250, 31250)
        assert len(pickle.dumps(dict(A.source.x.dask))) < 200_000  # places in the file, none of its numbers
        assert not A.block(100)[:, :16].compute(scheduler="sync").any()
        assert resident() - before < 50e6  # a block, not the 512 MB that mapping or hashing them all would leave


#: Where an NPY file begins whose header has 51 more bytes.
HEAD = b"\x93NUMPY\x01\x00\x5a\x00{'descr': '<f8', 'fortran_order': False"

# What is wrong with the file: (content, error, what the message must say).
REFUSED = {
    "objects": (np.array([[1, None]], dtype=object), nlis.InputError, "holds Python objects, which only unpickling"),
    "no header": (b"\x93NUMPY or not", nlis.InputError, "holds no NPY header"),
    "empty": (b"", nlis.InputError, "holds no NPY header"),
    "damaged": (HEAD + b", 'shape': (3,3)".ljust(50) + b"\n", nlis.InputError, "holds no NPY header"),
    "less than nothing": (HEAD + b", 'shape': (-3, 3)}".ljust(50) + b"\n", nlis.InputError, "holds no NPY header"),
    "text": (np.array([["a"]]), nlis.InputTypeError, "X has dtype <U1"),
    "three dimensions": (np.ones((2, 2, 2)), nlis.InputError, "X has 3 dimensions"),
    "a folder": (None, nlis.MissingDataError, "is a folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_npy_files_that_hold_no_numbers_are_refused_in_one_line(case, tmp_path):
    content, kind, says = REFUSED[case]
    path = tmp_path / "x.npy"
    if isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    elif content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with no_compute(), pytest.raises(kind, match=says) as caught:
        nlis.reference_matrix(PROBLEM, path)
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_is_refused_before_and_during_the_read(tmp_path):
    path = npy(tmp_path, X)
    A = nlis.reference_matrix(PROBLEM, path, Y, block_bytes=BLOCK)
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(nlis.InputError, match=r"ends before byte|written anew"):
        nlis.factorize(A)
    with pytest.raises(nlis.InputError, match=r"has 12,120 bytes where its header asks for 12,128"):
        nlis.reference_matrix(PROBLEM, path, Y)
    with pytest.raises(nlis.MissingDataError, match="does not exist"):
        nlis.reference_matrix(PROBLEM, tmp_path / "y.npy")
    with pytest.raises(nlis.InputTypeError, match="path is an NPY file"):
        nlis.open_rows(path, X="X")


# Name: what is written in place of X, of another shape, dtype or order, and no shorter.
OTHERS = {
    "more columns": np.tile(X, 2),
    "columns for rows": X.reshape(1500, 1),
    "by columns": np.asfortranarray(X),
    "other numbers": X.astype("i8"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_file_of_another_shape_or_dtype_in_place_of_what_was_opened_is_refused(other, tmp_path):
    path = npy(tmp_path, X)
    A = nlis.reference_matrix(PROBLEM, path, Y, block_bytes=BLOCK)
    npy(tmp_path, OTHERS[other])
    with pytest.raises(nlis.InputError, match=r"x\.npy' was written anew, in another shape or dtype") as caught:
        nlis.factorize(A)
    assert len(str(caught.value)) - len(os.fspath(path)) < 200
    x, _ = nlis.open_rows(hdf5(tmp_path), X="X", block_bytes=BLOCK)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = OTHERS[other] if other != "by columns" else X[:70]
    with pytest.raises(nlis.InputError, match=r"was float64 \(500, 3\) when it was opened and is now"):
        nlis.norm_scores(nlis.reference_matrix(PROBLEM, x)).compute()


@pytest.mark.parametrize("part", [np.s_[:, :2], np.s_[::250], np.s_[:, 7:8]], ids=["columns", "rows", "column"])
@pytest.mark.parametrize("fortran", [False, True])
def test_a_part_of_a_map_takes_the_memory_of_the_part_and_not_of_what_lies_between(part, fortran, tmp_path):
    whole = np.lib.format.open_memmap(  # 40 MB, of which nothing but the part is written
        tmp_path / "x.npy", mode="w+", dtype="f8", shape=(20_000, 250), fortran_order=fortran
    )
    whole[part] = np.arange(whole[part].size).reshape(whole[part].shape)
    values, array = np.array(whole[part]), npy_files.of_memmap(whole[part])
    tracemalloc.start()
    read = array[:]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(read, values)
    assert peak < 2 * values.nbytes + 3 * 2**20


def hdf5(folder, name="data.h5", **options):
    with h5py.File(folder / name, "w") as file:
        file.create_dataset("X", data=X, **options).attrs["feature_names"] = ["age", "größe", "b & c"]
        file.create_dataset("deep/y", data=Y)
        file["nothing"] = h5py.Empty("f8")
        file["words"] = ["a", "b"]
    return folder / name


# Name: how X is stored.
STORED = {
    "contiguous": {},
    "chunks": {"chunks": (20, 3)},
    "column chunks, compressed": {"chunks": (20, 2), "compression": "gzip", "shuffle": True},
}


@pytest.mark.parametrize("kind", STORED)
def test_an_hdf5_file_gives_the_scores_of_its_arrays_and_their_names(kind, tmp_path, expected):
    path = hdf5(tmp_path, **STORED[kind])
    with no_compute():
        x, y = nlis.open_rows(path, X="X", y="deep/y", block_bytes=BLOCK)
    assert x.chunks[0] == y.chunks[0] == (40,) * 12 + (20,)
    assert nlis.reference_matrix(PROBLEM, x).columns[:3] == ("age", "größe", "b & c")
    assert same_bits(scores_of(x, y), expected)
    with h5py.File(path) as file:
        assert same_bits(scores_of(file["X"], file["deep/y"]), expected)
        A = nlis.reference_matrix(PROBLEM, file["X"], block_bytes=BLOCK)
    assert A.source.names == ("age", "größe", "b & c")
    assert nlis.factorize(A).n_rows == 500  # also with the file closed: each task opens it
    job = nlis.run(PROBLEM, x, y, size=200, seed=0)
    assert np.array_equal(job.sample_X, X[job.sample.indices])


def test_each_block_of_an_hdf5_file_is_read_in_one_piece(tmp_path, monkeypatch):
    asked = []
    read = h5py.Dataset.__getitem__
    monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda self, index: (asked.append(index), read(self, index))[1])
    x, _ = nlis.open_rows(hdf5(tmp_path, chunks=(100, 2)), X="X", block_bytes=BLOCK)
    assert x.chunks[0] == (100,) * 5  # whole chunks, though they are larger than asked for
    assert asked == []
    with Tasks() as tasks:
        nlis.norm_scores(nlis.reference_matrix(PROBLEM, x)).compute()
    assert tasks.labels["nlis-score"] == 5
    assert sorted((rows.start, rows.stop) for rows, _ in asked) == [(k, k + 100) for k in range(0, 500, 100)]


def test_files_written_anew_give_fresh_scores(tmp_path, expected):
    x, _ = nlis.open_rows(hdf5(tmp_path), X="X")
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file["X"][:] = X[::-1]
        fresh = nlis.reference_matrix(PROBLEM, file["X"])  # not yet closed
        assert np.array_equal(nlis.factorize(fresh).r, nlis.factorize(nlis.reference_matrix(PROBLEM, X[::-1])).r)
    assert nlis.open_rows(tmp_path / "data.h5", X="X")[0].name != x.name
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        assert same_bits(scores_of(file.create_dataset("X", data=X)), expected)
    virtual = h5py.VirtualLayout(shape=X.shape, dtype="f8")
    virtual[:] = h5py.VirtualSource(tmp_path / "data.h5", "X", shape=X.shape)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("X", virtual)
    names = set()
    for values in (X, 2 * X):
        with h5py.File(tmp_path / "data.h5", "r+") as file:
            file["X"][:] = values
        x, _ = nlis.open_rows(tmp_path / "virtual.h5", X="X", block_bytes=BLOCK)
        names.add(x.name)
        assert same_bits(scores_of(x), scores_of(values))
    assert len(names) == 2


#: What is asked of data.h5: (path, X, error, what the message must say).
NOT_THERE = {
    "missing": ("no.h5", "X", nlis.MissingDataError, "path='.*no.h5' does not exist"),
    "no HDF5": ("notes.h5", "X", nlis.MissingDataError, r"cannot be opened as HDF5 \(file signature not found\)"),
    "no such array": ("data.h5", "Z", nlis.InputError, r"X='Z' .*it holds: X \(500, 3\), deep/y \(500,\)"),
    "a group": ("data.h5", "deep", nlis.InputError, "X='deep' is no array"),
    "None": ("data.h5", None, nlis.InputTypeError, "X is NoneType"),
    "no name": ("data.h5", "", nlis.InputError, "X='' is no array"),
    "empty": ("data.h5", "nothing", nlis.InputError, "empty dataset"),
    "a URL": ("https://example.org/data.h5", "X", nlis.InputError, "is a URL"),
}


@pytest.mark.parametrize("case", NOT_THERE)
def test_hdf5_files_that_lack_what_is_asked_for_are_refused_in_one_line(case, tmp_path):
    hdf5(tmp_path)
    (tmp_path / "notes.h5").write_text("a,b")
    path, name, kind, says = NOT_THERE[case]
    with no_compute(), pytest.raises(kind, match=says) as caught:
        nlis.open_rows(path if "://" in path else tmp_path / path, X=name)
    assert type(caught.value) is kind
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_an_hdf5_file_in_place_of_an_array_lists_its_arrays_and_words_are_no_numbers(tmp_path):
    path = hdf5(tmp_path)
    with no_compute(), pytest.raises(nlis.InputError, match=r"X is an HDF5 file; name one of its arrays: X \(500, 3\)"):
        nlis.reference_matrix(PROBLEM, path)
    path.rename(tmp_path / "data")  # known by its first bytes too
    assert nlis.open_rows(tmp_path / "data", X="X")[0].shape == X.shape
    with pytest.raises(nlis.InputTypeError, match="X has dtype object"):
        nlis.reference_matrix(PROBLEM, nlis.open_rows(tmp_path / "data", X="words")[0])


def test_without_h5py_the_message_names_the_extra(tmp_path, monkeypatch):
    path = hdf5(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(nlis.InputError, match=r"needs h5py; pip install 'dask-nlis\[hdf5\]'"):
        nlis.open_rows(path, X="X")


@pytest.mark.parametrize("fault", ["removed", "cut short"])
def test_files_that_are_gone_when_they_are_read_are_named_in_one_line(fault, tmp_path):
    x, path = nlis.open_rows(hdf5(tmp_path), X="X", block_bytes=BLOCK)[0], npy(tmp_path, X)
    matrices = {"data.h5": nlis.reference_matrix(PROBLEM, x), "x.npy": nlis.reference_matrix(PROBLEM, path)}
    for name, matrix in matrices.items():
        (tmp_path / name).unlink()
        if fault == "cut short":
            (tmp_path / name).write_bytes(b"\x89HDF")
        kind = nlis.InputError if fault == "cut short" and name == "x.npy" else nlis.MissingDataError
        with dask.config.set(scheduler="synchronous"), pytest.raises(kind, match=name) as caught:
            np.asarray(nlis.norm_scores(matrix))
        assert str(caught.value).count(name) == 1
        assert len(str(caught.value)) - len(os.fspath(tmp_path)) < 200
        assert "\n" not in str(caught.value)


def test_a_read_that_fails_is_tried_again(tmp_path, monkeypatch, expected):
    x, path = nlis.open_rows(hdf5(tmp_path), X="X", block_bytes=BLOCK)[0], npy(tmp_path, X)
    failed = set()

    def failing(real, find):
        def read(self, *arguments):
            key = find(arguments)
            if key not in failed:
                failed.add(key)
                raise OSError(errno.EIO, "the disk hiccups")
            return real(self, *arguments)

        return read

    monkeypatch.setattr(hdf5_files.Hdf5Array, "__getitem__", failing(hdf5_files.Hdf5Array.__getitem__, str))
    monkeypatch.setattr(npy_files.FileArray, "_rows", failing(npy_files.FileArray._rows, str))
    assert same_bits(scores_of(x), expected)
    assert same_bits(scores_of(path), expected)
    assert len(failed) == 26


def test_files_are_opened_in_other_processes(tmp_path, expected):
    h5, path = hdf5(tmp_path), npy(tmp_path, np.asfortranarray(X))
    with dask.config.set(scheduler="processes", num_workers=1):
        assert same_bits(scores_of(nlis.open_rows(h5, X="X", block_bytes=BLOCK)[0]), expected)
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
        h5py.File(h5) as file,
    ):
        for x in (file["X"], path, np.load(path, mmap_mode="r")):
            assert same_bits(scores_of(x), expected)


@pytest.mark.parametrize("kind", ["chunks", "shards"])
def test_chunks_that_no_block_can_hold_are_refused_with_numbers(kind, tmp_path):
    form = {"chunks": (500, 1)} if kind == "chunks" else {"chunks": (50, 1), "shards": (500, 1)}
    stored = zarr.create_array(tmp_path / "x", shape=X.shape, dtype="f8", **form)
    stored[...] = X
    says = f"X is stored in {kind} of 500 rows, whose whole rows take 12,000 bytes, above 16 blocks of 700"
    with no_compute(), pytest.raises(nlis.InputError, match=says) as caught:
        nlis.reference_matrix(PROBLEM, stored, block_bytes=700)
    assert "give block_bytes=750" in str(caught.value)
    assert nlis.reference_matrix(PROBLEM, stored, block_bytes=750).source.chunks == (500,)
