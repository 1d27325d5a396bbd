"""What comes in goes out, names travel, and nouns are values: equal, hashable, picklable, readable, storable."""

import json
import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import no_compute, rows_of, same_bits
from dask.base import tokenize

import dask_nlis as nlis

SWISH = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))
X, Y = rows_of(31, 60, 3)
THETA = np.array([0.3, -0.2, 0.1, 0.05])


def scores_of(x, y=Y):
    A = nlis.dual_matrix(SWISH, x, y, theta=THETA)
    return nlis.leverage_scores(A, nlis.factorize(A)), nlis.norm_scores(A)


EXPECTED = scores_of(X)
EXPECTED_NORMS = nlis.norm_scores(X)


@pytest.mark.parametrize("kind", ["array", "lists", "memmap", "one row strided"])
def test_numpy_in_numpy_out(kind, tmp_path):
    x = X
    if kind == "memmap":
        x = np.memmap(tmp_path / "x", "f8", mode="w+", shape=X.shape)
        x[:] = X
    given = {"array": X, "lists": X.tolist(), "memmap": x, "one row strided": np.repeat(X, 2, axis=0)[::2]}[kind]
    for found, expected in zip(scores_of(given), EXPECTED, strict=True):
        assert type(found) is np.ndarray
        assert same_bits(found, expected)


@pytest.mark.parametrize("kind", ["dask", "zarr array", "path"])
def test_lazy_in_lazy_dask_out(kind, tmp_path):
    stored = zarr.create_array(tmp_path / "x", data=X, chunks=(60, 3))
    x = {"dask": da.from_array(X, X.shape), "zarr array": stored, "path": tmp_path / "x"}[kind]
    for found, expected in zip(scores_of(x), EXPECTED, strict=True):
        assert isinstance(found, da.Array)
        assert (found.shape, found.dtype) == ((60,), np.float64)
        assert same_bits(found.compute(), expected)


def index_of(pd, kind):
    return {
        "default": pd.RangeIndex(60),
        "dates": pd.date_range("2020-01-01", periods=60),
        "not unique": pd.Index(["a", "b", "c"] * 20, name="town"),
        "two levels": pd.MultiIndex.from_product([range(6), range(10)], names=["outer", "inner"]),
    }[kind]


@pytest.mark.parametrize("kind", ["default", "dates", "not unique", "two levels"])
def test_pandas_in_series_with_the_index_out(kind):
    pd = pytest.importorskip("pandas")
    index = index_of(pd, kind)
    x, y = pd.DataFrame(X, index=index, columns=["a", "b", "c"]), pd.Series(Y, index=index)
    for found, expected, name in zip(scores_of(x, y), EXPECTED, ("leverage", "norm"), strict=True):
        pd.testing.assert_series_equal(found, pd.Series(expected, index=index, name=name))


def test_columns_of_a_data_frame_are_converted_one_by_one():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            "bool": Y > 0,
            "int8": np.arange(60, dtype="i1"),
            "nullable": pd.array(np.arange(60), dtype="Int64"),
            "float32": X[:, 0].astype("f4"),
        }
    )
    plain = np.column_stack([table[name].to_numpy().astype(float) for name in table])
    assert same_bits(nlis.norm_scores(table), nlis.norm_scores(plain))


@pytest.mark.adapters
@pytest.mark.parametrize("lazy", [False, True])
def test_xarray_in_data_array_with_dimension_and_coordinates_out(lazy):
    import xarray as xr

    coords = {"station": [f"s{k}" for k in range(60)], "height": ("station", Y), "feature": ["a", "b", "c"]}
    x = xr.DataArray(X, dims=("station", "feature"), coords=coords)
    y = xr.DataArray(Y, dims=("station",))
    if lazy:
        x, y = x.chunk({"station": 60}), y.chunk({"station": 60})
        factor = nlis.factorize(nlis.dual_matrix(SWISH, x, y, theta=THETA))
        with no_compute():
            A = nlis.dual_matrix(SWISH, x, y, theta=THETA)
            found = nlis.leverage_scores(A, factor), nlis.norm_scores(A)
        assert all(isinstance(scores.data, da.Array) for scores in found)
    else:
        found = scores_of(x, y)
        assert all(isinstance(scores.data, np.ndarray) for scores in found)
    for scores, expected in zip(found, EXPECTED, strict=True):
        assert scores.dims == ("station",)
        assert list(scores.height.values) == list(Y)
        assert list(scores.station.values) == coords["station"]
        assert "feature" not in scores.coords
        assert same_bits(scores.values, expected)
    sample = nlis.draw(found[0], 30, seed=0)
    assert sample.indices.tolist() == nlis.draw(EXPECTED[0], 30, seed=0).indices.tolist()


