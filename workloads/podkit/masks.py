"""Secrets that stand in addresses, or in the environment, and must reach no line, report or message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

MASK = "***"

_LEAST = 6  # characters of a secret that is known by its value: a shorter one would take words out of sentences
_NAMES = re.compile("token|secret|passw|credential|private_?key|authorization", re.IGNORECASE)
_PLACES = re.compile("_?(file|path|dir|uri|url|name|arn|role)s?$", re.IGNORECASE)

_USER = re.compile(r"\b([a-z][a-z0-9+.-]{0,30}):/+([^\s'\"<>]*)@", re.IGNORECASE)
_ENCODED_USER = re.compile(r"(%3a(?:%2f)+)[^\s'\"<>]*?(%40)", re.IGNORECASE)
_LOOSE_USER = re.compile(r"(?<![^\s'\"(=,])[^\s'\"/@:=]+:[^\s'\"/@]+@(?=[\w.\[-])")
_QUERY = re.compile(r"(?<=[^\s(])[?#&][\w.~%+\[\]-]+=[^\s'\"<>)]*")
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{8,}")
_HEADER = re.compile(r"\b(Bearer|Basic) +[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)

_WITH_REVISION = ("hf", "s3")
"""Schemes in which an @ may stand for something else; what is before it is a secret only with a colon."""

_known: set[str] = set()


def learn(*secrets: str) -> None:
    """Take over secrets that are known by their values; what is too short to be one is let be."""
    for secret in secrets:
        _known.update(form for form in (secret, quote(secret, safe=""), unquote(secret)) if len(form) >= _LEAST)


def learn_surroundings(environment: Mapping[str, str], arguments: Iterable[str]) -> None:
    """Take over the secrets of an environment and of a command line: by their names, and those in addresses."""
    for name, value in environment.items():
        if _NAMES.search(name) and not _PLACES.search(name):
            learn(value.strip())
    for text in (*environment.values(), *arguments):
        for scheme, user in _USER.findall(text):
            if _is_secret(scheme, user):
                learn(user, *user.split(":", 1)[-1:])


def mask(text: str) -> str:
    """Return a text without the secrets that it may hold: known values, users and passwords, queries, tokens."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _USER.sub(lambda match: f"{match[1]}://{MASK}@" if _is_secret(match[1], match[2]) else match[0], text)
    text = _ENCODED_USER.sub(rf"\1{MASK}\2", text)
    text = _LOOSE_USER.sub(f"{MASK}@", text)
    text = _QUERY.sub("?...", text)
    text = _TOKEN.sub(f"hf_{MASK}", text)
    return _HEADER.sub(rf"\1 {MASK}", text)


def _is_secret(scheme: str, user: str) -> bool:
    return scheme.lower() not in _WITH_REVISION or ":" in user or "%3a" in user.lower()
