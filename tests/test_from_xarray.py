"""Variables of a Dataset as rows: order, names, dtypes, missing values, laziness, task counts, and the way back."""

import doctest
import importlib
import pickle

import dask.array as da
import numpy as np
import pytest
from counting import CountingArray, Tasks, executed, no_compute, same_bits
from dask.base import tokenize
from hypothesis import given, strategies as st

import dask_nlis as nlis

pytestmark = pytest.mark.adapters
xr = pytest.importorskip("xarray")
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Swish(c1=1, c2=2)))

#: Shapes of one, two and three row dimensions, and uneven chunks of theirs.
LAYOUTS = [
    ((7,), ((3, 4),)),
    ((5, 6), ((2, 3), (1, 4, 1))),
    ((4, 5, 6), ((1, 3), (5,), (2, 2, 2))),
    ((4, 1, 3), ((4,), (1,), (3,))),
]
DIMS = ("time", "lat", "lon")


def coords_of(shape):
    """Labels of several dtypes, a coordinate that is no dimension, one of all dimensions, and a scalar one."""
    known = {
        "time": (
            "time",
            np.datetime64("2020-01-01", "ns") + np.arange(shape[0]) * np.timedelta64(1, "D"),
            {"note": "UTC"},
        ),
        "lat": ("lat", np.linspace(-60, 60, shape[1]) if len(shape) > 1 else []),
        "season": ("time", np.array(["winter", "spring"])[np.arange(shape[0]) % 2]),
    }
    dims = DIMS[: len(shape)]
    found = {name: value for name, value in known.items() if value[0] in dims}
    return found | {"cell": (dims, np.arange(np.prod(shape)).reshape(shape)), "run": 3}


def dataset(shape, chunks=None, **more):
    """Two features, a target and weights over the row dimensions; every value tells its cell."""
    dims, cells = DIMS[: len(shape)], np.arange(np.prod(shape), dtype=float).reshape(shape)
    ds = xr.Dataset(
        {"t": (dims, cells), "q": (dims, (cells + 1) * (-1) ** cells), "pr": (dims, -cells), "area": (dims, cells + 1)}
        | more,
        coords=coords_of(shape),
    )
    return ds if chunks is None else ds.chunk(dict(zip(dims, chunks, strict=True)))


def by_blocks(values, chunks):
    """Rows by definition: each block ravelled, one after the other."""
    cut = da.from_array(values, chunks)
    return np.concatenate([np.asarray(cut.blocks[place]).ravel() for place in np.ndindex(*cut.numblocks)])


@pytest.mark.parametrize(("shape", "chunks"), LAYOUTS)
def test_each_block_is_ravelled_where_it_lies_and_scores_go_back_there(shape, chunks):
    ds = dataset(shape, chunks)
    with no_compute():
        rows = nlis.from_xarray(ds, ["t", "q"], "pr", "area")
        X, y, weight = rows
        lazy = rows.restore(X[:, 0] if X.npartitions == 1 else da.sqrt(y * y), name="t")
    assert (X.shape, X.dtype, y.shape, weight.dtype) == ((ds.t.size, 2), np.float64, (ds.t.size,), np.float64)
    assert X.chunks[0] == y.chunks[0] == weight.chunks[0]
    assert X.npartitions == np.prod(ds.t.data.numblocks)
    for found, name in zip((X[:, 0], X[:, 1], y, weight), ("t", "q", "pr", "area"), strict=True):
        assert same_bits(found.compute(), by_blocks(ds[name].values, chunks))
    assert rows.names == ("t", "q")
    expected = ds.t.rename("t")
    for back in (lazy, rows.restore(by_blocks(ds.t.values, chunks), name="t")):
        xr.testing.assert_identical(back, expected)
        assert back.time.attrs == {"note": "UTC"}
        assert back.coords.keys() == ds.t.coords.keys()
    assert lazy.chunks == ds.t.chunks
    assert isinstance(rows.restore(X[:, 0]).data, da.Array)
    assert isinstance(rows.restore(np.zeros(ds.t.size)).data, np.ndarray)


@st.composite
def layouts(draw):
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    chunks = []
    for size in shape:
        sizes = []
        while sum(sizes) < size:
            sizes.append(draw(st.integers(1, size - sum(sizes))))
        chunks.append(tuple(sizes))
    return shape, tuple(chunks)


