"""Remote arrays by fsspec: the same token while nothing changes, another once anything does, and none without ETags."""

import hashlib

import numpy as np
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from zarr.storage import FsspecStore

import dask_nlis as nlis
from dask_nlis.intake.remote_tokens import remote_token

fsspec_async = pytest.importorskip("fsspec.implementations.asyn_wrapper")


class Stamped(MemoryFileSystem):
    """A file system whose listings hold ETags, as those of buckets do."""

    protocol = "stamped"
    stamp = "ETag"

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **options):
        found = super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **options)
        for name, info in found.items():
            info.pop("created", None)
            info[self.stamp] = hashlib.sha256(self.cat_file(name)).hexdigest()
        return found if detail else list(found)


def _array(stamp, path="/tokens", mode="r"):
    wrapped = fsspec_async.AsyncFileSystemWrapper(Stamped(), asynchronous=True)
    Stamped.stamp = stamp
    return zarr.open_group(FsspecStore(wrapped, path=path), mode=mode)


def test_tokens_follow_the_content():
    group = _array("ETag", mode="w")
    for name in ("X", "other"):
        group.create_array(name, data=np.arange(20.0).reshape(10, 2), chunks=(5, 2))
    tokens = [remote_token(_array("ETag")[name]) for name in ("X", "X", "other")]
    assert tokens[0] is not None
    assert tokens[0] == tokens[1] != tokens[2]
    group["X"][7] = -1.0
    changed = remote_token(_array("ETag")["X"])
    assert changed != tokens[0]
    assert remote_token(_array("ETag")["other"]) == tokens[2]
    group["X"][7] = [14.0, 15.0]
    assert remote_token(_array("ETag")["X"]) == tokens[0]
    group["X"].append(np.zeros((5, 2)))
    assert remote_token(_array("ETag")["X"]) != tokens[0]
    # Nothing is told by sizes alone.
    assert remote_token(_array("size_too")["X"]) is None
    assert remote_token(zarr.create_array({}, shape=(3,), dtype="f8")) is None


def test_without_what_opens_them_urls_are_refused_with_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr("dask_nlis.objects.clients.find_spec", lambda name: None)
    X = np.ones((50, 2))
    for call in (
        lambda: nlis.run(nlis.Problem(nlis.Linear()), X, X[:, 0], size=20, store="s3://bucket/run.zarr"),
        lambda: nlis.open_run("gs://bucket/run.zarr"),
        lambda: nlis.open_rows("az://container/data.zarr", X="X"),
    ):
        with pytest.raises(nlis.InputError, match=r"pip install 'dask-nlis\[cloud\]'") as caught:
            call()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 300
