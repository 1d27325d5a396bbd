"""Bad inputs, first part: X and y of a wrong shape, dtype or kind (rows 1-50 of the catalogue), and what is accepted.

Numbers are those of the catalogue of 84 bad and edge inputs. A refusal here comes from metadata alone, under a scheduler
that forbids any compute. `test_bad_values` has what only the data show, `test_bad_options` the other arguments, and
`test_bad_catalogue` counts that no row is left out.
"""

import datetime

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import no_compute, same_bits
from refusals import LAZY, SWISH, TYPE, VALUE, X, Y, dual, matrix, refused

import dask_nlis as nlis

LOGISTIC = nlis.Problem(nlis.Linear(), nlis.LogisticLoss())


def frame(**columns):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"a": X[:, 0]} | {k: v(pd) if callable(v) else v for k, v in columns.items()})


def dask_frame(**columns):
    return pytest.importorskip("dask.dataframe").from_pandas(frame(**columns), npartitions=3)


def sparse():
    import scipy.sparse

    return scipy.sparse.csr_array(X)


def xarray():
    import xarray

    return xarray


#: Number and name: (call, error, what the message must say).
BEFORE_COMPUTE = {
    "1 one dimension": (lambda: matrix(X[:, 0]), VALUE, r"X .*\(20,\).*reshape"),
    "1 one dimension, lazy": (lambda: matrix(LAZY[:, 0]), VALUE, r"X .*\(20,\).*reshape"),
    "2 three dimensions": (lambda: matrix(X[None]), VALUE, r"X has 3 dimensions .*\(1, 20, 3\)"),
    "2 no dimension": (lambda: matrix(np.float64(3)), VALUE, r"X has 0 dimensions"),
    "3 no rows": (lambda: matrix(X[:0]), VALUE, r"X has shape \(0, 3\): no rows"),
    "3 no rows, lazy": (lambda: matrix(LAZY[:0]), VALUE, r"X has shape \(0, 3\): no rows"),
    "4 no columns": (lambda: matrix(LAZY[:, :0]), VALUE, r"X has shape \(20, 0\): no columns"),
    "6 unknown columns": (lambda: matrix(LAZY[:, LAZY[0] > 0]), VALUE, r"X .*columns.*X\.compute_chunk_sizes\(\)"),
    "7 columns that cannot be joined": (
        lambda: matrix(da.zeros((1000, 3000), chunks=(1000, 100)), block_bytes=2**16),
        VALUE,
        r"X has 30 column chunks .*24,000,000 bytes.*rechunk",
    ),
    "14 complex": (lambda: matrix(LAZY + 1j), TYPE, "X has dtype complex128"),
    "14 complex y": (lambda: matrix(X, Y + 1j), TYPE, "y has dtype complex128"),
    "15 object": (lambda: matrix(X.astype(object)), TYPE, "X has dtype object"),
    "15 object that looks like numbers": (lambda: matrix([[1, None], [2, 3]]), TYPE, "X has dtype object"),
    "16 text": (lambda: matrix(X.astype(str)), TYPE, "X has dtype <U32"),
    "16 bytes": (lambda: matrix(da.from_array(X.astype("S8"))), TYPE, r"X has dtype \|S8"),
    "16 variable text": (lambda: matrix(np.array([["a"]], np.dtypes.StringDType())), TYPE, "X has dtype String"),
    "16 text column": (lambda: matrix(frame(city="Oslo")), TYPE, "X column 'city' .*'Oslo'"),
    "16 one dash": (lambda: matrix(frame(b=[*X[:19, 1], "-"])), TYPE, "X column 'b' has dtype object.*'-'"),
    "16 categories": (lambda: matrix(frame(b=lambda pd: pd.Categorical(["x"] * 20))), TYPE, "X column 'b' .*category"),
    "17 dates": (lambda: matrix(X.astype("datetime64[s]")), TYPE, r"X has dtype datetime64\[s\]"),
    "17 durations": (lambda: matrix(LAZY.astype("m8[s]")), TYPE, r"X has dtype timedelta64\[s\]"),
    "17 date column": (lambda: matrix(frame(day=datetime.datetime(2020, 1, 1))), TYPE, "X column 'day' .*datetime64"),
    "21 structured": (lambda: matrix(np.zeros((5, 2), [("a", "f8")])), TYPE, r"X has dtype \[\('a'"),
    "21 void": (lambda: matrix(np.zeros((5, 2), "V4")), TYPE, r"X has dtype \|V4"),
    "32 y shorter": (lambda: matrix(LAZY, Y[:5]), VALUE, r"X and y .*\[20, 5\]"),
    "35 y of two columns": (lambda: matrix(X, X[:, :2]), VALUE, r"y has shape \(20, 2\)"),
    "36 total loss without y": (lambda: nlis.total_loss(SWISH, X, None, np.zeros(4)), TYPE, "y is None.*SquaredError"),
    "36 run without y": (lambda: nlis.run(SWISH, X, None, size=5), TYPE, "y is None"),
    "36 pilot without y": (lambda: nlis.pilot(SWISH, X, None, 5), TYPE, "y is None"),
    "43 sparse": (lambda: matrix(sparse()), TYPE, "X is scipy.csr_array"),
    "43 sparse blocks": (lambda: matrix(da.from_array(sparse())), TYPE, "X has blocks of scipy.*dense"),
    "44 masked": (lambda: matrix(np.ma.masked_greater(X, 1)), TYPE, "X is numpy.MaskedArray"),
    "44 masked blocks": (lambda: matrix(da.ma.masked_greater(LAZY, 1)), TYPE, r"X has blocks of numpy.*MaskedArray"),
    "44 masked y": (lambda: matrix(X, np.ma.masked_greater(Y, 1)), TYPE, "y is numpy.MaskedArray"),
    "44 masked theta": (lambda: dual(np.ma.masked_greater(np.arange(4.0), 2)), TYPE, "theta is .*MaskedArray"),
    "47 Dataset": (lambda: matrix(xarray().Dataset({"a": ("row", Y)})), TYPE, "X is an xarray Dataset"),
    "47 DataArray of three dimensions": (lambda: matrix(xarray().DataArray(X[None])), VALUE, "X has 3 dimensions"),
    "47 Variable": (lambda: matrix(xarray().Variable(("row", "column"), X)), TYPE, "X is .*Variable"),
    "50 generator": (lambda: matrix(row for row in X), TYPE, "X is generator"),
    "50 None": (lambda: matrix(None), TYPE, "X is None"),
    "50 dict": (lambda: matrix({"X": X}), TYPE, "X is dict"),
    "50 number": (lambda: matrix(X, 3.0), TYPE, "y is float"),
    "50 unequal rows": (lambda: matrix([[1, 2], [3]]), TYPE, "X is a list of unequal rows"),
    "50 matrix of another kind": (lambda: nlis.factorize({"X": X}), TYPE, "A is dict|X is dict"),
    "40 text labels": (
        lambda: nlis.reference_matrix(LOGISTIC, LAZY, np.array(["a", "b"] * 10)),
        TYPE,
        "y has dtype <U1.*encode it as numbers",
    ),
    "45 text in a Dask DataFrame": (
        lambda: matrix(dask_frame(b=["x"] * 20)),
        TYPE,
        "X column 'b' has dtype .*from_dataframe",
    ),
}
NEEDS_ADAPTERS = ("45", "47")


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.adapters) if c.startswith(NEEDS_ADAPTERS) else c for c in BEFORE_COMPUTE],
)
def test_refused_in_one_line_before_any_compute(case):
    with no_compute():
        refused(BEFORE_COMPUTE[case])