@given(layouts(), st.booleans())
def test_restore_is_the_inverse_of_the_ravel(layout, lazy):
    shape, chunks = layout
    ds = dataset(shape, chunks if lazy else None)
    rows = nlis.from_xarray(ds, ["t"], block_bytes=24)
    assert rows.lazy == lazy
    values = rows.X.compute()[:, 0]
    xr.testing.assert_identical(rows.restore(values), ds.t.rename(None))
    xr.testing.assert_identical(rows.restore(rows.X[:, 0]), ds.t.rename(None))
    order = np.random.default_rng(0).permutation(ds.t.size)
    where = rows.coordinates(order)
    assert np.array_equal(where["cell"].values, values[order].astype(int))
    picked = ds.t.isel(
        {dim: xr.DataArray(p, dims="row") for dim, p in zip(rows.dims, rows.grid.positions(order), strict=True)}
    )
    assert np.array_equal(picked.values, values[order])


@given(layouts(), st.data())
def test_any_dimensions_in_any_order_are_matched_by_name(layout, data):
    shape, chunks = layout
    whole = dataset(shape, chunks)
    dims = data.draw(st.lists(st.sampled_from(whole.t.dims), unique=True))
    lazy = data.draw(st.booleans())
    one = whole.q.isel({dim: 0 for dim in whole.t.dims if dim not in dims}, drop=True).transpose(*dims)
    ds = whole.assign(one=one if lazy else one.compute())
    rows = nlis.from_xarray(ds, ["t", "one"], "one")
    expected = by_blocks(one.broadcast_like(whole.t).transpose(*whole.t.dims).values, chunks)
    assert same_bits(rows.X.compute(), np.column_stack([by_blocks(whole.t.values, chunks), expected]))
    assert same_bits(rows.y.compute(), expected)


def test_blocks_in_memory_behind_a_slice_all_reach_the_graph():
    ds = dataset((2, 1), ((1, 1), (1,)))
    ds = ds.assign(one=ds.q.isel(lat=0, drop=True))
    rows = nlis.from_xarray(ds, ["t", "one"], "one")
    assert same_bits(rows.X.compute(), np.column_stack([ds.t.values.ravel(), ds.q.values.ravel()]))
    assert same_bits(rows.y.compute(), ds.q.values.ravel())


def test_data_in_memory_are_cut_along_the_first_dimensions_and_rows_are_all_cells_in_c_order():
    ds = dataset((6, 5, 4))
    rows = nlis.from_xarray(ds, ["t", "q"], "pr", block_bytes=2 * 20 * 16)
    assert rows.grid.chunks == ((2, 2, 2), (5,), (4,))
    assert same_bits(rows.X.compute(), np.column_stack([ds.t.values.ravel(), ds.q.values.ravel()]))
    scores = nlis.norm_scores(rows.X)
    assert isinstance(scores, da.Array)
    back = rows.restore(scores)
    assert isinstance(back.data, np.ndarray)
    assert np.allclose(back.values, (ds.t**2 + ds.q**2).values, rtol=1e-14)
    many = nlis.from_xarray(ds, ["t"], block_bytes=8 * 4 * 2)  # below one step in time
    assert many.grid.chunks == ((1,) * 6, (2, 2, 1), (4,))
    assert same_bits(many.X.compute()[:, 0], ds.t.values.ravel())


def test_drawn_rows_tell_labels_positions_and_other_coordinates_in_the_order_of_the_sample():
    ds = dataset((6, 5, 4), ((2, 4), (3, 2), (4,)))
    rows = nlis.from_xarray(ds, ["t", "q"], "pr")
    sample = nlis.draw(nlis.norm_scores(rows.X), 20, seed=0)
    where = rows.coordinates(sample)
    assert dict(where.sizes) == {"row": len(sample)}
    assert np.array_equal(where.row, sample.indices)
    assert set(where.coords) == {"row", "time", "lat", "lon", "season", "cell", "run"}
    t, _ = sample.take(rows.X, rows.y)
    assert np.array_equal(where.cell, t[:, 0])
    assert where.lon.dtype.kind == "i"  # positions: no labels there
    assert where.time.dtype.kind == "M"
    assert np.array_equal(ds.t.sel(time=where.time, lat=where.lat).isel(lon=where.lon), t[:, 0])
    assert where.run.item() == 3
    table = nlis.top_rows(nlis.norm_scores(rows.X), 3)
    assert where.lon.dims == ("row",)
    assert rows.coordinates(table).cell.values.tolist() == [119, 118, 117]


