"""DataFrames of pandas and Dask as X, y and row weights, and their encoding: names, order, kinds, missing cells, reads."""

import datetime
import decimal
import json
import pickle
import warnings

import numpy as np
import pytest
from counting import Tasks, no_compute, same_bits
from refusals import check as check_error

import dask_nlis as nlis

pd = pytest.importorskip("pandas")

LINEAR = nlis.Problem(nlis.Linear())
N = 60
FEATURES = ["a", "b", "c", "d"]


def table(rng):
    return pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "b": rng.integers(0, 9, N),
            "c": rng.random(N) > 0.5,
            "d": pd.array(rng.integers(0, 5, N), dtype="Int32"),
            "y": rng.normal(size=N).astype("f4"),
            "v": rng.random(N),
        },
        index=pd.date_range("2020", periods=N),
    )


def mixed(rng):
    """A table with a category that only the last rows have."""
    found = table(rng).drop(columns=["b", "d"])
    found["cut"] = pd.Categorical(rng.choice(["ideal", "fair"], N), categories=["fair", "good", "ideal"])
    found["town"] = rng.choice(["Ur", "Rom"], N)
    found.loc[found.index[-1], "town"] = "Aa"
    return found


def parts(frame, npartitions=4):
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=npartitions)


def scores_of(x, y, v):
    A = nlis.reference_matrix(LINEAR, x, y, sample_weight=v)
    return A, nlis.leverage_scores(A, nlis.factorize(A))


# -- Tables of numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.adapters
def test_a_dask_table_goes_in_as_it_is_and_is_counted_once_together_with_labels_and_weights(rng, caplog):
    frame = table(rng)
    lazy = parts(frame)
    with Tasks() as tasks:
        A = nlis.reference_matrix(LINEAR, lazy[FEATURES], lazy["y"], sample_weight=lazy["v"])
    assert tasks.computes == 1
    assert tasks.labels == {"nlis-sizes": 12}  # a partition of each of three, read and counted in one task
    with Tasks() as tasks:
        factor = nlis.factorize(A)
    assert tasks.computes == 1
    assert tasks.labels["nlis-factor"] == 4
    assert tasks.labels["nlis-table"] == 0  # read inside the task that uses it
    with no_compute():
        again = nlis.reference_matrix(LINEAR, lazy[FEATURES], lazy["y"], sample_weight=lazy["v"])
        scores = nlis.leverage_scores(again, factor)
    assert again == A
    assert A.columns[:5] == (*FEATURES, "intercept")
    assert scores.chunks == ((15, 15, 15, 15),)
    plain = frame[FEATURES].astype(float).to_numpy(), frame["y"].to_numpy(), frame["v"].to_numpy()
    _, expected = scores_of(*plain)
    np.testing.assert_allclose(scores.compute(), expected, rtol=1e-12)
    assert len([each for each in caplog.records if "read once to count rows" in each.message]) == 3


@pytest.mark.adapters
def test_scores_of_a_dask_table_become_a_column_of_it(rng):
    lazy = parts(table(rng))
    _, scores = scores_of(lazy[FEATURES], lazy["y"], None)
    found = lazy.assign(score=scores).compute()
    assert same_bits(found["score"].to_numpy(), scores.compute())
    assert list(found.index) == list(table(rng).index)


@pytest.mark.adapters
def test_the_five_words_on_a_dask_table_are_those_on_the_same_rows_in_memory(rng):
    frame = table(rng)
    lazy = parts(frame)
    _, scores = scores_of(lazy[FEATURES], lazy["y"], None)
    sample = nlis.draw(scores, 20, seed=3)
    X_s, y_s = sample.take(lazy[FEATURES], lazy["y"])
    rows = sample.indices
    assert same_bits(X_s, frame[FEATURES].astype(float).to_numpy()[rows])
    assert same_bits(y_s, frame["y"].to_numpy(np.float64)[rows])
    fit = nlis.refit(LINEAR, X_s, y_s, sample)
    assert fit.names == (*FEATURES, "intercept")
    job = nlis.run(LINEAR, lazy[FEATURES], lazy["y"], size=30, seed=0)
    other = nlis.run(LINEAR, frame[FEATURES], frame["y"], size=30, seed=0, block_bytes=15 * 8 * 4)
    assert job.sample.indices.tolist() == other.sample.indices.tolist()
    np.testing.assert_allclose(job.fit.theta, other.fit.theta, rtol=1e-10)
    top = nlis.top_rows(scores, 3, X=lazy[FEATURES])
    assert same_bits(top.X, frame[FEATURES].astype(float).to_numpy()[top.indices])


