"""Runs in object storage: the bits of a local run, cut off and resumed, one writer, no secrets, and an end to every wait."""

import io
import json
import logging
import os
import random
import signal
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from http.client import HTTPConnection

import dask
import numpy as np
import pytest
import zarr
from counting import same_bits
from resuming import PROCESSES, ROWS, Reads, job, write_data

import dask_nlis as nlis
from dask_nlis.cli.main import main
from dask_nlis.objects import Address, BucketStore
from dask_nlis.store import Bucket, lock as locks

pytestmark = pytest.mark.adapters
pytest.importorskip("obstore")
pytest.importorskip("moto")
from bucket_server import KEYS, Server, settings  # noqa: E402

SECRET = KEYS["AWS_SECRET_ACCESS_KEY"]
N_ROWS, N_BLOCKS = 12 * ROWS, 12
URL = "s3://bucket/runs/"


@pytest.fixture(autouse=True, scope="module")
def keys():
    """Keys in the environment, where alone they are."""
    with pytest.MonkeyPatch.context() as patched:
        for name in os.environ:
            if name.startswith("AWS_"):
                patched.delenv(name)
        for name, value in KEYS.items():
            patched.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def made():
    """One server for all tests, with a bucket."""
    server = Server()
    _request(server, "PUT", "/bucket")
    yield server
    server.stop()


@pytest.fixture
def server(made):
    """The server without faults, as it is found by default, and tasks one after another."""
    made.clear()
    with settings(made.endpoint), dask.config.set(scheduler="sync"):
        yield made
    made.clear()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data of all runs."""
    return write_data(tmp_path_factory.mktemp("objects") / "data.zarr", n=N_ROWS)


@pytest.fixture(scope="module")
def local(data, tmp_path_factory):
    """The run on a local path."""
    with dask.config.set(scheduler="sync"):
        return job(data, tmp_path_factory.mktemp("local") / "run.zarr")


@pytest.fixture(scope="module")
def clean(made, data, local):
    """The run in a bucket, and the objects in the order in which they were written."""
    made.clear()
    with settings(made.endpoint), dask.config.set(scheduler="sync"):
        return job(data, f"{URL}clean.zarr"), [key.removeprefix("runs/clean.zarr/") for key in made.keys]


def _request(server, method, path):
    connection = HTTPConnection(server.endpoint.removeprefix("http://"))
    connection.request(
        method, path, headers={"Authorization": "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request"}
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def _line(*arguments):
    """Exit code and output of the command line."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text), pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code or 0, text.getvalue()


def place_of(url):
    return Bucket(Address.of("store", url))


def assert_same(found, expected, *, same_data=True):
    """Everything but the times; factors know which data they are of."""
    for name in ("sample", "fit", "pilot", "certificate", "total_loss", "reads", *(["factor"] if same_data else [])):
        assert getattr(found, name) == getattr(expected, name), name
    assert same_bits(found.factor.r, expected.factor.r)
    for name in ("scores", "sample_X", "sample_y"):
        assert same_bits(np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))), name
    assert same_bits(found.fit.theta, expected.fit.theta)


def test_a_run_in_a_bucket_has_the_bits_of_a_local_one(server, clean, local):
    found, keys = clean
    assert_same(found, local)
    assert found.path == f"{URL}clean.zarr"
    assert_same(nlis.open_run(found.path), local)
    # The marker is the last object, and the only one of its name; nothing of the way is left.
    assert keys[-1] == "complete.json"
    assert keys.count("complete.json") == keys.count("lock.json") == 1
    place = place_of(found.path)
    assert place.names() == {path.name for path in os.scandir(local.path)}
    manifest = json.loads(place.read("zarr.json"))["attributes"]["manifest"]
    assert manifest["fingerprint"] == local.manifest["fingerprint"]