def test_lazy_coordinates_stay_lazy_and_are_read_at_drawn_rows():
    ds = dataset((6, 4), ((2, 4), (3, 1)))
    ds = ds.assign_coords(height=(("time", "lat"), da.arange(24, chunks=24).reshape(6, 4).rechunk((2, 3))))
    rows = nlis.from_xarray(ds, ["t"])
    assert isinstance(rows.restore(rows.X[:, 0]).height.data, da.Array)
    with Tasks() as tasks:
        found = rows.coordinates(np.array([0, 23]))
    assert tasks.computes == 3  # height, season and cell
    assert isinstance(found.height.data, np.ndarray)
    assert np.array_equal(found.height, found.cell)


def test_a_dimension_of_the_name_of_the_result_and_levels_of_an_index():
    image = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("row", "column"), coords={"row": ["a", "b"]}, name="light")
    found = nlis.from_xarray(image).coordinates([5, 0])
    assert found.row.values.tolist() == ["b", "a"]
    assert found["column"].values.tolist() == [2, 0]
    assert nlis.from_xarray(image).coordinates([5], dim="drawn").drawn.values.tolist() == [5]
    stacked = image.stack(cell=("row", "column")).to_dataset(name="light")
    rows = nlis.from_xarray(stacked, "light")
    assert rows.coordinates([4], dim="drawn")["row"].values.tolist() == ["b"]
    xr.testing.assert_identical(rows.restore(rows.X[:, 0]), stacked.light.rename(None))


def test_dimensions_are_matched_by_name_and_missing_ones_filled_block_by_block():
    chunks = ((2, 4), (3, 2), (4,))
    ds = dataset((6, 5, 4), chunks)
    ds["turned"] = ds.t.transpose("lon", "time", "lat")
    ds["height"] = (("lat", "lon"), da.arange(20.0, chunks=20).reshape(5, 4))
    ds["year"] = ("time", np.arange(6))
    names = ["height", "t", "turned", "year", "lat", "time.dayofyear"]
    rows = nlis.from_xarray(ds, names, "year", "lat")
    assert rows.dims == DIMS
    expected = xr.broadcast(*(ds[name] for name in names))
    for k, each in enumerate(expected):
        values = each.transpose(*DIMS).values.astype(float)
        assert same_bits(rows.X[:, k].compute(), by_blocks(values, chunks))
    year, lat = (xr.broadcast(ds[name], ds.t)[0].transpose(*DIMS).values.astype(float) for name in ("year", "lat"))
    assert same_bits(rows.y.compute(), by_blocks(year, chunks))
    assert same_bits(rows.sample_weight.compute(), by_blocks(lat, chunks))
    crossed = nlis.from_xarray(xr.Dataset({"a": ("x", [1.0, 2.0]), "b": ("y", [3.0, 4.0, 5.0])}), ["a", "b"])
    assert crossed.X.compute().tolist() == [[1, 3], [1, 4], [1, 5], [2, 3], [2, 4], [2, 5]]


