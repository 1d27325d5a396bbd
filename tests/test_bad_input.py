"""Every bad input is refused in one line, by an error of ours, and before a compute where metadata suffices."""

import datetime
import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import no_compute, rows_of, same_bits

import dask_nlis as nlis
from dask_nlis.errors import NlisError

LINEAR = nlis.Problem(nlis.Linear())
SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(0, 20, 3)
LAZY = da.from_array(X, (6, 3))
VALUE, TYPE = nlis.InputError, nlis.InputTypeError


def matrix(x, y=None, **options):
    return nlis.reference_matrix(LINEAR, x, y, **options)


def dual(theta):
    return nlis.dual_matrix(LINEAR, X, Y, theta=theta)


def frame(**columns):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame({"a": X[:, 0]} | {k: v(pd) if callable(v) else v for k, v in columns.items()})


def sparse():
    import scipy.sparse

    return scipy.sparse.csr_array(X)


def xarray():
    import xarray

    return xarray


# Number in the table of bad inputs: (call, error, what the message must say). All from metadata alone.
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
    "25 NaN in theta": (lambda: dual([0, 1, np.nan, 3]), VALUE, r"theta\[2\]=nan"),
    "25 infinity in theta": (lambda: dual([0, -np.inf, 0, 3]), VALUE, r"theta\[1\]=-inf"),
    "27 theta too short": (lambda: dual(np.zeros(3)), VALUE, r"theta .*\(3,\).* expects \(4,\)"),
    "27 theta too long": (lambda: nlis.total_loss(SWISH, X, Y, np.zeros(5)), VALUE, r"theta .*\(5,\).*\(4,\)"),
    "28 theta as a table": (lambda: dual(np.zeros((1, 4))), VALUE, r"theta .*\(1, 4\).*\(4,\)"),
    "28 three dimensions": (lambda: nlis.total_loss(SWISH, X, Y, np.zeros((1, 1, 4))), VALUE, r"theta .*\(1, 1, 4\)"),
    "31 text as theta": (lambda: dual("ones"), TYPE, "theta is str"),
    "31 text inside theta": (lambda: dual([0, 1, 2, "three"]), TYPE, "theta is list"),
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
    "51 size 0": (lambda: nlis.draw(LAZY[:, 0] ** 2, 0), VALUE, "size=0 .*positive integer"),
    "51 size 2.5": (lambda: nlis.draw(LAZY[:, 0] ** 2, 2.5), TYPE, "size=2.5 is float"),
    "51 size as text": (lambda: nlis.run(SWISH, LAZY, Y, size="10"), TYPE, "size='10' is str"),
    "52 size above n": (lambda: nlis.draw(LAZY[:, 0] ** 2, 21, scheme="poisson"), VALUE, "size=21 .*20 rows"),
    "57 c1 below 0": (lambda: nlis.Swish(c1=-1, c2=2), VALUE, "c1=-1.*0 <= c1 <= c2"),
    "57 c1 above c2": (lambda: nlis.Swish(c1=3, c2=2), VALUE, "c1=3, c2=2"),
    "57 zeta NaN": (lambda: nlis.Swish(1, 2, zeta=np.nan), VALUE, "zeta=nan.*finite"),
    "58 negative seed": (lambda: nlis.draw(LAZY[:, 0] ** 2, 5, seed=-1), VALUE, "seed=-1 is negative"),
    "58 Generator": (lambda: nlis.draw(LAZY[:, 0] ** 2, 5, seed=np.random.default_rng(0)), TYPE, "seed is a Generator"),
    "60 scores of another length": (
        lambda: nlis.top_rows(Y[:7], X=LAZY),
        VALUE,
        r"X has shape \(20, 3\), scores \(7,\)",
    ),
    "60 scores as a table": (lambda: nlis.draw(LAZY, 5), VALUE, r"scores have shape \(20, 3\)"),
    "61 empty box": (lambda: nlis.Box(lower=[0, 2], upper=[1, 1]), VALUE, "entry 1: lower exceeds upper"),
    "61 ball of no radius": (lambda: nlis.Ball(0), VALUE, "radius=0 "),
    "no kind of problem": (lambda: nlis.dual_matrix(nlis.Linear(), X, Y, theta=np.zeros(4)), TYPE, "problem is Linear"),
    "unknown device": (lambda: matrix(X, device="gpu"), VALUE, "device='gpu'.*'auto', 'cpu', 'cuda'"),
    "unknown missing": (lambda: matrix(X, missing="skip"), VALUE, "missing='skip'.*'raise' or 'drop'"),
    "block_bytes 0": (lambda: matrix(X, block_bytes=0), VALUE, "block_bytes=0 "),
    "block_bytes in words": (lambda: matrix(X, block_bytes="lots"), VALUE, "block_bytes='lots'"),
    "negative weights count": (lambda: matrix(X, Y, sample_weight=Y[:4]), VALUE, r"X and sample_weight .*\[20, 4\]"),
}