@pytest.mark.adapters
def test_stacked_dimensions_and_scalar_coordinates_come_back_with_the_scores():
    import xarray as xr

    coords = {"lat": np.arange(6.0), "feature": ["a", "b", "c"], "run": 7}
    grid = xr.DataArray(X.reshape(6, 10, 3), dims=("lat", "lon", "feature"), coords=coords)
    stacked = grid.stack(cell=("lat", "lon")).transpose("cell", "feature")
    found = nlis.norm_scores(stacked)
    assert same_bits(found.values, EXPECTED_NORMS)
    assert found.run.item() == 7
    xr.testing.assert_identical(found.coords.to_dataset(), stacked.isel(feature=0, drop=True).coords.to_dataset())
    assert found.unstack("cell").sizes == {"lat": 6, "lon": 10}


@pytest.mark.adapters
def test_a_data_array_of_a_file_opened_without_chunks_stays_unread(tmp_path):
    import xarray as xr

    xr.Dataset({"x": (("row", "feature"), X), "y": ("row", Y)}).to_zarr(tmp_path / "a", consolidated=False)
    ds = xr.open_zarr(tmp_path / "a", chunks=None, consolidated=False)
    with no_compute():
        A = nlis.dual_matrix(SWISH, ds.x, ds.y, theta=THETA, block_bytes=24 * 60)
        scores = nlis.norm_scores(A)
    assert not ds.x.variable._in_memory
    assert isinstance(scores.data, da.Array)
    assert same_bits(scores.values, EXPECTED[1])
    assert not ds.x.variable._in_memory


@pytest.mark.parametrize("library", ["pandas", pytest.param("xarray", marks=pytest.mark.adapters)])
def test_names_reach_the_matrix_and_the_fit(library):
    module = pytest.importorskip(library)
    if library == "pandas":
        x, names = module.DataFrame(X, columns=["age", "income", 3]), ("age", "income", "3", "intercept")
    else:
        coords = {"feature": ["age", "income", "rent"]}
        x = module.DataArray(X, dims=("row", "feature"), coords=coords)
        names = ("age", "income", "rent", "intercept")
    A = nlis.reference_matrix(SWISH, x, Y)
    assert A.columns[:4] == names
    assert nlis.factorize(A).columns == A.columns
    sample = nlis.draw(nlis.leverage_scores(A, nlis.factorize(A)), 30, seed=0)
    fit = nlis.refit(SWISH, *sample.take(x, Y), sample)
    assert fit.names == names
    assert nlis.run(SWISH, x, Y, size=30, seed=0, theta=THETA).fit.names == names


def test_two_slices_of_one_memory_map_are_two_matrices(tmp_path):
    whole = np.memmap(tmp_path / "x", "f8", mode="w+", shape=X.shape)
    whole[:] = X
    first, second = whole[:50], whole[10:]
    with pytest.raises(nlis.MatrixMismatchError):
        nlis.leverage_scores(second, nlis.factorize(first))
    # Cut anew, the same rows are the same matrix.
    assert same_bits(nlis.leverage_scores(whole[10:], nlis.factorize(second)), scores_plain(X[10:]))


def scores_plain(x):
    return nlis.leverage_scores(x, nlis.factorize(x))


def matrices(tmp_path):
    """The same data in other containers, and other rules on the same data; equal only where it is the same matrix."""
    zarr.create_array(tmp_path / "x", data=X)
    lazy = da.from_array(X, (20, 3))
    return {
        "numpy": lambda: nlis.reference_matrix(SWISH, X, Y),
        "dask": lambda: nlis.reference_matrix(SWISH, lazy, Y),
        "stored": lambda: nlis.reference_matrix(SWISH, tmp_path / "x", Y),
        "without labels": lambda: nlis.reference_matrix(SWISH, lazy),
        "weighted": lambda: nlis.reference_matrix(SWISH, lazy, Y, sample_weight=np.arange(60)),
        "dropping": lambda: nlis.reference_matrix(SWISH, lazy, Y, missing="drop"),
        "other problem": lambda: nlis.reference_matrix(nlis.Problem(nlis.Linear(intercept=False)), lazy, Y),
        "dual": lambda: nlis.dual_matrix(SWISH, lazy, Y, theta=THETA),
        "other theta": lambda: nlis.dual_matrix(SWISH, lazy, Y, theta=2 * THETA),
    }