@pytest.mark.parametrize("pieces", [3, 1])
def test_a_dimension_of_features_gives_columns_named_by_its_labels(pieces):
    values = np.arange(2 * 3 * 4.0).reshape(2, 3, 4).astype("f4")
    bands = xr.DataArray(
        da.from_array(values, (1, pieces, 4)),
        dims=("y", "band", "x"),
        coords={"band": ["red", "green", "blue"]},
        name="light",
    )
    expected = values.transpose(0, 2, 1).reshape(8, 3)
    rows = nlis.from_xarray(bands, feature_dim="band")
    assert rows.dims == ("y", "x")
    assert rows.names == ("red", "green", "blue")
    assert same_bits(rows.X.compute(), expected.astype(float))
    assert "band" not in rows.restore(rows.X[:, 0]).coords
    assert nlis.from_xarray(bands.drop_vars("band"), feature_dim="band").names == ("band0", "band1", "band2")
    ds = bands.to_dataset().assign(height=(("y", "x"), np.ones((2, 4))))
    both = nlis.from_xarray(ds, ["light", "height"], feature_dim="band")
    assert both.names == ("light[red]", "light[green]", "light[blue]", "height")
    assert same_bits(both.X.compute(), np.column_stack([expected, np.ones(8)]).astype(float))


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "i8", "f2", "f4", ">f8"])
def test_each_variable_goes_to_float64_by_itself(dtype):
    ds = xr.Dataset({"a": ("x", np.array([0, 1, 1], dtype=dtype)), "b": ("x", [0.5, 1.5, np.nan])}).chunk(x=2)
    X = nlis.from_xarray(ds, ["a", "b"]).X.compute()
    assert X.dtype == np.float64
    assert same_bits(X, np.array([[0, 0.5], [1, 1.5], [1, np.nan]]))
    y = nlis.from_xarray(ds, ["b"], "a").y
    assert same_bits(y.compute(), [0.0, 1.0, 1.0])


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
def test_integers_beyond_float64_are_refused_with_variable_and_row(value):
    counts = np.zeros((4, 3), dtype="i8")
    counts[3, 1] = value
    ds = xr.Dataset({"counts": (("x", "y"), counts), "one": (("x", "y"), np.ones((4, 3)))}).chunk(x=2)
    for rows in (nlis.from_xarray(ds, ["one", "counts"]).X, nlis.from_xarray(ds, ["one"], "counts").y):
        with pytest.raises(nlis.InputError, match=f"variable 'counts' holds {value} at row 10, beyond 2"):
            rows.compute()
    ds = ds.where(ds.counts == 0, 2**53)
    assert ds.counts.dtype == np.int64
    assert nlis.from_xarray(ds, ["counts"]).X.compute().max() == 2.0**53


def test_what_a_mask_hides_is_missing():
    for values in (np.ma.masked_equal(np.arange(6.0), 1), da.ma.masked_equal(da.arange(6.0, chunks=3), 1)):
        rows = nlis.from_xarray(xr.Dataset({"m": ("time", values)}), ["m"])
        assert same_bits(rows.X.compute()[:, 0], [0, np.nan, 2, 3, 4, 5])


def test_the_sea_is_left_out_of_data_of_the_land():
    ds = dataset((6, 5, 4), ((2, 4), (3, 2), (4,)))
    land = xr.DataArray(np.arange(20).reshape(5, 4) % 3 > 0, dims=("lat", "lon"))
    rows = nlis.from_xarray(ds.where(land), ["t", "q"], "pr")
    with pytest.raises(nlis.NonFiniteError, match="'t'"):
        nlis.factorize(nlis.reference_matrix(PROBLEM, rows.X, rows.y))
    A = nlis.reference_matrix(PROBLEM, rows.X, rows.y, missing="drop")
    factor = nlis.factorize(A)
    scores = rows.restore(nlis.leverage_scores(A, factor)).compute()
    assert (scores.where(~land, 0) == 0).all()
    cells = nlis.from_xarray(dataset((6, 5, 4)), ["t", "q"], "pr")
    kept = np.broadcast_to(land.values, (6, 5, 4)).ravel()
    plain = nlis.reference_matrix(PROBLEM, cells.X.compute()[kept], cells.y.compute()[kept])
    expected = nlis.leverage_scores(plain, nlis.factorize(plain))
    assert np.allclose(scores.values.ravel()[kept], expected, rtol=1e-8, atol=1e-12)
    assert not np.isin(
        nlis.draw(scores.values.ravel(), 30, seed=0).indices,
        np.flatnonzero(~kept),
    ).any()


def counted(shape=(8, 3)):
    """A lazy Dataset over arrays that count reads of their first axis."""
    arrays = {name: CountingArray(np.random.default_rng(k).random(shape)) for k, name in enumerate("abyw")}
    ds = xr.Dataset({name: (("time", "place"), array.dask(2)) for name, array in arrays.items()})
    return arrays, ds