@pytest.mark.adapters
@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_filtered_rows_of_a_csv_file_are_numbered_anew(rng, tmp_path, request, where):
    """Case A26 for tables: two partitions are emptied by the filter."""
    dd = pytest.importorskip("dask.dataframe")
    if where == "cluster":
        request.getfixturevalue("cluster")
    frame = table(rng)[["a", "b", "y"]].astype(float).reset_index(drop=True)
    frame["part"] = np.arange(N) // 15
    for k in range(4):
        frame[frame["part"] == k].to_csv(tmp_path / f"{k}.csv", index=False)
    lazy = dd.read_csv([str(tmp_path / f"{k}.csv") for k in range(4)])
    kept = lazy[lazy["part"] % 2 == 1]
    _, scores = scores_of(kept[["a", "b"]], kept["y"], None)
    assert scores.chunks == ((0, 15, 0, 15),)
    rows = frame[frame["part"] % 2 == 1]
    _, expected = scores_of(rows[["a", "b"]].to_numpy(), rows["y"].to_numpy(), None)
    np.testing.assert_allclose(scores.compute(), expected, rtol=1e-12)


@pytest.mark.adapters
def test_missing_cells_of_nullable_columns_are_named_or_left_out(rng):
    frame = table(rng)
    frame.loc[frame.index[17], "d"] = pd.NA
    lazy = parts(frame)
    A = nlis.reference_matrix(LINEAR, lazy[FEATURES], lazy["y"])
    with pytest.raises(nlis.NonFiniteError, match=r"column 3 \('d'\).*at row 17 "):
        nlis.factorize(A)
    dropped = nlis.reference_matrix(LINEAR, lazy[FEATURES], lazy["y"], missing="drop")
    factor = nlis.factorize(dropped)
    assert factor.n_dropped == 1
    assert nlis.leverage_scores(dropped, factor).compute()[17] == 0


@pytest.mark.adapters
def test_rows_that_a_shuffle_may_reorder_are_warned_of_and_persisted_ones_are_not(rng):
    lazy = parts(table(rng)[["a", "b", "y"]])
    with pytest.warns(nlis.PerformanceWarning, match="X is a table after a shuffle.*persist"):
        nlis.norm_scores(nlis.reference_matrix(LINEAR, lazy.shuffle("b")[["a", "b"]]))
    kept = lazy.shuffle("b").persist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        A, scores = scores_of(kept[["a", "b"]], kept["y"], None)
    rows = kept.compute()
    assert A.shape == (N, 4)
    np.testing.assert_allclose(scores.compute(), scores_of(rows[["a", "b"]], rows["y"], None)[1], rtol=1e-12)


@pytest.mark.adapters
def test_many_tiny_partitions_name_the_call_that_joins_them(rng, monkeypatch):
    from dask_nlis.intake import rows

    monkeypatch.setattr(rows, "_MANY_BLOCKS", 3)
    lazy = parts(table(rng), 6)
    with pytest.warns(nlis.PerformanceWarning, match=r"call X.repartition\(npartitions=1\)"):
        nlis.reference_matrix(LINEAR, lazy[FEATURES])


@pytest.mark.adapters
@pytest.mark.parametrize("kind", ["text", "dates", "category"])
def test_columns_that_are_no_numbers_are_named_before_any_compute(rng, kind):
    frame = table(rng)
    frame["bad"] = {
        "text": lambda: ["x"] * N,
        "dates": lambda: pd.date_range("2020", periods=N),
        "category": lambda: pd.Categorical(["x"] * N),
    }[kind]()
    lazy = parts(frame)
    with no_compute(), pytest.raises(nlis.InputTypeError, match=r"X column 'bad' has dtype .*from_dataframe") as caught:
        nlis.reference_matrix(LINEAR, lazy[["a", "bad"]])
    check_error(caught.value, nlis.InputTypeError)
    with no_compute(), pytest.raises(nlis.InputTypeError, match="y column 'bad' has dtype"):
        nlis.reference_matrix(LINEAR, lazy[["a"]], lazy["bad"])