def test_cut_off_at_any_write_it_goes_on_to_the_same_bits(server, data, clean):
    expected, keys = clean
    scored = [k for k, key in enumerate(keys) if key.startswith("work/scores-1-last/")]
    points = {"sums": 6, "scores": scored[5] + 1, "all but the marker": len(keys) - 1}
    for name, point in points.items():
        url = f"{URL}cut-{point}.zarr"
        server.clear()
        server.writes_left = point
        with pytest.raises(nlis.StoreWriteError, match=r"access is denied.*resume=True") as caught:
            job(data, url)
        assert SECRET not in str(caught.value)
        assert server.keys[-1].endswith(keys[point - 1])
        with pytest.raises(nlis.IncompleteRunError, match=r"never finished.*resume=True"):
            nlis.open_run(url)
        server.clear()
        kept = place_of(url).names("work/scores-1-last")
        with Reads() as reads:
            again = job(data, url, resume=True)
        assert_same(again, expected)
        assert again.manifest["resumed"] == 1
        # No block is scored twice: what is kept is not read again.
        rows = [f"{index.start}-{index.stop - index.start}" for index in reads.blocks]
        scorings = rows[: -N_BLOCKS if name != "all but the marker" else None]
        assert name == "sums" or not kept & set(scorings), name
        assert place_of(url).names() == place_of(expected.path).names()


def _job_in_a_process(endpoint, data, url, options):
    with settings(endpoint), dask.config.set(scheduler="threads", num_workers=2):
        job(data, url, **options)


def _start(server, data, url, **options):
    os.environ.update(KEYS)
    child = PROCESSES.Process(target=_job_with_keys, args=(dict(KEYS), server.endpoint, str(data), url, options))
    child.start()
    return child


def _job_with_keys(keys, *arguments):
    os.environ.update(keys)
    _job_in_a_process(*arguments)


def _killed_and_resumed(server, data, clean, point, before):
    url = f"{URL}killed-{uuid.uuid4().hex}.zarr"
    child = _start(server, data, url)
    server.victim = (child.pid, point, before)
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    with pytest.raises(nlis.IncompleteRunError, match="never finished"):
        nlis.open_run(url)
    assert "cut off" in _line("inspect", url)[1]
    server.clear()
    with Reads() as reads, pytest.warns(nlis.NlisWarning, match="is gone; its lock is taken over"):
        again = job(data, url, resume=True)
    assert_same(again, clean[0])
    return len(reads.blocks)


@pytest.mark.parametrize("before", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_process_that_is_killed_is_followed_by_the_next(server, data, clean, before):
    scored = [k for k, key in enumerate(clean[1]) if key.startswith("work/scores-1-last/")]
    n = _killed_and_resumed(server, data, clean, scored[7], before)
    assert n <= 2 * N_BLOCKS - 5


@pytest.mark.slow
@pytest.mark.parametrize("point", range(10))
def test_ten_more_points(point, server, data, clean):
    # Nothing is begun before the manifest, which follows the lock.
    place = random.Random(point).randrange(3, len(clean[1]))
    _killed_and_resumed(server, data, clean, place, before=point % 2 == 0)


def test_a_second_writer_is_refused_while_the_first_lives(server, data):
    url = f"{URL}locked.zarr"
    lock = locks.Lock(place_of(url), url, print)
    with pytest.raises(nlis.StoreLockedError, match=f"process {os.getpid()} on .*; wait for it"):
        job(data, url, resume=True)
    assert lock.is_mine()
    lock.release()
    assert place_of(url).names() == set()


def _leave_lock(url, **owner):
    found = locks.owner()._replace(**owner)
    place_of(url).write(locks.LOCK, json.dumps(found._asdict()).encode())
    return found


def test_one_of_several_takes_a_dead_lock_over(server):
    for k in range(5):
        url = f"{URL}dead-{k}.zarr"
        _leave_lock(url, pid=2**22 + 7)
        said = []

        def take(number, url=url, said=said):
            try:
                return locks.Lock(place_of(url), url, said.append)
            except nlis.StoreLockedError:
                return None

        with ThreadPoolExecutor(8) as pool:
            taken = [lock for lock in pool.map(take, range(8)) if lock is not None]
        assert len(taken) == len(said) == 1
        assert taken[0].is_mine()
        taken[0].release()


def test_beats_tell_who_lives_elsewhere_and_a_taken_lock_is_noticed(server, monkeypatch):
    url = f"{URL}elsewhere.zarr"
    place = place_of(url)
    found = _leave_lock(url, machine="another", host="elsewhere")
    monkeypatch.setattr(time, "time", lambda: 1.0)  # this machine's clock tells nothing
    assert locks.lives(place, found)
    monkeypatch.setattr(locks, "DEAD", -1.0)
    assert not locks.lives(place, found)
    monkeypatch.undo()
    place.delete(locks.LOCK)

    monkeypatch.setattr(locks, "BEAT", 0.02)
    lock = locks.Lock(place, url, print)
    first = place.read(locks.LOCK)
    deadline = time.monotonic() + 30
    while place.read(locks.LOCK) == first and time.monotonic() < deadline:
        time.sleep(0.01)
    assert json.loads(place.read(locks.LOCK))["beats"] >= 1
    assert lock.is_mine()
    # Somebody takes it over; beats do not write over that.
    theirs = _leave_lock(url, pid=1)
    time.sleep(0.2)
    assert locks.read_owner(place) == theirs
    with pytest.raises(nlis.StoreLockedError, match="was taken over by process 1 on"):
        lock.check()
    lock.release()
    assert locks.read_owner(place) == theirs


def test_conditions_hold_for_the_first_alone(server):
    place = place_of(f"{URL}conditions")
    assert place.create("a", b"1")
    assert not place.create("a", b"2")
    assert place.create("a", b"1")  # sent again after an answer that was lost
    assert not place.swap("a", b"2", b"3")
    assert place.swap("a", b"1", b"3")
    assert not place.swap("gone", b"1", b"3")
    assert place.read("a") == b"3"
    assert place.read("a", most=0) is None
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda k: place.swap("a", b"3", b"%d" % k), range(10, 18))) == 1
        assert sum(pool.map(lambda k: place.create("b", b"%d" % k), range(8))) == 1
    place.write("work/c", b"c")
    place.write("work/d/e", b"e")
    place.write("work2", b"f")
    assert (place.names(), place.names("work")) == ({"a", "b", "work", "work2"}, {"c", "d"})
    assert place.exists("work")
    place.delete("work")
    assert not place.exists("work")
    assert place.names() == {"a", "b", "work2"}
    place.delete("nothing")
    place.delete("")
    assert not place.exists()


