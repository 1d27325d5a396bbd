"""The noun Sample, and taking its rows out of arrays of every kind."""

import pickle
from dataclasses import FrozenInstanceError, replace

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from counting import Tasks
from dask.base import tokenize
from draw_oracle import plain_draw

import dask_nlis as nlis

SCHEMES = ("multinomial", "stratified", "poisson", "systematic")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)

N = 500


class Reader:
    """Rows in a storage of one's own: no more than shape, dtype, ndim and slices; counts how often a row is read."""

    def __init__(self, values: np.ndarray, chunks: tuple[int, ...] | None = None) -> None:
        self.values, self.chunks = values, chunks
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.rows = np.zeros(len(values), dtype=int)

    def __getitem__(self, index):
        self.rows[index[0] if isinstance(index, tuple) else index] += 1
        return self.values[index]


def as_dask(reader, chunks):
    return da.from_array(reader, chunks=chunks, asarray=False, meta=np.empty((0,) * 2), name=f"own-{id(reader)}")


@pytest.fixture
def scores(rng) -> np.ndarray:
    values = rng.lognormal(sigma=2, size=N)
    values[200:300] = 0.0  # rows that are never drawn
    return values


@pytest.fixture
def sample(scores) -> nlis.Sample:
    return nlis.draw(scores, 40, seed=6)


@each_scheme
def test_rows_are_distinct_ascending_and_in_range(scores, scheme):
    sample = nlis.draw(scores, 200, scheme=scheme, seed=0)
    assert sample.indices.dtype == sample.counts.dtype == np.int64
    assert (np.diff(sample.indices) > 0).all()
    assert sample.indices.min() >= 0
    assert sample.indices.max() < N == sample.n_rows
    assert (len(sample), sample.scheme, sample.seed) == (len(sample.indices), scheme, 0)


@each_scheme
def test_draws_and_counts_tell_the_same(scores, scheme):
    sample = nlis.draw(scores, 200, scheme=scheme, seed=0)
    assert sample.draws.dtype == np.int64
    np.testing.assert_array_equal(np.bincount(sample.draws, minlength=len(sample)), sample.counts)
    assert sample.stage.tolist() == [0] * len(sample.draws)


@each_scheme
def test_the_expected_count_of_a_row_follows_from_its_score(scores, scheme):
    sample = nlis.draw(scores, 40, scheme=scheme, seed=0)
    expected = sample.expected_count(scores)
    assert expected.sum() == pytest.approx(40, abs=1e-9)
    at_rows = expected[sample.indices]
    np.testing.assert_allclose(sample.weights * at_rows, sample.counts, rtol=1e-14)
    if scheme == "multinomial":
        np.testing.assert_allclose(expected, 40 * scores / scores.sum(), rtol=1e-13)
    np.testing.assert_array_equal(sample.expected_count([0.0]), [0.0])


@each_scheme
def test_effective_size_and_design_effect_are_kishs_over_single_draws(scores, scheme):
    sample = nlis.draw(scores, 40, scheme=scheme, seed=0)
    per_draw = (sample.weights / sample.counts)[sample.draws]
    assert sample.effective_size == pytest.approx(per_draw.sum() ** 2 / (per_draw**2).sum(), rel=1e-12)
    deff = len(per_draw) * (per_draw**2).sum() / per_draw.sum() ** 2
    assert sample.design_effect == pytest.approx(deff, rel=1e-12)
    assert deff > 1


@each_scheme
def test_uniform_scores_have_design_effect_1(scheme):
    # 300 draws from 500 rows repeat some of them: Kish counts draws, not rows.
    sample = nlis.draw(np.full(N, 0.7), 300, scheme=scheme, seed=0)
    assert sample.design_effect == pytest.approx(1, rel=1e-12)
    assert sample.effective_size == pytest.approx(sample.counts.sum(), rel=1e-12)
    if scheme == "multinomial":
        assert len(sample) < 300


@each_scheme
def test_variance_weights_are_those_of_the_scheme(scores, scheme):
    sample = nlis.draw(scores, 200, scheme=scheme, seed=0)
    w = sample.weights
    if scheme == "stratified":
        shares = plain_draw(scores, 200, scheme, seed=0).shares
        lost = np.bincount(sample.draws, [1 - float(share) for share in shares])
        expected = lost / (200 * sample.probabilities) ** 2
    else:
        expected = w**2 / sample.counts if scheme == "multinomial" else (1 - sample.probabilities) * w**2
    np.testing.assert_allclose(sample.variance_weights, expected, rtol=1e-12, atol=1e-12)


