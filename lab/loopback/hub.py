"""A stand-in for the Hugging Face hub on loopback: speaks the hub's own HTTP to the real huggingface_hub.

    with Hub() as hub:  # for processes, which find it by HF_ENDPOINT=hub.url
        commit = hub.add("org/name", {"config.json": b"{}", "model.safetensors": b"..."})

    with hub_here(tmp_path) as hub:  # for this process

Files with LFS lie on a second port, which stands for the CDN. Headers and codes are those that huggingface_hub reads
(utils/_http.py: hf_raise_for_status; file_download.py: get_hf_file_metadata).
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import re
import socket
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import pytest

_THREAD_SECONDS = 20  # longer than huggingface_hub waits for bytes

LFS = ("*.safetensors", "*.bin", "*.gguf")


@dataclass
class Fault:
    """What goes wrong with some requests; the first of a hub's faults that fits one is used for it.

    Attributes:
        path: what the path of the request contains.
        where: `hub` or `cdn`.
        times: how often; then it is over.
        method: of the request; empty for any.
        status: the answer, in place of the right one; its text is `message`.
        headers: more of the answer's.
        cut: bytes of the body after which the connection closes.
        hang: bytes of the body after which nothing comes any more; to HEAD nothing comes at all.
        body: what comes in place of the content.
        whole: ranges are not heeded.
    """

    path: str = ""
    where: str = "hub"
    times: float = 1
    method: str = "GET"
    status: int = 0
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    hang: int | None = None
    body: bytes | None = None
    whole: bool = False


@dataclass(frozen=True)
class Request:
    """A request that came.

    Attributes:
        where: `hub` or `cdn`.
        path: with its query, as it came.
        headers: with names in small letters.
    """

    where: str
    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Repository:
    """What the hub holds of one repository.

    Attributes:
        commits: the files of each.
        refs: the commit of each branch and tag.
        members: tokens that may see it if it is private, and read it if it is gated.
        xet: patterns of files that are kept in Xet storage, too.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    card: dict[str, Any] | None = None
    private: bool = False
    gated: bool = False
    disabled: bool = False
    members: tuple[str, ...] = ()
    lfs: tuple[str, ...] = LFS
    xet: tuple[str, ...] = ()

    def commit_of(self, revision: str) -> str | None:
        """The commit that a revision stands for."""
        return self.refs.get(revision, revision if revision in self.commits else None)

    def has_lfs(self, path: str) -> bool:
        """Whether a file of that path is stored with LFS."""
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.lfs)


def blob_id(data: bytes) -> str:
    """Return the name that git gives to a content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Hub:
    """The stand-in; runs while its `with` block does.

    Attributes:
        url: what HF_ENDPOINT is to be.
        tokens: those that are somebody's.
        faults: see `Fault`; tests add to them.
        requests: in the order in which they came.
        sent: bytes of bodies that were sent, by path in the repository, without those of HEAD.
        hanging: set once a fault of that kind holds a request.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.tokens: set[str] = set()
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.sent: dict[str, int] = {}
        self.hanging = threading.Event()
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._servers = {where: _Server(("127.0.0.1", 0), _Handler, self, where) for where in ("hub", "cdn")}
        self.url = self._url("hub")

    def add(self, name: str, files: Mapping[str, bytes], *, ref: str = "main", **about: Any) -> str:
        """Commit files to a branch or tag of a repository, which is made if need be; return the commit.

        Args:
            name: with or without an organisation.
            files: all of the commit.
            ref: stands for the commit from now on.
            about: other attributes of the repository.
        """
        repository = self.repositories.setdefault(name, Repository())
        for key, value in about.items():
            setattr(repository, key, value)
        commit = hashlib.sha1(f"{name} {len(repository.commits)}".encode(), usedforsecurity=False).hexdigest()
        repository.commits[commit] = dict(files)
        repository.refs[ref] = commit
        return commit

    def asked(self, where: str = "hub", method: str = "") -> list[str]:
        """Return the paths of the requests that came, without their queries."""
        found = [one for one in self.requests if one.where == where and method in ("", one.method)]
        return [unquote(urlsplit(one.path).path) for one in found]

    def __enter__(self) -> Self:
        for server in self._servers.values():
            # The shortest poll: shutdown waits for one, and each test would wait with it.
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
            server.hang_up()

    def _url(self, where: str) -> str:
        return f"http://127.0.0.1:{self._servers[where].server_address[1]}"

    def note(self, request: Request) -> Fault:
        """Remember a request; return what is to go wrong with it."""
        with self._lock:
            self.requests.append(request)
            for fault in self.faults:
                fits = request.where == fault.where and fault.method in ("", request.method)
                if fits and fault.times > 0 and fault.path in unquote(request.path):
                    fault.times -= 1
                    return fault
        return Fault()

    def count(self, path: str, number: int) -> None:
        """Remember that bytes were sent."""
        with self._lock:
            self.sent[path] = self.sent.get(path, 0) + number

    def hang(self) -> None:
        """Hold a request until the hub ends."""
        self.hanging.set()
        self._released.wait()

    def address_in_cdn(self, path: str, data: bytes) -> str:
        """Return where an LFS file lies; the query stands for a signature."""
        return f"{self._url('cdn')}/{hashlib.sha256(data).hexdigest()}/{quote(path)}?Signature=secret"

    def find_in_cdn(self, path: str) -> tuple[str, bytes] | None:
        """Return the path in the repository, and the content, of an address in the CDN."""
        sha256, _, name = unquote(urlsplit(path).path).lstrip("/").partition("/")
        for repository in self.repositories.values():
            for files in repository.commits.values():
                if name in files and hashlib.sha256(files[name]).hexdigest() == sha256:
                    return name, files[name]
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], hub: Hub, where: str):
        super().__init__(address, handler)
        self.hub = hub
        self.where = where
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def hang_up(self) -> None:
        """End the connections that clients keep, and with them their threads."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that go away are what tests are about."""


