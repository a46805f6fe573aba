"""The Hugging Face hub as a place that models come from. huggingface_hub is imported only where it is asked for.

Files come over plain HTTP, by huggingface_hub's http_get, into a part that a later run goes on with: its
hf_hub_download begins each file anew (from 1.18 on; its issue 4196). A file that the hub keeps in Xet storage is left
to hf_hub_download where hf_xet is installed: that speaks to other hosts, begins anew after each end, and is untested
here. HF_HUB_DISABLE_XET=1 brings these files over plain HTTP, too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import logging
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from podkit import documents, lines, pool
from podkit.errors import Exit, FaststartError, destination_error, writing
from podkit.patience import DELAYS, Patience
from podkit.threads import NoThreadError, is_refusal
from publish.remote import MAX_FILES, Listing, RemoteFile, listed

T = TypeVar("T")

DEFAULT_REVISION = "main"

LIST_SECONDS = 60
"""How long an answer that is read whole may give nothing. Without a limit huggingface_hub would wait for ever."""

ANSWER_SECONDS = 300
"""How long it may take in all. A choice of ours: the largest one at 200 kB/s."""

ANSWER_BYTES = 64 << 20
"""The most bytes that it may have: 300 for each of MAX_FILES files that it lists, and a model card with its evaluations
beside."""

MAX_PAUSE = 300.0
"""The longest pause that the hub may ask for: it counts over 5 minutes (huggingface.co/docs/hub/rate-limits)."""

_NAME = "(?![^@]*(?:--|[.][.]))[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_ADDRESS = re.compile(rf"hf://((?:{_NAME}/)?{_NAME}(?<![.]git))(?:@(\S+))?")
_ENDPOINT = re.compile(r"https?://[^/@?#\\\s]+(/[^@?#\\\s]*)?")
_COMMIT = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")
_VERSION = re.compile("[!-~]{1,200}")
_TOKEN = re.compile(b"[!-~]+")
_RATE_LIMIT = re.compile(r"r\s*=\s*0\s*;\s*t\s*=\s*([0-9]+)")
_PASSING = (408, 409, 423, 425, 429)
"""Answers below 500 after which the same request can be taken (developer.mozilla.org, "HTTP response status codes")."""

_LASTING = (501, 505)
"""Answers from 500 on after which it cannot."""

_WITHHELD = {
    402: (Exit.NOT_PERMITTED, "asks for a payment first"),
    407: (Exit.NOT_PERMITTED, "is behind a proxy that asks for a password"),
    410: (Exit.NO_MODEL, "had it once, and it is gone for good"),
    451: (Exit.NOT_PERMITTED, "withholds it for legal reasons"),
}
"""What answers mean that neither a token nor time changes."""

_CONTENT = "content"
_CHECK = "is HF_ENDPOINT a hub, or a mirror that answers as one does?"
_MISSING = "there is no such repository, or it is private and no token was given"
_SHOWN = 8  # revisions named in a message


def parse(address: str) -> tuple[str, str]:
    """Return the repository and the revision that an address names.

    Raises:
        FaststartError: 2, it is none.
    """
    match = _ADDRESS.fullmatch(address.rstrip("/"))
    if match and address.isprintable():
        return match[1], match[2] or DEFAULT_REVISION
    named = _ADDRESS.fullmatch(address.partition("@")[0])
    what = "its revision is empty or has blanks" if named else "no repository has such a name"
    message = (
        f"is no address of a model on the Hugging Face hub: {what}; hf://ORG/NAME and hf://ORG/NAME@REVISION are, with "
        "a branch, a tag or a commit as the revision (main, if there is none)"
    )
    raise FaststartError(Exit.USAGE, message, os.fsencode(address))


def open_hub(address: str, token_file: str | None, patience: Patience) -> HubRemote:
    """Return the place that an address stands for; nothing is asked of the hub yet.

    Args:
        address: hf://ORG/NAME or hf://ORG/NAME@REVISION.
        token_file: holds the token; None for huggingface_hub's own: HF_TOKEN, or the file that `hf auth login` wrote.
        patience: asked whether to stop.

    Raises:
        FaststartError: 2, the address or HF_ENDPOINT is none, or this Python has no huggingface_hub.
    """
    repository, revision = parse(address)
    warnings.filterwarnings("ignore", module="huggingface_hub")
    try:
        from huggingface_hub import constants
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        message = f"hf:// needs huggingface_hub, which this Python has not: {error}"
        raise FaststartError(Exit.USAGE, message) from error
    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL + 1)
    constants.HF_HUB_DISABLE_TELEMETRY = True
    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    if not _ENDPOINT.fullmatch(endpoint) or lines.holds_secret(endpoint):
        message = "HF_ENDPOINT is no http:// or https:// address, or has a user name, a password or a query in it"
        raise FaststartError(Exit.USAGE, f"{message}: https://HOST is one; a token comes from --token-file or HF_TOKEN")
    return HubRemote(endpoint, repository, revision, token_file, patience)


class HubRemote:
    """A revision of a model's repository; see `publish.remote.Remote`."""

    def __init__(self, endpoint: str, repository: str, revision: str, token_file: str | None, patience: Patience):
        self._endpoint = endpoint
        self._repository = repository
        self._revision = revision
        self._token_file = token_file
        self._patience = patience
        self._commits: dict[RemoteFile, str] = {}

    def listing(self) -> Listing:
        """Return what the revision stands for now; the address names its commit, which stands for it for ever.

        Raises:
            FaststartError: 2, huggingface_hub is told to stay offline, or what answers is no hub; 6, no such
                repository or revision, or it is empty; 7, no access, or no token in its file; 11, network; 143,
                SIGTERM.
        """
        return self._repeat(self._list, f"hf://{self._repository}@{self._revision}".encode())

    def fetch(self, file: RemoteFile, folder: str, progress: Callable[[int], None]) -> str:
        """Bring a file of the commit that was listed; called from several threads.

        A part that an earlier try left is gone on with if the hub told the file's SHA-256, by which sealing finds out
        whether the two belong together. Files without are small, and begun anew; they are held against the name that
        git gives to their content.

        Args:
            file: one of a listing.
            folder: exists, for this file alone, and may hold what an earlier try left of the same version.
            progress: told how many more bytes have come, without those that were there before, and fewer than none
                where some have to come again.

        Returns:
            Where in the folder the file lies; its size is the listed one.

        Raises:
            FaststartError: 2, huggingface_hub is told to stay offline, or to bring more than it can over HTTP; 3, the
                disk is full; 7, no access, a licence to accept, or no token in its file; 8, it is gone or of another
                size; 9, the file cannot be written; 11, network, or what comes is not the listed content; 143, SIGTERM.
        """
        came = _Came(progress)
        return self._repeat(lambda: self._bring_right(file, folder, came), file.path)

    def _bring_right(self, file: RemoteFile, folder: str, came: _Came) -> str:
        path = self._bring(file, folder, came)
        with writing(file.path):
            size = os.stat(path).st_size
            if size != file.size:
                raise FaststartError(Exit.CHANGED, f"came with {size} bytes, {file.size} were listed", file.path)
            if file.sha256 is None and _blob_id(path, size) != file.version:
                message = f"what {lines.host(self._endpoint)} sends is not the content that it listed"
                raise FaststartError(Exit.NETWORK, message, file.path)
        return path

    def _repeat(self, call: Callable[[], T], about: bytes) -> T:
        """Call until it does not end with code 11, with growing pauses or those that the hub asks for."""
        tries = 0
        while True:
            self._patience.check()
            pause = 0.0
            try:
                return self._aside(call)
            except FaststartError as error:
                failure = error
            except _NoHubError as error:
                raise FaststartError(Exit.USAGE, f"{lines.host(self._endpoint)} {error}: {_CHECK}", about) from error
            except _known() as error:
                failure, pause = self._failure(error, about), _asked_pause(error)
            tries += 1
            if failure.code != Exit.NETWORK:
                raise failure
            if tries > len(DELAYS):
                raise FaststartError(Exit.NETWORK, f"{failure.message}, after {tries} tries", about) from failure
            self._patience.count_retry()
            self._patience.pause(max(pause, DELAYS[tries - 1]))

    def _aside(self, call: Callable[[], T]) -> T:
        """Call in a thread, so that a stop is noticed while the network hangs.

        The thread is then left behind: it is a daemon, and its next write to a part raises.
        """
        found: list[T] = []
        pool.each([call], lambda one: found.append(one()), self._patience, threads=1)
        return found[0]

    def _list(self) -> Listing:
        from huggingface_hub import errors

        api = self._api(self._token())
        where = f"hf://{self._repository}"
        about = f"{where}@{self._revision}".encode()
        try:
            info = api.model_info(self._repository, revision=self._revision, files_metadata=True, timeout=LIST_SECONDS)
            commit, files = _content(info)
        except errors.RevisionNotFoundError as error:
            message = f"there is no such revision{self._known_revisions(api)}"
            raise FaststartError(Exit.NO_MODEL, message, about) from error
        except errors.HfHubHTTPError:  # one of them is a ValueError, too
            raise
        except (json.JSONDecodeError, UnicodeDecodeError) as error:  # a proxy says something, and may let it pass later
            message = f"{lines.host(self._endpoint)} gives no answer of a Hugging Face hub: {_one_line(error)}"
            raise FaststartError(Exit.NETWORK, message, about) from error
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise _NoHubError(f"gives no answer of a Hugging Face hub: {_one_line(error)}") from error
        if not files:
            raise FaststartError(Exit.NO_MODEL, "the repository holds no file", about)
        address = f"{where}@{commit}"
        found = listed(files)
        self._commits.update(dict.fromkeys(found, commit))
        return Listing(address, found, licence=_licence(info.card_data, about), lasting=True)

    def _known_revisions(self, api: Any) -> str:
        try:
            refs = api.list_repo_refs(self._repository)
            known = [ref.name for ref in (*refs.branches, *refs.tags)]
        except (*_known(), _NoHubError, ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            return ""
        more = ", ..." if len(known) > _SHOWN else ""
        return f"; there are {', '.join(map(lines.name, known[:_SHOWN]))}{more} and the commits" if known else ""

    def _bring(self, file: RemoteFile, folder: str, came: _Came) -> str:
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        path = os.path.join(folder, _CONTENT)
        with writing(file.path), io.FileIO(path, "ab") as part:
            begun = part.tell()
            if file.sha256 is None or begun > file.size:
                begun = part.truncate(0)
                came.begin_anew()
        if begun == file.size > 0:
            return path
        name, commit, token = file.path.decode(), self._commits[file], self._token()
        api = self._api(token)
        url = hf_hub_url(self._repository, name, revision=commit, endpoint=self._endpoint)
        metadata = api.get_hf_file_metadata(url=url)
        if metadata.size not in (None, file.size):
            raise FaststartError(Exit.CHANGED, f"has {metadata.size} bytes, {file.size} were listed", file.path)
        in_xet = getattr(metadata, "xet_file_data", None) and importlib.util.find_spec("hf_xet")
        if in_xet and not getattr(constants, "HF_HUB_DISABLE_XET", False):
            # A killed run leaves as much as it had, under a name that nothing looks for again.
            shutil.rmtree(os.path.join(folder, ".cache"), ignore_errors=True)
            cache = os.path.join(folder, ".cache", "hub")  # else a cache of the user's would be looked at
            path = api.hf_hub_download(self._repository, name, revision=commit, local_dir=folder, cache_dir=cache)
            came.more(file.size)
            return path
        largest = getattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", file.size)
        if file.size > largest:
            message = (
                f"has {file.size} bytes, and huggingface_hub brings {largest} at most over plain HTTP:"
                " install hf_xet, and do not set HF_HUB_DISABLE_XET"
            )
            raise FaststartError(Exit.USAGE, message, file.path)
        headers = {**build_hf_headers(token=token), "Accept-Encoding": "identity"}  # a packed answer has no ranges
        with writing(file.path):
            part = _Part(path, file, came.more, self._patience, came.begin_anew)
        try:
            _download(url, headers, part, file)
        finally:
            with writing(file.path):
                part.close()
        return path

    def _api(self, token: str | None) -> Any:
        from huggingface_hub import HfApi

        _cut_answers()
        return HfApi(endpoint=self._endpoint, token=token)

    def _token(self) -> str | None:
        """Return the token, read anew each time: a mounted Secret may change."""
        if self._token_file is None:
            return None
        about = os.fsencode(self._token_file)
        try:
            with open(self._token_file, "rb") as stream:
                token = stream.read().strip()
        except OSError as error:
            message = f"the file with the token cannot be read: {error.strerror}"
            raise FaststartError(Exit.NOT_PERMITTED, message, about) from error
        if not _TOKEN.fullmatch(token):
            what = "has blanks or other characters that no token has" if token else "is empty"
            message = f"the file with the token {what}: one word of Hugging Face's is expected, hf_..."
            raise FaststartError(Exit.NOT_PERMITTED, message, about)
        return token.decode()

    def _failure(self, error: BaseException, about: bytes) -> FaststartError:
        """Return what an error of huggingface_hub means."""
        from huggingface_hub import errors

        def failure(code: Exit, message: str) -> FaststartError:
            return FaststartError(code, message, about)

        if is_refusal(error):
            return NoThreadError()
        host = lines.host(self._endpoint)
        response: Any = getattr(error, "response", None)
        if isinstance(error, errors.OfflineModeIsEnabled):
            message = "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, and this needs the hub: unset it"
            return failure(Exit.USAGE, message)
        if response is None:
            if isinstance(error, OSError) and error.errno is not None:
                return destination_error(error, about)
            if not isinstance(error, OSError) and (isinstance(error, ValueError) or "URL" in type(error).__name__):
                message = f"{host}, or a proxy, leads to what is no address: {_one_line(error)}"
                return failure(Exit.USAGE, f"{message}; {_CHECK}")
            return failure(Exit.NETWORK, f"asking {_host_of(error, self._endpoint)} failed: {_one_line(error)}")
        sent = "authorization" in response.request.headers
        said = _said(response)
        if isinstance(error, errors.GatedRepoError):
            why = "the account of the token has no access yet" if sent else "no token was given"
            message = (
                f"the repository is gated, and {why}: accept the licence at {self._endpoint}/{self._repository}"
                f" with the account whose token this is, then run again{said}"
            )
            return failure(Exit.NOT_PERMITTED, message)
        if isinstance(error, errors.EntryNotFoundError | errors.RevisionNotFoundError):
            return failure(Exit.CHANGED, f"is not in the commit any more that was listed{said}")
        if response.status_code == 401:
            token = f"the token in {self._token_file}" if self._token_file else "the token"
            why = f"{host} does not accept {token}: it is wrong or has expired" if sent else _MISSING
            return failure(Exit.NOT_PERMITTED, why + said)
        if response.status_code == 403:
            return failure(Exit.NOT_PERMITTED, f"{host} allows no access{said}")
        if response.status_code == 404:
            why = "there is no such repository, or the account of the token may not see it" if sent else _MISSING
            return failure(Exit.NO_MODEL, why + said)
        if response.status_code in _WITHHELD:
            code, why = _WITHHELD[response.status_code]
            return failure(code, f"{host} {why}: {_status(error)}{said}")
        if is_lasting(response.status_code):
            return failure(Exit.USAGE, f"{host} does not take such a request: {_status(error)}{said}; {_CHECK}")
        return failure(Exit.NETWORK, f"{host} answers with {_status(error)}{said}")


def is_lasting(status: int) -> bool:
    """Say whether the same request would be answered with the same error again."""
    return status not in _PASSING and (status < 500 or status in _LASTING)


class _NoHubError(Exception):
    """An answer of which it is said what it lacks of that of a hub, or has too much."""


def _cut(response: Any) -> None:
    """Let an answer that is read whole end, whatever the hub sends; of a download `_Part` knows the length."""
    whole = response.iter_bytes

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        if chunk_size is not None:  # so that it is not read whole
            yield from whole(chunk_size)
            return
        length, values, end = 0, 0, time.monotonic() + ANSWER_SECONDS
        for data in whole():
            length += len(data)
            values += documents.values(data)
            if length > ANSWER_BYTES or values > documents.MAX_VALUES:
                raise _NoHubError(f"gives an answer without end: more than {length} bytes with {values} values")
            if time.monotonic() > end:
                raise _NoHubError(
                    f"gives an answer without end: {length} bytes in {ANSWER_SECONDS} s, and there are more"
                )
            yield data

    response.iter_bytes = iter_bytes


def _cut_answers() -> None:
    """Bound all answers that huggingface_hub reads whole; versions that are built on requests have no such hooks."""
    from huggingface_hub.utils import get_session

    hooks = getattr(get_session(), "event_hooks", {}).get("response")
    if hooks is not None and _cut not in hooks:
        hooks.append(_cut)


class _Came:
    """What has come of a file in this run, and who is told."""

    def __init__(self, progress: Callable[[int], None]):
        self._progress = progress
        self._bytes = 0

    def more(self, number: int) -> None:
        """Tell that more bytes have come."""
        self._bytes += number
        self._progress(number)

    def begin_anew(self) -> None:
        """Tell that all that has come has to come again."""
        self.more(-self._bytes)


class _Part(io.FileIO):
    """What has come of a file, to which more is added."""

    def __init__(
        self,
        path: str,
        file: RemoteFile,
        progress: Callable[[int], None],
        patience: Patience,
        begin_anew: Callable[[], None] = lambda: None,
    ):
        super().__init__(path, "ab")
        self._begun = self.tell()
        self._file = file
        self._progress = progress
        self._begin_anew = begin_anew
        self._patience = patience

    def write(self, data: Any, /) -> int:
        """Add bytes, and tell of them.

        Raises:
            FaststartError: 3, 7 or 9, that failed; 8, these are more than the file has (11, if an earlier try's bytes
                are among them: then the part is begun anew); 143, SIGTERM.
        """
        self._patience.check()
        rest = memoryview(data)
        with writing(self._file.path):
            if self.tell() + len(rest) > self._file.size:
                self.truncate(0)
                message = f"is longer than the {self._file.size} bytes that were listed"
                raise FaststartError(Exit.NETWORK if self._begun else Exit.CHANGED, message, self._file.path)
            while rest:
                rest = rest[super().write(rest) :]
        self._progress(len(data))
        return len(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Take back bytes, all of them where http_get was sent the whole file in place of the rest."""
        if size == 0:
            self._begin_anew()
        return super().truncate(size)


def _download(url: str, headers: dict[str, str], part: Any, file: RemoteFile) -> None:
    """Add to a part what is missing. Each request asks the hub where the content lies: signed addresses expire."""
    from huggingface_hub.file_download import http_get

    name = os.path.basename(file.path.decode())
    begun = part.tell()
    try:
        http_get(url, part, resume_size=begun, headers=headers, expected_size=file.size, displayed_filename=name)
    except _known() as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in _WITHHELD:
            code, why = _WITHHELD[status]
            raise FaststartError(code, f"{_host_of(error, url)} {why}: {_status(error)}", file.path) from error
        # What the hub itself refuses, it refuses to the next try's look, too, and with the right code.
        message = f"the download from {_host_of(error, url)} broke off: {_status(error) or _one_line(error)}"
        raise FaststartError(Exit.NETWORK, message, file.path) from error


def _known() -> tuple[type[BaseException], ...]:
    """Return what huggingface_hub raises: the base classes are those of requests, httpx or httpx2, by its version.

    A RuntimeError comes from hf_xet, and from a connection that another thread has closed; a ValueError, or what these
    libraries call InvalidURL, from an address that is none: a proxy's, or one to which the hub redirects.
    """
    from huggingface_hub.errors import HfHubHTTPError

    bases = HfHubHTTPError.__bases__
    libraries = {sys.modules[base.__module__.partition(".")[0]] for base in bases}
    no_addresses = [getattr(library, "InvalidURL", ValueError) for library in libraries]
    return (*bases, *no_addresses, OSError, RuntimeError, ValueError)


def _content(info: Any) -> tuple[str, list[RemoteFile]]:
    """Return the commit and the files of what the hub tells about a revision.

    Raises:
        _NoHubError: the commit is missing, or each size or version.
    """
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise _NoHubError(f"names no commit that the revision stands for, but {lines.value(info.sha)}")
    siblings = info.siblings or ()
    if len(siblings) > MAX_FILES:
        message = f"the repository has {len(siblings)} files, and {MAX_FILES} are listed at most: it is no model's"
        raise FaststartError(Exit.DAMAGED, message)
    files = [_file(sibling) for sibling in siblings]
    if files and all(file.hold for file in files):
        raise _NoHubError("tells no size or no version of any file")
    return info.sha, files


def _file(sibling: Any) -> RemoteFile:
    name, size = sibling.rfilename, sibling.size
    if not isinstance(name, str):
        raise _NoHubError(f"gives no answer of a Hugging Face hub: a file's name is {documents.kind(name)}")
    try:
        path = name.encode()
    except UnicodeEncodeError as error:
        message = (
            f"the repository has a file with half a character in its name, which no file can have: {lines.value(name)}"
        )
        raise FaststartError(Exit.DAMAGED, message) from error
    sha256 = sibling.lfs.sha256 if sibling.lfs else None
    version = sha256 or sibling.blob_id
    if type(size) is not int or size < 0 or not isinstance(version, str) or not _VERSION.fullmatch(version):

        def refuse() -> None:
            raise FaststartError(Exit.USAGE, f"has no size or no version in the hub's answer: {_CHECK}", path)

        return RemoteFile(path, 0, "", None, refuse)
    if sha256 and not _SHA256.fullmatch(sha256):
        raise _NoHubError(f"tells no SHA-256 of {lines.value(name)}, but {lines.value(sha256)}")
    return RemoteFile(path, size, version, sha256)


def _blob_id(path: str, size: int) -> str:
    """Return the name that git gives to a file's content (git-scm.com/book, "Git Objects")."""
    found = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with open(path, "rb") as stream:
        while data := stream.read(1 << 20):
            found.update(data)
    return found.hexdigest()


def _licence(card: Any, about: bytes) -> str | None:
    """Return the licence that a model card names.

    Raises:
        FaststartError: 4, it names one by what is no text, or cannot be written.
    """
    told = getattr(card, "license", None)
    licences = told if isinstance(told, list) else [] if told is None else [told]
    for licence in licences:
        if not isinstance(licence, str):
            message = f"the model card's license is {documents.kind(licence)}, and a text is expected"
            raise FaststartError(Exit.DAMAGED, message, about)
        try:
            licence.encode()
        except UnicodeEncodeError as error:
            message = f"the model card's license holds half a character, which nothing can write: {licence!a:.80}"
            raise FaststartError(Exit.DAMAGED, message, about) from error
    return ", ".join(licences) or None


def _asked_pause(error: BaseException) -> float:
    """Return how many seconds the hub asks to wait."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    limit = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    asked = limit[1] if limit else headers.get("retry-after", "")
    return min(float(asked), MAX_PAUSE) if asked.isdigit() else 0.0


def _status(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    return None if response is None else f"HTTP {response.status_code}"


def _said(response: Any) -> str:
    """Return what the hub says itself, in brackets."""
    token = response.request.headers.get("authorization", "").rpartition(" ")[2]
    said = _one_line(response.headers.get("x-error-message", ""))
    return f" ({said.replace(token, '...') if token else said})" if said else ""


def _one_line(told: object) -> str:
    """Return the first line of what is told, without the queries of addresses, which may be signed."""
    kind = f"{type(told).__name__}: " if isinstance(told, BaseException) else ""
    line = " ".join(str(told).split("\n", 1)[0].split())
    return lines.name(kind + re.sub(r"\?\S*", "?...", line), lines.NAME_BYTES)


def _host_of(error: Any, url: str) -> str:
    """Return the host that a failed request was for, that of an address where the error does not tell."""
    response = getattr(error, "response", None)
    try:
        return lines.host(str((error.request if response is None else response).url))
    except (AttributeError, RuntimeError):
        return lines.host(url)
