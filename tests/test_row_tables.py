"""The rows that stand out: exactly those of a full sort, with their features."""

import dask.array as da
import numpy as np
import pytest
import zarr
from counting import CountingArray, Tasks, cut, no_compute, rows_of

import dask_nlis as nlis

N = 740


def scores_with_ties(rng, levels=25):
    """Few different values, so that every border of a table lies among ties."""
    return rng.integers(0, levels, N) / levels


def full_sort(scores, k, largest):
    """Finite rows by score, then by row number, the slow way."""
    rows = [row for row in range(len(scores)) if np.isfinite(scores[row])]
    return sorted(rows, key=lambda row: (-scores[row] if largest else scores[row], row))[:k]


FORMS = {
    "1 block": lambda s: da.from_array(s, N),
    "37 blocks": lambda s: da.from_array(s, 20),
    "blocks of one": lambda s: da.from_array(s[:60], 1),
    "irregular blocks": lambda s: da.from_array(s, (cut(N, (1, 300, 7)),)),
    "an empty block": lambda s: da.from_array(s, ((0, 400, 0, 340),)),
    "NumPy": lambda s: s,
    "list": lambda s: s.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 20, 59])
def test_a_table_is_the_head_of_a_full_sort_with_ties_by_row(form, largest, k, rng):
    scores = scores_with_ties(rng)
    given = FORMS[form](scores)
    seen = np.asarray(given)
    table = (nlis.top_rows if largest else nlis.bottom_rows)(given, k)
    expected = full_sort(seen, k, largest)
    assert table.indices.tolist() == expected
    assert table.scores.tolist() == seen[expected].tolist()
    assert (table.indices.dtype, len(table), table.n_non_finite) == (np.int64, k, 0)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("form", ["1 block", "37 blocks"])
def test_scores_that_are_no_numbers_are_counted_apart(largest, form, rng):
    scores = scores_with_ties(rng)
    scores[[3, 100, 101]] = np.nan, np.inf, -np.inf
    table = (nlis.top_rows if largest else nlis.bottom_rows)(FORMS[form](scores), 20)
    assert table.indices.tolist() == full_sort(scores, 20, largest)
    assert table.n_non_finite == 3
    assert "n_non_finite=3" in repr(table)


@pytest.mark.parametrize("find", [nlis.top_rows, nlis.bottom_rows])
def test_more_rows_than_there_are_clips_with_a_warning(find):
    with pytest.warns(nlis.NlisWarning, match="k=9 exceeds the 3 finite scores"):
        table = find(np.array([0.5, np.nan, 0.25, 0.75]), 9)
    assert sorted(table.indices.tolist()) == [0, 2, 3]


@pytest.mark.parametrize("find", [nlis.top_rows, nlis.bottom_rows])
def test_infinitely_many_bad_scores_leave_an_empty_table(find):
    with pytest.warns(nlis.NlisWarning, match="k=20 exceeds the 0 finite scores"):
        table = find(da.full(30, np.nan, chunks=7))
    assert (len(table), table.n_non_finite) == (0, 30)


def test_twenty_rows_are_the_default_and_integers_rank_as_numbers():
    scores = np.arange(100, dtype=np.uint8)  # the negative of an unsigned integer wraps
    assert nlis.top_rows(scores).indices.tolist() == list(range(99, 79, -1))
    assert nlis.bottom_rows(scores).indices.tolist() == list(range(20))


