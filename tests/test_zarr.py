"""Zarr stores of every make score alike, each stored object is read once a pass, and nothing stale comes back (A3, A28, A31)."""

import os

import dask
import numpy as np
import pytest
import zarr
from counting import CountingStore, no_compute, rows_of, same_bits
from distributed import Client, LocalCluster
from zarr.storage import MemoryStore

import dask_nlis as nlis

PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
THETA = np.array([0.3, -0.2, 0.1, 0.4, 0.05])
X, Y = rows_of(11, 1000, 4)
BLOCK = 100 * 4 * 8  # bytes of 100 rows

# Name: how X is stored. Blocks of 100 rows are whole units of each.
STORES = {
    "version 3": {"chunks": (50, 4)},
    "version 2": {"chunks": (50, 4), "zarr_format": 2},
    "version 2, Fortran order": {"chunks": (50, 4), "zarr_format": 2, "order": "F"},
    "version 2, big-endian": {"chunks": (50, 4), "zarr_format": 2, "dtype": ">f8"},
    "sharded": {"chunks": (10, 4), "shards": (100, 4)},
    "sharded, chunks of single columns": {"chunks": (10, 1), "shards": (50, 2)},
    "column chunks": {"chunks": (50, 2)},  # Dask's own from_zarr cuts such rows in two
    "tiny chunks": {"chunks": (5, 4)},
    "no compression": {"chunks": (50, 4), "compressors": None},
}


def write(folder, kind="version 3", x=X, y=Y, overwrite=False):
    """Write a group with arrays X and y."""
    form = dict(STORES[kind])
    group = zarr.open_group(folder, mode="w" if overwrite else "w-", zarr_format=form.get("zarr_format", 3))
    options = {key: value for key, value in form.items() if key not in ("zarr_format", "dtype")}
    group.create_array("X", shape=x.shape, dtype=form.get("dtype", "f8"), **options)[...] = x
    group.create_array("y", shape=y.shape, dtype="f8", chunks=(50,))[...] = y
    return os.fspath(folder)


def all_scores(x, y, **options):
    A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA, **options)
    return np.asarray(nlis.leverage_scores(A, nlis.factorize(A))), np.asarray(nlis.norm_scores(A))


@pytest.fixture(scope="module")
def expected():
    return all_scores(X, Y, block_bytes=BLOCK)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("by", ["path", "array", "open_rows"])
def test_every_kind_of_store_gives_the_same_bits(kind, by, tmp_path, expected):
    path = write(tmp_path / "data", kind)
    with no_compute():
        pair = {
            "path": lambda: (f"{path}/X", tmp_path / "data" / "y"),
            "array": lambda: (zarr.open_array(f"{path}/X"), zarr.open_array(f"{path}/y")),
            "open_rows": lambda: nlis.open_rows(path, X="X", y="y", block_bytes=BLOCK),
        }[by]()
    for found, wanted in zip(all_scores(*pair, block_bytes=BLOCK), expected, strict=True):
        assert same_bits(found, wanted)


def counted(path):
    """X and y of a group on counting stores."""
    stores = CountingStore(f"{path}/X"), CountingStore(f"{path}/y")
    return stores, tuple(zarr.open_array(store, mode="r") for store in stores)


@pytest.mark.parametrize("kind", STORES)
def test_each_stored_object_is_read_once_a_pass(kind, tmp_path):
    stores, (x, y) = counted(write(tmp_path / "data", kind))
    with no_compute():
        A = nlis.dual_matrix(PROBLEM, x, y, theta=THETA, block_bytes=BLOCK)
    assert [store.reads() for store in stores] == [set(), set()]
    factor = nlis.factorize(A)
    assert factor.reads == 1
    assert [store.reads() for store in stores] == [{1}, {1}]
    with no_compute():
        lazy = {
            "leverage": nlis.leverage_scores(A, factor).compute,
            "norm": nlis.norm_scores(A).compute,
            "loss": lambda: nlis.total_loss(PROBLEM, x, y, THETA, block_bytes=BLOCK),
            "standardize": lambda: nlis.standardize(x, y, block_bytes=BLOCK),
        }
    assert [store.reads() for store in stores] == [set(), set()]
    for read in lazy.values():
        read()
        assert [store.reads() for store in stores] == [{1}, {1}]


