"""Columns of mean 0 and deviation 1, in one read, and the way back for theta."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, cut, no_compute, rows_of, same_bits

import dask_nlis as nlis

N = 1000


def columns(seed=0):
    """Columns whose moments are easy to get wrong."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [
            rng.standard_normal(N),
            1e6 + rng.standard_normal(N),  # a sum of squares minus a squared sum keeps 4 digits of the deviation
            1e-9 * rng.standard_normal(N),  # tiny units are no constant
            np.full(N, 0.1),  # constant, but 1000 x 0.1 / 1000 is not 0.1
            np.zeros(N),
            rng.integers(0, 2, N),
            1e150 * rng.standard_normal(N),
            np.where(np.arange(N) == 0, 1e4, 1e-4),  # one far row
            np.where(np.arange(N) % 2, 0.3, 0.1 + 0.2),  # constant but for the last bit
        ]
    )


VARYING, CONSTANT = [0, 1, 2, 5, 6, 7], [3, 4, 8]


def moments(x):
    """Mean and population deviation in extended precision."""
    wide = x.astype(np.longdouble)
    mean = wide.mean(axis=0)
    return mean.astype(float), np.sqrt(((wide - mean) ** 2).mean(axis=0)).astype(float)


@pytest.mark.parametrize("sizes", [None, (N,), (1,), (7,), (400, 1, 99), (0, 500, 0)])
def test_moments_equal_those_of_extended_precision_for_any_chunking(sizes):
    x, y = columns(), columns(1)[:, 1]
    if sizes == (1,):
        x, y = x[:100], y[:100]
    given = x, y
    if sizes:
        chunks = (0, 500, 0, 500) if 0 in sizes else cut(len(x), sizes)
        given = da.from_array(x, (chunks, (9,))), da.from_array(y, 90)
    transform = nlis.standardize(*given).transform
    mean, deviation = moments(x)
    assert (np.abs(transform.mean - mean) <= 1e-13 * np.abs(mean) + 1e-14 * deviation).all()
    np.testing.assert_allclose(transform.scale[VARYING], deviation[VARYING], rtol=1e-12)
    assert np.array_equal(transform.scale[CONSTANT], [1, 1, 1])
    y_mean, y_deviation = moments(y)
    assert transform.y_mean == pytest.approx(y_mean, rel=1e-13)
    assert transform.y_scale == pytest.approx(y_deviation, rel=1e-12)


def test_the_result_has_mean_0_and_deviation_1_and_constants_are_centred():
    x, y, transform = nlis.standardize(columns(), columns(1)[:, 1])
    assert np.abs(x.mean(axis=0)).max() < 1e-9  # 1e6 eps
    np.testing.assert_allclose(x[:, VARYING].std(axis=0), 1, rtol=1e-12)
    assert np.abs(x[:, CONSTANT]).max() < 1e-15
    assert y.std() == pytest.approx(1, rel=1e-12)
    assert same_bits(x, (columns() - transform.mean) / transform.scale)