def test_storage_without_conditions_is_refused(server, data, monkeypatch):
    put = Bucket._put
    monkeypatch.setattr(Bucket, "_put", lambda self, key, content, mode: put(self, key, content, "overwrite"))
    with pytest.raises(nlis.InputError, match="ignores conditions on writes"):
        job(data, f"{URL}careless.zarr")
    assert not place_of(f"{URL}careless.zarr").exists()


def test_stores_are_checked_before_anything_is_read(server, data, clean):
    with Reads() as reads:
        with pytest.raises(FileExistsError, match=r"exists; open_run\(\) reads the finished run there"):
            job(data, clean[0].path)
        with pytest.raises(nlis.InputError, match=r"lies inside the Zarr store 's3://bucket/runs/clean.zarr/factor'"):
            job(data, f"{clean[0].path}/factor/other.zarr")
        with pytest.raises(nlis.MissingDataError, match="its bucket does not exist; make it first"):
            job(data, "s3://none/run.zarr")
        assert_same(job(data, clean[0].path, resume=True), clean[0])
        place_of(f"{URL}else").write("notes.txt", b"mine")
        with pytest.raises(FileExistsError, match="is no run store"):
            job(data, f"{URL}else", resume=True)
    assert not reads.blocks
    for missing in (f"{URL}nothing.zarr", "s3://none/run.zarr"):
        with pytest.raises(nlis.MissingDataError):
            nlis.open_run(missing)


def test_what_is_refused_leaves_nothing_behind(server, tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 3))
    values[211, 1] = np.inf
    url = f"{URL}refused.zarr"
    with pytest.raises(nlis.NonFiniteError, match="row 211"):
        nlis.run(nlis.Problem(nlis.Linear()), values, values[:, 0], size=80, seed=0, store=url)
    assert not place_of(url).exists()


def test_inspect_and_run_take_urls(server, data, clean):
    code, text = _line("inspect", clean[0].path)
    assert code == 0
    assert "complete" in text
    assert _line("inspect", f"{URL}nothing.zarr")[0] == 2
    url = f"{URL}line.zarr"
    options = ["--y", "y", "--model", "linear", "--size", "100", "--seed", "1", "--store", url, "--resume"]
    code, text = _line("run", str(data), *options)
    assert code == 0, text
    assert nlis.open_run(url).fit.ok