def stored(path, **options):
    group = zarr.create_group(path, **options)
    group.create_array("X", data=X, chunks=(6, 3))
    return path / "X"


def memory_map(path):
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["X"] = X
    return nlis.open_rows(path, X="X")[0]


#: Accepted, with the scores of the plain X and y: a call with a folder, and the warning it gives.
ACCEPTED = {
    "6 unknown row chunks": (lambda path: matrix(LAZY[LAZY[:, 0] > -99], Y), None),
    "7 column chunks": (lambda path: matrix(da.from_array(X, (6, 1)), Y), "X has 3 column chunks"),
    "8 blocks of fewer rows than columns": (lambda path: matrix(da.from_array(X, (2, 3)), Y), None),
    "9 empty block inside": (lambda path: matrix(da.concatenate([LAZY[:3], LAZY[:0], LAZY[3:]]), Y), None),
    "19 longdouble X": (lambda path: matrix(X.astype(np.longdouble), Y), "X has dtype .* in float64"),
    "19 longdouble y": (lambda path: matrix(X, Y.astype(np.longdouble)), "y has dtype .* in float64"),
    "20 big-endian, Fortran order": (lambda path: matrix(np.asfortranarray(X.astype(">f8")), Y), None),
    "20 not contiguous": (lambda path: matrix(np.repeat(X, 2, axis=0)[::2], Y), None),
    "20 read-only": (lambda path: matrix(np.broadcast_to(X, X.shape), Y), None),
    "33 y in other chunks": (lambda path: matrix(LAZY, da.from_array(Y, 7)), None),
    "34 y as a column": (lambda path: matrix(LAZY, Y[:, None]), r"y has shape \(20, 1\) and is read as \(20,\)"),
    "45 columns of a Dask DataFrame": (
        lambda path: matrix(dask_frame(b=X[:, 1], c=X[:, 2]), Y),
        None,
    ),
    "46 pandas": (lambda path: matrix(frame(b=X[:, 1], c=X[:, 2]), Y), None),
    "46 nullable floats": (lambda path: matrix(frame(b=X[:, 1], c=X[:, 2]).astype("Float64"), Y), None),
    "47 DataArray": (lambda path: matrix(xarray().DataArray(X), Y), None),
    "48 Zarr array": (lambda path: matrix(zarr.open_array(stored(path)), Y), None),
    "48 path": (lambda path: matrix(stored(path), Y), None),
    "49 memory map": (lambda path: matrix(memory_map(path / "X.npy"), Y), None),
    "49 HDF5": (lambda path: matrix(hdf5(path / "X.h5"), Y), None),
    "76 Zarr version 2": (lambda path: matrix(stored(path, zarr_format=2), Y), None),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.adapters) if c.startswith(NEEDS_ADAPTERS) else c for c in ACCEPTED],
)
def test_accepted_with_the_scores_of_the_plain_data(case, tmp_path):
    call, warns = ACCEPTED[case]
    if warns is None:
        A = call(tmp_path)
    else:
        with pytest.warns(nlis.NlisWarning, match=warns):
            A = call(tmp_path)
    assert same_bits(np.asarray(nlis.norm_scores(A)), nlis.norm_scores(matrix(X, Y)))


