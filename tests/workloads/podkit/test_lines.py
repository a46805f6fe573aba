"""What a program says: one printable line each, of bounded length, without the secrets of addresses."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podkit import masks
from podkit.display import LINE, line, show, some
from podkit.masks import learn, learn_surroundings, mask


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(masks, "_known", set())


@given(st.text())
def test_any_text_is_one_printable_line_of_bounded_length(text):
    assert line(text).isprintable()
    assert len(line(text)) <= LINE


@pytest.mark.parametrize(
    "text",
    [
        "a\npublish: sealed", "\r\x1b[2K\x1b[32mdone", "a\u2028b", "a\u2029b", "a\x85b", "\x9b31m", "\u202egnp.exe",
        "\u2066x\u2069", "\ud800", "\udfff\ud800", "\x00", "\x7f", "\u200b", "\ufeff", "\U000e0001",
    ],
)  # fmt: skip
def test_what_moves_a_cursor_breaks_a_line_or_turns_it_becomes_an_escape(text):
    assert line(text) == "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@pytest.mark.parametrize("size", [LINE + 1, 3 * LINE, 1_000_000])
@pytest.mark.parametrize("filler", ["x", "\x1b", "[0, ", "\u202e", "a://"])
def test_of_a_long_text_the_beginning_and_the_end_are_kept_and_how_much_is_not(filler, size):
    text = f"the file is wrong: {filler * size}: fetch it again"
    found = line(text)
    assert found.startswith("the file is wrong: ")
    assert found.endswith(": fetch it again")
    assert "characters left out" in found
    assert len(found) <= LINE


def test_a_path_of_any_length_is_shown_short():
    assert len(show(b"deep/" * 10_000)) <= 1024
    assert show(b"deep/" * 60) == "deep/" * 60


def test_of_many_lines_some_are_given_and_the_number_of_the_others():
    assert list(some([f"line {number}" for number in range(1000)], "findings", 2)) == [
        "line 0",
        "line 1",
        "... and 998 more findings",
    ]
    assert list(some(["one"], "findings")) == ["one"]


MASKED = {
    "https://user:hunter2secret@hub.example/a": "https://***@hub.example/a",
    "HTTPS://user:hunter2secret@hub.example": "HTTPS://***@hub.example",
    "http://hunter2secret@127.0.0.1:8080/x": "http://***@127.0.0.1:8080/x",
    "https://u:hunter2/se@cr:et@[::1]:443/x": "https://***@[::1]:443/x",
    "https://u%40x:hunter2%2Fsecret@h/x": "https://***@h/x",
    "s3://AKIA:hunter2+/secret@bucket/x": "s3://***@bucket/x",
    "hf://user:hunter2secret@org/name": "hf://***@org/name",
    "https:/user:hunter2secret@hub.example/a": "https://***@hub.example/a",
    "see https://h/x?X-Amz-Signature=hunter2secret&b=1 there": "see https://h/x?... there",
    "(/x?token=hunter2secret)": "(/x?...)",
    "https://h/cb#access_token=hunter2secret": "https://h/cb?...",
    "to=https%3A%2F%2Fu%3Ahunter2secret%40h": "to=https%3A%2F%2F***%40h",
    "host='u:hunter2secret@hub.example', port=1": "host='***@hub.example', port=1",
    "Authorization: Bearer hunter2secret": "Authorization: Bearer ***",
    "basic dXNlcjpodW50ZXIyc2VjcmV0": "basic ***",
    "token hf_hunter2secretHUNTER is": "token hf_*** is",
    "a proxy http://u:hunter2secret@p:3128 and https://v:hunter2secret@q": "a proxy http://***@p:3128 and https://***@q",
}


@pytest.mark.parametrize("text", MASKED)
def test_secrets_of_addresses_are_masked_wherever_they_stand(text):
    assert mask(text) == line(text) == MASKED[text]


@pytest.mark.parametrize(
    "text",
    [
        "hf://org/name@main", "hf://gpt2@0123abcd", "s3://bucket/a@b/c", "arn:aws:s3:::bucket/key?", "a@b",
        "s3:GetObject on arn:aws:s3:::models/tiny/x", "accept the licence at https://huggingface.co/org/name",
        "why? because", "the token in /var/run/token is empty", "1_Pooling/config.json", "sha256:0123", "a?b", "f(a=1)",
    ],
)  # fmt: skip
def test_addresses_without_secrets_and_sentences_are_let_be(text):
    assert mask(text) == text


def test_secrets_are_known_by_their_values_in_every_form():
    learn_surroundings(
        {
            "HF_TOKEN": "planted+one/1", "AWS_SECRET_ACCESS_KEY": "planted+two/2", "PROXY": "http://u:planted%2B3@p",
            "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/token", "HF_TOKEN_PATH": "/root/token", "PASS": "x",
        },
        ["--endpoint", "https://me:planted:four@h/x", "hf://org/name@main"],
    )  # fmt: skip
    learn("planted five")
    said = "planted+one/1 planted%2Btwo%2F2 planted+3 planted%2B3 planted:four planted%20five planted five"
    assert mask(said) == " ".join(["***"] * 7)
    assert mask("/var/run/secrets/token /root/token x main") == "/var/run/secrets/token /root/token x main"


def test_a_secret_at_the_cut_of_a_long_line_is_not_left_in_two_halves():
    secret = "hunter2" * 8
    learn(secret)
    for before in range(5300, 5500, 7):
        found = line("x" * before + secret + "y" * 20_000)
        assert not any(secret[at : at + 12] in found for at in range(len(secret) - 12))


def test_a_hostile_text_takes_no_longer_than_its_length_allows():
    calls = []

    def count(frame, event, _):
        calls.append(event)

    sys.setprofile(count)
    try:
        line("://" * 6_000_000)
    finally:
        sys.setprofile(None)
    assert len(calls) < 5_000