def test_one_task_a_block_and_each_variable_is_read_once_a_pass():
    arrays, ds = counted()
    with no_compute():
        rows = nlis.from_xarray(ds, ["a", "b"], "y", "w")
        A = nlis.reference_matrix(PROBLEM, rows.X, rows.y, sample_weight=rows.sample_weight)
        norms = nlis.norm_scores(A)
        restored = rows.restore(norms)
    assert not any(array.rows.any() for array in arrays.values())
    # Reads happen inside the tasks that need them; the second task of a restored block is the alias that fusion leaves.
    assert [executed(each) for each in (rows.X, rows.y, rows.sample_weight, norms, restored.data)] == [4, 4, 4, 4, 8]
    factor = nlis.factorize(A)
    assert [array.reads() for array in arrays.values()] == [1, 1, 1, 1]
    with Tasks() as tasks:
        nlis.draw(nlis.leverage_scores(A, factor), 5, seed=0)
    assert tasks.labels["nlis-score"] == 4
    assert [array.reads() for array in arrays.values()] == [1, 1, 1, 1]
    restored.compute()
    assert [array.reads() for array in arrays.values()] == [1, 1, 1, 1]


def test_computed_variables_keep_their_task_and_those_of_fewer_dimensions_are_read_once():
    arrays, ds = counted()
    ds = ds.assign(warm=ds.a - 1.0, height=("place", CountingArray(np.ones(3)).dask(3)))
    rows = nlis.from_xarray(ds, ["warm", "b"])
    assert executed(rows.X) == 4 + 4  # the computed variable's, and X's
    assert executed(nlis.from_xarray(ds, ["b", "height"]).X) == 4 + 2  # one reads the height for all, one is an alias
    assert executed(nlis.norm_scores(rows.X)) == 4 + 4 + 4  # the last ones aliases
    rows.X.compute()
    assert [arrays[name].reads() for name in "ab"] == [1, 1]


def test_weights_by_latitude_in_memory_take_no_task_of_their_own():
    values = np.random.default_rng(0).random((8, 6, 3))
    chunks = ((2,) * 4, (4, 2), (3,))
    ds = xr.Dataset(
        {name: (DIMS, da.from_array(values + k, chunks)) for k, name in enumerate("ab")},
        coords={"lat": np.arange(1.0, 7.0)},
    )
    rows = nlis.from_xarray(ds, ["a", "b", "lat"], sample_weight="lat")
    norms = nlis.norm_scores(nlis.reference_matrix(PROBLEM, rows.X, sample_weight=rows.sample_weight))
    assert executed(rows.X) == executed(rows.sample_weight) == executed(norms) == 8
    lat = by_blocks(np.broadcast_to(np.arange(1.0, 7.0)[None, :, None], values.shape), chunks)
    assert same_bits(rows.sample_weight.compute(), lat)
    assert same_bits(rows.X.compute(), np.column_stack([by_blocks(values, chunks), by_blocks(values + 1, chunks), lat]))


def test_what_is_rows_already_takes_no_task():
    ds = xr.Dataset(
        {"light": (("pixel", "band"), da.ones((6, 2), chunks=(3, 2))), "y": ("pixel", da.ones(6, chunks=3))}
    )
    rows = nlis.from_xarray(ds, "light", "y", feature_dim="band")
    assert rows.X.name == ds.light.data.name
    assert rows.y.name == ds.y.data.name


def test_other_chunks_are_refused_for_features_and_cut_for_the_rest():
    ds = dataset((6, 5), ((2, 4), (5,)))
    other = ds.assign(q=ds.q.chunk(time=3))
    with pytest.raises(
        nlis.InputError, match=r"'t' and 'q' have unequal chunks along 'time', \(2, 4\) and \(3, 3\); .*unify"
    ):
        nlis.from_xarray(other, ["t", "q"])
    assert nlis.from_xarray(other.unify_chunks(), ["t", "q"]).X.chunks[0] == (10, 5, 15)
    rows = nlis.from_xarray(other, ["t"], "q")
    assert same_bits(rows.y.compute(), by_blocks(ds.q.values, ((2, 4), (5,))))