class _RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str):
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        hub = self.server.hub
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = self.requestline.split()[1]  # self.path has lost a slash of two
        self.fault = hub.note(Request(self.server.where, self.command, path, headers))
        if self.fault.status:
            return self._refuse(_RefusalError(self.fault.status, "", self.fault.message))
        try:
            return self._serve_cdn() if self.server.where == "cdn" else self._serve_hub()
        except _RefusalError as answer:
            return self._refuse(answer)

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self, answer: _RefusalError) -> None:
        told = {"X-Error-Code": answer.code} if answer.code else {}
        told |= {"X-Error-Message": answer.message} if answer.message else {}
        self._send(answer.status, json.dumps({"error": answer.message}).encode(), {**told, **self.fault.headers})

    def _serve_cdn(self) -> None:
        found = self.server.hub.find_in_cdn(self.path)
        if not found:
            raise _RefusalError(404, "", "")
        self._send_file(found[0], found[1], {"ETag": f'"{hashlib.md5(found[1], usedforsecurity=False).hexdigest()}"'})

    def _serve_hub(self) -> None:
        path = urlsplit(self.path).path
        routes: list[tuple[str, Callable[..., None]]] = [
            ("/api/models/(.+)/refs", self._serve_refs),
            ("/api/models/(.+)/revision/([^/]+)", self._serve_info),
            ("/api/resolve-cache/models/(.+)/([0-9a-f]{40})/(.+)", self._serve_blob),
            ("/api/models/(.+)", self._serve_info),
            ("/((?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)", self._serve_address),
        ]
        for pattern, serve in routes:
            match = re.fullmatch(pattern, path)
            if match:
                return serve(*map(unquote, match.groups()))
        raise _RefusalError(404, "", "Sorry, we can't find the page you are looking for.")

    def _repository(self, name: str) -> Repository:
        hub, token = self.server.hub, self._token()
        if token and token not in hub.tokens:
            raise _RefusalError(401, "", "Invalid credentials in Authorization header")
        repository = hub.repositories.get(name)
        if not repository or (repository.private and token not in repository.members):
            if token:
                raise _RefusalError(404, "RepoNotFound", "Repository not found")
            raise _RefusalError(401, "RepoNotFound", "Invalid username or password.")
        if repository.disabled:
            raise _RefusalError(403, "", "Access to this resource is disabled.")
        return repository

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _commit(self, repository: Repository, revision: str) -> str:
        commit = repository.commit_of(revision)
        if not commit:
            raise _RefusalError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _serve_refs(self, name: str) -> None:
        refs = self._repository(name).refs
        branches = [{"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": commit} for ref, commit in refs.items()]
        self._send(200, json.dumps({"branches": branches, "converts": [], "tags": []}).encode(), {})

    def _serve_info(self, name: str, revision: str = "main") -> None:
        repository = self._repository(name)
        commit = self._commit(repository, revision)
        siblings = []
        for path, data in repository.commits[commit].items():
            one: dict[str, Any] = {"rfilename": path, "blobId": blob_id(data), "size": len(data)}
            if repository.has_lfs(path):
                sha256 = hashlib.sha256(data).hexdigest()
                pointer = (
                    f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(data)}\n".encode()
                )
                one["blobId"] = blob_id(pointer)
                one["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": len(pointer)}
            siblings.append(one if "blobs=true" in self.path.lower() else {"rfilename": path})
        info = {"_id": "0", "id": name, "modelId": name, "private": repository.private, "sha": commit, "tags": []}
        info |= {"gated": "auto" if repository.gated else False, "disabled": False, "siblings": siblings}
        if repository.card is not None:
            info["cardData"] = repository.card
        body = json.dumps(info).encode() if self.fault.body is None else self.fault.body
        self._send(200, body, {"Content-Type": "application/json"})

    def _serve_address(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name)
        commit = self._commit(repository, revision)
        if repository.gated and self._token() not in repository.members:
            status, who = (403, "you are not in the authorized list.") if self._token() else (401, "log in.")
            raise _RefusalError(status, "GatedRepo", f"Access to model {name} is restricted: {who}")
        data = repository.commits[commit].get(path)
        if data is None:
            raise _RefusalError(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit, "X-Linked-Size": str(len(data)), "Accept-Ranges": "bytes"}
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in repository.xet):
            refresh = f"{self.server.hub.url}/api/models/{name}/xet-read-token/{commit}"
            headers |= {"X-Xet-Hash": "0" * 64, "X-Xet-Refresh-Route": refresh}
        if repository.has_lfs(path):
            headers |= {
                "X-Linked-ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                "Location": self.server.hub.address_in_cdn(path, data),
            }
            return self._send(302, b"", {**headers, **self.fault.headers})
        headers |= {
            "X-Linked-ETag": f'"{blob_id(data)}"',
            "Location": f"/api/resolve-cache/models/{name}/{commit}/{quote(path, safe='')}",
        }
        return self._send(307, b"", {**headers, **self.fault.headers})

    def _serve_blob(self, name: str, commit: str, path: str) -> None:
        data = self._repository(name).commits[commit][path]
        self._send_file(path, data, {"ETag": f'"{blob_id(data)}"', "X-Repo-Commit": commit})

    def _send_file(self, path: str, data: bytes, headers: Mapping[str, str]) -> None:
        data = data if self.fault.body is None else self.fault.body
        asked = re.fullmatch("bytes=([0-9]+)-", self.headers.get("Range", ""))
        if not asked or self.fault.whole:
            return self._send(200, data, headers, path)
        begin = int(asked[1])
        if begin >= len(data):
            return self._send(416, b"", {**headers, "Content-Range": f"bytes */{len(data)}"})
        span = {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        return self._send(206, data[begin:], {**headers, **span}, path)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], path: str | None = None) -> None:
        if self.command == "HEAD" and self.fault.hang is not None:
            self.server.hub.hang()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = min(at for at in (self.fault.cut, self.fault.hang, len(body)) if at is not None)
        if path is not None:
            self.server.hub.count(path, end)
        self.wfile.write(body[:end])
        if self.fault.hang is not None:
            self.server.hub.hang()
        self.close_connection = self.close_connection or self.fault.cut is not None or self.fault.hang is not None


