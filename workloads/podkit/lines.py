"""What others wrote, as one line for people: printable, of bounded length, and without secrets.

Imports nothing of ours, so that what people run beside the program can use it, too.
"""

from __future__ import annotations

import functools
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

LINE_BYTES = 4096
"""The most that a line has: as much as the kubelet keeps of a termination message, some fifty rows of a terminal."""

NAME_BYTES = 1024
"""The most of a path in a line, so that two of them leave room for what is said of them. A choice."""

VALUE_BYTES = 200
"""The most of another name or value in a line. A choice."""

MANY = 1000
"""How many lines of one kind are told. A choice: more files than models have, and what a terminal keeps."""

HIDDEN = "***"
"""What stands in the place of a secret."""

_LEAST = 6  # characters of a secret that is looked for wherever it stands: shorter ones are parts of common words

_WINDOW = 8  # so many times what is shown of a text is looked at, from either end

_MARK = re.compile(r"(://|:\\\\|:/|%(?:25)*3a(?:%(?:25)*2f|/){1,2}|//)[/\\]*", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z0-9+.-]*$", re.IGNORECASE)
_SCHEME_LENGTH = 16  # the most characters of a scheme
_KNOWN_SCHEMES = ("ftp", "hf", "http", "https", "s3")  # by which also an address is known whose slashes were merged
_REVISIONED = ("hf", "s3")  # an @ in their paths is no sign of a password, and their hosts have no port
_AUTHORITY_END = re.compile(r"[/?#\\ ]|%(?:25)*(?:2f|3f|23)", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[^\]@]*\]|[^:@\[\]]*)(?::[0-9]*)?")
_AT = re.compile(r"@|%(?:25)*40")
_PUNCTUATION = ".,:;!?)]}>'\"`"
_FAR = 200  # characters: how far from a broken address its @ may be

_NAMED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)(?:%(?:25)*3d|=['\"]?|['\"]\s*:\s*['\"])(?=[^\s'\"&])", re.IGNORECASE)
_VALUE_END = re.compile(r"[\s'\"&]|%(?:25)*26|$")
_ENCODED = re.compile(r"^(?:25)*(?:26|3f|23|3b|2c)", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"(?:.*[_.-])?(?:sig|auth|jwt|pwd|pass|key|policy)|"
    r".*(?:token|signature|secret|password|passwd|passphrase|credentials?|apikey|accesskey|accesskeyid|authorization)",
    re.IGNORECASE,
)
_COMMON = ("key", "pass", "policy")  # names of folders, too, as key=value, which is how tables are laid out in S3
_SHAPES = re.compile(
    r"(?<![a-z0-9])(?:(?:hf|api_org)_[a-z0-9]{30,}|hf_oauth_[\w.-]{20,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)|"
    r"(?<=bearer )[\w.~+/=-]{6,}|(?<=basic )[\w+/=]{12,}",
    re.IGNORECASE,
)
"""Tokens of Hugging Face (hf_ and 34 letters), JSON Web Tokens (RFC 7519), and what follows Bearer (RFC 6750) and Basic
(RFC 7617)."""

_PORT = re.compile(r"""(?i:(?<=\bport: ['"])|(?<=\bport ['"])|(?<=integer value as ['"]))(?![0-9]*['"])[^'"]+""")
"""What stands where a port should: a password, if its host is behind an @ that was taken for a part of the path."""

_VARIABLES = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)  # fmt: skip
"""Variables whose values are secrets (huggingface_hub: utils/_auth.py; botocore: credentials.py, utils.py)."""


def line(text: str, known: Collection[str] = (), most: int = LINE_BYTES) -> str:
    """Return a text as one printable line without secrets; a long one loses its middle, and says how much.

    The same again changes nothing.

    Args:
        text: what is to be told; may hold halves of characters.
        known: secrets that must not stand in it, however they came there.
        most: bytes that the line may have in UTF-8.
    """
    window = _WINDOW * most
    if len(text) <= 2 * window:
        return _bounded(mask(text, known), most)
    first, last = mask(text[:window], known), mask(text[-window:], known)
    return _cut(first, last, len(text) - 2 * window + len(first) + len(last), most)


def value(found: object, most: int = VALUE_BYTES) -> str:
    """Return a value from a stranger's JSON as Python writes it, in a printable form of so many bytes at the most."""
    return _bounded(reprlib.repr(found), most)


def name(text: str, most: int = VALUE_BYTES) -> str:
    """Return a stranger's name of something as printable text of so many bytes at the most."""
    return _bounded(text, most)


def joined(text: str, most: int = LINE_BYTES) -> str:
    """Return the lines of a text as one, with strokes between them."""
    return line(" / ".join(filter(None, map(str.strip, text.splitlines()))), most=most)


def told(document: Mapping[str, Any], tell: Callable[[str], str]) -> dict[str, Any]:
    """Return fields for a machine whose texts may be printed by it.

    Args:
        document: the fields.
        tell: makes a line of a text.
    """
    return {key: tell(found) if isinstance(found, str) else found for key, found in document.items()}


def tell_many(lines: Sequence[object], tell: Callable[[str], object], what: str, most: int = MANY) -> None:
    """Tell lines, the first of them if there are too many, and how many more there are.

    Args:
        lines: what is to be told, the most important first.
        tell: takes a line.
        what: what the lines are, in one word or two.
        most: how many are told.
    """
    for one in lines[:most]:
        tell(str(one))
    if len(lines) > most:
        tell(f"... and {len(lines) - most} more {what}")