def test_variables_of_a_file_opened_without_chunks_stay_unread(tmp_path):
    dataset((6, 5), ((2, 2, 2), (5,))).drop_vars("season").to_zarr(tmp_path / "a", consolidated=False)
    ds = xr.open_zarr(tmp_path / "a", chunks=None, consolidated=False)
    with no_compute():
        rows = nlis.from_xarray(ds, ["t", "q"], "pr", block_bytes=5 * 16 * 3)
    assert rows.lazy
    assert rows.grid.chunks == ((2, 2, 2), (5,))  # whole chunks of the file
    assert not ds.t.variable._in_memory
    assert same_bits(rows.X.compute()[:, 0], ds.t.values.ravel())
    again = xr.open_zarr(tmp_path / "a", chunks=None, consolidated=False)
    assert nlis.from_xarray(again, ["t", "q"], "pr", block_bytes=5 * 16 * 3).X.name == rows.X.name
    lazy = [nlis.from_xarray(xr.open_zarr(tmp_path / "a", consolidated=False), ["t", "q"]).X for _ in range(2)]
    assert lazy[0].name == lazy[1].name
    assert executed(lazy[0]) == 3


def test_scores_of_other_blocks_or_containers_are_put_back_alike():
    ds = dataset((6, 5), ((2, 4), (3, 2)))
    rows = nlis.from_xarray(ds, ["t"])
    values = by_blocks(ds.t.values, ((2, 4), (3, 2)))
    for scores in (da.from_array(values, 7), values.tolist(), da.from_array(values, rows.grid.row_chunks).persist()):
        assert np.array_equal(rows.restore(scores).values, ds.t.values)
    assert rows.restore(da.from_array(values, 7)).chunks == ds.t.chunks
    assert rows.restore(values > 3).dtype == bool


def test_rows_are_a_value():
    ds = dataset((6, 5), ((2, 4), (3, 2)))
    one, two = (nlis.from_xarray(ds, ["t", "q"], "pr") for _ in range(2))
    other = nlis.from_xarray(ds, ["q", "t"], "pr")
    for same in (two, pickle.loads(pickle.dumps(one))):
        assert one == same
        assert hash(one) == hash(same)
        assert tokenize(one) == tokenize(same)
    assert one != other
    assert tokenize(one) != tokenize(other)
    assert one.X.name == two.X.name != other.X.name
    assert repr(one).startswith("XarrayRows(sizes={'time': 6, 'lat': 5}, rows=30, names=('t', 'q'), y=True")
    assert nlis.reference_matrix(PROBLEM, one.X, one.y).columns[:2] == ("t", "q")


def test_on_a_cluster_it_is_the_same(client):
    ds = dataset((6, 5), ((2, 4), (3, 2)))
    rows = nlis.from_xarray(ds.persist(), ["t", "q"], "pr")
    A = nlis.reference_matrix(PROBLEM, rows.X, rows.y)
    found = rows.restore(nlis.leverage_scores(A, nlis.factorize(A)).persist()).values
    plain = nlis.from_xarray(ds.compute(), ["t", "q"], "pr")
    B = nlis.reference_matrix(PROBLEM, plain.X, plain.y)
    assert np.allclose(found, plain.restore(nlis.leverage_scores(B, nlis.factorize(B))).values, rtol=1e-9)