@pytest.mark.parametrize("dtype", ["bool", "float16", "int8", "uint8", "uint64"])  # 12, 13, 18
def test_12_13_18_small_types_are_computed_in_float64_without_a_warning(dtype):
    small = np.abs(100 * X).astype(dtype)
    assert same_bits(
        nlis.norm_scores(matrix(small, small[:, 0])), nlis.norm_scores(matrix(small.astype(float), small[:, 0]))
    )


def test_10_a_block_beyond_the_memory_is_warned_of_and_its_run_refused(monkeypatch):
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", 2 * 10**9)
    giant = da.zeros((10**8, 3), chunks=(10**8, 3))
    says = r"X has a block of 2,400,000,000 bytes, above the 2,000,000,000 of this process; call X.rechunk"
    with no_compute(), pytest.warns(nlis.PerformanceWarning, match=says):
        matrix(giant)
    with pytest.warns(nlis.PerformanceWarning, match=says):
        refused((lambda: nlis.run(SWISH, giant, giant[:, 0], size=9), nlis.MemoryLimitError, "may use 1.86 GiB; "))


def test_11_blocks_of_one_row_are_warned_of_with_their_number():
    says = r"X has 60,000 blocks of at most 24 bytes, a task each; call X\.rechunk\(\{0: 60,000\}\) first"
    with no_compute(), pytest.warns(nlis.PerformanceWarning, match=says):
        matrix(da.zeros((60_000, 3), chunks=(1, 3)), block_bytes=64_000_000)


@pytest.mark.parametrize("given", [[0, 1, 2, 3], (0, 1.0, 2, 3), np.arange(4, dtype="i4")])  # 29, 31
def test_29_31_theta_may_be_any_array_like_in_memory(given):
    assert dual(given).token == dual(np.arange(4.0)).token


def test_29_theta_of_pandas_is_converted():
    pd = pytest.importorskip("pandas")
    assert dual(pd.Series(np.arange(4.0))).token == dual(np.arange(4.0)).token


def test_30_theta_of_zeros_gives_the_adjoint_at_zero():
    rows = nlis.dual_matrix(SWISH, X, Y, theta=np.zeros(4)).to_dask_array().compute()
    slope = (2 + 1) / 2 - 1  # phi'(0) of Swish(1, 2): c1 + (c2 - c1) / 2 - c1
    np.testing.assert_allclose(rows[:, :4] / np.c_[X, np.ones(20)], rows[0, 3], rtol=1e-13)
    np.testing.assert_allclose(rows[:, 4], -Y)
    assert rows[0, 3] > slope


# Case A30: a table whose text is the same in every part, and what one dirty cell does.
def test_one_dash_in_a_csv_file_is_named_with_its_column_and_row(tmp_path):
    pd = pytest.importorskip("pandas")
    (tmp_path / "dirty.csv").write_text("size,age\n1,2\n3,-\n5,6\n")
    table = pd.read_csv(tmp_path / "dirty.csv")
    with no_compute():
        refused((lambda: matrix(table), TYPE, "X column 'age' has dtype .*first other value '-' at row 1"))


@pytest.mark.adapters
def test_categories_fixed_over_the_whole_data_give_the_same_columns_in_every_part():
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    table = pd.DataFrame({"size": np.arange(6.0), "city": list("aabbcc")})
    parts = dd.from_pandas(table, npartitions=2)
    with no_compute():
        refused((lambda: matrix(parts), TYPE, r"X column 'city' has dtype .*from_dataframe"))
    encoded = dd.get_dummies(parts.categorize(["city"]), dtype=float)
    assert [list(part.columns) for part in (p.compute() for p in encoded.partitions)] == [list(encoded.columns)] * 2
    A = matrix(encoded)
    assert same_bits(
        nlis.norm_scores(A).compute(), nlis.norm_scores(matrix(pd.get_dummies(table, dtype=float))).to_numpy()
    )