@each_scheme
def test_a_sample_is_equal_to_its_copies_and_to_nothing_else(scores, scheme):
    sample = nlis.draw(scores, 40, scheme=scheme, seed=6)
    again = nlis.draw(scores, 40, scheme=scheme, seed=6)
    copies = (again, pickle.loads(pickle.dumps(sample)), nlis.Sample.from_dict(sample.to_dict()))
    for copy in copies:
        assert copy == sample
        assert hash(copy) == hash(sample)
        assert tokenize(copy) == tokenize(sample)
        assert repr(copy) == repr(sample)
    weights = sample.weights.copy()
    weights[-1] = np.nextafter(weights[-1], 0)
    for other in (nlis.draw(scores, 40, scheme=scheme, seed=7), replace(sample, weights=weights)):
        assert other != sample
        assert tokenize(other) != tokenize(sample)
    assert sample != "sample"


def test_a_sample_is_frozen(sample):
    with pytest.raises(FrozenInstanceError):
        sample.weights = np.ones(len(sample))


@each_scheme
def test_the_arrays_of_a_sample_are_read_only(scores, scheme):
    # Its hash and its token stand on them.
    sample = nlis.draw(scores, 40, scheme=scheme, seed=6)
    for name in ("indices", "counts", "probabilities", "weights", "variance_weights", "draws", "stage"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(sample, name)[0] = 1


def test_the_dictionary_form_holds_plain_values_and_arrays_only(sample):
    def check(value):
        if isinstance(value, dict):
            for part in value.values():
                check(part)
        elif isinstance(value, list):
            for part in value:
                check(part)
        else:
            assert type(value) in (str, int, float, bool, np.ndarray, type(None))

    check(sample.to_dict())


def test_a_dictionary_of_another_noun_or_with_other_fields_is_refused(sample):
    found = sample.to_dict()
    with pytest.raises(nlis.InputError, match="'Rows' is not known"):
        nlis.Sample.from_dict(found | {"noun": "Rows"})
    with pytest.raises(nlis.InputError, match="seed"):
        nlis.Sample.from_dict({name: value for name, value in found.items() if name != "seed"})


def test_the_repr_is_one_line_with_size_scheme_and_seed(sample):
    text = repr(sample)
    assert text.startswith("Sample(")
    assert "\n" not in text
    for part in (f"rows={len(sample)}", "n_draws=40", "scheme='multinomial'", "n_rows=500", "seed=6"):
        assert part in text
    assert "<table>" in sample._repr_html_()


TRAILING = {"vector": (), "matrix": (3,), "images": (2, 4), "no columns": (0,)}


def values_of(trailing: tuple[int, ...], dtype: type = float) -> np.ndarray:
    shape = (N, *trailing)
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


@pytest.mark.parametrize("trailing", TRAILING.values(), ids=TRAILING)
@pytest.mark.parametrize("kind", ["numpy", "dask", "dask in odd chunks", "zarr", "path"])
def test_row_k_taken_is_row_indices_k(sample, trailing, kind, tmp_path):
    values = values_of(trailing)
    data = values
    if kind == "dask":
        data = da.from_array(values, chunks=(100, *trailing))
    elif kind == "dask in odd chunks":  # rows and every other axis
        data = da.from_array(values, chunks=((7, 400, 1, 92), *((1,) * size if size else (0,) for size in trailing)))
    elif kind in ("zarr", "path"):
        chunks = (64, *(max(size, 1) for size in trailing))
        data = zarr.create_array(tmp_path / "a.zarr", shape=values.shape, chunks=chunks, dtype=float)
        data[...] = values
        data = tmp_path / "a.zarr" if kind == "path" else data
    taken = sample.take(data)
    assert type(taken) is np.ndarray
    np.testing.assert_array_equal(taken, values[sample.indices])


@pytest.mark.parametrize("dtype", ["u1", "?", "f4", "i8", ">f8"])
@pytest.mark.parametrize("lazy", [False, True])
def test_taken_rows_keep_their_type(sample, dtype, lazy):
    values = values_of((3,)).astype(dtype)
    taken = sample.take(da.from_array(values, chunks=100) if lazy else values)
    assert taken.dtype == values.dtype
    np.testing.assert_array_equal(taken, values[sample.indices])


def test_pandas_rows_keep_index_columns_and_types(sample):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": np.arange(N), "b": 0.5}, index=[f"row {k}" for k in range(N)])
    X, y = sample.take(frame, frame["a"])
    pd.testing.assert_frame_equal(X, frame.iloc[sample.indices])
    pd.testing.assert_series_equal(y, frame["a"].iloc[sample.indices])


@pytest.mark.adapters
@pytest.mark.parametrize("lazy", [False, True])
def test_xarray_rows_keep_dimensions_and_coordinates(sample, lazy):
    import xarray as xr

    values = values_of((3,))
    data = da.from_array(values, chunks=100) if lazy else values
    coords = {"time": np.arange(N) * 10, "feature": ["a", "b", "c"]}
    taken = sample.take(xr.DataArray(data, dims=("time", "feature"), coords=coords, name="X"))
    expected = xr.DataArray(values, dims=("time", "feature"), coords=coords, name="X")[sample.indices]
    assert type(taken.data) is np.ndarray
    xr.testing.assert_identical(taken, expected)


def test_several_arrays_give_a_tuple_and_one_gives_an_array(sample):
    X, y = values_of((3,)), values_of(())
    assert type(sample.take(X)) is np.ndarray
    taken = sample.take(X, da.from_array(y, chunks=90), X[:, 0])
    assert type(taken) is tuple
    for found, values in zip(taken, (X, y, X[:, 0]), strict=True):
        np.testing.assert_array_equal(found, values[sample.indices])


# A reference to what is wrong, then the words of the message.
REFUSED_TAKES = {
    "too short": (np.ones((N - 1, 2)), nlis.InputError, "array 0 has 499 rows, but the sample was drawn from 500"),
    "too long": (da.ones(N + 1), nlis.InputError, "array 0 has 501 rows"),
    "no rows at all": (np.float64(3), nlis.InputError, "array 0"),
    "none": (None, nlis.InputTypeError, "array 0 is NoneType"),
    "text": (da.from_array(np.full(N, "a")), nlis.InputTypeError, "array 0"),
}


@pytest.mark.parametrize(("value", "error", "match"), REFUSED_TAKES.values(), ids=REFUSED_TAKES)
def test_arrays_that_are_not_the_data_are_refused(sample, value, error, match):
    with pytest.raises(error, match=match):
        sample.take(value)


def test_taking_nothing_is_refused(sample):
    with pytest.raises(nlis.InputTypeError, match="give X"):
        sample.take()


@pytest.mark.parametrize("kind", ["numpy", "storage"])
def test_more_than_max_bytes_is_refused_before_anything_is_read(sample, kind):
    values = values_of((3,), np.uint8)
    reader = Reader(values)
    needed = 3 * len(sample)
    with pytest.raises(nlis.InputError, match=f"array 0.*{needed} bytes, above max_bytes={needed - 1}"):
        sample.take(values if kind == "numpy" else reader, max_bytes=needed - 1)
    assert reader.rows.sum() == 0
    assert sample.take(values if kind == "numpy" else reader, max_bytes=needed).nbytes == needed


def test_only_blocks_that_hold_drawn_rows_are_read_and_each_once(scores):
    sample = nlis.draw(scores, 12, seed=1)
    reader = Reader(values_of((3,)))
    with Tasks() as tasks:
        taken = sample.take(as_dask(reader, (10, 3)))
    np.testing.assert_array_equal(taken, reader.values[sample.indices])
    touched = np.unique(sample.indices // 10)
    assert len(touched) < 15
    np.testing.assert_array_equal(np.unique(np.flatnonzero(reader.rows) // 10), touched)
    assert reader.rows.max() == 1
    assert tasks.computes == 1
    assert len(tasks.keys) <= len(touched) + 2


def test_a_reader_with_shape_dtype_and_slices_is_read_in_its_own_chunks(scores):
    sample = nlis.draw(scores, 12, seed=1)
    reader = Reader(values_of((3,)), chunks=(20, 3))
    with dask.config.set({"dask-nlis.block-bytes": 20 * 3 * 8}):
        taken = sample.take(reader)
    np.testing.assert_array_equal(taken, reader.values[sample.indices])
    np.testing.assert_array_equal(np.unique(np.flatnonzero(reader.rows) // 20), np.unique(sample.indices // 20))
    assert reader.rows.max() == 1


def test_column_pieces_of_untouched_rows_are_not_read(scores):
    sample = nlis.draw(scores, 12, seed=1)
    reader = Reader(values_of((6,)))
    np.testing.assert_array_equal(sample.take(as_dask(reader, (10, 2))), reader.values[sample.indices])
    touched = np.unique(sample.indices // 10)
    np.testing.assert_array_equal(np.unique(np.flatnonzero(reader.rows) // 10), touched)
    assert reader.rows.max() == 3  # three pieces a row, each once