def test_requests_that_fail_are_sent_again(server, data, clean):
    server.fail_every = 11
    assert_same(job(data, f"{URL}failing.zarr"), clean[0])


def _closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize("where", ["store", "data"])
def test_an_endpoint_that_is_gone_ends_in_an_error_of_ours(where, data):
    limits = {"retry-seconds": 0.5, "connect-seconds": 0.2, "request-seconds": 0.3}
    with settings(f"http://127.0.0.1:{_closed_port()}", **limits), pytest.raises(nlis.ClusterError) as caught:
        job(*((data, "s3://bucket/run.zarr") if where == "store" else ("s3://bucket/data.zarr", None)))
    message = str(caught.value)
    assert "cannot be read: it cannot be reached" in message
    assert "\n" not in message
    assert len(message) <= 300


@pytest.mark.timeout(25)  # without limits on a request it takes a minute
def test_a_server_that_says_nothing_ends_in_an_error_of_ours():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(16)
        endpoint = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with settings(endpoint, **{"retry-seconds": 0.4, "request-seconds": 0.2}):
            place = place_of("s3://bucket/run.zarr")
            with pytest.raises(nlis.ClusterError, match="did not answer in time"):
                place.read("a")
            with pytest.raises(nlis.StoreWriteError, match="did not answer in time"):
                place.write("a", b"1")


def test_a_lock_that_could_not_be_deleted_is_known_to_be_let_go_of(server):
    url = f"{URL}let-go.zarr"
    place = place_of(url)
    lock = locks.Lock(place, url, print)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Bucket, "delete", lambda *_: (_ for _ in ()).throw(nlis.StoreWriteError("gone")))
        lock.release()
    assert place.exists(locks.LOCK)
    said = []
    locks.Lock(place, url, said.append).release()
    assert len(said) == 1
    assert not place.exists(locks.LOCK)


def _pickled(value):
    from distributed.protocol import pickle

    return pickle.dumps(value)


def test_keys_are_in_no_graph_message_manifest_or_log(server, data, clean, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    graphs = []
    from dask_nlis import intake

    real = intake.score_files.write_scores

    def written(*arguments, **options):
        lazy = real(*arguments, **options)
        graphs.append(_pickled(dict(lazy.__dask_graph__())))
        return lazy

    monkeypatch.setattr(intake.score_files, "write_scores", written)
    url = f"{URL}canary.zarr"
    found = job(data, url, scheme="systematic")
    X, _ = nlis.open_rows(_with_data(server), X="X")
    store = place_of(url).zarr()
    graphs += [_pickled(dict(found.scores.__dask_graph__())), _pickled(dict(X.__dask_graph__())), _pickled(store)]
    assert len(graphs) >= 4
    assert sum(b"s3://bucket/" in graph for graph in graphs) == len(graphs)
    place = place_of(url)
    texts = [repr(found), str(found.manifest), repr(place), repr(store), str(store), caplog.text]
    texts += [place.read("zarr.json").decode(), *map(str, X.__dask_keys__())]
    for word in (SECRET, KEYS["AWS_ACCESS_KEY_ID"]):
        assert not [graph for graph in graphs if word.encode() in graph]
        assert not [text for text in texts if word in text]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://me:s3cret@bucket/run.zarr", "URL with credentials or a query in it"),
        ("s3://bucket/run.zarr?X-Amz-Signature=s3cret", "URL with credentials or a query in it"),
        ("az://account/run.zarr?sig=s3cret", "URL with credentials or a query in it"),
        ("s3://bucket/run.zarr?s3cret", "URL with credentials or a query in it"),
        ("s3://s3cret", "names no objects"),
        ("s3://bucket/a/../s3.zarr", "dots"),
        ("s3cret://bucket", "which is not known"),
        ("memory://bucket/run.zarr", "one of s3://, gs://, az://"),
    ],
)
@pytest.mark.parametrize("call", ["run", "open", "inspect"])
def test_urls_with_secrets_or_of_unknown_kinds_are_refused_unprinted(url, message, call, data):
    if call == "inspect":
        code, text = _line("inspect", url)
        assert code == 2
    else:
        with pytest.raises(nlis.InputError, match=message) as caught:
            job(data, url) if call == "run" else nlis.open_run(url)
        text = str(caught.value)
        assert "\n" not in text
        assert len(text) <= 300
    if not url.startswith("s3cret"):
        assert "s3cret" not in text


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"secret_access_key": "s3cret"}, r"has 'secret-access-key'; allowed are endpoint"),
        ({"endpoint": "https://me:s3cret@example.org"}, "URL with credentials"),
        ({"endpoint": "http://example.org", "allow-http": False}, "is not encrypted"),
        ({"retry-seconds": "s3cret"}, "retry-seconds is str of no allowed value; give a positive number"),
        ({"anonymous": "s3cret"}, "give True or False"),
    ],
)
def test_options_are_plain_and_never_shown(option, message):
    with settings("https://example.org", **option), pytest.raises(nlis.InputError, match=message) as caught:
        place_of("s3://bucket/run.zarr")
    assert "s3cret" not in str(caught.value)


