"""A server of the S3 protocol on loopback that notes requests, fails some, and stops or kills whom it is told to."""

import os
import signal
import threading
from contextlib import contextmanager

import dask
import pytest

pytest.importorskip("moto")  # also where the file is looked through for examples

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

#: Nobody's keys: the server takes any.
KEYS = {"AWS_ACCESS_KEY_ID": "AKIANOBODY", "AWS_SECRET_ACCESS_KEY": "canary-s3cret", "AWS_REGION": "us-east-1"}


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_, **__):
        """Nothing."""


class Server:
    """Buckets in memory."""

    def __init__(self):
        self.app = DomainDispatcherApplication(create_backend_app)
        self.one = threading.Lock()  # conditions are looked at and written under it, as by a store that keeps to them
        self.server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.clear()
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def clear(self):
        """Forget requests and faults."""
        self.keys, self.n = [], 0
        self.fail_every = 0  # each n-th request is answered with 500
        self.writes_left = None  # writes that are taken before all others are refused
        self.victim = None  # (process, writes, whether it is killed before the last of them is made)

    def _answer(self, environ, start):
        with self.one:
            return self._answered(environ, start)

    def _answered(self, environ, start):
        self.n += 1
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if self.fail_every and self.n % self.fail_every == 0:
            return self._refusal(environ, start, "500 Internal Server Error")
        dies = False
        if method == "PUT" and "/.probe-" not in path:
            if self.writes_left == 0:
                return self._refusal(environ, start, "403 Forbidden")
            self.keys.append(path.lstrip("/").partition("/")[2])
            if self.writes_left:
                self.writes_left -= 1
            dies = self.victim is not None and len(self.keys) == self.victim[1]
            if dies and self.victim[2]:
                os.kill(self.victim[0], signal.SIGKILL)
                return self._refusal(environ, start, "500 Internal Server Error")
        body = b"".join(self.app(environ, start))
        if dies:
            os.kill(self.victim[0], signal.SIGKILL)
        return [body]

    def _refusal(self, environ, start, status):
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(status, [("Content-Length", "0")])
        return [b""]

    def stop(self):
        """Close it."""
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def settings(endpoint, /, **storage):
    """How the server is found, by this process and those that are started inside."""
    storage = {"endpoint": endpoint, "allow-http": True, "region": "us-east-1", "retry-seconds": 20.0} | storage
    with dask.config.set({"dask-nlis.storage": storage}):
        yield
