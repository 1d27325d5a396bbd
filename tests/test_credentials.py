"""What a URL or options hold of secrets shows nowhere (R6.3): the canary is looked for in all that leaves the library."""

import logging
import os
import pickle
import traceback
import warnings

import dask
import fsspec
import numpy as np
import pytest
import zarr
from counting import rows_of
from zarr.storage import FsspecStore

import dask_nlis as nlis
from dask_nlis import cli
from dask_nlis.errors import InputError, NlisError, NlisWarning
from dask_nlis.redact import redacted, scrubbed

CANARY = "s3cret"
X, Y = rows_of(67, 200, 3)
PROBLEM = nlis.Problem(nlis.SingleIndex(nlis.Tanh()), constraint=nlis.Ball(5.0))

URLS = {
    "user": f"memory://me:{CANARY}@bucket/x.zarr",
    "password alone": f"memory://{CANARY}@bucket/x.zarr",
    "password with a slash": f"memory://me:a/{CANARY}@bucket/x.zarr",
    "query": f"memory://bucket/x.zarr?X-Amz-Signature={CANARY}",
    "bare query": f"memory://bucket/x.zarr?{CANARY}",
    "second value": f"https://host.invalid/x.zarr?versionId=1&sig={CANARY}&z=1",
    "fragment": f"memory://bucket/x.zarr#token={CANARY}",
    "chained": f"simplecache::memory://me:{CANARY}@bucket/x.zarr",
    "chained with a query": f"simplecache::https://host.invalid/x.zarr?token={CANARY}",
    "file": f"file:///tmp/x.h5?AccountKey={CANARY}",
    "NPY": f"memory://me:{CANARY}@bucket/x.npy",
    "table": f"memory://me:{CANARY}@bucket/x.csv",
    "upper case": f"MEMORY://me:{CANARY}@bucket/x.zarr",
}

SAMPLE = nlis.draw(np.ones(200), 10, seed=0)

DOORS = {
    "open_rows": lambda url: nlis.open_rows(url, X="X"),
    "matrix": lambda url: nlis.reference_matrix(PROBLEM, url, Y),
    "labels": lambda url: nlis.reference_matrix(PROBLEM, X, url),
    "weights": lambda url: nlis.reference_matrix(PROBLEM, X, Y, sample_weight=url),
    "take": lambda url: SAMPLE.take(url),
    "draw": lambda url: nlis.draw(url, 10),
    "store": lambda url: nlis.run(PROBLEM, X, Y, size=50, seed=0, store=url),
    "open_run": nlis.open_run,
    "save": SAMPLE.save,
    "load": nlis.Sample.load,
}


def everything_of(error):
    """All text an error and what it came from can show, its traceback with the names of files."""
    found, waiting = [], [error]
    while waiting:
        one = waiting.pop()
        found += [str(one), repr(one), repr(one.args), *getattr(one, "__notes__", []), repr(vars(one))]
        found.append(repr(getattr(one, "filename", None)))
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    return found + traceback.format_exception(error) + [repr(traceback.TracebackException.from_exception(error).stack)]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", URLS)
def test_no_error_or_log_shows_what_a_url_holds(door, kind, caplog):
    url = URLS[kind]
    with caplog.at_level(logging.DEBUG), pytest.raises(NlisError) as caught:
        DOORS[door](url)
    shown = everything_of(caught.value)
    assert not [text for text in shown if CANARY in text]
    assert CANARY not in caplog.text


def test_the_shell_shows_no_secret(capsys):
    for words in (
        ["plan", URLS["query"], "--model", "linear"],
        ["plan", URLS["user"], "--model", "linear"],
        ["plan", "nowhere.zarr", "--problem", URLS["user"] + ".toml"],
        ["plan", "nowhere.zarr", "--problem", URLS["query"]],
    ):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        assert left.value.code == 2
        printed = capsys.readouterr()
        assert CANARY not in printed.out + printed.err


@pytest.fixture
def bucket(request):
    """A store in fsspec's memory, written without options."""
    name = f"nlis-{abs(hash(request.node.name))}"
    group = zarr.open_group(FsspecStore.from_url(f"memory://{name}/x.zarr"), mode="w")
    group.create_array("X", data=X, chunks=(50, 3))
    group.create_array("y", data=Y, chunks=(50,))
    yield f"memory://{name}/x.zarr"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def shown_by(*things):
    """What nouns and Dask collections show of themselves: repr, HTML, keys and layers of their graphs."""
    for thing in things:
        yield repr(thing)
        yield str(thing)
        yield getattr(thing, "_repr_html_", str)()
        graph = getattr(thing, "dask", None)
        if graph is not None:
            yield repr(list(graph.keys()))
            yield repr(graph)
            yield graph._repr_html_()
            yield repr([layer.collection_annotations for layer in graph.layers.values()])
            yield dask.base.tokenize(thing)


def test_options_of_a_store_show_in_nothing_that_a_run_makes(bucket, tmp_path, caplog):
    store = FsspecStore.from_url(bucket, storage_options={"token": CANARY, "secret": CANARY}, read_only=True)
    group = zarr.open_group(store, mode="r")
    with caplog.at_level(logging.DEBUG):
        x, y = group["X"], group["y"]
        A = nlis.reference_matrix(PROBLEM, x, y)
        factor = nlis.factorize(A)
        scores = nlis.leverage_scores(A, factor)
        job = nlis.run(PROBLEM, x, y, size=60, seed=0, store=tmp_path / "run.zarr")
        plan = nlis.plan(PROBLEM, x, y, size=60, calibrate=False)
        again = nlis.open_run(tmp_path / "run.zarr")
    nouns = (
        A,
        A.to_dask_array(),
        factor,
        scores,
        job,
        job.sample,
        job.fit,
        job.fit.summary(),
        job.manifest,
        plan,
        again,
    )
    assert not [text for text in shown_by(*nouns, A.token, again.scores) if CANARY in text]
    assert CANARY not in caplog.text
    files = [path for path in (tmp_path / "run.zarr").rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if CANARY.encode() in path.read_bytes() or CANARY in os.fspath(path)]