def mask(text: str, known: Collection[str] = ()) -> str:
    """Return a text in one printable line, with *** for each secret: of an address, by its name, or by its form.

    Of an address that is what stands before its host, and what a parameter holds whose name is that of a secret. An @
    behind a host hides all before it, too, where no @ is common: a password may hold any character.

    Args:
        text: what may hold secrets.
        known: texts that are secrets.
    """
    text = _printable(text)
    if known:
        text = _anywhere(frozenset(known)).sub(HIDDEN, text)
    text = _hidden(text, _credentials(text))
    text = _PORT.sub(HIDDEN, _SHAPES.sub(HIDDEN, text))
    return _hidden(text, _named(text))


def holds_secret(text: str) -> bool:
    """Say whether a text has something that `mask` hides."""
    return mask(text) != _printable(text)


def host(address: str) -> str:
    """Return the host and the port of an address, without a user and a password; *** if these cannot be told apart."""
    authority = _authority(address)
    return authority if _HOST.fullmatch(authority) else _authority(mask(address)).rpartition("@")[2]


def secrets_of(environment: Mapping[str, str], arguments: Iterable[str] = ()) -> frozenset[str]:
    """Return what must not be told: secrets of variables, and those in addresses of variables and arguments.

    A library may tell a part of an address by which it is not known as one: a port that is no number, say.

    Args:
        environment: variables by their names.
        arguments: a command line.
    """
    found = [environment[variable] for variable in _VARIABLES if variable in environment]
    for text in (*environment.values(), *arguments):
        if "/" not in text and "%" not in text:
            continue
        for start, end in _credentials(text):
            parts = re.split("[/?#@:]", text[start:end])
            found += [text[start:end], text[start:end].partition(":")[2], *parts]
        if "://" in text:
            found += [text[start:end] for start, end in _named(text)]
    return frozenset(form for one in found for form in (one, unquote(one)) if len(form) >= _LEAST)


@functools.lru_cache(maxsize=8)
def _anywhere(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return what finds texts, the longest first, whichever of their characters are percent-encoded, and how often."""

    def either(character: str) -> str:
        encoded = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode("utf-8", "surrogateescape"))
        return f"(?:{re.escape(character)}|{encoded})"

    return re.compile("|".join("".join(map(either, one)) for one in sorted(secrets, key=len, reverse=True)))


def _authority(address: str) -> str:
    rest = address.partition("://")[2]
    end = _AUTHORITY_END.search(rest)
    return rest[: end.start()] if end else rest


def _credentials(text: str) -> Iterator[tuple[int, int]]:
    """Yield where in a text the credentials of an address begin and end; the time that takes grows with its length."""
    done, end, raw_at, any_at = 0, -1, -1, -1
    for mark in _MARK.finditer(text):
        start, encoded = mark.end(), mark[1].startswith("%")
        if start <= done:
            continue
        if start > end:
            end = found if (found := text.find(" ", start)) >= 0 else len(text)
            raw_at = text.rfind("@", start, end)
            any_at = max((at.start() for at in _AT.finditer(text, start, end)), default=-1)
        named = _SCHEME.search(text, max(0, mark.start() - _SCHEME_LENGTH), mark.start())
        scheme = named[0].lower() if named else ""
        if mark[1] == ":/" and scheme not in _KNOWN_SCHEMES:
            continue
        stop = _AUTHORITY_END.search(text, start, end)
        authority = unquote(unquote(text[start : stop.start() if stop else end])).rstrip(_PUNCTUATION)
        if mark[1] == "//":
            broken = ":" in authority and "@" in authority
        elif scheme in _REVISIONED:
            broken = ":" in authority or "@" in authority
        else:
            broken = not _HOST.fullmatch(authority) or (any_at if encoded else raw_at) >= start
        if not broken:
            continue
        done = any_at if any_at >= start else text.find("@", end, end + _FAR)  # a password may have a blank
        done = done if done >= start else end
        yield start, done


def _named(text: str) -> Iterator[tuple[int, int]]:
    """Yield where in a text values begin and end whose names are those of secrets."""
    done = 0
    for found in _NAMED.finditer(text):
        name_found, in_path = _ENCODED.sub("", found["name"]), text[max(0, found.start() - 1)] == "/"
        if found.end() < done or (in_path and name_found.lower() in _COMMON):
            continue
        if _SECRET_NAME.fullmatch(name_found):
            end = _VALUE_END.search(text, found.end())
            done = end.start() if end else len(text)
            yield found.end(), done


def _hidden(text: str, spans: Iterable[tuple[int, int]]) -> str:
    shown, done = [], 0
    for start, end in spans:
        shown += [text[done:start], HIDDEN]
        done = end
    return "".join([*shown, text[done:]])


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _bounded(text: str, most: int) -> str:
    if len(text) <= most and len((shown := _printable(text)).encode()) <= most:
        return shown
    return _cut(text, text, len(text), most)


def _cut(first: str, last: str, length: int, most: int) -> str:
    """Return the beginning and the end of a text of so many characters, and between them how many are missing."""
    room = most - len(_left_out(length))
    start = _fill(first, room * 2 // 3)
    end = _fill(reversed(last), room // 3)
    return "".join([*start, _left_out(length - len(start) - len(end)), *reversed(end)])


def _left_out(characters: int) -> str:
    return f" ... {characters} characters left out ... "


def _fill(characters: Iterable[str], room: int) -> list[str]:
    """Return the first characters, each printable, that have so many bytes at the most."""
    pieces: list[str] = []
    for character in characters:
        piece = _printable(character)
        room -= len(piece.encode())
        if room < 0:
            break
        pieces.append(piece)
    return pieces