def _with_data(server, name="data.zarr"):
    """The data of all runs in the bucket."""
    url = f"s3://bucket/{name}"
    place = place_of(url)
    if not place.exists():
        rng = np.random.default_rng(5)
        values = rng.normal(size=(N_ROWS, 3)) * [1, 2, 0.5]
        group = zarr.create_group(place.zarr())
        for key, array in (("X", values), ("y", np.tanh(values @ [0.5, -0.2, 1.0]) + 0.1 * rng.normal(size=N_ROWS))):
            group.create_array(key, shape=array.shape, chunks=(ROWS, *array.shape[1:]), dtype="float64")[...] = array
    return url


def _name_in_a_process(keys, endpoint, url, queue):
    os.environ.update(keys)
    with settings(endpoint):
        queue.put(nlis.open_rows(url, X="X")[0].name)


def test_data_in_a_bucket_are_known_again_in_another_process_and_never_stale(server, data, clean):
    url = _with_data(server)
    name = nlis.open_rows(url, X="X")[0].name
    queue = PROCESSES.Queue()
    child = PROCESSES.Process(target=_name_in_a_process, args=(dict(KEYS), server.endpoint, url, queue))
    child.start()
    assert queue.get(timeout=120) == name
    child.join(60)
    store = f"{URL}remote.zarr"
    server.writes_left = len(clean[1]) - 10
    with pytest.raises(nlis.StoreWriteError):
        job(url, store)
    server.writes_left = None
    assert_same(job(url, store, resume=True), clean[0], same_data=False)

    other = _with_data(server, "other.zarr")
    before, store = nlis.open_rows(other, X="X")[0], f"{URL}stale.zarr"
    server.writes_left = 30
    with pytest.raises(nlis.StoreWriteError):
        job(other, store)
    server.writes_left = None
    array = zarr.open_group(place_of(other).zarr())["X"]
    time.sleep(1.1)  # buckets tell times in whole seconds
    array[100:150] = np.asarray(array[100:150]) + 1
    after = nlis.open_rows(other, X="X")[0]
    assert after.name != before.name
    assert same_bits(after[100:150].compute(), np.asarray(array[100:150]))
    with pytest.raises(
        nlis.FingerprintMismatchError, match=r"X has changed \(1 chunk was written since, the first 'c/2/0' with"
    ):
        job(other, store, resume=True)


def test_a_bucket_store_travels_as_its_address(server, monkeypatch):
    store = place_of(_with_data(server)).zarr(read_only=True)
    from distributed.protocol import pickle

    with monkeypatch.context() as patched:  # as on a scheduler
        patched.setattr("dask_nlis.objects.clients.find_spec", lambda name: None)
        again = pickle.loads(_pickled(store))
    assert isinstance(again, BucketStore)
    assert again == store
    assert again.read_only
    assert again != store.with_read_only(False)
    assert zarr.open_group(again, mode="r")["X"].shape == (N_ROWS, 3)
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(again, mode="r")["X"][:1] = 0.0


@pytest.mark.cluster
def test_workers_of_a_cluster_write_to_the_bucket(server, data, clean):
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster),
        dask.config.set(scheduler=None),
    ):
        url = _with_data(server)
        server.clear()
        found = job(url, f"{URL}cluster.zarr")
        assert_same(found, clean[0], same_data=False)
        assert server.keys[-1].endswith("complete.json")