def test_a_url_travels_as_itself_and_leaves_credentials_where_they_are_configured(bucket):
    """fsspec's configuration holds the secret; a pickled graph does not, and reads all the same."""
    fsspec.config.conf["memory"] = {"token": CANARY}
    try:
        opened, labels = nlis.open_rows(bucket, X="X", y="y")
        store = opened.dask[next(iter(opened.dask))]
        sent = pickle.dumps((dict(opened.dask), dict(labels.dask)))
        # As it would be with a store as zarr opens it: what the test would find.
        assert CANARY.encode() in pickle.dumps(zarr.open(bucket, mode="r")["X"])
    finally:
        del fsspec.config.conf["memory"]
    assert CANARY.encode() not in sent
    assert bucket.encode() in sent
    assert CANARY not in repr(store)
    graph, _ = pickle.loads(sent)
    again = dask.get(graph, [(opened.name, k, 0) for k in range(opened.numblocks[0])])
    assert np.array_equal(np.concatenate(again), X)


class Telling(FsspecStore):
    """A store whose errors tell all it knows, as those of HTTP libraries do."""

    async def get(self, key, *args, **kwargs):
        if key.endswith(("json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")):
            return await super().get(key, *args, **kwargs)
        error = PermissionError(13, "denied", f"https://me:{CANARY}@host/{key}?sig={CANARY}")
        error.add_note(f"options {{'secret': '{CANARY}'}}")
        error.request = {"url": f"https://host/?token={CANARY}"}
        raise error from RuntimeError(f"403 for https://host/{key}?X-Amz-Signature={CANARY}&X-Amz-Date=1")


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_errors_of_a_store_inside_a_task_are_cleaned_with_all_they_came_from(bucket, scheduler, caplog, monkeypatch):
    plain = FsspecStore.from_url(bucket, read_only=True)
    group = zarr.open_group(Telling(plain.fs, read_only=True, path=plain.path), mode="r")
    A = nlis.reference_matrix(PROBLEM, group["X"], Y)
    with dask.config.set(scheduler=scheduler), caplog.at_level(logging.DEBUG), pytest.raises(OSError) as caught:  # noqa: PT011
        nlis.factorize(A)
    shown = everything_of(caught.value)
    assert any("host" in text for text in shown)  # the error of the store is among them
    assert not [text for text in shown if CANARY in text]
    assert CANARY not in caplog.text


SHOWN = {
    f"s3://key:{CANARY}@bucket/x": "s3://***@bucket/x",
    f"s3:/key:{CANARY}@bucket/x": "s3:/***@bucket/x",
    f"'https://h/x?sig={CANARY}&v=1'": "'https://h/x?sig=***&v=***'",
    f"DefaultEndpointsProtocol=https;AccountName=me;AccountKey={CANARY}==;X=1": (
        "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=***;X=1"
    ),
    f"{{'key': 'id', 'secret': '{CANARY}', 'anon': False}}": "{'key': 'id', 'secret': '***', 'anon': False}",
    f"Authorization: Bearer {CANARY}": "Authorization: Bearer ***",
    f"aws_secret_access_key = {CANARY}": "aws_secret_access_key = ***",
    f"x.zarr?X-Amz-Credential={CANARY}": "x.zarr?X-Amz-Credential=***",
    f"password={CANARY}": "password=***",
}


@pytest.mark.parametrize("text", SHOWN)
def test_redacted_hides_the_secret_and_leaves_the_rest(text):
    assert redacted(text) == SHOWN[text]
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "X has shape (20, 3): no rows", "s3://bucket/user@example.org/x.zarr", "a:b, c=d; e?f", "C:/data/x.zarr", "", "size=5, seed=1",
        "theta[3]=nan is not finite", "https://host/path", "tokens of the matrices: 3", "noun='Ball' is not known; allowed: Box",
    ],
)  # fmt: skip
def test_redacted_leaves_other_text_alone(text):
    assert redacted(text) == text


def test_errors_and_warnings_of_ours_are_cleaned_however_they_are_made():
    for made in (InputError, nlis.MissingDataError, nlis.StoreExistsError):
        assert CANARY not in str(made(f"path='s3://me:{CANARY}@bucket/x' is not there"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(NlisWarning(f"s3://me:{CANARY}@bucket is slow"), stacklevel=1)
        warnings.warn(f"s3://me:{CANARY}@bucket is slow", NlisWarning, stacklevel=1)
    assert not [str(each.message) for each in caught if CANARY in str(each.message)]


def test_scrubbed_goes_through_groups_and_circles():
    inner = OSError(5, "no", f"s3://a:{CANARY}@b")
    outer = ExceptionGroup("two tasks", [inner, ValueError(b"bytes")])
    inner.__context__ = outer
    assert any(CANARY in text for text in everything_of(outer))
    assert scrubbed(outer) is outer
    assert not [text for text in everything_of(outer) if CANARY in text]