def check(error, kind):
    """Exactly the class asked for, which is also the built-in one; one short line."""
    assert type(error) is kind
    assert issubclass(kind, NlisError)
    assert issubclass(kind, ValueError | TypeError | OSError | RuntimeError)
    assert "\n" not in str(error)
    assert len(str(error)) <= 300


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.adapters) if c.startswith("47") else c for c in BEFORE_COMPUTE],
)
def test_refused_in_one_line_before_any_compute(case):
    call, kind, says = BEFORE_COMPUTE[case]
    with no_compute(), pytest.raises(kind, match=says) as caught:
        call()
    check(caught.value, kind)


# Seen only in the data: (call, error, what the message must say).
FROM_DATA = {
    "22 NaN": (
        lambda: nlis.factorize(da.where(X[7, 1] == LAZY, np.nan, LAZY)),
        nlis.NonFiniteError,
        "column 1 .*row 7 ",
    ),
    "23 infinity": (lambda: nlis.norm_scores(np.where(X[7, 1] == X, -np.inf, X)), nlis.NonFiniteError, "row 7 "),
    "46 missing value of pandas": (
        lambda: nlis.factorize(frame(b=lambda pd: pd.array([1] * 19 + [None], dtype="Int64"))),
        nlis.NonFiniteError,
        "'b'.*row 19 ",
    ),
    "59 NaN score": (lambda: nlis.draw(da.from_array([1, np.nan, 2]), 2), VALUE, "scores hold 1 NaN.*row 1"),
    "59 negative score": (lambda: nlis.draw([1, 2, -1e-300], 2), VALUE, "scores hold 1 .*row 2"),
    "59 infinite score": (lambda: nlis.draw([np.inf, 1, np.inf], 2), VALUE, "scores hold 2 .*rows 0, 2"),
    "59 zero scores": (lambda: nlis.draw(np.zeros(3), 2), VALUE, "all 3 scores are zero"),
    "60 a sample of other rows": (lambda: nlis.draw(np.ones(9), 3, seed=0).take(LAZY), VALUE, "20 rows.* 9"),
    "82 zero rows": (lambda: nlis.factorize(np.zeros((4, 2))), VALUE, "all rows of the matrix are zero"),
    "negative weight": (
        lambda: nlis.factorize(matrix(X, Y, sample_weight=np.where(np.arange(20) == 3, -1, Y**2))),
        nlis.NonFiniteError,
        "sample_weight is negative .*row 3 ",
    ),
}


@pytest.mark.parametrize("case", FROM_DATA)
def test_refused_in_one_line_once_seen(case):
    call, kind, says = FROM_DATA[case]
    with pytest.raises(kind, match=says) as caught:
        call()
    check(caught.value, kind)