# -- Tables with columns of all kinds -------------------------------------------------------------------------------------

NAMES = ("a", "c", "cut=good", "cut=ideal", "town=Rom", "town=Ur")


def expected_features(frame):
    """By pandas' own dummies, of the whole table at once."""
    dummies = pd.get_dummies(frame[["a", "c", "cut", "town"]], prefix_sep="=", drop_first=True, dtype=float)
    return dummies.astype(float)


def test_categories_and_text_of_a_table_become_columns_of_0_and_1(rng):
    frame = mixed(rng)
    with no_compute():
        X, y, v, encoding = nlis.from_dataframe(frame, target="y", sample_weight="v")
    pd.testing.assert_frame_equal(X, expected_features(frame))
    pd.testing.assert_series_equal(y, frame["y"])
    pd.testing.assert_series_equal(v, frame["v"])
    assert encoding.feature_names == tuple(X.columns) == NAMES
    assert encoding.kinds == ("number", "bool", "category", "category")
    assert encoding.categories == (None, None, ("fair", "good", "ideal"), ("Aa", "Rom", "Ur"))
    A, scores = scores_of(X, y, v)
    assert A.columns[:7] == (*NAMES, "intercept")
    assert list(scores.index) == list(frame.index)
    every = nlis.from_dataframe(frame, "cut", drop_first=False)
    assert tuple(every.X.columns) == ("cut=fair", "cut=good", "cut=ideal")
    assert every.X.sum(axis=1).eq(1).all()
    assert every.y is every.sample_weight is None


@pytest.mark.adapters
def test_every_partition_gets_the_columns_of_the_whole_table(rng):
    """Case A30: a category that the last partition alone has, of text, declared and not declared."""
    frame = mixed(rng)
    lazy = parts(frame)
    with Tasks() as tasks:
        X, y, _v, encoding = nlis.from_dataframe(lazy, target="y", sample_weight="v")
    assert tasks.computes == 1  # for the text alone
    assert sum(tasks.labels.values()) == 4
    assert encoding == nlis.from_dataframe(frame, target="y", sample_weight="v").encoding
    assert [list(part.compute().columns) for part in X.partitions] == [list(NAMES)] * 4
    pd.testing.assert_frame_equal(X.compute(), expected_features(frame))
    A = nlis.reference_matrix(LINEAR, X, y)
    with Tasks() as tasks:
        nlis.factorize(A)
    assert tasks.labels["nlis-factor"] == 4
    assert sum(tasks.labels.values()) == 5
    unknown = lazy.assign(cut=lazy["cut"].cat.as_unknown())
    assert nlis.from_dataframe(unknown, ["cut"]).encoding.categories == (("fair", "ideal"),)  # those that occur
    with no_compute():
        nlis.from_dataframe(lazy[["a", "c", "cut"]])


@pytest.mark.adapters
def test_the_recipe_of_two_csv_parts_has_the_same_columns_in_both(tmp_path):
    """Case A30: dummies made part by part would be [a, b] and [b, c]."""
    dd = pytest.importorskip("dask.dataframe")
    (tmp_path / "1.csv").write_text("size,city\n1,a\n2,b\n")
    (tmp_path / "2.csv").write_text("size,city\n3,b\n4,c\n")
    lazy = dd.read_csv([str(tmp_path / "1.csv"), str(tmp_path / "2.csv")])
    X = nlis.from_dataframe(lazy).X
    assert [list(part.compute().columns) for part in X.partitions] == [["size", "city=b", "city=c"]] * 2
    assert X.compute().to_numpy().tolist() == [[1, 0, 0], [2, 1, 0], [3, 1, 0], [4, 0, 1]]
    (tmp_path / "2.csv").write_text("size,city\n-,b\n4,c\n")
    dirty = dd.read_csv([str(tmp_path / "1.csv"), str(tmp_path / "2.csv")], dtype={"size": str})
    with pytest.raises(nlis.InputTypeError, match="column 'size' holds '-' at row 2 beside numbers"):
        nlis.from_dataframe(dirty)


