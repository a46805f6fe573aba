"""An S3 on loopback: moto, which notes what it is asked, and something between it and whoever asks."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.sax.saxutils import escape

import botocore.session
import pytest
import s3transfer
from moto import backends
from moto.core.base_backend import BackendDict
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

REGION = "us-east-1"
BUCKET = "models"

Environ = dict[str, Any]
Start = Callable[..., Any]
App = Callable[[Environ, Start], Iterable[bytes]]
Between = Callable[[App, Environ, Start], Iterable[bytes]]


class Asked(NamedTuple):
    """A request; `key` is that of the object, empty if it is about none."""

    method: str
    key: str
    headers: dict[str, str]


class Store:
    """A bucket.

    Attributes:
        endpoint: its address.
        asked: the requests so far.
        between: gets moto, the environment of a WSGI request and what starts the answer, and gives the answer.
    """

    def __init__(self, endpoint: str):
        self.endpoint = endpoint
        self.asked: list[Asked] = []
        self.between: Between = lambda app, environ, start: app(environ, start)
        self.backend: Any = backends.get_backend("s3")[DEFAULT_ACCOUNT_ID]["aws"]
        self.backend.create_bucket(BUCKET, REGION)

    def put(self, objects: Mapping[str, bytes], storage: str | None = None) -> None:
        """Put objects, over what has the same key."""
        for key, content in objects.items():
            self.backend.put_object(BUCKET, key, content, storage=storage)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self.backend.delete_object(BUCKET, key)

    def of(self, key: str) -> list[Asked]:
        """Return the requests about an object."""
        return [one for one in self.asked if one.key == key]


class _Quiet(MotoRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002, ARG002
        logging.getLogger(__name__).debug(message, *args)


@contextmanager
def serving() -> Iterator[Store]:
    """Serve an empty bucket named BUCKET; all that moto knew in this process is gone."""
    BackendDict.reset()
    moto = DomainDispatcherApplication(create_backend_app)

    def app(environ: Environ, start: Start) -> Iterable[bytes]:
        key = unquote(environ["PATH_INFO"].encode("latin-1").decode()).removeprefix("/").partition("/")[2]
        headers = {name[5:].replace("_", "-").lower(): environ[name] for name in environ if name.startswith("HTTP_")}
        store.asked.append(Asked(environ["REQUEST_METHOD"], key, headers))
        return store.between(moto, environ, start)

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    store = Store(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_LOADER = functools.cache(botocore.session.create_loader)


def use(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Make boto3 of this process ask an endpoint and nobody else, by s3transfer's threads even where there is a CRT.

    All its sessions read the descriptions of AWS' services once; each would do so anew.
    """
    monkeypatch.setattr(botocore.session, "create_loader", _LOADER)
    monkeypatch.setitem(sys.modules, "s3transfer.crt", None)
    monkeypatch.delattr(s3transfer, "crt", raising=False)
    for name in os.environ:
        if name.startswith("AWS_") or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "*",
    }.items():
        monkeypatch.setenv(name, value)


def refusing(status: int, code: str, message: str = "No.", inside: str = "", **headers: str) -> Between:
    """Return what answers each request to S3 with an error, and lets those to STS pass."""
    text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message>{inside}</Error>".encode()

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST":
            return app(environ, start)
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        start(f"{status} {code}", [("Content-Type", "application/xml"), *named])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]

    return between
