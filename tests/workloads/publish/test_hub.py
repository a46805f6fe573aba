"""The Hugging Face hub as a place that models come from: what comes, what is gone on with, how each failure ends."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.loopback.hub import Fault, Hub, blob_id, hub_here
from podkit import pool
from podkit.errors import Exit, FaststartError
from podkit.patience import DELAYS, Patience
from publish import hub as hubs
from publish.hub import HubRemote, open_hub
from publish.remote import Listing, RemoteFile, choose
from tests.workloads.publish.support import publish
from tests.workloads.support import WORKLOADS, Naps

pytestmark = pytest.mark.inputs

TOKEN = "hf_oNeOfSomebodys"
WEIGHTS = bytes(range(256)) * 40
FILES = {"config.json": b'{"model_type": "llama"}', "model.safetensors": WEIGHTS}
NAMES = [
    "a/b/c/deep.json", "a b.txt", " begins and ends with a blank ", "größe/ü.json", "日本.json", "e\u0301",
    "#?%&+=~@:;,.json", "%41%2F", "a\\b", "back`tick'\"", "two\nlines", "-dash", "resolve/main/x", ".gitattributes",
    "a.git", "a--b..c",
]  # fmt: skip
ALWAYS = float("inf")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_here(tmp_path / "home") as running:
        running.tokens.add(TOKEN)
        yield running


class Place:
    """A repository that is opened, and the folders into which its files come."""

    def __init__(self, folder: Path, address: str, token: str | None):
        self.naps = Naps()
        self.patience = Patience(sleep=self.naps)
        self.token_file = None if token is None else folder / "token"
        if self.token_file and token is not None:
            self.token_file.write_text(f"{token}\n")
        self.remote: HubRemote = open_hub(address, self.token_file and str(self.token_file), self.patience)
        self.came: list[int] = []
        self.stop_after = ALWAYS
        self._folder = folder

    @functools.cached_property
    def listing(self) -> Listing:
        return self.remote.listing()

    def file(self, name: str) -> RemoteFile:
        return next(file for file in self.listing.files if file.path == name.encode())

    def folder(self, name: str) -> Path:
        """Where a file is put together; the same for each place in a test, as it is for each run of publish."""
        folder = self._folder / "fetch" / hashlib.sha256(name.encode()).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def fetch(self, name: str) -> bytes:
        fetched = Path(self.remote.fetch(self.file(name), str(self.folder(name)), self._progress))
        assert fetched.is_relative_to(self.folder(name))
        return fetched.read_bytes()

    def _progress(self, number: int) -> None:
        self.came.append(number)
        self.patience.stopped = self.patience.stopped or sum(self.came) >= self.stop_after


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> Callable[..., Place]:
    """Opens a repository; the hub runs."""

    def opened(address: str = "hf://org/name", token: str | None = None) -> Place:
        return Place(tmp_path, address, token)

    return opened


def ends(call: Callable[[], object]) -> FaststartError:
    with pytest.raises(FaststartError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# What comes


def test_files_with_any_name_come_byte_by_byte(hub, place):
    files = {name: name.encode() * 700 for name in NAMES} | {"empty": b"", "empty.safetensors": b"", **FILES}
    hub.add("org/name", files)
    opened = place()

    assert [file.path.decode() for file in opened.listing.files] == sorted(files, key=str.encode)
    assert {name: opened.fetch(name) for name in files} == files
    assert sum(opened.came) == sum(map(len, files.values()))
    assert max(opened.came) < len(WEIGHTS)


def test_a_listing_tells_size_version_licence_and_of_lfs_files_the_sha256(hub, place):
    commit = hub.add("org/name", FILES, card={"license": "apache-2.0"})

    assert place().listing == Listing(
        f"hf://org/name@{commit}",
        (
            RemoteFile(b"config.json", len(FILES["config.json"]), blob_id(FILES["config.json"]), None),
            RemoteFile(b"model.safetensors", len(WEIGHTS), sha256(WEIGHTS), sha256(WEIGHTS)),
        ),
        licence="apache-2.0",
        lasting=True,
    )


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        (None, None),
        ({}, None),
        ({"license": None}, None),
        ({"license": ["mit", "apache-2.0"]}, "mit, apache-2.0"),
        ({"license": "llama3.1", "tags": ["x"], "model-index": "nonsense"}, "llama3.1"),
    ],
)
def test_the_licence_is_that_of_the_card(hub, place, card, licence):
    hub.add("org/name", FILES, card=card)

    assert place().listing.licence == licence


def test_a_revision_is_a_branch_a_tag_or_a_commit_and_main_without_one(hub, place):
    commits = {
        ref: hub.add("org/name", {ref: ref.encode()}, ref=ref) for ref in ("v1.0", "refs/pr/1", "a+b%2F", "main")
    }
    hub.add("gpt2", FILES)

    for ref, commit in commits.items():
        for revision in (ref, commit):
            assert place(f"hf://org/name@{revision}").listing.address == f"hf://org/name@{commit}"
            assert place(f"hf://org/name@{revision}").fetch(ref) == ref.encode()
    assert place().listing.address == f"hf://org/name@{commits['main']}"
    assert place("hf://gpt2").fetch("model.safetensors") == WEIGHTS


def test_what_is_fetched_is_the_commit_that_was_listed_wherever_the_branch_moves(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    before = opened.listing
    hub.add("org/name", {name: b"new" + data for name, data in FILES.items()})

    assert {name: opened.fetch(name) for name in FILES} == FILES
    assert opened.remote.listing().address != before.address
    assert {name: opened.fetch(name) for name in FILES} == FILES
    assert place().fetch("config.json") == b"new" + FILES["config.json"]


def test_files_come_from_several_threads_at_once(hub, place, tmp_path):
    files = {f"{number}.safetensors": bytes([number]) * (5000 + number) for number in range(12)}
    hub.add("org/name", files)
    opened = place()
    found: dict[str, bytes] = {}

    def fetch(file: RemoteFile) -> None:
        name = file.path.decode()
        found[name] = opened.fetch(name)

    pool.each(opened.listing.files, fetch, opened.patience, threads=6)

    assert found == files


def test_nothing_is_left_but_the_files_and_the_users_cache_is_not_touched(hub, place, tmp_path):
    hub.add("org/name", FILES)
    opened = place()
    for name in FILES:
        opened.fetch(name)

    left = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {opened.folder(name) / "content" for name in FILES}


# Addresses and settings


@pytest.mark.parametrize(
    "address",
    [
        "hf://", "hf://@main", "hf:///name", "hf:///", "hf://org/name@", "hf://org/name@/", "hf://org/name@a b",
        "hf://org/name@a\nb", "hf://org/name@\udcff", "hf://org/name@\x7f", "hf://org/name/file.json", "hf://org/na me",
        "hf://-org/name", "hf://org/name.", "hf://org/na--me", "hf://or..g/name", "hf://org/name.git", "hf://org/näme",
        "hf://org/" + "n" * 97, "HF://org/name", "org/name", "https://huggingface.co/org/name", "",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_what_would_be_one(address):
    error = ends(lambda: open_hub(address, None, Patience()))

    assert error.code == Exit.USAGE
    assert "hf://ORG/NAME@REVISION" in error.message
    assert error.file == os.fsencode(address)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("hf://org/name/", ("org/name", "main")),
        ("hf://org/name//", ("org/name", "main")),
        ("hf://gpt2/", ("gpt2", "main")),
        ("hf://org/name@v1.0/", ("org/name", "v1.0")),
        ("hf://org/name@refs/pr/1/", ("org/name", "refs/pr/1")),
        (f"hf://org/name@{'0' * 40}/", ("org/name", "0" * 40)),
    ],
)
def test_slashes_at_the_end_of_an_address_are_no_part_of_it(address, parsed):
    assert hubs.parse(address) == parsed


PART = st.from_regex(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?", fullmatch=True).filter(
    lambda name: "--" not in name and ".." not in name and not name.endswith(".git")
)
REVISION = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda text: text.isprintable() and not any(map(str.isspace, text))
)


@given(st.one_of(PART, st.tuples(PART, PART).map("/".join)), st.none() | REVISION)
def test_an_address_is_a_repository_and_a_revision(repository, revision):
    address = f"hf://{repository}" + (f"@{revision}" if revision else "")

    assert hubs.parse(address) == (repository, revision or "main")


@given(st.text(st.sampled_from("ab-._/@:"), max_size=12).map("hf://".__add__) | st.text(max_size=12))
def test_an_address_is_taken_only_if_huggingface_hub_takes_its_repository(address):
    from huggingface_hub.utils import validate_repo_id

    with contextlib.suppress(FaststartError):
        repository, _ = hubs.parse(address)
        validate_repo_id(repository)
        assert address.startswith(f"hf://{repository}")


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://hub", "https://", "https://me:secret@hub", "http://a b"])
def test_an_endpoint_that_is_none_is_refused_and_not_shown(hub, place, endpoint, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    error = ends(place)

    assert error.code == Exit.USAGE
    assert "HF_ENDPOINT" in error.message
    assert "secret" not in error.message


def test_an_endpoint_may_end_with_a_slash(hub, place, monkeypatch):
    hub.add("org/name", FILES)
    monkeypatch.setenv("HF_ENDPOINT", hub.url + "/")

    assert place().fetch("config.json") == FILES["config.json"]
    assert [request.path for request in hub.requests if request.path.startswith("//")] == []


def test_without_huggingface_hub_the_module_is_imported_and_only_an_address_is_refused():
    code = (
        "from publish.hub import open_hub; from podkit.patience import Patience\n"
        "try: open_hub('hf://org/name', None, Patience())\n"
        "except Exception as error: print(int(error.code), error.message)"
    )
    environment = {"PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert ran.stdout == "2 hf:// needs huggingface_hub, which this Python has not: No module named 'huggingface_hub'\n"
    assert ran.stderr == ""


def test_offline_mode_is_named(hub, place, monkeypatch):
    from huggingface_hub import constants

    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    for call in (place().remote.listing, lambda: opened.fetch("config.json")):
        error = ends(call)
        assert error.code == Exit.USAGE
        assert "HF_HUB_OFFLINE" in error.message


# Going on


def test_a_later_run_goes_on_where_a_stopped_one_was_and_no_byte_is_sent_twice(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", hang=4096))
    stopped = place()
    stopped.stop_after = 4096
    assert ends(lambda: stopped.fetch("model.safetensors")).code == Exit.TERMINATED
    assert sum(stopped.came) == 4096

    later = place()
    assert later.fetch("model.safetensors") == WEIGHTS
    assert sum(later.came) == len(WEIGHTS) - 4096
    first, second = (request for request in hub.requests if request.where == "cdn")
    assert "range" not in first.headers
    assert second.headers["range"] == "bytes=4096-"
    assert second.headers["accept-encoding"] == "identity"
    assert hub.sent["model.safetensors"] == len(WEIGHTS)


def test_what_is_whole_is_not_asked_for(hub, place):
    hub.add("org/name", FILES)
    place().fetch("model.safetensors")
    opened = place()
    assert opened.listing
    hub.requests.clear()

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert hub.requests == []
    assert opened.came == []


@pytest.mark.parametrize("name", FILES)
def test_a_part_that_is_too_long_is_begun_anew(hub, place, name):
    hub.add("org/name", FILES)
    opened = place()
    (opened.folder(name) / "content").write_bytes(b"x" * (len(FILES[name]) + 1))

    assert opened.fetch(name) == FILES[name]


@pytest.mark.parametrize("missing", [0, 1, 5])
def test_a_part_that_nothing_could_prove_wrong_later_is_begun_anew(hub, place, missing):
    hub.add("org/name", FILES)
    opened = place()
    (opened.folder("config.json") / "content").write_bytes(b"x" * (len(FILES["config.json"]) - missing))

    assert opened.fetch("config.json") == FILES["config.json"]


def test_a_server_that_heeds_no_range_sends_the_file_anew(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", whole=True))
    opened = place()
    (opened.folder("model.safetensors") / "content").write_bytes(b"y" * 3000)

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert sum(opened.came) == len(WEIGHTS)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("config.json", Fault("resolve-cache", times=4, cut=10)),
        ("model.safetensors", Fault(where="cdn", times=4, cut=2500)),
        ("model.safetensors", Fault(where="cdn", times=7, cut=0)),
    ],
)
def test_bodies_that_are_cut_come_whole_in_the_end(hub, place, name, fault):
    hub.add("org/name", FILES)
    hub.faults.append(fault)

    assert place().fetch(name) == FILES[name]
    assert fault.times == 0


def test_a_cut_body_is_gone_on_with_in_the_same_run(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", times=3, cut=2500))
    opened = place()

    assert opened.fetch("model.safetensors") == WEIGHTS
    ranges = [request.headers.get("range") for request in hub.requests if request.where == "cdn"]
    assert ranges == [None, "bytes=2048-", "bytes=4096-", "bytes=6144-"]
    assert sum(opened.came) == len(WEIGHTS)


def test_bodies_that_are_cut_for_ever_end_with_11_and_what_came_is_kept(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    hub.faults.extend([Fault(where="cdn", cut=2500), Fault(where="cdn", times=ALWAYS, cut=0)])
    error = ends(lambda: opened.fetch("model.safetensors"))

    assert error.code == Exit.NETWORK
    assert error.file == b"model.safetensors"
    assert "broke off" in error.message
    assert "after 6 tries" in error.message
    assert opened.naps.seconds == pytest.approx(sum(DELAYS), abs=1)
    assert opened.patience.retries == len(DELAYS)
    assert (opened.folder("model.safetensors") / "content").read_bytes() == WEIGHTS[:2048]
    hub.faults.clear()
    assert opened.fetch("model.safetensors") == WEIGHTS


# Other content


@pytest.mark.parametrize(("name", "where"), [("config.json", "hub"), ("model.safetensors", "cdn")])
def test_an_answer_that_is_too_short_is_noticed(hub, place, name, where):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    hub.faults.append(Fault(name, where, times=ALWAYS, body=FILES[name][:-1]))
    error = ends(lambda: opened.fetch(name))

    assert error.code == Exit.NETWORK
    assert error.file == name.encode()
    assert "broke off" in error.message


def test_an_answer_that_is_too_long_is_noticed_and_not_gone_on_with(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", body=b"z" * (len(WEIGHTS) + 1)))
    opened = place()
    error = ends(lambda: opened.fetch("model.safetensors"))

    assert error.code == Exit.CHANGED
    assert f"longer than the {len(WEIGHTS)} bytes" in error.message
    assert opened.fetch("model.safetensors") == WEIGHTS


def test_a_part_that_becomes_too_long_is_begun_anew(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", body=b"z" * (len(WEIGHTS) + 1)))
    opened = place()
    (opened.folder("model.safetensors") / "content").write_bytes(WEIGHTS[:3000])

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert [request.headers.get("range") for request in hub.requests if request.where == "cdn"] == ["bytes=3000-", None]


def test_a_file_of_another_size_than_the_listed_one_is_not_begun(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("safetensors", method="HEAD", headers={"X-Linked-Size": "7"}))
    opened = place()
    error = ends(lambda: opened.fetch("model.safetensors"))

    assert error.code == Exit.CHANGED
    assert f"has 7 bytes, {len(WEIGHTS)} were listed" in error.message
    assert hub.asked("cdn") == []


@pytest.mark.parametrize("times", [1, ALWAYS])
def test_a_file_without_sha256_that_is_not_the_listed_content_is_asked_for_again(hub, place, times):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    wrong = bytes(reversed(FILES["config.json"]))
    hub.faults.append(Fault("config.json", times=times, body=wrong))

    if times == 1:
        assert opened.fetch("config.json") == FILES["config.json"]
        return
    error = ends(lambda: opened.fetch("config.json"))
    assert (error.code, error.file) == (Exit.NETWORK, b"config.json")
    assert "is not the content that it listed" in error.message


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_content_has_the_name_that_git_gives_it(tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    by_git = subprocess.run(["git", "hash-object", path], capture_output=True, check=True, text=True)

    assert hubs._blob_id(str(path), size) == by_git.stdout.strip()


def test_wrong_bytes_of_the_right_size_are_left_to_sealing_which_has_the_sha256(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", body=b"z" * len(WEIGHTS)))
    opened = place()

    assert opened.fetch("model.safetensors") == b"z" * len(WEIGHTS)
    assert opened.file("model.safetensors").sha256 == sha256(WEIGHTS)


@pytest.mark.parametrize("lost", ["file", "commit", "repository"])
def test_what_vanishes_after_it_was_listed_has_changed(hub, place, lost):
    commit = hub.add("org/name", FILES)
    opened = place(token=TOKEN)
    assert opened.listing
    if lost == "file":
        del hub.repositories["org/name"].commits[commit]["config.json"]
    elif lost == "commit":
        hub.repositories["org/name"].commits.clear()
    else:
        hub.repositories.clear()
    error = ends(lambda: opened.fetch("config.json"))

    assert error.code == (Exit.NO_MODEL if lost == "repository" else Exit.CHANGED)
    assert error.file == b"config.json"


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "./x", "a/../x", "."])
def test_names_that_no_model_folder_has_are_refused(hub, place, name):
    hub.add("org/name", {name: b""})

    assert ends(lambda: choose(place().listing, ["all"], lambda _: b"")).code == Exit.DAMAGED


def test_a_repository_without_a_file_is_none(hub, place):
    hub.add("org/name", {})
    error = ends(lambda: place().listing)

    assert error.code == Exit.NO_MODEL
    assert "no file" in error.message


# The network


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
def test_a_busy_hub_is_asked_again(hub, place, status):
    hub.add("org/name", FILES)
    hub.faults.extend(
        [Fault("/api/models", times=3, status=status), Fault("/resolve/", method="HEAD", times=3, status=status)]
    )
    opened = place()

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert opened.patience.retries == 6
    assert opened.naps.seconds == pytest.approx(2 * sum(DELAYS[:3]), abs=1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_stays_busy_ends_with_11_and_the_number_of_tries(hub, place, status):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    hub.faults.append(Fault(method="", times=ALWAYS, status=status, message="too many: https://a/b?key=secret"))

    for call in (place().remote.listing, lambda: opened.fetch("config.json")):
        error = ends(call)
        assert error.code == Exit.NETWORK
        assert f"answers with HTTP {status} (too many: https://a/b?...), after 6 tries" in error.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "30"}, 30),
        ({"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}, 55),
        ({"RateLimit": '"api";r=17;t=55'}, DELAYS[0]),
        ({"Retry-After": "3600"}, 300),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, DELAYS[0]),
        ({"Retry-After": "0"}, DELAYS[0]),
    ],
)
def test_a_pause_that_the_hub_asks_for_is_made_up_to_its_window(hub, place, headers, seconds):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", status=429, headers=headers))
    opened = place()

    assert opened.listing
    assert opened.naps.seconds == pytest.approx(seconds, abs=0.2)


def test_an_address_in_the_cdn_that_has_expired_is_asked_for_anew(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", times=2, status=403))
    opened = place()

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert len(hub.asked("hub", "HEAD")) == 3


def test_a_cdn_that_refuses_is_named_without_the_signature(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", times=ALWAYS, status=403))
    error = ends(lambda: place().fetch("model.safetensors"))

    assert error.code == Exit.NETWORK
    assert f"from {urlsplit(hub.address_in_cdn('x', b'')).netloc} broke off: HTTP 403" in error.message
    assert "secret" not in error.message


def test_a_hub_that_is_not_there_ends_with_11(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    hub.__exit__()
    address = hub.url.removeprefix("http://")

    for call in (place().remote.listing, lambda: opened.fetch("model.safetensors")):
        error = ends(call)
        assert error.code == Exit.NETWORK
        assert f"asking {address} failed: ConnectError" in error.message


INFO: dict[str, Any] = {"id": "org/name", "sha": "0" * 40, "siblings": [{"rfilename": "a", "size": 1, "blobId": "b"}]}


def test_the_answer_that_the_broken_ones_are_made_of_is_a_good_one(hub, place):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", body=json.dumps(INFO).encode()))

    assert place().listing.files == (RemoteFile(b"a", 1, "b"),)


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>Please log in to the wifi</html>", b"\xff", b"{", b'{"id": "org/name", "sha"'],
)
def test_an_answer_that_is_no_json_ends_with_11(hub, place, answer):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=answer))
    error = ends(lambda: place().listing)

    assert error.code == Exit.NETWORK
    assert "gives no answer of a Hugging Face hub" in error.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"sha": None}, "names no commit that the revision stands for, but None"),
        ({"sha": "main"}, "names no commit that the revision stands for, but 'main'"),
        ({"sha": ""}, "names no commit"),
        ({"sha": "0" * 39}, "names no commit"),
        ({"siblings": [{"rfilename": "a"}]}, "tells no size or no version of any file"),
        ({"siblings": [{"rfilename": "a", "size": 1}]}, "tells no size or no version of any file"),
        ({"siblings": [{"rfilename": "a", "blobId": "b"}]}, "tells no size or no version of any file"),
        ({"siblings": [{"rfilename": "a", "size": 1, "blobId": ""}]}, "tells no size or no version of any file"),
    ],
)
def test_a_mirror_without_commit_sizes_or_versions_ends_at_once_with_2_and_words(hub, place, answer, words):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=json.dumps(INFO | answer).encode()))
    opened = place()
    error = ends(lambda: opened.listing)

    assert error.code == Exit.USAGE
    assert words in error.message
    assert "is HF_ENDPOINT a hub, or a mirror that answers as one does?" in error.message
    assert (len(hub.requests), opened.naps.seconds) == (1, 0)


@pytest.mark.parametrize("told", [{"size": None, "blobId": "b"}, {"size": 1, "blobId": ""}, {"size": 1}, {}])
def test_a_file_without_size_or_version_is_refused_by_name_where_it_is_asked_for(hub, place, told):
    hub.add("org/name", FILES)
    answer = INFO | {"siblings": [*INFO["siblings"], {"rfilename": "late", **told}]}
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=json.dumps(answer).encode()))
    listing = place().listing
    wanted, _ = choose(listing, ["all"], lambda _: b"")
    error = ends(lambda: [file.hold() for file in wanted.values() if file.hold])

    assert (error.code, error.file) == (Exit.USAGE, b"late")
    assert not any(file.hold for file in listing.files if file.path != b"late")


def sibling(**changed: Any) -> dict[str, Any]:
    return {"siblings": [{"rfilename": "a", "size": 1, "blobId": "b"} | changed]}


@pytest.mark.parametrize(
    "answer",
    [
        b"[]", b"null", b"{}", b"3", b'"text"', b"[" * 5000 + b"]" * 5000, INFO | {"siblings": 3},
        INFO | {"siblings": [1]}, INFO | {"siblings": "ab"}, {"siblings": [{"size": 1, "blobId": "b"}]},
        INFO | {"sha": 7},
        INFO | {"sha": ["0" * 40]}, INFO | {"createdAt": 3}, sibling(rfilename=3),
        sibling(rfilename=None), sibling(rfilename=["a"]), sibling(size="1"), sibling(size=-1), sibling(size=True),
        sibling(size=1.5), sibling(size=[]), sibling(size=float("nan")), sibling(blobId=3), sibling(blobId=["b"]),
        sibling(blobId="\ud800"), sibling(lfs=3), sibling(lfs={"size": 1}),
        sibling(lfs={"sha256": 3, "size": 1, "pointerSize": 1}),
        sibling(lfs={"sha256": "0", "size": 1, "pointerSize": 1}),
    ],
    ids=lambda answer: (answer if isinstance(answer, bytes) else str(answer).encode())[-50:].decode(),
)  # fmt: skip
def test_an_answer_of_odd_types_ends_at_once_with_2(hub, place, answer):
    hub.add("org/name", FILES)
    if isinstance(answer, dict):
        answer = json.dumps(INFO | answer).encode()
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=answer))
    opened = place()
    if b'"lfs": []' in answer:
        return
    error = ends(lambda: opened.listing)

    assert error.code == Exit.USAGE, error.message
    assert "is HF_ENDPOINT a hub, or a mirror that answers as one does?" in error.message
    assert (len(hub.requests), opened.naps.seconds) == (1, 0)
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    "answer",
    [
        sibling(rfilename="\ud800"),
        sibling(rfilename="a/\udc00b.json"),
        {"cardData": {"license": "\ud800"}},
        {"cardData": {"license": ["mit", "\udfff"]}},
        {"cardData": {"license": {"name": "mit"}}},
        {"cardData": {"license": ["mit", ["x"]]}},
        {"cardData": {"license": 2.0}},
        {"cardData": {"license": True}},
    ],
    ids=str,
)
def test_a_name_or_a_licence_that_nothing_can_write_ends_at_once_with_4(hub, place, answer):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=json.dumps(INFO | answer).encode()))
    opened = place()
    error = ends(lambda: opened.listing)

    assert error.code == Exit.DAMAGED, error.message
    assert (len(hub.requests), opened.naps.seconds) == (1, 0)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"id": "' + b"x" * 20_000,
        b"[" + b"[]," * 10_000,
        b" " * 20_000 + b"{}",
        b"\0" * 20_000,
        json.dumps(INFO | {"more": "x" * 20_000}).encode(),
    ],
    ids=["text", "lists", "blanks", "zeros", "good"],
)
def test_an_answer_without_end_is_cut(hub, place, answer, monkeypatch):
    monkeypatch.setattr(hubs, "ANSWER_BYTES", 10_000)
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=answer))
    opened = place()
    error = ends(lambda: opened.listing)

    assert error.code == Exit.USAGE
    assert "without end" in error.message
    assert opened.naps.seconds == 0


def test_an_answer_that_becomes_more_values_than_fit_is_cut(hub, place, monkeypatch):
    monkeypatch.setattr(hubs.documents, "MAX_VALUES", 1000)
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/api/models", times=ALWAYS, body=json.dumps(INFO | {"more": [[]] * 1000}).encode()))
    error = ends(lambda: place().listing)

    assert error.code == Exit.USAGE
    assert "without end" in error.message


def test_an_answer_that_drips_is_cut(hub, place, monkeypatch):
    monkeypatch.setattr(hubs, "ANSWER_SECONDS", -1)
    hub.add("org/name", FILES)
    error = ends(lambda: place().listing)

    assert error.code == Exit.USAGE
    assert "without end" in error.message


def test_a_download_is_not_cut_as_an_answer_is(hub, place, monkeypatch):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    monkeypatch.setattr(hubs, "ANSWER_BYTES", 1)

    assert opened.fetch("model.safetensors") == WEIGHTS


def test_a_repository_of_too_many_files_is_no_models(hub, place, monkeypatch):
    monkeypatch.setattr(hubs, "MAX_FILES", 1)
    hub.add("org/name", FILES)
    error = ends(lambda: place().listing)

    assert error.code == Exit.DAMAGED
    assert "has 2 files, and 1 are listed at most" in error.message


WITHHELD = {402: 7, 407: 7, 410: 6, 451: 7}
NOT_TAKEN = dict.fromkeys((400, 405, 406, 413, 414, 418, 421, 422, 431, 501, 505), 2)


@pytest.mark.parametrize(("status", "code"), [*WITHHELD.items(), *NOT_TAKEN.items()])
@pytest.mark.parametrize("name", [None, "config.json", "model.safetensors"])
def test_an_answer_that_stays_the_same_ends_at_once_with_its_own_code_and_what_the_hub_says(
    hub, place, status, code, name
):
    hub.add("org/name", FILES)
    opened = place()
    if name:
        assert opened.listing
        hub.requests.clear()
    hub.faults.append(Fault(method="", times=ALWAYS, status=status, message="So it is."))
    error = ends(lambda: opened.fetch(name) if name else opened.listing)

    assert (error.code, error.file) == (code, name.encode() if name else b"hf://org/name@main")
    assert f"HTTP {status} (So it is.)" in error.message
    assert (len(hub.requests), opened.naps.seconds) == (1, 0)


@pytest.mark.parametrize(("status", "code"), WITHHELD.items())
def test_what_a_cdn_withholds_is_asked_for_once(hub, place, status, code):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(where="cdn", times=ALWAYS, status=status))
    opened = place()
    error = ends(lambda: opened.fetch("model.safetensors"))

    assert (error.code, error.file) == (code, b"model.safetensors")
    assert f"HTTP {status}" in error.message
    assert len(hub.asked("cdn")) == 1


@pytest.mark.parametrize("status", [451, 410])
def test_a_publishing_job_tries_no_second_time_what_stays_the_same(hub, tmp_path, status):
    hub.add("org/name", FILES)
    hub.faults.append(Fault(method="", times=ALWAYS, status=status))
    ended = publish("hf://org/name", tmp_path / "to", "--tries", "4")

    assert ended.code == WITHHELD[status]
    assert len(hub.requests) == 1


# Access


def test_a_repository_that_is_missing_or_private_ends_by_whether_a_token_was_given(hub, place):
    hub.add("org/private", FILES, private=True, members=(TOKEN,))
    hub.tokens.add("hf_another")

    for name in ("missing", "private"):
        error = ends(lambda name=name: place(f"hf://org/{name}").listing)
        assert error.code == Exit.NOT_PERMITTED
        assert "no such repository, or it is private and no token was given" in error.message
        assert error.file == f"hf://org/{name}@main".encode()
        error = ends(lambda name=name: place(f"hf://org/{name}", token="hf_another").listing)
        assert error.code == Exit.NO_MODEL
        assert "no such repository, or the account of the token may not see it" in error.message
    assert place("hf://org/private", token=TOKEN).fetch("model.safetensors") == WEIGHTS


def test_a_token_that_is_nobodys_is_refused_and_its_file_named(hub, place):
    hub.add("org/name", FILES)
    opened = place(token="hf_nobodys")
    error = ends(lambda: opened.listing)

    assert error.code == Exit.NOT_PERMITTED
    assert f"does not accept the token in {opened.token_file}: it is wrong or has expired" in error.message


def test_a_gated_repository_asks_to_accept_its_licence(hub, place):
    hub.add("org/name", FILES, gated=True, members=(TOKEN,))
    hub.tokens.add("hf_another")

    for token, why in ((None, "no token was given"), ("hf_another", "the account of the token has no access yet")):
        opened = place(token=token)
        error = ends(lambda opened=opened: opened.fetch("model.safetensors"))
        assert error.code == Exit.NOT_PERMITTED
        assert f"gated, and {why}: accept the licence at {hub.url}/org/name with the account" in error.message
    assert place(token=TOKEN).fetch("model.safetensors") == WEIGHTS


def test_a_disabled_repository_and_one_whose_access_is_forbidden_end_with_7(hub, place):
    hub.add("org/name", FILES, disabled=True)
    error = ends(lambda: place(token=TOKEN).listing)
    assert error.code == Exit.NOT_PERMITTED
    assert "allows no access (Access to this resource is disabled.)" in error.message

    hub.faults.append(Fault(status=403, message="the token has no scope repo.content.read"))
    error = ends(lambda: place(token=TOKEN).listing)
    assert error.code == Exit.NOT_PERMITTED
    assert "(the token has no scope repo.content.read)" in error.message


def test_a_revision_that_is_missing_is_named_with_some_that_are_there(hub, place):
    for number in range(12):
        hub.add("org/name", FILES, ref=f"v{number}")
    error = ends(lambda: place("hf://org/name@v12").listing)

    assert error.code == Exit.NO_MODEL
    assert error.file == b"hf://org/name@v12"
    assert error.message == "there is no such revision; there are v0, v1, v2, v3, v4, v5, v6, v7, ... and the commits"


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 401}, {"cut": 3}])
def test_a_revision_that_is_missing_is_named_even_if_the_others_cannot_be(hub, place, fault):
    hub.add("org/name", FILES)
    hub.faults.append(Fault("/refs", times=ALWAYS, **fault))
    error = ends(lambda: place("hf://org/name@old").listing)

    assert (error.code, error.message) == (Exit.NO_MODEL, "there is no such revision")


# The token


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        ("folder", "cannot be read: Is a directory"),
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"hf_one hf_two", "has blanks"),
        (b"hf_one\nhf_two\n", "has blanks"),
        ("hf_ö".encode(), "other characters"),
        (b"hf_\0", "other characters"),
        (b"\xff\xfeh\0f\0", "other characters"),
    ],
)
def test_a_file_without_a_token_ends_with_7_and_is_named_and_not_shown(hub, place, content, what):
    hub.add("org/name", FILES)
    opened = place(token=TOKEN)
    assert opened.listing
    opened.token_file.unlink()
    if content == "folder":
        opened.token_file.mkdir()
    elif content is not None:
        opened.token_file.write_bytes(content)

    for call in (opened.remote.listing, lambda: opened.fetch("config.json")):
        error = ends(call)
        assert error.code == Exit.NOT_PERMITTED
        assert what in error.message
        assert error.file == os.fsencode(opened.token_file)
        assert "hf_o" not in error.message


def test_the_token_is_read_each_time_anew(hub, place):
    hub.add("org/name", FILES, private=True, members=(TOKEN, "hf_next"))
    opened = place(token=TOKEN)
    assert opened.listing
    hub.tokens = {"hf_next"}
    opened.token_file.write_text(" hf_next \r\n")

    assert opened.fetch("model.safetensors") == WEIGHTS


def test_without_a_file_the_token_is_that_of_huggingface_hub(hub, place, monkeypatch):
    hub.add("org/name", FILES, private=True, members=(TOKEN,))
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    assert place().fetch("model.safetensors") == WEIGHTS
    assert place().fetch("config.json") == FILES["config.json"]


def test_the_token_reaches_the_hub_alone(hub, place):
    hub.add("org/name", FILES, private=True, members=(TOKEN,))
    opened = place(token=TOKEN)
    for name in FILES:
        opened.fetch(name)

    assert {request.headers.get("authorization") for request in hub.requests if request.where == "hub"} == {
        f"Bearer {TOKEN}"
    }
    in_cdn = [request for request in hub.requests if request.where == "cdn"]
    assert len(in_cdn) == 1
    assert TOKEN not in f"{[request.headers for request in in_cdn]} {[request.path for request in hub.requests]}"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 401},
        {"status": 403},
        {"status": 404},
        {"status": 500},
        {"status": 429},
        {"status": 418},
        {"status": 403, "headers": {"X-Error-Code": "GatedRepo"}},
        {"status": 404, "headers": {"X-Error-Code": "RevisionNotFound"}},
        {"status": 404, "headers": {"X-Error-Code": "EntryNotFound"}},
        {"body": f'{{"token": "{TOKEN}"'.encode()},
    ],
)
def test_no_error_and_no_output_holds_the_token_even_if_the_hub_repeats_it(hub, place, fault, capfd):
    hub.add("org/name", FILES)
    opened = place(token=TOKEN)
    assert opened.listing
    hub.faults.append(Fault(method="", times=ALWAYS, message=f"you sent Bearer {TOKEN}, which is {TOKEN}", **fault))

    errors = [ends(opened.remote.listing)]
    if "body" not in fault:
        errors.append(ends(lambda: opened.fetch("model.safetensors")))
    for error in errors:
        assert TOKEN not in f"{error.message} {error.file} {error}"
    assert TOKEN not in "".join(capfd.readouterr())


# Stopping, and saying nothing


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (Fault("/api/models", hang=0), None),
        (Fault("/resolve/", method="HEAD", hang=0), "config.json"),
        (Fault(where="cdn", hang=0), "model.safetensors"),
        (Fault(where="cdn", hang=3000), "model.safetensors"),
    ],
)
def test_a_stop_ends_what_hangs_in_about_a_second(hub, place, fault, name):
    hub.add("org/name", FILES)
    opened = place()
    if name:
        assert opened.listing
    hub.faults.append(fault)
    told: list[float] = []

    def stop() -> None:
        hub.hanging.wait()
        told.append(time.monotonic())
        opened.patience.stopped = True

    threading.Thread(target=stop, daemon=True).start()
    error = ends(lambda: opened.fetch(name) if name else opened.remote.listing())

    assert error.code == Exit.TERMINATED
    assert time.monotonic() - told[0] < 2


def test_after_a_stop_nothing_is_asked_for(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    hub.requests.clear()
    opened.patience.stopped = True

    assert ends(lambda: opened.fetch("config.json")).code == Exit.TERMINATED
    assert ends(opened.remote.listing).code == Exit.TERMINATED
    assert hub.requests == []


def test_a_stop_ends_a_pause(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    assert opened.listing
    hub.faults.append(Fault(method="", times=ALWAYS, status=429, headers={"Retry-After": "300"}))

    def stop(_: float) -> None:
        opened.patience.stopped = True

    opened.patience._sleep = stop
    error = ends(lambda: opened.fetch("model.safetensors"))

    assert error.code == Exit.TERMINATED
    assert len(hub.asked("hub", "HEAD")) == 1


def test_a_thread_that_was_left_behind_adds_nothing_more(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    file = opened.file("model.safetensors")
    part = hubs._Part(str(opened.folder("model.safetensors") / "content"), file, opened.came.append, opened.patience)
    with part:
        part.write(b"abc")
        opened.patience.stopped = True
        assert ends(lambda: part.write(b"def")).code == Exit.TERMINATED

    assert (opened.folder("model.safetensors") / "content").read_bytes() == b"abc"


def test_huggingface_hub_shows_no_bar_and_says_nothing(hub, place, capfd, caplog, monkeypatch):
    import logging

    from huggingface_hub.utils import enable_progress_bars

    enable_progress_bars()
    monkeypatch.setenv("TQDM_POSITION", "-1")  # bars even where there is no terminal
    logging.getLogger("huggingface_hub").setLevel(logging.DEBUG)
    hub.add("org/name", FILES)
    hub.faults.extend(
        [
            Fault("/api/models", status=503, headers={"X-HF-Warning": "topic; read this"}),
            Fault("/resolve/", method="HEAD", status=503),
            Fault(where="cdn", cut=2500),
            Fault(where="cdn", status=429),
        ]
    )
    opened = place()

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert hub.faults[-1].times == 0
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_nothing_is_told_of_this_machine(hub, place, monkeypatch):
    from huggingface_hub.utils import _detect_agent

    monkeypatch.setattr(_detect_agent, "_registry", None)
    monkeypatch.setenv("AI_AGENT", "somebody")
    hub.add("org/name", FILES)
    opened = place()
    for name in FILES:
        opened.fetch(name)

    assert not [path for path in hub.asked() if "agent" in path]
    assert not [
        one for one in hub.requests if "agent/" in one.headers["user-agent"] or "torch/" in one.headers["user-agent"]
    ]


# Local files


def test_a_full_disk_ends_with_3(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    (opened.folder("model.safetensors") / "content").symlink_to("/dev/full")
    error = ends(lambda: opened.fetch("model.safetensors"))

    assert error.code == Exit.NO_SPACE
    assert error.file == b"model.safetensors"
    assert opened.patience.retries == 0


def test_a_folder_that_is_gone_ends_with_9(hub, place):
    hub.add("org/name", FILES)
    opened = place()
    file = opened.file("model.safetensors")
    error = ends(lambda: opened.remote.fetch(file, "/nowhere", opened.came.append))

    assert (error.code, error.file) == (Exit.IO_ERROR, b"model.safetensors")


# Xet


@pytest.fixture
def xet(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Path], None]]:
    """What hf_xet does, in place of it: the calls to come, each given the file to write; the hub has all in Xet."""
    from huggingface_hub import constants, file_download

    calls: list[Callable[[Path], None]] = []

    def get(*, incomplete_path: Path, **_: object) -> None:
        calls.pop(0)(incomplete_path)

    monkeypatch.setattr(file_download, "xet_get", get)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    hub.add("org/name", FILES, xet=("*.safetensors",))
    return calls


def test_a_file_in_xet_storage_is_left_to_huggingface_hub(hub, place, xet):
    xet.append(lambda path: path.write_bytes(WEIGHTS) and None)
    opened = place()
    left = opened.folder("model.safetensors") / ".cache/huggingface/download/x.incomplete"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left by a killed run")

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert opened.came == [len(WEIGHTS)]
    assert hub.asked("cdn") == []
    assert not left.exists()


def test_a_cache_of_the_users_is_no_place_that_a_file_comes_from(hub, place, xet, tmp_path):
    (commit,) = hub.repositories["org/name"].commits
    cached = tmp_path / "home/hub/models--org--name/snapshots" / commit / "model.safetensors"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"x" * len(WEIGHTS))
    xet.append(lambda path: path.write_bytes(WEIGHTS) and None)

    assert place().fetch("model.safetensors") == WEIGHTS


def test_huggingface_hub_does_not_warn_of_a_disk_that_publishing_has_looked_at(hub, place, xet, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    xet.append(lambda path: path.write_bytes(WEIGHTS) and None)

    assert place().fetch("model.safetensors") == WEIGHTS


def test_with_xet_switched_off_the_file_comes_over_http(hub, place, xet, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)

    opened = place()

    assert opened.fetch("model.safetensors") == WEIGHTS
    assert len(opened.came) > 1
    assert len(hub.asked("cdn")) == 1


def test_errors_of_xet_are_tried_again_and_end_with_11(hub, place, xet):
    def fail(_: Path) -> None:
        raise RuntimeError("Data processing error: CAS service error")

    xet.extend([fail, fail, lambda path: path.write_bytes(WEIGHTS) and None])
    opened = place()
    assert opened.fetch("model.safetensors") == WEIGHTS
    assert opened.patience.retries == 2

    xet.extend([fail] * 6)
    (opened.folder("model.safetensors") / "model.safetensors").unlink()
    error = ends(lambda: opened.fetch("model.safetensors"))
    assert error.code == Exit.NETWORK
    assert "CAS service error, after 6 tries" in error.message


def test_local_errors_of_xet_and_a_wrong_size_are_told_apart(hub, place, xet):
    def fill(_: Path) -> None:
        raise OSError(28, "No space left on device")

    xet.extend([fill, lambda path: path.write_bytes(b"short") and None])

    assert ends(lambda: place().fetch("model.safetensors")).code == Exit.NO_SPACE
    error = ends(lambda: place().fetch("model.safetensors"))
    assert error.code == Exit.CHANGED
    assert f"came with 5 bytes, {len(WEIGHTS)} were listed" in error.message


def test_a_file_that_is_too_large_for_http_names_what_is_missing(hub, place, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", len(WEIGHTS) - 1)
    hub.add("org/name", FILES)
    opened = place()

    error = ends(lambda: opened.fetch("model.safetensors"))
    assert error.code == Exit.USAGE
    assert "hf_xet" in error.message
    assert opened.fetch("config.json") == FILES["config.json"]