DS = dataset(
    (6, 5), ((2, 4), (3, 2)), when=(("time", "lat"), np.zeros((6, 5), "M8[ns]")), text=("time", list("abcdef"))
)
WRONG = {
    "no Dataset": (
        lambda: nlis.from_xarray(np.ones((3, 2)), ["a"]),
        TypeError,
        "ds is ndarray; give an xarray.Dataset",
    ),
    "no name": (
        lambda: nlis.from_xarray(DS, ["T"]),
        ValueError,
        "features: 'T' is no variable of ds; did you mean|it has",
    ),
    "close name": (lambda: nlis.from_xarray(DS, ["are"]), ValueError, "did you mean 'area'"),
    "no names": (lambda: nlis.from_xarray(DS), TypeError, "features is NoneType; give names .*'t', 'q'"),
    "empty names": (lambda: nlis.from_xarray(DS, []), ValueError, "features is empty"),
    "twice": (lambda: nlis.from_xarray(DS, ["t", "t"]), ValueError, "two columns of the name 't'"),
    "an array": (lambda: nlis.from_xarray(DS, ["t"], np.ones(30)), TypeError, "target: ndarray is no name; .*assign"),
    "dates": (
        lambda: nlis.from_xarray(DS, ["when"]),
        TypeError,
        r"features: variable 'when' has dtype datetime64.*dayofyear",
    ),
    "text": (lambda: nlis.from_xarray(DS, ["t", "text"]), TypeError, "features: variable 'text' has dtype <U1.*encode"),
    "seconds": (
        lambda: nlis.from_xarray(DS.assign(d=DS.when - DS.when), ["d"]),
        TypeError,
        "timedelta64.*np.timedelta64",
    ),
    "objects": (
        lambda: nlis.from_xarray(DS.assign(o=("time", [{}] * 6)), ["o"]),
        TypeError,
        "variable 'o' has dtype object",
    ),
    "complex": (
        lambda: nlis.from_xarray(DS.assign(c=DS.t * 1j), ["t"], "c"),
        TypeError,
        "target: variable 'c' .*complex128",
    ),
    "no rows": (
        lambda: nlis.from_xarray(DS.isel(time=slice(0)), ["t"]),
        ValueError,
        "dimension 'time' of 't' has length 0",
    ),
    "a scalar": (lambda: nlis.from_xarray(DS, ["run"]), ValueError, "no row dimension"),
    "more dimensions": (
        lambda: nlis.from_xarray(DS, ["lat"], "t"),
        ValueError,
        "has dimension 'time'",
    ),
    "no dimension": (
        lambda: nlis.from_xarray(DS, ["t"], feature_dim="band"),
        ValueError,
        "feature_dim='band' is no dimension",
    ),
    "other scores": (
        lambda: nlis.from_xarray(DS, ["t"]).restore(np.ones(31)),
        ValueError,
        r"scores has shape \(31,\); give \(30,\)",
    ),
    "row beyond": (
        lambda: nlis.from_xarray(DS, ["t"]).coordinates([30]),
        ValueError,
        "row 30, but rows go from 0 to 29",
    ),
    "row below": (lambda: nlis.from_xarray(DS, ["t"]).coordinates([-1]), ValueError, "row -1"),
    "other sample": (
        lambda: nlis.from_xarray(DS, ["t"]).coordinates(nlis.Sample.from_probabilities([1], [0.5], n_rows=9)),
        ValueError,
        "sample was drawn from 9 rows, but X has 30",
    ),
    "a tree": (lambda: nlis.from_xarray(xr.DataTree(DS), ["t"]), TypeError, "ds is DataTree"),
    "unknown length": (
        lambda: nlis.from_xarray(xr.Dataset({"a": ("x", da.ones(9, chunks=3)[da.ones(9, chunks=3) > 0])}), ["a"]),
        ValueError,
        "unknown length",
    ),
    "no row": (lambda: nlis.from_xarray(DS, ["t"]).coordinates([0.5]), TypeError, "sample is list of float64"),
    "scalar dim": (lambda: nlis.from_xarray(DS, ["t"]).coordinates([0], dim="run"), ValueError, "scalar coordinate"),
    "Dataset as X": (lambda: nlis.norm_scores(DS), TypeError, "A is an xarray Dataset; .*nlis.from_xarray"),
    "DataArray of three dimensions": (
        lambda: nlis.norm_scores(DS.t.expand_dims("k")),
        ValueError,
        "A has 3 dimensions .*nlis.from_xarray",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused_is_named_before_any_compute(case):
    function, kind, message = WRONG[case]
    with no_compute(), pytest.raises(kind, match=message) as found:
        function()
    assert isinstance(found.value, nlis.NlisError)
    assert len(str(found.value)) <= 300


@pytest.mark.parametrize("module", ["dask_nlis.adapters.from_xarray", "dask_nlis.adapters.xarray_rows"])
def test_examples_of_the_docstrings(module):
    import sys

    importlib.import_module("dask_nlis.adapters")
    found = doctest.testmod(sys.modules[module])
    assert found.attempted
    assert not found.failed


SPOILT = [
    ("from_xarray", each) for each in ("ds", "features", "target", "sample_weight", "feature_dim", "block_bytes")
] + [
    ("XarrayRows.restore", "scores"),
    ("XarrayRows.restore", "name"),
    ("XarrayRows.coordinates", "sample"),
    ("XarrayRows.coordinates", "dim"),
]


@pytest.mark.parametrize(("name", "argument"), SPOILT)
def test_what_does_not_belong_is_a_result_or_one_error_of_ours(name, argument):
    from test_bad_arguments import OFTEN, check

    check(name, argument, OFTEN)