@pytest.mark.adapters
def test_names_of_rows_in_a_dask_table_are_refused_by_the_first_part_that_has_too_many():
    lazy = parts(pd.DataFrame({"id": [f"r{k}" for k in range(400)]}))
    with pytest.raises(
        nlis.InputError, match="column 'id' has 100 different values in 100 rows, above max_categories=99"
    ):
        nlis.from_dataframe(lazy, max_categories=99)
    with pytest.raises(
        nlis.InputError, match="column 'id' has 400 different values in 400 rows, above max_categories=399"
    ):
        nlis.from_dataframe(lazy, max_categories=399)
    assert nlis.from_dataframe(lazy, max_categories=400).X.shape[1] == 399


def test_other_rows_are_encoded_in_the_same_way(rng):
    frame = mixed(rng)
    encoding = nlis.from_dataframe(frame, target="y", sample_weight="v").encoding
    few = frame.iloc[[3, 5]].drop(columns=["y", "v"])[["town", "cut", "c", "a"]]
    pd.testing.assert_frame_equal(encoding.encode(few), expected_features(frame).iloc[[3, 5]])
    few["town"] = ["Rom", None]
    assert np.isnan(encoding.encode(few).to_numpy()[1, -2:]).all()
    assert np.isfinite(encoding.encode(few).to_numpy()[1, :-2]).all()


def test_an_encoding_is_a_value_and_survives_json(rng):
    frame = mixed(rng)
    encoding = nlis.from_dataframe(frame, target="y").encoding
    assert pickle.loads(pickle.dumps(encoding)) == encoding == nlis.from_dataframe(frame, target="y").encoding
    assert hash(encoding) == hash(nlis.from_dataframe(frame, target="y").encoding)
    assert encoding != nlis.from_dataframe(frame, target="v").encoding
    assert nlis.Encoding.from_dict(json.loads(json.dumps(encoding.to_dict()))) == encoding
    assert repr(encoding).startswith("Encoding(feature_names=('a', 'c', 'v', 'cut=good', ")
    for name, value in {
        "columns": ["a"],
        "kinds": "number",
        "drop_first": 1,
        "n_rows": "3",
        "categories": [None],
    }.items():
        with pytest.raises(nlis.InputError, match=r"Encoding is stored with"):
            nlis.Encoding.from_dict(encoding.to_dict() | {name: value})