@pytest.mark.parametrize("kind", ["tiny chunks", "column chunks", "sharded", "sharded, chunks of single columns"])
@pytest.mark.parametrize("rows", [7, 99, 150, 1000])
def test_blocks_are_whole_units_near_the_bytes_asked_for(kind, rows, tmp_path):
    path = write(tmp_path / "data", kind)
    form = STORES[kind]
    unit = form.get("shards", form["chunks"])[0]
    x, y = nlis.open_rows(path, X="X", y="y", block_bytes=rows * 4 * 8)
    blocks = x.chunks[0]
    assert x.numblocks[1] == 1
    assert y.chunks[0] == blocks
    assert set(blocks[:-1]) <= {max(unit, rows // unit * unit)}
    assert sum(blocks) == 1000


def test_tiny_chunks_are_merged_by_default_and_by_configuration(tmp_path):
    path = write(tmp_path / "data", "tiny chunks")
    assert nlis.open_rows(path, X="X")[0].numblocks == (1, 1)
    for size in (BLOCK, "3.2 kB"):
        with dask.config.set({"dask-nlis.block-bytes": size}):
            assert nlis.open_rows(path, X="X")[0].numblocks == (10, 1)
            assert len(nlis.reference_matrix(PROBLEM, f"{path}/X").source.chunks) == 10


def test_feature_names_of_the_store_reach_matrix_and_fit(tmp_path):
    path = write(tmp_path / "data")
    names = ("age", "income", "größe", "b & c")
    zarr.open_array(f"{path}/X").update_attributes({"feature_names": list(names)})
    x, y = nlis.open_rows(path, X="X", y="y")
    for A in (nlis.dual_matrix(PROBLEM, x, y, theta=THETA), nlis.dual_matrix(PROBLEM, f"{path}/X", y, theta=THETA)):
        assert A.columns[:5] == (*names, "intercept")
    assert nlis.run(PROBLEM, x, y, size=200, seed=0, theta=THETA).fit.names == (*names, "intercept")
    zarr.open_array(f"{path}/X")[17, 2] = np.nan
    with pytest.raises(nlis.NonFiniteError, match="'größe'"):
        nlis.factorize(nlis.reference_matrix(PROBLEM, *nlis.open_rows(path, X="X", y="y")))


@pytest.mark.parametrize("names", [["age", "income"], [], "abcd", {"age": 1}, [1, 2, 3, 4]])
def test_names_in_the_store_that_name_no_columns_do_no_harm(names, tmp_path, expected):
    path = write(tmp_path / "data")
    zarr.open_array(f"{path}/X").update_attributes({"feature_names": names})
    for x in (f"{path}/X", nlis.open_rows(path, X="X", block_bytes=BLOCK)[0]):
        A = nlis.dual_matrix(PROBLEM, x, Y, theta=THETA, block_bytes=BLOCK)
        assert A.columns[:4] == (("1", "2", "3", "4") if names == [1, 2, 3, 4] else ("x0", "x1", "x2", "x3"))
        assert same_bits(nlis.leverage_scores(A, nlis.factorize(A)), expected[0])


def test_an_overwritten_store_gives_fresh_scores(tmp_path):
    path = write(tmp_path / "data")
    old = all_scores(*nlis.open_rows(path, X="X", y="y"))
    factor = nlis.factorize(nlis.reference_matrix(PROBLEM, *nlis.open_rows(path, X="X", y="y")))
    write(path, x=X[::-1], overwrite=True)
    x, y = nlis.open_rows(path, X="X", y="y")
    for found, wanted, before in zip(all_scores(x, y), all_scores(X[::-1], Y), old, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-14)
        assert not np.allclose(found, before)
    with pytest.raises(nlis.MatrixMismatchError):
        nlis.leverage_scores(nlis.reference_matrix(PROBLEM, x, y), factor)


def test_persisted_blocks_of_the_old_content_are_not_taken_for_the_new(tmp_path):
    path = write(tmp_path / "data", x=np.ones((100, 3)), y=np.ones(100))
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        LocalCluster(
            n_workers=1, processes=False, dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster),
    ):
        old = nlis.open_rows(path, X="X")[0].persist()
        scores = nlis.norm_scores(nlis.open_rows(path, X="X")[0]).persist()
        assert float(old.sum().compute()) == 300
        write(path, x=np.full((100, 3), 2.0), y=np.ones(100), overwrite=True)
        new = nlis.open_rows(path, X="X")[0]
        assert float(new.persist().sum().compute()) == 600
        assert float(nlis.norm_scores(new).sum().compute()) == 1200
        assert float(scores.sum().compute()) == 300


@pytest.mark.parametrize("opened", ["once", "twice"])
def test_a_store_that_is_no_local_folder_works_by_its_array(opened):
    group = zarr.create_group(MemoryStore())
    group.create_array("X", data=X, chunks=(50, 4))
    x = group["X"]
    A = nlis.reference_matrix(PROBLEM, x) if opened == "once" else None
    made = [A or nlis.reference_matrix(PROBLEM, x) for _ in range(2)]
    assert float(nlis.leverage_scores(made[1], nlis.factorize(made[0])).sum().compute()) == pytest.approx(5)


# What is asked of the group: (path below the folder, X, error, what the message must say).
REFUSED = {
    "missing path": ("nowhere", "X", nlis.MissingDataError, r"path='.*nowhere' does not exist"),
    "a folder that is no store": ("", "X", nlis.MissingDataError, "without a Zarr array or group"),
    "a file": ("notes.txt", "X", nlis.MissingDataError, "a file without a Zarr array or group"),
    "an array instead of a group": ("data/X", "X", nlis.InputTypeError, "path is a Zarr array, not a group"),
    "no such array": ("data", "Z", nlis.InputError, r"X='Z' .*it holds: X \(1000, 4\), y \(1000,\)"),
    "a group inside": ("data", "sub", nlis.InputError, r"X='sub' .*it holds: X \(1000, 4\), y \(1000,\)"),
    "out of the group": ("data", "../data/X", nlis.InputError, "X='../data/X' .*it holds: X"),
    "out and in again": ("data", "sub/../X", nlis.InputError, "X='sub/../X' .*it holds: X"),
    "out, the other slash": ("data", "sub\\..\\X", nlis.InputError, "X="),
    "the group itself": ("data", ".", nlis.InputError, "X='.'"),
    "no name": ("data", "", nlis.InputError, "X='' .*it holds"),
    "None as name": ("data", None, nlis.InputTypeError, "X is NoneType|X=None"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_open_rows_says_what_is_wrong_in_one_line(case, tmp_path):
    path, name, kind, says = REFUSED[case]
    zarr.open_group(write(tmp_path / "data")).create_group("sub")
    (tmp_path / "notes.txt").write_text("a,b")
    with no_compute(), pytest.raises(kind, match=says) as caught:
        nlis.open_rows(tmp_path / path, X=name)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_a_group_in_place_of_an_array_lists_its_arrays(tmp_path):
    path = write(tmp_path / "data")
    with no_compute(), pytest.raises(nlis.InputError, match=r"X is a Zarr group.*X \(1000, 4\), y \(1000,\)"):
        nlis.reference_matrix(PROBLEM, path)


@pytest.mark.parametrize(
    "url",
    [
        "https://me:s3cret@example.org/data.zarr",
        "s3://me:s3cret@bucket/data.zarr",
        "simplecache::memory://me:s3cret@bucket/data.zarr",  # fsspec chains protocols
    ],
)
def test_a_url_with_a_password_is_refused_and_the_password_is_not_shown(url):
    for call in (lambda: nlis.open_rows(url, X="X"), lambda: nlis.reference_matrix(PROBLEM, url)):
        with pytest.raises(nlis.InputError, match="credentials") as caught:
            call()
        error = caught.value
        while error is not None:
            assert "s3cret" not in str(error)
            error = error.__cause__ or error.__context__


def test_nothing_is_written_into_the_store_that_is_read(tmp_path):
    path = write(tmp_path / "data", "sharded")
    before = {p: p.stat().st_mtime_ns for p in sorted((tmp_path / "data").rglob("*"))}
    nlis.run(PROBLEM, *nlis.open_rows(path, X="X", y="y"), size=100, seed=0, store=tmp_path / "run")
    assert {p: p.stat().st_mtime_ns for p in sorted((tmp_path / "data").rglob("*"))} == before