@contextlib.contextmanager
def hub_here(home: Path) -> Iterator[Hub]:
    """Run a hub; huggingface_hub in this process speaks to it and to nobody else, and does not wait between its tries.

    What huggingface_hub has read from the environment when it was imported is set here again. It reads bodies in pieces
    so small that a test's files have several, and comes over plain HTTP. At the end no thread is left that still asks.

    Args:
        home: a folder in place of the user's; huggingface_hub may make it.
    """
    import huggingface_hub
    from huggingface_hub import constants, file_download
    from huggingface_hub.utils import _http
    from tqdm import tqdm

    hub = Hub()
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "HF_OIDC_RESOURCE",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
        ):
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        patch.setenv("HF_ENDPOINT", hub.url)
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
            "AGENT_HARNESSES_PATH": str(home / "agents"),
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_DISABLE_TELEMETRY": False,
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": False,
            "DOWNLOAD_CHUNK_SIZE": 1024,
        }.items():
            patch.setattr(constants, name, value, raising=False)
        for module in (file_download, _http):
            patch.setattr(module, "time", types.SimpleNamespace(sleep=lambda _: None))
        patch.setattr(tqdm, "monitor_interval", 0)  # else a thread of its own outlives each test
        huggingface_hub.close_session()
        before = set(threading.enumerate())
        with hub:
            yield hub
        for thread in set(threading.enumerate()) - before:
            thread.join(_THREAD_SECONDS)
        huggingface_hub.close_session()
