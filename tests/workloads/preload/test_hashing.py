"""Hashes made beside the copy are those of the bytes in their order, whoever makes them."""

from __future__ import annotations

import hashlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preload.hashing import Hashers

HASHERS = Hashers(3)
for _ in range(HASHERS.threads):
    threading.Thread(target=HASHERS.work, daemon=True).start()


@given(st.lists(st.lists(st.binary(max_size=5000), max_size=6), min_size=1, max_size=5))
def test_any_digests_at_once_are_those_of_their_parts_in_order(contents: list[list[bytes]]) -> None:
    digests = [HASHERS.digest() for _ in contents]
    for number in range(max(map(len, contents))):
        for digest, parts in zip(digests, contents, strict=True):
            if number < len(parts):
                digest.add(memoryview(parts[number]))

    assert [digest.value() for digest in digests] == [hashlib.sha256(b"".join(parts)).digest() for parts in contents]


def test_a_buffer_may_be_used_again_once_it_was_waited_for() -> None:
    buffers = [bytearray(1 << 20), bytearray(1 << 20)]
    digest, expected = HASHERS.digest(), hashlib.sha256()
    for number in range(40):
        digest.wait(left=1)
        buffer = buffers[number % 2]
        buffer[:] = bytes([number]) * len(buffer)
        expected.update(buffer)
        digest.add(memoryview(buffer))

    assert digest.value() == expected.digest()
    assert digest.seconds > 0


def test_of_what_was_added_no_more_is_left_than_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    held, seen = threading.Semaphore(0), list[bytes]()

    class Held:
        def update(self, part: memoryview) -> None:
            held.acquire()
            seen.append(bytes(part))

    digest = HASHERS.digest()
    monkeypatch.setattr(digest, "_hash", Held())
    for part in (b"a", b"b", b"c"):
        digest.add(memoryview(part))
    waited = threading.Thread(target=digest.wait, args=(1,))
    waited.start()
    held.release()
    waited.join(0.2)
    assert waited.is_alive()
    held.release()
    waited.join(5)
    assert not waited.is_alive()
    assert seen == [b"a", b"b"]
    held.release()
    digest.wait()