REFUSED = {
    "a dash among numbers": ({"a": ["1", "-", "3"]}, {}, "InputTypeError", "column 'a' holds '-' at row 1 beside numbers"),
    "text and numbers": ({"a": ["x", 2, None]}, {}, "InputTypeError", "column 'a' holds values of several kinds.* '2' at row 1"),
    "dates as objects": ({"a": [None, datetime.date(2020, 1, 2)]}, {}, "InputTypeError", "'2020-01-02' at row 1, neither"),
    "dates": ({"a": pd.to_datetime(["2020-01-01"])}, {}, "InputTypeError", "column 'a' has dtype datetime64.*leave it out"),
    "complex": ({"a": [1j]}, {}, "InputTypeError", "column 'a' has dtype complex128"),
    "lists": ({"a": [[1, 2]]}, {}, "InputTypeError", r"'\[1, 2\]' at row 0, neither number nor text"),
    "names of rows": ({"a": [f"r{k}" for k in range(101)]}, {}, "InputError", "column 'a' has 101 different values in 101 rows"),
    "few allowed": ({"a": list("xyz")}, {"max_categories": 2}, "InputError", "3 different values .*max_categories=2"),
    "declared": ({"a": pd.Categorical(["x"], list("xyz"))}, {"max_categories": 2}, "InputError", "3 different values, above"),
    "text as the target": ({"a": [1], "b": ["x"]}, {"target": "b"}, "InputTypeError", "target='b' has dtype .*numbers"),
    "text as weights": ({"a": [1], "b": ["x"]}, {"sample_weight": "b"}, "InputTypeError", "sample_weight='b' has dtype"),
    "no such target": ({"a": [1]}, {"target": "b"}, "InputError", "target: table has no column 'b'; it has 'a'"),
    "no such feature": ({"a": [1]}, {"features": ["b"]}, "InputError", "features: table has no column 'b'; it has 'a'"),
    "the target as a feature": ({"a": [1]}, {"features": "a", "target": "a"}, "InputError", "names 'a', which is target"),
    "twice": ({"a": [1]}, {"features": ["a", "a"]}, "InputError", "features names 'a' twice"),
    "no features": ({"a": [1]}, {"target": "a"}, "InputError", "features are none"),
    "features of one name": ({"a": ["x", "b"], "a=x": [1, 2]}, {}, "InputError", "two features 'a=x'"),
    "a large integer": ({"a": [1, 2**60]}, {}, "InputError", "column 'a' holds 1152921504606846976 at row 1, beyond"),
    "drop_first": ({"a": [1]}, {"drop_first": "no"}, "InputTypeError", "drop_first='no'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_table_of_features_is_refused_in_one_line(case):
    columns, how, kind, says = REFUSED[case]
    error = getattr(nlis, kind)
    with pytest.raises(error, match=says) as caught:
        nlis.from_dataframe(pd.DataFrame(columns), **how)
    check_error(caught.value, error)


def test_two_columns_of_one_name_and_unknown_categories_are_refused(rng):
    with pytest.raises(nlis.InputError, match="table has two columns 'a'"):
        nlis.from_dataframe(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    encoding = nlis.from_dataframe(pd.DataFrame({"a": [1.0, 2.0], "t": ["x", "y"]})).encoding
    for other, says in {
        "'new' at row 1, no category": {"a": [1, 2], "t": ["x", "new"]},
        "column 'a' holds category in place of number": {"a": ["x", "y"], "t": ["x", "y"]},
        "has no column 't'; it has 'a'": {"a": [1, 2]},
    }.items():
        with pytest.raises((nlis.InputError, nlis.InputTypeError), match=other):
            encoding.encode(pd.DataFrame(says))


def test_numbers_among_objects_are_numbers():
    frame = pd.DataFrame({"a": [decimal.Decimal("1.5"), None, 2], "b": [True, None, False], "c": ["007", "008", None]})
    X, *_, encoding = nlis.from_dataframe(frame)
    assert encoding.kinds == ("number", "bool", "category")
    np.testing.assert_array_equal(X.to_numpy(), [[1.5, 1, 0], [np.nan, np.nan, 1], [2, 0, np.nan]])


@pytest.mark.adapters
def test_a_table_that_a_cluster_holds_is_used_where_it_lies(rng, client):
    frame = table(rng)
    kept = parts(frame).persist()
    A, scores = scores_of(kept[FEATURES], kept["y"], kept["v"])
    _, expected = scores_of(frame[FEATURES], frame["y"], frame["v"])
    np.testing.assert_allclose(scores.compute(), expected.to_numpy(), rtol=1e-12)
    job = nlis.run(LINEAR, kept[FEATURES], kept["y"], size=30, seed=0)
    assert job.fit.names == A.columns[:5]
    moved = parts(frame).shuffle("b").persist()
    _, scores = scores_of(moved[FEATURES], moved["y"], None)
    rows = moved.compute()
    np.testing.assert_allclose(scores.compute(), scores_of(rows[FEATURES], rows["y"], None)[1], rtol=1e-12)
    X, y, _, encoding = nlis.from_dataframe(parts(mixed(rng)), target="y", sample_weight="v")
    assert nlis.run(LINEAR, X, y, size=30, seed=0).fit.names == (*encoding.feature_names, "intercept")


@pytest.mark.adapters
def test_a_run_on_an_equal_table_is_taken_up_again_and_refused_on_another(rng, tmp_path):
    frame = table(rng)

    def job(frame, **how):
        lazy = parts(frame)
        return nlis.run(LINEAR, lazy[FEATURES], lazy["y"], size=30, seed=0, store=tmp_path / "run.zarr", **how)

    first = job(frame)
    assert job(frame.copy(), resume=True).fit == first.fit
    frame.iloc[3, 0] += 1
    with pytest.raises(nlis.FingerprintMismatchError, match="data"):
        job(frame, resume=True)