# Integers that float64 would round in silence: (dtype, value, where).
TOO_LARGE = {
    "one above in X": ("int64", 2**53 + 1, "X"),  # becomes 2^53 when cast, so the cast value looks innocent
    "two above in X": ("int64", 2**53 + 2, "X"),
    "negative in X": ("int64", -(2**53) - 1, "X"),
    "smallest of all in X": ("int64", -(2**63), "X"),  # its absolute value is negative in int64
    "unsigned in X": ("uint64", 2**64 - 1, "X"),
    "one above in y": ("int64", 2**53 + 1, "y"),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_12_integers_that_float64_cannot_hold_are_refused_with_their_row(case):
    dtype, value, where = TOO_LARGE[case]
    x, y = np.arange(60).reshape(20, 3).astype(dtype), np.arange(20).astype(dtype)
    (x[:, 1] if where == "X" else y)[13] = value
    A = matrix(da.from_array(x, (7, 3)), da.from_array(y, 4))
    name = r"X, column 1 \('x1'\)" if where == "X" else "y"
    with pytest.raises(nlis.NonFiniteError, match=rf"{name}.*too large an integer.*row 13 \(1 row"):
        nlis.factorize(A)
    with pytest.raises(nlis.NonFiniteError, match="row 13 "):
        nlis.norm_scores(A).compute()


def test_12_integers_that_float64_cannot_hold_are_refused_in_a_data_frame():
    table = frame(b=np.r_[np.full(13, 3), 2**53 + 1, np.full(6, 3)])
    with pytest.raises(nlis.NonFiniteError, match=r"'b'.*row 13 "):
        nlis.factorize(matrix(table))


def test_12_the_largest_exact_integers_are_accepted():
    assert nlis.factorize(np.array([[2**53, 1], [-(2**53), 2], [0, 3]])).rank == 2


def test_7_column_chunks_are_joined_with_a_warning():
    with pytest.warns(nlis.PerformanceWarning, match="X has 3 column chunks"):
        A = matrix(da.from_array(X, (6, 1)))
    assert same_bits(nlis.norm_scores(A), nlis.norm_scores(matrix(LAZY)))


@pytest.mark.parametrize("argument", ["X", "y"])
def test_19_longdouble_is_computed_in_float64_with_a_warning(argument):
    given = {"X": X, "y": Y} | {argument: {"X": X, "y": Y}[argument].astype(np.longdouble)}
    with no_compute(), pytest.warns(nlis.DataConversionWarning, match=f"{argument} has dtype .* in float64"):
        A = matrix(given["X"], given["y"])
    assert same_bits(nlis.norm_scores(A), nlis.norm_scores(matrix(X, Y)))


# 80: the rank is reported and no one is scolded.
@pytest.mark.parametrize(
    ("table", "rank"),
    [
        (np.c_[X, np.full(20, 7.0), np.full(20, 3.0)], 4),  # two constant columns
        (np.c_[X, X], 3),  # every column twice
        (X[:2], 2),  # fewer rows than columns
        (np.c_[X, np.zeros(20)], 3),  # a dead column
        (X[:1], 1),
    ],
)
def test_80_dependent_columns_and_few_rows_are_accepted(table, rank):
    factor = nlis.factorize(table)
    assert factor.rank == rank
    assert nlis.leverage_scores(table, factor).sum() == pytest.approx(rank, abs=1e-12)


def test_71_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with no_compute(), pytest.raises(PermissionError, match=r"store='.*run'.*not writable"):
        nlis.run(LINEAR, LAZY, Y, size=5, seed=0, store=tmp_path / "run")


@pytest.mark.parametrize("store", ["in.zarr", "in.zarr/run", "in.zarr/X/run"])
def test_72_a_store_that_is_the_input_or_lies_inside_a_zarr_group_is_refused(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    group = zarr.create_group("in.zarr")
    group.create_array("X", data=X)
    group.create_array("y", data=Y)
    before = sorted(tmp_path.rglob("*"))
    kind = nlis.StoreExistsError if store == "in.zarr" else VALUE
    with no_compute(), pytest.raises(kind, match=f"store='{store}' ") as caught:
        nlis.run(LINEAR, *nlis.open_rows("in.zarr", X="X", y="y"), size=5, seed=0, store=store)
    check(caught.value, kind)
    assert sorted(tmp_path.rglob("*")) == before


def test_75_a_run_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(nlis.MissingDataError, match=r"path='.*nothing' holds no run") as caught:
        nlis.open_run(tmp_path / "nothing")
    check(caught.value, nlis.MissingDataError)


TABLE = np.arange(240.0).reshape(80, 3) / 7
TEXTS = np.array(["a"] * 80)
_A = nlis.dual_matrix(LINEAR, TABLE, TABLE[:, 0] ** 2, theta=np.ones(4))
_SCORES = np.ones(80)
#: Verbs with an argument that is one number or one word.
SCALARS = {
    "certificate deep": lambda bad: nlis.certificate(_A, nlis.factorize(_A), nlis.draw(_SCORES, 9, seed=0), deep=bad),
    "compare max_bytes": lambda bad: nlis.compare(
        LINEAR, TABLE, _SCORES, {"a": _SCORES}, sizes=9, seeds=1, max_bytes=bad
    ),
    "compare mix": lambda bad: nlis.compare(LINEAR, TABLE, _SCORES, {"a": _SCORES}, sizes=9, seeds=1, mix=bad),
    "drift by": lambda bad: nlis.drift(LINEAR, TABLE, _SCORES, [np.ones(4), np.zeros(4)], by=bad),
    "dual_matrix block_bytes": lambda bad: nlis.dual_matrix(LINEAR, TABLE, theta=np.ones(4), block_bytes=bad),
    "dual_matrix device": lambda bad: nlis.dual_matrix(LINEAR, TABLE, theta=np.ones(4), device=bad),
    "dual_matrix missing": lambda bad: nlis.dual_matrix(LINEAR, TABLE, theta=np.ones(4), missing=bad),
    "draw scheme": lambda bad: nlis.draw(_SCORES, 9, scheme=bad),
    "draw seed": lambda bad: nlis.draw(_SCORES, 9, seed=bad),
    "draw size": lambda bad: nlis.draw(_SCORES, bad),
    "factorize method": lambda bad: nlis.factorize(TABLE, method=bad),
    "norm_scores log2_scale": lambda bad: nlis.norm_scores(TABLE, log2_scale=bad),
    "refit n_starts": lambda bad: nlis.refit(LINEAR, TABLE, _SCORES, _SCORES, n_starts=bad),
    "refit ridge": lambda bad: nlis.refit(LINEAR, TABLE, _SCORES, _SCORES, ridge=bad),
    "run rounds": lambda bad: nlis.run(LINEAR, TABLE, _SCORES, size=40, rounds=bad),
    "run scores": lambda bad: nlis.run(LINEAR, TABLE, _SCORES, size=40, scores=bad),
    "sample_size guarantee": lambda bad: nlis.sample_size(3, 0.3, guarantee=bad),
    "suspects by": lambda bad: nlis.suspects(_A, by=bad),
    "take max_bytes": lambda bad: nlis.draw(_SCORES, 9, seed=0).take(TABLE, max_bytes=bad),
}


@pytest.mark.parametrize("bad", [TABLE, TEXTS, da.from_array(TABLE, 20)], ids=["table", "texts", "lazy"])
@pytest.mark.parametrize("case", SCALARS)
def test_a_table_where_a_number_or_a_word_belongs_is_refused_in_one_line(case, bad):
    with pytest.raises(nlis.NlisError, match=r"; give ") as refused:
        SCALARS[case](bad)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 300


def test_a_message_is_one_line_that_keeps_its_beginning_and_its_remedy():
    error = nlis.InputError(f"size={np.arange(500)!r} is not allowed; give a positive integer", row=3)
    assert str(error).startswith("size=array([ 0, 1, 2,")
    assert str(error).endswith(" is not allowed; give a positive integer")
    assert len(str(error)) <= 300
    assert "\n" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.row) == (str(error), 3)
    missing = nlis.MissingDataError("path='a  b' holds no run; check the path")
    assert str(missing) == "path='a  b' holds no run; check the path"