@pytest.mark.parametrize(
    "kind",
    ["numpy", "dask", "dask in other blocks", "zarr", "pandas", pytest.param("xarray", marks=pytest.mark.adapters)],
)
def test_features_of_the_rows_come_along_in_order(kind, rng, tmp_path):
    scores = scores_with_ties(rng)
    x, _ = rows_of(51, N, 3)
    names = ("x0", "x1", "x2")
    given = {
        "numpy": lambda: x,
        "dask": lambda: da.from_array(x, (20, 3)),
        "dask in other blocks": lambda: da.from_array(x, (33, 2)),
        "zarr": lambda: zarr.create_array(tmp_path / "x", data=x, attributes={"feature_names": ["a", "b", "c"]}),
        "pandas": lambda: pytest.importorskip("pandas").DataFrame(x, columns=["a", "b", "c"]),
        "xarray": lambda: pytest.importorskip("xarray").DataArray(
            x, dims=("row", "f"), coords={"f": ["a", "b", "c"], "row": np.arange(N) + 5}
        ),
    }[kind]()
    table = nlis.top_rows(da.from_array(scores, 20), 30, X=given)
    expected = full_sort(scores, 30, True)
    assert np.array_equal(table.X, x[expected])
    assert table.names == (names if kind in ("numpy", "dask", "dask in other blocks") else ("a", "b", "c"))


def test_only_the_blocks_of_the_rows_are_read():
    x, _ = rows_of(52, N, 3)
    counted = CountingArray(x)
    scores = np.zeros(N)
    scores[[5, 6, 700]] = 1, 2, 3
    with Tasks() as tasks:
        nlis.top_rows(da.from_array(scores, 20), 3, X=counted.dask(20))
    assert np.unique(np.flatnonzero(counted.rows) // 20).tolist() == [0, 35]
    assert counted.rows.max() == 1
    assert tasks.labels["nlis-gather"] == 2


@pytest.mark.parametrize("chunks", [None, (20, 3, 2), (50, 1, 2)])
def test_rows_of_images_come_along_as_they_are_shaped(chunks, rng):
    scores, x = rng.permutation(N) / N, rng.standard_normal((N, 3, 2))
    table = nlis.top_rows(scores, 4, X=x if chunks is None else da.from_array(x, chunks))
    rows = full_sort(scores, 4, True)
    np.testing.assert_array_equal(table.X, x[rows])
    assert table.names == tuple(f"x{j}" for j in range(6))
    pytest.importorskip("pandas")
    np.testing.assert_array_equal(table.to_frame().to_numpy()[:, 2:], x[rows].reshape(4, 6))
    with pytest.raises(nlis.InputError, match=r"X has shape \(740,\)"):
        nlis.top_rows(scores, 4, X=x[:, 0, 0])


def test_lazy_scores_are_computed_once_and_ranked_where_they_are():
    x, y = rows_of(53, N, 3)
    counted = CountingArray(x)
    A = nlis.reference_matrix(nlis.Problem(nlis.Linear()), counted.dask(20), y)
    factor = nlis.factorize(A)
    scores = nlis.leverage_scores(A, factor)
    whole = scores.compute()
    counted.reads()
    for find, largest in ((nlis.top_rows, True), (nlis.bottom_rows, False)):
        assert find(scores, 20).indices.tolist() == full_sort(whole, 20, largest)
        assert counted.reads() == 1


def test_to_frame_has_row_score_and_features(rng):
    pd = pytest.importorskip("pandas")
    scores = scores_with_ties(rng)
    x, _ = rows_of(54, N, 2)
    frame = nlis.top_rows(scores, 5, X=pd.DataFrame(x, columns=["age", "rent"])).to_frame()
    rows = full_sort(scores, 5, True)
    expected = pd.DataFrame({"row": rows, "score": scores[rows], "age": x[rows, 0], "rent": x[rows, 1]})
    pd.testing.assert_frame_equal(frame, expected)
    assert list(nlis.bottom_rows(scores, 5).to_frame().columns) == ["row", "score"]


def test_pandas_scores_are_ranked_by_position():
    pd = pytest.importorskip("pandas")
    scores = pd.Series([0.1, 0.9, 0.5], index=["c", "a", "b"])
    assert nlis.top_rows(scores, 2).indices.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("k", "kind"),
    [(0, nlis.InputError), (-2, nlis.InputError), (2.0, nlis.InputTypeError), (True, nlis.InputTypeError)],
)
def test_a_number_of_rows_that_is_none_is_refused(k, kind):
    lazy = da.ones(9, chunks=3)
    for find in (nlis.top_rows, nlis.bottom_rows):
        with no_compute(), pytest.raises(kind, match=f"k={k}"):
            find(lazy, k)