def is_a_value(make, others):
    """Equality, hash, Dask token, pickling and both reprs of what `make` returns."""
    one, two = make(), make()
    back = pickle.loads(pickle.dumps(one))
    for other in (two, back):
        assert one == other
        assert hash(one) == hash(other)
        assert tokenize(one) == tokenize(other)
    for other in others:
        assert one != other
        assert tokenize(one) != tokenize(other)
    assert one != "something else"
    assert repr(one).startswith(type(one).__name__ + "(")
    assert "\n" not in repr(one)
    assert len(repr(one)) < 300
    assert one._repr_html_().startswith("<table>")
    with pytest.raises((AttributeError, TypeError)):
        one.token = 1
    return one


def test_a_tall_matrix_is_a_value(tmp_path):
    makers = matrices(tmp_path)
    for name, make in makers.items():
        A = is_a_value(make, [other() for key, other in makers.items() if key != name])
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(A)).to_dask_array(), A.to_dask_array())
    assert "shape=(60, 5)" in repr(A)


def rebuilt(found):
    """A dictionary form after a trip through JSON, arrays as lists with their dtype."""

    def out(value):
        return {"array": value.ravel().tolist(), "dtype": value.dtype.str, "shape": value.shape}

    def back(value):
        return np.array(value["array"], value["dtype"]).reshape(value["shape"]) if "array" in value else value

    return json.loads(json.dumps(found, default=out, allow_nan=False), object_hook=back)


def test_a_factor_is_a_value_and_survives_json(tmp_path):
    table = np.column_stack([X, X[:, 0]])  # rank 3 of 4: a rectangular whitener, names of dependent columns
    factor = is_a_value(lambda: nlis.factorize(table), [nlis.factorize(X)])
    assert "rank=3" in repr(factor)
    back = nlis.Factor.from_dict(rebuilt(factor.to_dict()))
    assert back == factor
    assert same_bits(nlis.leverage_scores(table, back), nlis.leverage_scores(table, factor))


PROBLEMS = [
    nlis.Problem(nlis.Linear()),
    nlis.Problem(nlis.Linear(intercept=False), constraint=nlis.Ball(1 / 3)),
    nlis.Problem(nlis.SingleIndex(nlis.Logistic()), constraint=nlis.Ball(2.0, center=[0.1, 0.2, 0.3, 0.4])),
    nlis.Problem(nlis.SingleIndex(nlis.Tanh(), intercept=False), nlis.SquaredError(), constraint=nlis.Box(-1, 1)),
    nlis.Problem(nlis.SingleIndex(nlis.Swish(0.1, 0.2, zeta=3)), constraint=nlis.Box([0.0, -1.0], [0.5, 1.0])),
    nlis.Problem(nlis.SingleIndex(nlis.Identity())),
]


@pytest.mark.parametrize("k", range(len(PROBLEMS)))
def test_a_problem_is_a_value_and_survives_json(k):
    problem = PROBLEMS[k]
    is_a_value(lambda: pickle.loads(pickle.dumps(problem)), PROBLEMS[:k] + PROBLEMS[k + 1 :])
    assert nlis.Problem.from_dict(rebuilt(problem.to_dict())) == problem


@pytest.mark.parametrize("name", ["__import__('os')", "Popen", "Factor", "", None, 5])
def test_a_dictionary_names_only_what_the_table_knows(name):
    found = nlis.Problem(nlis.Linear()).to_dict()
    for spoiled in (found | {"noun": name}, found | {"model": found["model"] | {"noun": name}}):
        with pytest.raises(nlis.InputError, match=r"is not known|model="):
            nlis.Problem.from_dict(spoiled)
    with pytest.raises(nlis.InputError, match="stored with other fields"):
        nlis.Problem.from_dict(found | {"optimizer": 1})


def test_names_cannot_smuggle_html_into_a_page():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"<script>a</script>": X[:, 0], "<b>": X[:, 0]})
    html = nlis.factorize(table)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
