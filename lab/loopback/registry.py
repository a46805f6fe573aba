"""A stand-in for a container registry on loopback, and lock files for tests that ask none.

It speaks what https://github.com/opencontainers/distribution-spec calls "Pull", with the token service of
https://distribution.github.io/distribution/spec/auth/token/ where it is told to ask for one.
"""

import contextlib
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"

_MANIFEST = re.compile(r"/v2/(?P<name>.+)/manifests/(?P<reference>[^/]+)")
_BLOB = re.compile(r"/v2/(?P<name>.+)/blobs/(?P<digest>[^/]+)")


def digest_of(content: bytes) -> str:
    """A digest as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write_lock(path: Path, digests: dict[str, str]) -> None:
    """Writes a lock file with a digest for each full name."""
    entries = {
        name: {"digest": digest, "platforms": ["linux/amd64"], "pinned": "2026-01-02"}
        for name, digest in digests.items()
    }
    path.write_text(json.dumps(entries))


class Registry:
    """What the stand-in holds, and in what it departs from a good registry.

    Attributes:
        host: Its host and port, the first part of its images' names.
        challenge: The WWW-Authenticate of its answers to those who have no token; none where anybody may pull.
        service: The token service's name in the challenge that `ask_for_tokens` sets.
        token_answer: What the token service says in the place of a token.
        digest_header: What stands in Docker-Content-Digest in the place of the digest.
        status: What manifests are answered with in the place of 200.
        redirect: Where the configurations of images are in the place of here.
        asked: The method and path of each request.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.challenge: str | None = None
        self.service = "stand-in"
        self.token_answer: tuple[int, bytes] | None = None
        self.digest_header: str | None = None
        self.status = 200
        self.redirect: str | None = None
        self.asked: list[tuple[str, str]] = []
        self.tokens: dict[str, str] = {}
        self._manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}

    def ask_for_tokens(self, repository: str) -> None:
        """From now on asks for a token for a repository, as Docker Hub does."""
        scope = f"repository:{repository}:pull"
        self.challenge = f'Bearer realm="http://{self.host}/token",service="{self.service}",scope="{scope}"'

    def put(self, repository: str, tag: str, media_type: str, document: Any) -> str:
        """Lets a tag stand for a manifest or an index.

        Returns:
            The digest.
        """
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        for reference in (tag, digest_of(content)):
            self._manifests[repository, reference] = (media_type, content)
        return digest_of(content)

    def put_image(
        self, repository: str, tag: str, platform: str = "linux/amd64", media_type: str = OCI_MANIFEST, **extra: Any
    ) -> str:
        """Lets a tag stand for an image of one platform; `extra` makes it another image."""
        names = ("os", "architecture", "variant")
        config = json.dumps({**dict(zip(names, platform.split("/"), strict=False)), "rootfs": {}, **extra}).encode()
        self.blobs[digest_of(config)] = config
        descriptor = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(config)}
        document = {"schemaVersion": 2, "config": {**descriptor, "size": len(config)}, "layers": []}
        return self.put(repository, tag, media_type, document)

    def put_index(self, repository: str, tag: str, platforms: list[str], media_type: str = OCI_INDEX) -> str:
        """Lets a tag stand for an index of images, one a platform."""
        names = ("os", "architecture", "variant")
        manifests = [
            {
                "mediaType": OCI_MANIFEST,
                "digest": self.put_image(repository, f"{tag}-{i}", platform),
                "size": 1,
                "platform": dict(zip(names, platform.split("/"), strict=False)),
            }
            for i, platform in enumerate(platforms)
        ]
        return self.put(repository, tag, media_type, {"schemaVersion": 2, "manifests": manifests})

    def manifest(self, repository: str, reference: str, accepted: str) -> tuple[str, bytes] | None:
        """The type and content that a reference stands for, where the asker takes that type."""
        media_type, content = self._manifests.get((repository, reference), ("", b""))
        return (media_type, content) if content and media_type in re.split(r",\s*", accepted) else None


@contextlib.contextmanager
def running() -> Iterator[Registry]:
    """An empty registry on loopback."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.registry
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.registry = Registry(f"127.0.0.1:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        registry = self.server.registry
        parts = urlsplit(self.path)
        registry.asked.append((self.command, parts.path))
        if parts.path == "/token":
            self._give_token(registry, parse_qs(parts.query))
        elif registry.challenge is not None and not self._has_token(registry, parts.path):
            self._fail(401, "UNAUTHORIZED", **({"WWW-Authenticate": registry.challenge} if registry.challenge else {}))
        elif parts.path == "/v2/":
            self._answer(200, b"{}", "application/json")
        elif found := _MANIFEST.fullmatch(parts.path):
            self._give_manifest(registry, found["name"], found["reference"])
        elif found := _BLOB.fullmatch(parts.path):
            self._give_blob(registry, found["digest"])
        else:
            self._fail(404, "UNSUPPORTED")

    def _give_token(self, registry: Registry, query: dict[str, list[str]]) -> None:
        if registry.token_answer:
            self._answer(*registry.token_answer, "application/json")
        elif query.get("service") != [registry.service] or "Authorization" in self.headers:
            self._fail(400, "UNSUPPORTED")
        else:
            token = secrets.token_hex()
            registry.tokens[token] = query["scope"][0]
            self._answer(200, json.dumps({"token": token}).encode(), "application/json")

    def _has_token(self, registry: Registry, path: str) -> bool:
        scope = registry.tokens.get(self.headers.get("Authorization", "").removeprefix("Bearer "), "")
        _, _, repository = scope.removesuffix(":pull").partition(":")
        return bool(repository) and (path == "/v2/" or path.startswith(f"/v2/{repository}/"))

    def _give_manifest(self, registry: Registry, repository: str, reference: str) -> None:
        found = registry.manifest(repository, reference, self.headers.get("Accept", ""))
        if registry.status != 200:
            self._fail(registry.status, "DENIED")
        elif not found:
            self._fail(404, "MANIFEST_UNKNOWN")
        else:
            media_type, content = found
            named = digest_of(content) if registry.digest_header is None else registry.digest_header
            self._answer(200, content, media_type, **({"Docker-Content-Digest": named} if named else {}))

    def _give_blob(self, registry: Registry, digest: str) -> None:
        if registry.redirect:
            self._answer(307, b"", "text/plain", Location=registry.redirect)
        elif digest in registry.blobs:
            self._answer(200, registry.blobs[digest], "application/octet-stream")
        else:
            self._fail(404, "BLOB_UNKNOWN")

    def _fail(self, status: int, code: str, **headers: str) -> None:
        errors = {"errors": [{"code": code, "message": code.lower()}]}
        self._answer(status, json.dumps(errors).encode(), "application/json", **headers)

    def _answer(self, status: int, content: bytes, media_type: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": media_type, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing: what was asked is in `Registry.asked`."""
