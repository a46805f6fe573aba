"""Images by digest: what an image's name means, and the lock file in which `make pin-images` keeps what tags stood for.

Nothing here asks a registry: an image without an entry stays with its tag, and `infra.settings` warns of it.
"""

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

LOCK_NAME = "stacks/images.lock.json"
LOCK = Path(__file__).parent.parent / LOCK_NAME

_DOCKER_HUB = "docker.io"

# https://github.com/distribution/reference: host, path, tag and digest of an image.
_HOST_PART = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_IMAGE = (
    rf"(?P<name>({_HOST_PART}(\.{_HOST_PART})*(:\d+)?/)?"
    r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*)"
    r"(:(?P<tag>\w[\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class Reference(NamedTuple):
    """An image by name, with what Docker's short names leave out.

    Attributes:
        registry: The host, with a port where one is given.
        repository: The path there.
        tag: Empty where there is none.
        digest: Empty where there is none.
    """

    registry: str
    repository: str
    tag: str
    digest: str

    @property
    def by_tag(self) -> str:
        """The full name with the tag: one spelling for each image, which is the lock's key."""
        return f"{self.registry}/{self.repository}:{self.tag}"


def parse(image: str) -> Reference | None:
    """Reads an image's name as https://github.com/distribution/reference does (normalize.go); None where it is none."""
    found = re.fullmatch(_IMAGE, image, re.ASCII)
    if not found:
        return None
    registry, slash, repository = found["name"].partition("/")
    if not slash or not (re.search(r"[.:A-Z]", registry) or registry == "localhost"):
        registry, repository = _DOCKER_HUB, found["name"]
    if registry == "index.docker.io":
        registry = _DOCKER_HUB
    if registry == _DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, found["tag"] or "", found["digest"] or "")


def _full_name(name: str) -> str:
    found = parse(name)
    if found is None or not found.tag or found.digest or found.by_tag != name:
        raise ValueError("is no full name with a tag, like docker.io/library/python:3.12")
    return name


class Pin(BaseModel):
    """An entry of the lock file: what a tag stood for when its registry was asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    platforms: Annotated[list[str], Field(min_length=1)]
    pinned: dt.date


Lock = dict[Annotated[str, AfterValidator(_full_name)], Pin]
_READER = TypeAdapter[Lock](Lock)


class LockError(Exception):
    """The lock file cannot be used; the text says what is wrong in it, without its name."""


def read_lock() -> Lock:
    """Reads the lock file.

    Returns:
        Pins by full name; none where there is no lock file.

    Raises:
        LockError: It cannot be read, or holds something else.
    """
    try:
        return _READER.validate_json(LOCK.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LockError(f"cannot be read: {error.strerror}") from error
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in detail["loc"] if part != "[key]")
        what = f"{where}: {detail['msg']}" if where else detail["msg"]
        raise LockError(f"{what}; take it from git again, or delete it and run `make pin-images`") from error


def applied(image: str) -> str:
    """An image as pods name it: with the digest that the lock file holds for its tag, where it holds one.

    Args:
        image: The image as `infra.versions` or a stack file names it; its own digest stays.

    Returns:
        The name as it was given, and the digest behind it.

    Raises:
        LockError: The lock file cannot be used.
    """
    reference = parse(image)
    if reference is None or reference.digest:
        return image
    pin = read_lock().get(reference.by_tag)
    return f"{image}@{pin.digest}" if pin else image
