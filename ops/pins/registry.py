"""Asks a registry what a tag stands for (https://github.com/opencontainers/distribution-spec: spec.md, "Pull").

Only what anybody may pull: a token that a registry gives to those who name themselves to nobody is fetched, a login is
not made.
"""

import hashlib
from typing import Annotated, Any, NamedTuple, TypeVar

import requests
from pydantic import BaseModel, StringConstraints, ValidationError
from requests.adapters import HTTPAdapter
from requests.utils import parse_dict_header

from infra.images import Reference

PLATFORM = "linux/amd64"
"""What every node is: the instance table has x86_64 types alone."""

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)

_DOCKER_HUB_HOST = "registry-1.docker.io"
"""Where images of docker.io are asked for (https://github.com/moby/moby: `DefaultRegistryHost`)."""

_TIMEOUTS = (10, 60)
"""Seconds for a connection, and for each wait for an answer."""

_NO_TLS = ("http://127.0.0.1:", "http://localhost:")
_LOGIN = "only what anybody may pull is looked up; write name:tag@sha256:... into the stack file yourself"


class RegistryError(Exception):
    """A registry does not say what a tag stands for; the text says why, without the names of image and registry."""


class Answer(NamedTuple):
    """What a tag stands for.

    Attributes:
        digest: Of the index or the manifest, calculated from its bytes.
        platforms: The platforms it has an image for, in order.
    """

    digest: str
    platforms: list[str]


class _Platform(BaseModel):
    os: str
    architecture: str
    variant: str | None = None

    @property
    def name(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class _IndexEntry(BaseModel):
    platform: _Platform | None = None


class _Index(BaseModel):
    manifests: list[_IndexEntry]


class _Config(BaseModel):
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class _Manifest(BaseModel):
    config: _Config


class _Token(BaseModel):
    token: str | None = None
    access_token: str | None = None


_Document = TypeVar("_Document", bound=BaseModel)


def ask(image: Reference) -> Answer:
    """Asks the registry of an image for its tag.

    Args:
        image: An image with a tag.

    Returns:
        What the tag stands for now.

    Raises:
        RegistryError: The registry cannot be asked, has no such tag, contradicts itself, or its image is for others.
    """
    try:
        with requests.Session() as session:
            return _ask(_Repository(session, image), image)
    except requests.exceptions.InvalidSchema as error:
        raise RegistryError(f"leads to an address without TLS: {error}") from error
    except requests.RequestException as error:
        raise RegistryError(f"cannot be asked: {_cause(error)}") from error


def _ask(repository: "_Repository", image: Reference) -> Answer:
    response = repository.get(f"manifests/{image.tag}", (*INDEXES, *MANIFESTS))
    digest = _digest(response.content)
    named = response.headers.get("Docker-Content-Digest", digest)
    if named != digest:
        raise RegistryError(f"names the digest {named} for content that has {digest}")
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
    if media_type in INDEXES:
        entries = _read(_Index, response.content).manifests
        platforms = [entry.platform for entry in entries if entry.platform]
    elif media_type in MANIFESTS:
        wanted = _read(_Manifest, response.content).config.digest
        config = repository.get(f"blobs/{wanted}").content
        if _digest(config) != wanted:
            raise RegistryError(f"gives other content for the image's configuration than {wanted}")
        platforms = [_read(_Platform, config)]
    else:
        raise RegistryError(f"has no image there, but {media_type or 'something without a type'}")
    # Build attestations stand in an index as platform unknown/unknown.
    names = sorted({platform.name for platform in platforms if platform.os != "unknown"})
    if PLATFORM not in names:
        raise RegistryError(
            f"has no image for {PLATFORM}, which all nodes are, but for {', '.join(names) or 'nothing'}"
        )
    return Answer(digest, names)


class _Repository:
    """One repository of a registry; gets an anonymous token when the registry wants one."""

    def __init__(self, session: requests.Session, image: Reference) -> None:
        host = _DOCKER_HUB_HOST if image.registry == "docker.io" else image.registry
        scheme = "http" if f"http://{host}".startswith(_NO_TLS) else "https"
        self._session = session
        self._image = image
        self._url = f"{scheme}://{host}/v2/{image.repository}/"
        self._token: str | None = None
        # TLS is all that an answer rests on: no redirection and no token's address leads out of it.
        session.adapters.clear()
        for prefix in ("https://", *_NO_TLS):
            session.mount(prefix, HTTPAdapter())

    def get(self, path: str, accept: tuple[str, ...] = ("*/*",)) -> requests.Response:
        """Gets a manifest or a blob.

        Raises:
            RegistryError: The answer is another than 200.
            requests.RequestException: There is no answer.
        """
        url, headers = self._url + path, {"Accept": ", ".join(accept)}
        response = self._get(url, headers=headers)
        if response.status_code == requests.codes.unauthorized and self._token is None:
            self._token = self._anonymous_token(response)
            response = self._get(url, headers=headers)
        if response.status_code != requests.codes.ok:
            raise RegistryError(self._refusal(response))
        return response

    def _get(self, url: str, **options: Any) -> requests.Response:
        # An `auth` of our own, or requests takes one from the person's netrc file.
        return self._session.get(url, auth=self._authorise, timeout=_TIMEOUTS, **options)

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _anonymous_token(self, response: requests.Response) -> str:
        """Gets a token as https://distribution.github.io/distribution/spec/auth/token/ says."""
        scheme, _, parameters = response.headers.get("WWW-Authenticate", "").partition(" ")
        challenge = parse_dict_header(parameters)
        realm = challenge.get("realm")
        if scheme.lower() != "bearer" or not realm:
            raise RegistryError(f"asks for a login ({scheme or 'of no kind that it names'}): {_LOGIN}")
        wanted = {"scope": f"repository:{self._image.repository}:pull"} | {
            key: value for key, value in challenge.items() if key in ("service", "scope")
        }
        answer = self._get(realm, params=wanted)
        if answer.status_code != requests.codes.ok:
            raise RegistryError(f"gives no token to anybody: {answer.status_code} {answer.reason}; {_LOGIN}")
        token = _read(_Token, answer.content)
        if not (text := token.token or token.access_token):
            raise RegistryError("gives an empty token")
        return text

    def _refusal(self, response: requests.Response) -> str:
        status = f"{response.status_code} {response.reason}"
        match response.status_code:
            case requests.codes.unauthorized | requests.codes.forbidden:
                return f"has no such image, or not for anybody ({status}): {_LOGIN}"
            case requests.codes.not_found:
                return f"has no such image ({status}); look at the name and the tag"
            case requests.codes.too_many_requests:
                return f"has answered enough for now ({status}); try again later"
            case _:
                return f"answers {status}"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _read(kind: type[_Document], content: bytes) -> _Document:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        what = f"{where}: {detail['msg']}" if where else detail["msg"]
        raise RegistryError(f"gives what cannot be read: {what}") from error


def _cause(error: BaseException) -> str:
    """What was first in a chain of errors: the system's own words, without the names of connection pools."""
    while error.__context__:
        error = error.__context__
    return str(error) or type(error).__name__
