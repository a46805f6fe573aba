"""What others wrote, as one line: nothing of it leaves the line, none is too long, and no secret stands in it."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podkit import lines

pytestmark = pytest.mark.inputs

FORGERIES = {
    "line feed": "x\npublish: sealed 16.1 GB: sha256:0",
    "carriage return": "x\rpublish: sealed 16.1 GB: sha256:0",
    "clears the terminal": "\x1b[2J\x1b[Hpublish: sealed",
    "C1 control sequence": "\x9b2Jpublish: sealed",
    "next line of C1": "x\x85publish: sealed",
    "line separator": "x\u2028publish: sealed",
    "paragraph separator": "x\u2029publish: sealed",
    "right-to-left override": "\u202esetag :delaes",
    "isolate": "\u2066sealed\u2069",
    "right-to-left mark": "\u200fsealed",
    "tag characters": "sealed\U000e0041",
    "zero width": "sea\u200bled",
    "lone surrogate": "\ud800sealed\udfff",
    "backspaces": "wrong\b\b\b\b\bright",
    "bell and window title": "\x1b]0;sealed\x07",
    "form feed and vertical tab": "x\x0c\x0bsealed",
    "zero": "x\0sealed",
}


@pytest.mark.parametrize("text", FORGERIES.values(), ids=FORGERIES)
def test_nothing_that_moves_a_cursor_or_turns_the_text_around_stays_as_it_is(text):
    shown = lines.line(text)

    assert shown.isprintable()
    assert shown.splitlines() == [shown]


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(60, 400))
def test_any_text_becomes_one_printable_line_that_has_no_more_bytes_than_it_may_have_and_is_told_so_again(text, most):
    shown = lines.line(text, most=most)

    assert shown.isprintable()
    assert len(shown.encode()) <= most
    assert lines.line(shown, most=most) == shown


@pytest.mark.parametrize("unit", ["x", "\x1b", "é", "\U0001f600", "\u202e", "[1, 2], ", "a/b c"])
@pytest.mark.parametrize("times", [4096, 100_000, 1_000_000])
def test_a_long_text_keeps_its_beginning_and_its_end_and_says_how_much_is_missing(unit, times):
    text = f"is damaged: {unit * times}; fetch it again"
    shown = lines.line(text)

    assert len(shown.encode()) <= lines.LINE_BYTES
    assert shown.startswith("is damaged: ")
    assert shown.endswith("; fetch it again")
    first, missing, last = re.split(r" \.\.\. ([0-9]+) characters left out \.\.\. ", shown)
    counted = len(first) + int(missing) + len(last)
    assert counted == len(text) if unit.isprintable() else counted >= len(text)  # an escape is several characters


@pytest.mark.parametrize(
    "text",
    ["://" * 2_000_000, ":/@" * 2_000_000, "token=" * 2_000_000, "%2" * 3_000_000, "a." * 3_000_000, "eyJ" * 2_000_000],
)
def test_the_time_for_a_line_does_not_grow_with_what_is_left_out_of_it(text):
    began = time.process_time()
    lines.line(text)

    assert time.process_time() - began < 5  # it takes a tenth of a second; what looks back and forth takes hours


def test_of_many_lines_the_first_are_told_and_how_many_more_there_are():
    told: list[str] = []
    lines.tell_many([f"line {number}" for number in range(5000)], told.append, "findings")
    assert (len(told), told[0], told[-1]) == (lines.MANY + 1, "line 0", "... and 4000 more findings")

    told.clear()
    lines.tell_many(["one", "two"], told.append, "findings")
    assert told == ["one", "two"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([1] * 3_000_000, "[1, 1, 1, 1, 1, 1, ...]"),
        ({"a": "\x1b"}, "{'a': '\\x1b'}"),
        (2**63, "9223372036854775808"),
        ("x" * 10**6, None),
        ([[[[[[[[[[]]]]]]]]]], None),
        ("\ud800", "'\\ud800'"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_value_is_shown_in_a_few_characters(value, shown):
    found = lines.value(value)

    assert len(found) <= lines.VALUE_BYTES
    assert found.isprintable()
    assert shown in (None, found)


# Secrets

SECRET = "PlAnTeDsEcReT"
DRESSES = {
    "user and password": "https://someone:{}@host/x",
    "no password": "https://{}@host/x",
    "no user": "https://:{}@host/x",
    "upper case": "HTTPS://SOMEONE:{}@HOST/x",
    "IPv6 host": "http://someone:{}@[fe80::1%25eth0]:8080/x",
    "IPv6 host without brackets": "http://someone:{}@::1/x",
    "an @ in it": "https://someone:p@{}@host/x",
    "a slash in it": "https://someone:p/{}@host/x",
    "a colon in it": "https://someone:p:{}@host/x",
    "a question mark in it": "https://someone:p?{}@host/x",
    "a number sign in it": "https://someone:p#{}@host/x",
    "a blank in it": "https://someone:p {}@host/x",
    "an encoded slash in it": "https://someone:p%2F{}@host/x",
    "an encoded @": "https://someone:{}%40host/x",
    "no host": "https://someone:{}",
    "user of a repository": "hf://someone:{}@org/name@main",
    "token of a repository": "hf://{}@org/name@main",
    "keys of a bucket": "s3://AKIAEXAMPLE:{}@bucket/prefix",
    "keys of a bucket with a slash": "s3://AKIAEXAMPLE:p/{}@bucket/prefix",
    "keys and no bucket": "s3://AKIAEXAMPLE:{}",
    "slashes that were merged": "/work/https:/someone:{}@host/x",
    "many slashes": "https:////someone:{}@host/x",
    "backslashes": "https:\\\\someone:{}@host/x",
    "no scheme": "//someone:{}@host/x",
    "another scheme": "ftp://someone:{}@host/x",
    "an address in an address": "https://host/?next=https%3A%2F%2Fsomeone%3A{}%40host%2Fx",
    "encoded twice": "https://host/?next=https%253A%252F%252Fsomeone%253A{}%2540host",
    "in brackets": "(<'https://someone:{}@host/x'>)",
    "in a list": "s3://bucket/x,https://someone:{}@host/x",
    "a signature of AWS": "https://host/x?X-Amz-Date=1&X-Amz-Signature={}&x=1",
    "a session of AWS": "https://host/x?X-Amz-Security-Token={}",
    "a signature of CloudFront": "https://host/x?Expires=1&Signature={}&Key-Pair-Id=K",
    "a signature of Google": "https://host/x?X-Goog-Signature={}",
    "a signature of Azure": "https://host/x?se=2030&sig={}",
    "a token in a query": "https://host/x?token={}",
    "a token in a fragment": "https://host/x#access_token={}&x=1",
    "an encoded query": "https://host/x%3Ftoken%3D{}%26x%3D1",
    "an encoded short name": "https://host/?u=x%26sig%3D{}%26y",
    "a path without a host": "Max retries exceeded with url: /x?X-Amz-Signature={} (Caused by",
    "an escaped line feed before it": "https://host/x\n?token={}",
    "JSON": '{{"access_token": "{}"}}',
    "a header": "{{'authorization': 'Bearer {}'}}",
    "a header of bytes": "Illegal header value b'Bearer {}'",
    "a port that is none": "Port could not be cast to integer value as '{}'",
    "another port that is none": "nonnumeric port: '{}'",
    "an invalid port": "Invalid port: '{}'",
    "behind another name": "--x=https://host/x?token={}",
    "behind many names": "a=b=c=d=token={}",
    "a password by its name": "db_password={} is wrong",
}


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES)
@pytest.mark.parametrize(
    "around", ["{}", "no such place: {}: try again", "{} and {}", "x" * 5000 + " {} " + "y" * 5000]
)
def test_a_secret_of_an_address_does_not_stand_in_a_line(dress, around):
    shown = lines.line(around.replace("{}", dress.format(SECRET)))

    assert SECRET not in shown
    assert lines.line(shown) == shown


def _small(encoded: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), encoded)


def test_the_host_of_an_address_stays():
    assert lines.mask("https://someone:secret@host:8080/x: gone") == "https://***@host:8080/x: gone"
    assert lines.mask("hf://someone:secret@org/name") == "hf://***@org/name"
    assert lines.mask("https://host/x?X-Amz-Signature=abc&x=1") == "https://host/x?X-Amz-Signature=***&x=1"


@pytest.mark.parametrize(
    "text",
    [
        "hf://org/name@main is another commit now",
        "hf://org/name@feature/of-somebody@work",
        "hf://ORG/NAME@REVISION are, with a branch",
        "s3://bucket/llama@v2/",
        "s3://bucket: there is no such bucket",
        "a source is s3://, hf:// or a folder",
        "http://127.0.0.1:8080/org/name: no answer",
        "asking [::1]:8080 failed",
        "'http://[::1]:8080'",
        "(https://hub.example:443).",
        "arn:aws:s3:::bucket/x@y",
        "path:/fsx/models/llama@v2",
        "vllm/vllm-openai:v0.32.0@sha256:0123",
        "the file with the token is empty: one word of Hugging Face's is expected, hf_...",
        "tokenizer=none, special_tokens_map.json",
        "sha256:" + "0" * 64,
        "s3://bucket/key=7/llama",
        "model-00001-of-00002.safetensors",
    ],
)
def test_what_is_no_secret_is_told(text):
    assert lines.line(text) == text


@pytest.mark.parametrize(
    "told",
    [
        "nonnumeric port: '{}'",
        "Port could not be cast to integer value as '{}'",
        "someone:{}@host",
        "https://host/{}",
        "{}",
    ],
)
@pytest.mark.parametrize(
    "environment",
    [
        {"HF_ENDPOINT": "https://someone:{}@host"},
        {"AWS_ENDPOINT_URL": "https://{}@host"},
        {"HTTPS_PROXY": "http://someone:{}@proxy:3128"},
        {"AWS_SECRET_ACCESS_KEY": "{}"},
        {"HF_TOKEN": "{}"},
        {"ANY_OTHER": "see https://host/x?X-Amz-Signature={}&x"},
    ],
    ids=lambda one: next(iter(one)),
)
@pytest.mark.parametrize(
    "secret", [SECRET, f"{SECRET}/with@more:of?it#all", f"{SECRET}+/="], ids=["plain", "parts", "base64"]
)
def test_a_secret_of_a_variable_stands_in_no_line_in_whatever_form(told, environment, secret):
    if "ANY_OTHER" in environment and "&" not in secret and "#" in secret:
        secret = quote(secret, "")
    known = lines.secrets_of({name: value.format(secret) for name, value in environment.items()})

    for form in (secret, quote(secret, ""), quote(secret), quote(quote(secret, ""), ""), _small(quote(secret, ""))):
        assert SECRET not in lines.line(told.format(form), known)


def test_what_variables_hold_that_is_common_stays():
    known = lines.secrets_of(
        {"AWS_SECRET_ACCESS_KEY": "test", "HOME": "/root", "HF_ENDPOINT": "https://hub.example:8080/x"}
    )

    assert lines.line("the test of /root at hub.example:8080/x", known) == "the test of /root at hub.example:8080/x"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://hub.example/x@y", "hub.example"),
        ("https://u:p@hub.example:8080/x", "hub.example:8080"),
        ("https://u:p/w@hub.example?x", "hub.example"),
        ("http://[::1]:80/x", "[::1]:80"),
        ("https://u:p", "***"),
        ("nonsense", ""),
    ],
)
def test_the_host_of_an_address_is_told_without_a_user(address, host):
    assert lines.host(address) == host