def test_it_reads_once_and_is_applied_lazily_block_by_block():
    counted = CountingArray(columns()), CountingArray(columns(1)[:, 0])
    given = counted[0].dask(50), counted[1].dask(50)
    x, y, _ = nlis.standardize(*given)
    assert [array.reads() for array in counted] == [1, 1]
    assert x.chunks == given[0].chunks
    assert (x.dtype, y.dtype) == (np.float64, np.float64)
    in_memory = nlis.standardize(columns(), columns(1)[:, 0])
    np.testing.assert_allclose(x, in_memory.X, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(y, in_memory.y, rtol=1e-12, atol=1e-14)
    assert [array.reads() for array in counted] == [1, 1]


@pytest.mark.parametrize("chunks", [None, (50, 2), (330, 3)])
def test_targets_of_several_outputs_are_standardised_column_by_column_in_one_read(chunks):
    x, y = columns(), columns(1)[:, [0, 1, 3]] + [0, 5, 0]
    counted = CountingArray(x), CountingArray(y)
    given = (x, y) if chunks is None else (counted[0].dask(50), counted[1].dask(chunks[0]).rechunk({1: chunks[1]}))
    new_x, new_y, transform = nlis.standardize(*given)
    if chunks:
        assert [array.reads() for array in counted] == [1, 1]
        assert isinstance(new_y, da.Array)
    alone = [nlis.standardize(x, column) for column in y.T]
    assert same_bits(transform.mean, alone[0].transform.mean) or chunks
    np.testing.assert_allclose(transform.y_mean, [each.transform.y_mean for each in alone], rtol=1e-14)
    np.testing.assert_allclose(transform.y_scale, [each.transform.y_scale for each in alone], rtol=1e-12)
    np.testing.assert_allclose(new_y, np.column_stack([each.y for each in alone]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(new_x, alone[0].X, rtol=1e-9, atol=1e-9)


def test_a_bad_cell_of_several_targets_is_refused_by_its_column():
    x, y = columns(), columns(1)[:, :3]
    y[17, 2] = np.nan
    with pytest.raises(nlis.NonFiniteError, match=r"column 'y\[2\]' holds NaN"):
        nlis.standardize(x, y)


def test_scores_of_standardised_lazy_data_still_take_one_read():
    counted = CountingArray(columns()[:, [0, 1, 5]])
    x, _, _ = nlis.standardize(counted.dask(50))
    counted.reads()
    with no_compute():
        A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), x)
    factor = nlis.factorize(A)
    assert counted.reads() == factor.reads == 1
    nlis.leverage_scores(A, factor).compute()
    assert counted.reads() == 1


def test_integers_and_images_are_cast_before_any_arithmetic():
    image = np.random.default_rng(0).integers(0, 256, (N, 4), dtype=np.uint8)
    for given in (image, da.from_array(image, (100, 4))):
        x, _, transform = nlis.standardize(given)
        mean, deviation = moments(image)
        np.testing.assert_allclose(transform.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(np.asarray(x), (image - mean) / deviation, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("intercept", [0.0, 2.5])
def test_to_raw_gives_the_same_index_on_the_raw_columns(intercept):
    raw = columns()[:, [0, 1, 2, 3, 5]]
    x, _, transform = nlis.standardize(raw)
    theta = np.array([0.5, -1.5, 2.0, 3.0, -0.25, intercept])
    back = transform.to_raw(theta)
    np.testing.assert_allclose(raw @ back[:-1] + back[-1], x @ theta[:-1] + theta[-1], rtol=1e-8, atol=1e-8)


def test_a_fit_on_standardised_columns_is_the_fit_on_raw_ones():
    raw, y = rows_of(5, 300, 3)
    raw = raw * [1, 100, 0.01] + [5, -300, 0.2]
    problem = nlis.Problem(nlis.SingleIndex(nlis.Tanh()))
    x, _, transform = nlis.standardize(raw)
    fit = nlis.refit(problem, x, np.tanh(y), np.ones(300))
    there = nlis.total_loss(problem, raw, np.tanh(y), transform.to_raw(fit.theta))
    assert there == pytest.approx(fit.loss, rel=1e-10)


@pytest.mark.parametrize("theta", [np.zeros(3), np.zeros(5), np.zeros((1, 4)), 0.0])
def test_to_raw_needs_an_intercept(theta):
    _, _, transform = nlis.standardize(rows_of(0, 50, 3)[0])
    with pytest.raises(nlis.InputError, match=r"theta has shape .*give \(4,\)"):
        transform.to_raw(theta)


def test_names_and_containers_are_kept(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y = rows_of(1, 40, 2)
    frame = pd.DataFrame(x, columns=["age", "rent"], index=pd.date_range("2020", periods=40))
    new, label, transform = nlis.standardize(frame, pd.Series(y, index=frame.index))
    pd.testing.assert_frame_equal(new, (frame - transform.mean) / transform.scale)
    assert label.index.equals(frame.index)

    stored = zarr.create_array(tmp_path / "x", data=x, chunks=(10, 2), attributes={"feature_names": ["age", "rent"]})
    for given in (stored, tmp_path / "x"):
        lazy = nlis.standardize(given).X
        assert isinstance(lazy, da.Array)
        assert nlis.factorize(lazy).columns == ("age", "rent")
    assert type(nlis.standardize(x.tolist()).X) is np.ndarray


@pytest.mark.adapters
def test_xarray_keeps_dimensions_names_and_laziness():
    import xarray as xr

    x, _ = rows_of(2, 40, 2)
    table = xr.DataArray(x, dims=("row", "feature"), coords={"feature": ["age", "rent"], "row": np.arange(40) * 2})
    for given in (table, table.chunk({"row": 10})):
        new = nlis.standardize(given).X
        assert new.dims == ("row", "feature")
        assert isinstance(new.data, da.Array) == isinstance(given.data, da.Array)
        np.testing.assert_allclose(new.values, (x - x.mean(axis=0)) / x.std(axis=0), rtol=1e-12, atol=1e-14)
        assert nlis.factorize(new).columns == ("age", "rent")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_bad_cells_are_refused_by_column(value, where):
    x, y = rows_of(3, N, 5)
    (x[:, 2] if where == "X" else y)[17] = value
    with pytest.raises(nlis.NonFiniteError, match="column 'x2'" if where == "X" else "'y'"):
        nlis.standardize(da.from_array(x, (90, 5)), y)


def test_nothing_of_the_result_depends_on_the_scheduler():
    x, y = columns(), columns(1)[:, 1]
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(nlis.standardize(da.from_array(x, (30, 9)), da.from_array(y, 50)).transform)
    assert found[0] == found[1]
