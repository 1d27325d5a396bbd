"""Uncompressed chunks in local files are read straight into place, as Zarr reads them, and nothing else is."""

import shutil
import tracemalloc

import numpy as np
import pytest
import zarr

import dask_nlis as nlis
from dask_nlis.intake.plain_chunks import read_plainly
from dask_nlis.intake.reader import Reader


def plain(folder, shape=(25, 3), **options):
    """A stored array of whole rows, uncompressed unless told otherwise, and what it holds."""
    options = {"chunks": (10, *shape[1:]), "dtype": "f8", "compressors": None} | options
    stored = zarr.create_array(folder, shape=shape, **options)
    values = np.arange(np.prod(shape)).reshape(shape) % 100 - 7
    stored[...] = values.astype(stored.dtype)
    return stored, np.asarray(stored[...])


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "i2"])
@pytest.mark.parametrize("shape", [(25, 3), (25,), (25, 2, 2)])
def test_plain_chunks_are_read_straight_into_place_and_as_zarr_reads_them(tmp_path, dtype, shape):
    stored, values = plain(tmp_path, shape, dtype=dtype)
    for a, b in ((0, 25), (0, 10), (10, 20), (20, 25), (3, 4), (9, 11), (8, 24), (-6, None), (0, 99)):
        for index in (slice(a, b), (slice(a, b), *(slice(0, size) for size in shape[1:]))):
            read = read_plainly(stored, index)
            assert read is not None
            assert read.dtype == values.dtype
            assert np.array_equal(read, values[a:b])
            assert read.flags.writeable


@pytest.mark.parametrize(
    "options",
    [
        {"compressors": "auto"},
        {"shards": (20, 3)},
        {"zarr_format": 2},
        {"chunks": (10, 2)},
        {"chunks": (10, 4)},
        {"dtype": ">f8"},
        {"dtype": "c16"},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    ],
    ids=str,
)
def test_chunks_that_are_not_as_in_memory_are_left_to_zarr(tmp_path, options):
    stored, values = plain(tmp_path, **options)
    assert read_plainly(stored, slice(0, 25)) is None
    assert np.array_equal(Reader(stored, "token")[0:25], values)


def test_what_is_no_run_of_whole_rows_is_left_to_zarr(tmp_path):
    stored, values = plain(tmp_path)
    for index in (3, slice(0, 20, 2), slice(5, 5), (slice(0, 5), slice(0, 2)), (slice(0, 5), 1), ...):
        assert read_plainly(stored, index) is None
        assert np.array_equal(Reader(stored, "token")[index], values[index])
    assert read_plainly(values, slice(0, 5)) is None
    assert read_plainly(zarr.create_array({}, shape=(4, 2), dtype="f8", compressors=None), slice(0, 4)) is None


def test_a_missing_plain_chunk_and_one_of_another_size_are_refused(tmp_path):
    stored, values = plain(tmp_path, fill_value=-1.0)
    (tmp_path / "c" / "1" / "0").unlink()
    with pytest.raises(nlis.MissingDataError, match="1 of 3 chunks is missing, the first holds rows 10 to 19"):
        Reader(stored, "token")[5:25]
    with pytest.warns(nlis.MissingDataWarning, match="1 of 3 chunks is missing, the first holds rows 10 to 19"):
        read = Reader(stored, "token missing", allow_missing=True)[5:25]
    assert np.array_equal(read[:5], values[5:10])
    assert (read[5:15] == -1).all()
    whole = (tmp_path / "c" / "2" / "0").read_bytes()
    for other in (whole[:-100], whole[: 5 * 3 * 8], whole + whole):  # the second has all rows there are, of five more
        (tmp_path / "c" / "2" / "0").write_bytes(other)
        with pytest.raises(nlis.DamagedDataError, match=r"chunk 'c/2/0' with rows 20 to 24 .*(reshape|size|buffer)"):
            Reader(stored, "token")[20:25]


def test_an_array_written_anew_in_other_chunks_is_not_read_as_the_one_that_was_opened(tmp_path):
    stored, _ = plain(tmp_path / "x")
    reader = Reader(stored, "token")
    shutil.rmtree(tmp_path / "x")
    plain(tmp_path / "x", (25, 6))
    with pytest.raises(ValueError, match=r"reshape|size|buffer"):
        reader[0:25]


def test_reading_a_plain_chunk_takes_the_memory_of_its_rows_once(tmp_path):
    stored = zarr.create_array(tmp_path, shape=(100_000, 10), chunks=(100_000, 10), dtype="f8", compressors=None)
    stored[...] = 1.0
    reader = Reader(stored, "token")
    reader[:10]
    tracemalloc.start()
    reader[:]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.01 * 8_000_000 + 50_000
