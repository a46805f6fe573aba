"""An S3 bucket as the place that a model is published from: moto on loopback, and what goes wrong between."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import boto3.s3.transfer
import botocore.utils
import pytest
import s3transfer.exceptions
from botocore.response import StreamingBody
from hypothesis import given
from hypothesis import strategies as st
from s3transfer.utils import DeferredOpenFile

from lab.loopback.s3 import BUCKET, App, Environ, Start, Store, refusing, serving, use
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from publish import s3
from publish.remote import RemoteFile, choose
from tests.workloads.publish.support import MODEL, publish, safetensors
from tests.workloads.support import WORKLOADS

pytestmark = pytest.mark.inputs

ADDRESS = f"s3://{BUCKET}/tiny"
SMALL = b"{}" * 50
PART = 256 << 10
LARGE = os.urandom(5 * PART + 7)
CALLER = "arn:aws:sts::123456789012:user/moto"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(s3, "PART_BYTES", PART)
    monkeypatch.setattr(s3, "TRIES", 2)
    with serving() as served:
        use(monkeypatch, served.endpoint)
        yield served


def place(address: str = ADDRESS, patience: Patience | None = None) -> s3.S3Remote:
    return s3.open_s3(address, patience or Patience(), 4)


def refused(call: Callable[..., Any], *args: Any) -> FaststartError:
    with pytest.raises(FaststartError) as caught:
        call(*args)
    return caught.value


def chosen(remote: s3.S3Remote, patterns: Sequence[str] = ("all",)) -> list[bytes]:
    """Return the files of a place that are asked for, held to be readable."""
    wanted, _ = choose(remote.listing(), patterns, lambda _: b"")
    for file in wanted.values():
        if file.hold:
            file.hold()
    return list(wanted)


def fetch(remote: s3.S3Remote, file: RemoteFile, folder: Path, told: list[int] | None = None) -> bytes:
    folder.mkdir(exist_ok=True)
    return Path(remote.fetch(file, str(folder), (told if told is not None else []).append)).read_bytes()


def only_file(store: Store, content: bytes) -> tuple[s3.S3Remote, RemoteFile]:
    store.put({"tiny/model.safetensors": content})
    remote = place()
    return remote, remote.listing().files[0]


# Addresses


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("s3://models", ("models", "")),
        ("s3://models/", ("models", "")),
        ("s3://models/a/b", ("models", "a/b")),
        ("s3://models/a/b/", ("models", "a/b")),
        ("s3://models/ä b?c#d%41\n", ("models", "ä b?c#d%41\n")),
        ("s3://my.old_Bucket-1/a", ("my.old_Bucket-1", "a")),
    ],
)
def test_an_address_names_a_bucket_and_a_folder_in_it(address, parsed):
    assert s3.parse(address) == parsed


@pytest.mark.parametrize(
    "address",
    [
        "s3:/models/a", "s3://", "s3:///a", "S3://models/a", "s3://ab", "s3://mo dels/a", "s3://models?a",
        "s3://arn:aws:s3:us-east-1:123456789012:accesspoint/a", "s3://models/a\udcff", "models/a", "s3://models\n",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_with_what_would_be_accepted(address):
    error = refused(s3.open_s3, address, Patience(), 4)

    assert (error.code, error.file) == (Exit.USAGE, os.fsencode(address))
    assert "s3://BUCKET and s3://BUCKET/FOLDER" in error.message


def test_the_module_needs_only_the_standard_library():
    code = "import publish.s3, sys; assert not {'boto3', 'botocore', 's3transfer'} & set(sys.modules)"
    environment = {"PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-S", "-c", code], env=environment, check=True)


def test_a_python_without_boto3_is_told_before_anything_is_asked(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "boto3"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)
    error = refused(place)

    assert error.code == Exit.USAGE
    assert "needs boto3, which this Python has not" in error.message


# Listing


def test_the_listing_has_all_below_the_prefix_and_nothing_beside_it(store):
    store.put(
        {"tiny/b/c.bin": b"12", "tiny/a.json": SMALL, "tiny-2/x": b"1", "tinyx": b"1", "tiny": b"1", "Tiny/x": b""}
    )
    listing = place(f"{ADDRESS}/").listing()

    assert [(file.path, file.size, file.sha256) for file in listing.files] == [
        (b"a.json", 100, None),
        (b"b/c.bin", 2, None),
    ]
    assert (listing.address, listing.folders) == (ADDRESS, ())


def test_a_bucket_without_a_prefix_is_listed_whole(store):
    store.put({"a.json": SMALL, "b/c.bin": b"12"})
    listing = place(f"s3://{BUCKET}").listing()

    assert [file.path for file in listing.files] == [b"a.json", b"b/c.bin"]
    assert listing.address == f"s3://{BUCKET}"


def test_names_come_as_they_are_whatever_they_hold(store, tmp_path):
    keys = ["a b+c", "%41", "ü/ß.json", "q?x=1&y#z", "tab\there", "back\\slash", "'\"<>", "日本", "x" * 200]
    store.put({f"tiny/{key}": key.encode() for key in keys})
    remote = place()
    files = remote.listing().files

    assert {file.path for file in files} == {key.encode() for key in keys}
    assert all(fetch(remote, file, tmp_path) == file.path for file in files)


def test_a_key_that_ends_in_a_slash_is_a_folder_and_listed_if_nothing_lies_in_it(store):
    store.put(dict.fromkeys(["tiny/", "tiny/empty/", "tiny/full/", "tiny/up/", "tiny/up/down/"], b""))
    store.put({"tiny/full/x": b"1", "tiny/nothing": b""})
    listing = place().listing()

    assert [file.path for file in listing.files] == [b"full/x", b"nothing"]
    assert listing.folders == (b"empty", b"up/down")


@pytest.mark.parametrize(
    ("keys", "file", "words"),
    [
        (["a//b"], b"a//b", "no name for a file"),
        (["../a"], b"../a", "no name for a file"),
        (["a/./b"], b"a/./b", "no name for a file"),
        (["/etc/passwd"], b"/etc/passwd", "no name for a file"),
        (["a/"], b"a/", "no name for a file"),
        (["a", "a/b"], b"a", "both a file and a folder"),
        (["a/b", "a/b/c/d"], b"a/b", "both a file and a folder"),
    ],
)
def test_keys_that_no_folder_can_have_are_refused_by_name_where_they_are_asked_for(store, keys, file, words):
    store.put({f"tiny/{key}": b"1" for key in keys})
    error = refused(chosen, place())

    assert (error.code, error.file) == (Exit.DAMAGED, file)
    assert words in error.message


@pytest.mark.parametrize(
    "key",
    [
        "original//x", ".faststart/manifest.json", "checkpoint-500//model.safetensors", "onnx/../x", ".git//HEAD",
        "lost+found//x", "b//", "config.json/", "config.json/old/x", "figures/./a", "__pycache__//a.pyc",
    ],
)  # fmt: skip
def test_keys_that_no_folder_can_have_are_let_be_where_no_model_needs_them(store, key):
    store.put({f"tiny/{key}": b"" if key.endswith("/") else b"1"})
    store.put({"tiny/config.json": b"{}", "tiny/model.safetensors": b"12"})
    files = ["config.json", "*.safetensors"] if key.startswith("config.json") else ["auto"]

    assert chosen(place(), files) == [b"config.json", b"model.safetensors"]


def test_the_digest_tells_whether_content_changed_and_not_whether_it_was_written_again(store):
    store.put({"tiny/a": b"12", "tiny/b": b"34"})
    remote = place()
    first = remote.listing()
    store.put({"tiny/a": b"12"})
    second = remote.listing()
    store.put({"tiny/a": b"13"})

    assert second == first
    assert remote.listing().digest != first.digest


def test_a_listing_of_several_pages_is_one(store):
    store.put({f"tiny/{number:04}": b"" for number in range(1_001)})

    assert [file.path for file in place().listing().files] == [b"%04d" % number for number in range(1_001)]
    assert len(store.asked) == 2


def test_twenty_thousand_objects_are_listed(store):
    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        """Answer a page of a thousand; moto looks at all objects for each."""
        page = int(parse_qs(environ["QUERY_STRING"]).get("continuation-token", ["0"])[0])
        objects = "".join(
            f"<Contents><Key>tiny/{number:05}</Key><Size>1</Size><ETag>&#34;{number}&#34;</ETag></Contents>"
            for number in range(page * 1_000, page * 1_000 + 1_000)
        )
        more = f"<NextContinuationToken>{page + 1}</NextContinuationToken>" if page < 19 else ""
        start("200 OK", [("Content-Type", "application/xml")])
        return [f"<R><IsTruncated>{str(page < 19).lower()}</IsTruncated>{more}{objects}</R>".encode()]

    store.between = between
    assert place().listing().files == tuple(
        RemoteFile(b"%05d" % number, 1, f'"{number}" 1') for number in range(20_000)
    )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://nobody/tiny", "there is no bucket nobody"),
        (f"s3://{BUCKET}/Tiny", "no file's key begins with 'Tiny/' (capital and small letters differ)"),
        (f"s3://{BUCKET}/empty", "no file's key begins with 'empty/'"),
    ],
)
def test_what_is_not_there_is_said_with_what_was_looked_for(store, address, words):
    store.put({"tiny/a": b"1", "empty/": b"", "empty/empty/": b""})
    error = refused(place(address).listing)

    assert (error.code, error.file) == (Exit.NO_MODEL, address.encode())
    assert words in error.message


@pytest.mark.parametrize("storage", ["GLACIER", "DEEP_ARCHIVE"])
def test_an_archived_object_is_named_and_one_that_was_restored_is_fetched(store, tmp_path, storage):
    store.put({"tiny/config.json": SMALL})
    store.put({"tiny/model.safetensors": b"12"}, storage=storage)
    error = refused(chosen, place())

    assert (error.code, error.file) == (Exit.NOT_PERMITTED, b"model.safetensors")
    assert f"lies in the archive {storage}: restore it first" in error.message

    boto3.client("s3").restore_object(Bucket=BUCKET, Key="tiny/model.safetensors", RestoreRequest={"Days": 1})
    remote = place()
    assert fetch(remote, remote.listing().files[1], tmp_path) == b"12"


def test_an_object_whose_restoring_goes_on_cannot_be_read_yet(store):
    store.put({"tiny/model.safetensors": b"12"}, storage="GLACIER")

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            return app(environ, start)
        start("200 OK", [("Content-Length", "2"), ("x-amz-restore", 'ongoing-request="true"')])
        return []

    store.between = between
    assert refused(chosen, place()).code == Exit.NOT_PERMITTED


@pytest.mark.parametrize("key", ["checkpoint-500/optimizer.pt", "original/x.pth", ".cache/x", "rng_state.pth", "a.mp4"])
def test_an_archived_object_that_is_not_asked_for_is_let_be_without_a_question(store, key):
    store.put({"tiny/model.safetensors": b"12", "tiny/config.json": b"{}"})
    store.put({f"tiny/{key}": b"12"}, storage="GLACIER")

    assert chosen(place(), ["auto"]) == chosen(place(), ["config.json", "*.safetensors"])
    assert store.of(f"tiny/{key}") == []


@pytest.mark.parametrize("storage", ["GLACIER_IR", "STANDARD_IA", "INTELLIGENT_TIERING"])
def test_objects_of_classes_that_can_be_read_at_once_are_listed_without_a_question(store, storage):
    store.put({"tiny/model.safetensors": b"12"}, storage=storage)

    assert len(place().listing().files) == 1
    assert store.of("tiny/model.safetensors") == []


# Access


def test_a_listing_that_is_denied_names_the_action_the_bucket_the_prefix_and_the_caller(store):
    store.between = refusing(403, "AccessDenied", "Access Denied")
    error = refused(place().listing)

    assert (error.code, error.file) == (Exit.NOT_PERMITTED, ADDRESS.encode())
    assert f"{CALLER} needs s3:ListBucket on arn:aws:s3:::{BUCKET} for the prefix 'tiny/'" in error.message
    assert "if the bucket belongs to another account, by the bucket's policy" in error.message


def test_a_download_that_is_denied_names_the_action_and_the_object(store, tmp_path):
    remote, file = only_file(store, SMALL)
    store.between = refusing(403, "AccessDenied", "Access Denied")
    error = refused(fetch, remote, file, tmp_path)

    assert (error.code, error.file) == (Exit.NOT_PERMITTED, b"model.safetensors")
    assert f"s3:GetObject on arn:aws:s3:::{BUCKET}/tiny/model.safetensors" in error.message


def test_where_aws_names_the_caller_itself_or_does_not_say_nobody_is_asked_twice(store):
    store.between = refusing(403, "AccessDenied", "User: arn:aws:sts::1:assumed-role/a/b is not authorized")
    assert "(AccessDenied: User: arn:aws:sts::1:assumed-role/a/b is not authorized)" in refused(place().listing).message
    assert [one.method for one in store.asked] == ["GET"]

    denied = refusing(403, "AccessDenied", "Access Denied")
    store.between = lambda app, environ, start: denied(app, {**environ, "REQUEST_METHOD": "GET"}, start)
    assert "no access: the caller needs s3:ListBucket" in refused(place().listing).message


DIRECTORY_BUCKET = "models--use1-az4--x-s3"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Access Denied", f"{CALLER} needs s3express:CreateSession on arn:aws:s3express:us-east-1:*:bucket/"),
        ("User: arn:aws:sts::1:assumed-role/a/b is not authorized", "the caller needs s3express:CreateSession on arn:"),
        ("ReadWrite sessions are not allowed.", "(AccessDenied: ReadWrite sessions are not allowed.)"),
    ],
)
@pytest.mark.parametrize("tries", [1, 3])
def test_a_directory_bucket_whose_session_is_denied_is_no_lack_of_credentials(store, said, words, tries):
    store.between = refusing(403, "AccessDenied", said)
    for _ in range(tries):
        error = refused(place(f"s3://{DIRECTORY_BUCKET}/tiny").listing)
        assert (error.code, "no AWS credentials" in error.message) == (Exit.NOT_PERMITTED, False)
        assert words in error.message
        assert DIRECTORY_BUCKET in error.message


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (404, "NoSuchBucket", (Exit.NO_MODEL, f"there is no bucket {DIRECTORY_BUCKET}")),
        (403, "InvalidAccessKeyId", (Exit.NOT_PERMITTED, "S3 refuses it: InvalidAccessKeyId")),
        (400, "ExpiredToken", (Exit.NOT_PERMITTED, "S3 refuses it: ExpiredToken")),
        (503, "SlowDown", (Exit.NETWORK, "the last was SlowDown")),
        (403, "SignatureDoesNotMatch", (Exit.NOT_PERMITTED, "S3 refuses it: SignatureDoesNotMatch")),
    ],
)
def test_each_answer_to_a_session_of_a_directory_bucket_ends_as_one_to_a_listing_does(store, status, code, expected):
    store.between = refusing(status, code)
    error = refused(place(f"s3://{DIRECTORY_BUCKET}/tiny").listing)
    assert error.code == expected[0]
    assert expected[1] in error.message


def test_a_denied_access_names_requester_pays_as_a_possible_cause_for_s3_gives_none(store, tmp_path):
    remote, file = only_file(store, SMALL)

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        """A Requester Pays bucket of another account."""
        paid = environ.get("HTTP_X_AMZ_REQUEST_PAYER") == "requester"
        return app(environ, start) if paid else refusing(403, "AccessDenied", "Access Denied")(app, environ, start)

    store.between = between
    for error in (refused(place().listing), refused(fetch, remote, file, tmp_path)):
        assert error.code == Exit.NOT_PERMITTED
        assert "makes whoever asks pay (Requester Pays) answers so, too" in error.message
        assert "copy the model into a bucket of your own first" in error.message


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "AccessDenied", "Bucket is a requester pays bucket"),
        (403, "AccessDenied", "RequesterPays: the request lacks x-amz-request-payer"),
        (400, "UserProjectMissing", "Bucket is a requester pays bucket but no user project provided."),
        (400, "InvalidArgument", "missing header x-amz-request-payer"),
        (403, "RequesterPayRequired", "No."),
    ],
)
def test_a_requester_pays_bucket_that_says_so_is_named(store, status, code, said):
    store.between = refusing(status, code, said)
    error = refused(place().listing)

    assert error.code == Exit.NOT_PERMITTED
    assert f"the bucket {BUCKET} makes whoever asks pay (Requester Pays), which publish does not do" in error.message
    assert "needs s3:ListBucket" not in error.message


def test_an_s3_of_another_maker_is_no_reason_to_show_its_keys_to_aws(store, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", store.endpoint)
    store.between = refusing(403, "AccessDenied", "Access Denied")
    look_up, hosts = socket.getaddrinfo, set()

    def only_loopback(host, *arguments, **options):
        hosts.add(host)
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", only_loopback)
    assert "the caller needs s3:ListBucket" in refused(place().listing).message
    assert hosts == {"127.0.0.1"}


def test_an_object_whose_key_may_not_be_used_names_kms(store, tmp_path):
    remote, file = only_file(store, SMALL)
    store.between = refusing(403, "AccessDenied", "arn:x is not authorized to perform: kms:Decrypt on the resource")
    error = refused(fetch, remote, file, tmp_path)

    assert error.code == Exit.NOT_PERMITTED
    assert f"kms:Decrypt on the key that arn:aws:s3:::{BUCKET}/tiny/model.safetensors is encrypted" in error.message


def test_an_object_that_turns_out_to_be_archived_is_named(store, tmp_path):
    remote, file = only_file(store, SMALL)
    store.between = refusing(403, "InvalidObjectState", inside="<StorageClass>INTELLIGENT_TIERING</StorageClass>")
    error = refused(fetch, remote, file, tmp_path)

    assert (error.code, error.file) == (Exit.NOT_PERMITTED, b"model.safetensors")
    assert "lies in the archive INTELLIGENT_TIERING: restore it first" in error.message


def test_credentials_that_s3_does_not_take_are_no_network_failure(store):
    store.between = refusing(403, "ExpiredToken", "The provided token has expired.")
    error = refused(place().listing)

    assert error.code == Exit.NOT_PERMITTED
    assert "ExpiredToken: The provided token has expired." in error.message


def test_without_credentials_it_is_said_where_they_come_from(store, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    error = refused(place().listing)

    assert error.code == Exit.NOT_PERMITTED
    assert "no AWS credentials: a pod has them by an EKS pod identity association" in error.message
    assert store.asked == []


def test_a_pod_identity_agent_that_does_not_answer_is_a_matter_of_credentials(store, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{closed_port()}/credentials")
    monkeypatch.setattr(botocore.utils.ContainerMetadataFetcher, "SLEEP_TIME", 0)
    error = refused(place().listing)

    assert error.code == Exit.NOT_PERMITTED
    assert "no AWS credentials" in error.message


@pytest.mark.parametrize("identity", [True, False], ids=["of a pod", "of a shell"])
def test_what_a_pod_may_do_since_a_moment_ago_is_waited_for(store, monkeypatch, tmp_path, identity):
    """A role, its policy and its association with a service account reach S3 and the agent some seconds later."""
    store.put({f"tiny/{name}": data for name, data in MODEL.items() if data})
    if identity:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")
    denied = [refusing(403, "AccessDenied")] * 3

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        listing = "list-type" in environ["QUERY_STRING"]
        return (denied.pop() if listing and denied else lambda *request: app(*request[1:]))(app, environ, start)

    store.between = between
    ended = publish(ADDRESS, tmp_path / "to", "--tries", "4")
    assert (ended.code, (tmp_path / "to").exists()) == ((Exit.DONE, True) if identity else (Exit.NOT_PERMITTED, False))


def test_a_role_that_may_not_be_assumed_is_a_matter_of_credentials(store, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/publisher")

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        start("403 Forbidden", [("Content-Type", "text/xml")])
        return [b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not you.</Message></Error></ErrorResponse>"]

    store.between = between
    error = refused(place().listing)
    assert error.code == Exit.NOT_PERMITTED
    assert "no AWS credentials" in error.message
    assert "AssumeRoleWithWebIdentity" in error.message


@pytest.mark.parametrize(("name", "value"), [("AWS_ENDPOINT_URL_S3", "nonsense"), ("AWS_PROFILE", "nobody")])
def test_settings_of_boto3_that_make_no_sense_are_a_usage_error(store, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    error = refused(place().listing)

    assert error.code == Exit.USAGE
    assert value in error.message


# Regions


def elsewhere(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
    """A bucket in eu-central-1, asked as boto3 asks."""
    if "/eu-central-1/s3/" in environ["HTTP_AUTHORIZATION"]:
        return app(environ, start)
    return refusing(301, "PermanentRedirect", x_amz_bucket_region="eu-central-1")(app, environ, start)


def nowhere(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
    """A bucket in another region, which is not said to whom it is closed."""
    answer = (
        refusing(403, "AccessDenied") if environ["REQUEST_METHOD"] == "HEAD" else refusing(301, "PermanentRedirect")
    )
    return answer(app, environ, start)


def test_a_bucket_in_another_region_is_followed_there(store, tmp_path):
    store.put({"tiny/model.safetensors": LARGE})
    store.between = elsewhere
    remote = place()

    assert fetch(remote, remote.listing().files[0], tmp_path) == LARGE


@pytest.mark.parametrize(
    ("between", "words"),
    [
        (refusing(301, "PermanentRedirect", x_amz_bucket_region="eu-central-1"), "in region eu-central-1: set AWS_DEF"),
        (
            refusing(400, "AuthorizationHeaderMalformed", inside="<Region>eu-central-1</Region>"),
            "lies in region eu-central-1: set AWS_DEFAULT_REGION to it",
        ),
        (nowhere, "was asked for in region us-east-1 and lies in another region"),
        (
            refusing(403, "AccessDenied", x_amz_bucket_region="eu-central-1"),
            "lies in region eu-central-1, not in us-east-1",
        ),
    ],
)
def test_a_region_that_cannot_be_followed_is_named(store, between, words):
    store.between = between
    error = refused(place().listing)

    assert error.code == Exit.NOT_PERMITTED
    assert words in error.message


def test_an_endpoint_that_leads_nowhere_is_a_usage_error(store):
    store.between = refusing(301, "Moved")
    error = refused(place().listing)

    assert error.code == Exit.USAGE
    assert f"{store.endpoint} redirects each request" in error.message


# Downloads


@pytest.mark.parametrize("content", [b"", SMALL, LARGE[:PART], LARGE[: 2 * PART], LARGE], ids=len)
def test_a_file_comes_byte_by_byte_and_its_progress_adds_up(store, tmp_path, content):
    remote, file = only_file(store, content)
    told: list[int] = []

    assert fetch(remote, file, tmp_path, told) == content
    assert sum(told) == len(content)
    assert len(list(tmp_path.iterdir())) == 1


def test_every_request_for_content_is_bound_to_the_listed_etag_and_none_asks_for_more(store, tmp_path):
    store.put({"tiny/a.json": SMALL, "tiny/b.bin": LARGE, "tiny/c": b""})
    remote = place()
    etags = {}
    for file in remote.listing().files:
        fetch(remote, file, tmp_path)
        etags[f"tiny/{file.path.decode()}"] = file.version.split()[0]
    requests = [one for one in store.asked if one.key]

    assert {one.method for one in requests} == {"GET"}
    assert [len(store.of(key)) for key in etags] == [1, 6, 1]
    assert {(one.key, one.headers["if-match"]) for one in requests} == set(etags.items())


def test_all_threads_share_one_transfer_manager_over_several_listings(store, tmp_path, monkeypatch):
    store.put({f"tiny/{number}": os.urandom(PART + 1) for number in range(8)})
    made: list[Any] = []
    make = boto3.s3.transfer.create_transfer_manager
    monkeypatch.setattr(
        boto3.s3.transfer, "create_transfer_manager", lambda *arguments: made.append(make(*arguments)) or made[-1]
    )
    remote = place()
    files = remote.listing().files
    content: dict[bytes, bytes] = {}

    def bring(file: RemoteFile) -> None:
        content[file.path] = fetch(remote, file, tmp_path / file.path.decode())

    threads = [threading.Thread(target=bring, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert remote.listing().files == files
    assert len(made) == 1
    assert made[0].config.max_request_concurrency == 4
    assert content == {b"%d" % n: store.backend.get_object(BUCKET, f"tiny/{n}").value for n in range(8)}


def test_what_an_earlier_try_left_in_the_folder_is_removed(store, tmp_path):
    remote, file = only_file(store, SMALL)
    for name in ("content", "content.0aF3", "content.77bc"):
        (tmp_path / name).write_bytes(b"left")

    assert fetch(remote, file, tmp_path) == SMALL
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [SMALL]


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
@pytest.mark.parametrize("change", ["same size", "shrinks", "grows", "vanishes", "bucket vanishes"])
def test_an_object_that_changed_after_the_listing_is_noticed(store, tmp_path, content, change):
    remote, file = only_file(store, content)
    if change == "bucket vanishes":
        store.remove(f"tiny/{file.path.decode()}")
        store.backend.delete_bucket(BUCKET)
    elif change == "vanishes":
        store.remove(f"tiny/{file.path.decode()}")
    else:
        other = {"same size": bytes(len(content)), "shrinks": content[:-1], "grows": content + b"1"}
        store.put({"tiny/model.safetensors": other[change]})
    error = refused(fetch, remote, file, tmp_path)

    assert (error.code, error.file) == (Exit.CHANGED, b"model.safetensors")
    assert "is not the object any more that was listed" in error.message


def test_an_s3transfer_that_has_no_error_of_its_own_for_another_object_will_do(store, tmp_path, monkeypatch):
    monkeypatch.delattr(s3transfer.exceptions, "S3DownloadFailedError")
    remote, file = only_file(store, LARGE)
    store.remove("tiny/model.safetensors")
    assert refused(fetch, remote, file, tmp_path).code == Exit.CHANGED


def test_an_object_that_changes_between_its_parts_is_noticed(store, tmp_path):
    remote, file = only_file(store, LARGE)

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        answer = b"".join(app(environ, start))
        store.put({"tiny/model.safetensors": bytes(len(LARGE))})
        return [answer]

    store.between = between
    assert refused(fetch, remote, file, tmp_path).code == Exit.CHANGED


def test_a_file_of_another_size_is_noticed_where_s3_does_not_know_conditions(store, tmp_path):
    remote, file = only_file(store, SMALL)
    store.put({"tiny/model.safetensors": SMALL[:-1]})

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        environ.pop("HTTP_IF_MATCH")
        return app(environ, start)

    store.between = between
    error = refused(fetch, remote, file, tmp_path)
    assert (error.code, error.file) == (Exit.CHANGED, b"model.safetensors")
    assert "came with 99 bytes, 100 were listed" in error.message


def test_an_object_that_comes_without_end_is_cut(store, tmp_path):
    remote, file = only_file(store, SMALL)
    sent: list[int] = []

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        start("200 OK", [("ETag", file.version.split()[0])])
        for _ in range(4000):
            sent.append(1)
            yield bytes(1 << 16)

    store.between = between
    error = refused(fetch, remote, file, tmp_path)
    assert (error.code, error.file) == (Exit.CHANGED, b"model.safetensors")
    assert "is longer than the 100 bytes that were listed" in error.message
    assert len(sent) < 4000


@pytest.mark.parametrize("most", [1, 999, 1000])
def test_a_listing_without_end_is_cut(store, monkeypatch, most):
    monkeypatch.setattr(s3, "MAX_FILES", most)
    asked: list[int] = []

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        asked.append(1)
        objects = "".join(
            f"<Contents><Key>tiny/{len(asked)}/{number}</Key><Size>1</Size><ETag>&#34;1&#34;</ETag></Contents>"
            for number in range(500)
        )
        start("200 OK", [("Content-Type", "application/xml")])
        more = f"<NextContinuationToken>{len(asked)}</NextContinuationToken>"
        return [f"<R><IsTruncated>true</IsTruncated>{more}{objects}</R>".encode()]

    store.between = between
    error = refused(place().listing)
    assert (error.code, error.file) == (Exit.USAGE, ADDRESS.encode())
    assert f"holds more than {most} objects" in error.message
    assert len(asked) <= 3


@pytest.mark.parametrize(
    "entry",
    [
        "<Key>tiny/a</Key><Size>1</Size>",
        "<Key>tiny/a</Key><ETag>&#34;1&#34;</ETag>",
        "<Size>1</Size><ETag>&#34;1&#34;</ETag>",
        "<Key>tiny/a</Key><Size>-1</Size><ETag>&#34;1&#34;</ETag>",
        "",
    ],
)
def test_an_object_that_is_listed_without_what_each_has_comes_from_no_s3(store, entry):
    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "application/xml")])
        return [f"<R><IsTruncated>false</IsTruncated><Contents>{entry}</Contents></R>".encode()]

    store.between = between
    error = refused(place().listing)
    assert error.code == Exit.USAGE
    assert "is it an S3 endpoint?" in error.message


# What fails


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cut(times: int) -> Callable[[App, Environ, Start], Iterable[bytes]]:
    """Return what ends so many answers about objects in the middle."""
    left = iter(range(times))

    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        answer = b"".join(app(environ, start))
        yield answer[: len(answer) // 2] if next(left, None) is not None else answer

    return between


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
def test_a_connection_that_breaks_once_costs_a_try_and_no_byte(store, tmp_path, content):
    remote, file = only_file(store, content)
    store.between = cut(1)
    told: list[int] = []

    assert fetch(remote, file, tmp_path, told) == content
    assert sum(told) == len(content)


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
def test_a_connection_that_always_breaks_is_a_network_failure(store, tmp_path, content):
    remote, file = only_file(store, content)
    store.between = cut(1_000)
    error = refused(fetch, remote, file, tmp_path)

    assert (error.code, error.file) == (Exit.NETWORK, b"model.safetensors")
    assert "S3 could not be read, after 2 tries at most" in error.message


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
def test_a_server_that_is_gone_is_a_network_failure_for_downloads(store, tmp_path, monkeypatch, content):
    remote, file = only_file(store, content)

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    error = refused(fetch, remote, file, tmp_path)
    assert (error.code, error.file) == (Exit.NETWORK, b"model.safetensors")
    assert "EndpointConnectionError" in error.message


def test_a_server_that_is_gone_is_a_network_failure_for_the_listing(store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed_port()}")
    error = refused(place().listing)

    assert (error.code, error.file) == (Exit.NETWORK, ADDRESS.encode())
    assert "EndpointConnectionError" in error.message


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (400, "RequestTimeout")])
def test_a_server_that_has_no_time_is_a_network_failure_with_the_number_of_tries(store, tmp_path, status, code):
    remote, file = only_file(store, SMALL)
    store.between = refusing(status, code, "Reduce your request rate.")

    for error in (refused(fetch, remote, file, tmp_path), refused(remote.listing)):
        assert error.code == Exit.NETWORK
        assert f"with an error 2 times, the last was {code}: Reduce your request rate." in error.message
    assert len(store.of("tiny/model.safetensors")) == 2


def test_a_server_that_has_no_time_once_is_asked_again(store, tmp_path):
    remote, file = only_file(store, SMALL)
    busy = iter([refusing(503, "SlowDown")])
    store.between = lambda app, environ, start: next(busy, lambda *_: app(environ, start))(app, environ, start)

    assert fetch(remote, file, tmp_path) == SMALL


def test_an_answer_that_never_comes_is_a_network_failure(store, tmp_path, monkeypatch):
    only_file(store, SMALL)  # moto's first answer is a late one
    monkeypatch.setattr(s3, "READ_SECONDS", 1)
    monkeypatch.setattr(s3, "TRIES", 1)
    remote, file = only_file(store, SMALL)
    free = threading.Event()

    def hang(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        free.wait(30)
        return app(environ, start)

    store.between = hang
    errors = [refused(fetch, remote, file, tmp_path), refused(place().listing)]
    free.set()
    for error in errors:
        assert error.code == Exit.NETWORK
        assert "ReadTimeoutError" in error.message


def test_a_connection_that_is_reset_is_no_fault_of_the_disk(store, tmp_path, monkeypatch):
    def reset(self: Any, amount: int) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(StreamingBody, "read", reset)
    remote, file = only_file(store, SMALL)
    error = refused(fetch, remote, file, tmp_path)

    assert error.code == Exit.NETWORK
    assert "ConnectionResetError" in error.message


def test_content_that_does_not_fit_its_checksum_is_not_taken(store, tmp_path):
    boto3.client("s3").put_object(Bucket=BUCKET, Key="tiny/model.safetensors", Body=SMALL, ChecksumAlgorithm="CRC32")
    remote = place()
    file = remote.listing().files[0]
    store.between = lambda app, environ, start: [b"".join(app(environ, start)).replace(b"{", b"[")]
    error = refused(fetch, remote, file, tmp_path)

    assert (error.code, error.file) == (Exit.NETWORK, b"model.safetensors")
    assert "checksum" in error.message


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, Exit.NO_SPACE),
        (errno.EDQUOT, Exit.NO_SPACE),
        (errno.EACCES, Exit.NOT_PERMITTED),
        (errno.EIO, Exit.IO_ERROR),
    ],
)
def test_a_file_that_cannot_be_written_ends_with_the_code_of_its_cause(
    store, tmp_path, monkeypatch, content, number, code
):
    def fail(self: Any, data: bytes) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(DeferredOpenFile, "write", fail)
    remote, file = only_file(store, content)
    error = refused(fetch, remote, file, tmp_path)

    assert (error.code, error.file) == (code, b"model.safetensors")
    assert os.strerror(number) in error.message


def test_a_folder_that_is_not_there_is_a_fault_of_the_destination(store, tmp_path):
    remote, file = only_file(store, SMALL)

    assert refused(remote.fetch, file, str(tmp_path / "no"), lambda _: None).code == Exit.IO_ERROR


def test_a_fault_of_the_caller_s_own_is_not_dressed_as_one_of_s3(store, tmp_path):
    remote, file = only_file(store, SMALL)

    def fault(_: int) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        remote.fetch(file, str(tmp_path), fault)


# The CRT


class Crt:
    """Stands in for s3transfer.crt: brings objects with the sessions that it is given, and notes how it was made."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def BotocoreCRTCredentialsWrapper(self, credentials: Any) -> Any:  # noqa: N802
        return types.SimpleNamespace(to_crt_credentials_provider=lambda: credentials.access_key)

    def BotocoreCRTRequestSerializer(self, session: Any, options: dict[str, Any]) -> Any:  # noqa: N802
        return session.create_client("s3", **options)

    def create_s3_crt_client(self, *arguments: Any, **options: Any) -> None:
        self.made.append((*arguments, options))

    def CRTTransferManager(self, client: None, serializer: Any) -> Any:  # noqa: N802
        def download(bucket: str, key: str, target: str, subscribers: list[Any]) -> Any:
            future = types.SimpleNamespace(meta=object(), result=result)
            for subscriber in subscribers:
                subscriber.on_queued(future=future)
                if not self.error:
                    content = serializer.get_object(Bucket=bucket, Key=key)["Body"].read()
                    Path(target).write_bytes(content)
                    subscriber.on_progress(future=future, bytes_transferred=len(content))
                subscriber.on_done(future=future)
            return future

        def result() -> None:
            if self.error:
                raise self.error

        return types.SimpleNamespace(download=download)


@pytest.fixture
def crt(store: Store, monkeypatch: pytest.MonkeyPatch) -> Crt:
    fake = Crt()
    monkeypatch.setitem(sys.modules, "s3transfer.crt", fake)
    monkeypatch.setattr(s3transfer, "crt", fake, raising=False)
    return fake


def test_a_crt_that_is_there_brings_the_objects_of_the_bucket_s_own_region(store, crt, tmp_path):
    def between(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        """Say in each answer where the bucket lies, as S3 does."""
        return app(environ, lambda status, headers: start(status, [*headers, ("x-amz-bucket-region", "eu-central-1")]))

    store.between = between
    remote, file = only_file(store, LARGE)
    told: list[int] = []

    assert fetch(remote, file, tmp_path, told) == LARGE
    assert told == [len(LARGE)]
    assert crt.made == [
        ("eu-central-1", "AKIAIOSFODNN7EXAMPLE", {"part_size": PART, "use_ssl": False, "verify": None}),
    ]
    assert [one.headers["if-match"] for one in store.of("tiny/model.safetensors")] == [file.version.split()[0]]


def test_the_crt_s_own_errors_are_foreseen(store, crt, tmp_path):
    remote, file = only_file(store, SMALL)

    def fail(name: str) -> FaststartError:
        crt.error = type("AwsCrtError", (Exception,), {"__module__": "awscrt.exceptions", "name": name})(f"{name}: why")
        return refused(fetch, remote, file, tmp_path)

    assert fail("AWS_ERROR_NO_SPACE").code == Exit.NO_SPACE
    error = fail("AWS_ERROR_HTTP_CHANNEL_THROUGHPUT_FAILURE")
    assert error.code == Exit.NETWORK
    assert "AwsCrtError: AWS_ERROR_HTTP_CHANNEL_THROUGHPUT_FAILURE: why" in error.message


@pytest.mark.parametrize("status", [404, 412, 416])
def test_an_answer_that_s3transfer_passes_on_tells_of_another_object_too(store, crt, tmp_path, status):
    remote, file = only_file(store, SMALL)
    store.between = refusing(status, "Some", "Reason.")
    error = refused(fetch, remote, file, tmp_path)

    assert error.code == Exit.CHANGED
    assert "is not the object any more that was listed: Some: Reason." in error.message


def test_a_denial_without_a_reason_names_both_actions_that_may_be_missing(store):
    store.put({"tiny/model.safetensors": b"12"}, storage="GLACIER")
    denied = refusing(403, "AccessDenied")
    store.between = lambda app, environ, start: (
        denied if environ["REQUEST_METHOD"] == "HEAD" else lambda *_: app(environ, start)
    )(app, environ, start)
    error = refused(chosen, place())

    assert (error.code, error.file) == (Exit.NOT_PERMITTED, b"model.safetensors")
    assert "s3:GetObject on arn:aws:s3:::models/tiny/model.safetensors or kms:Decrypt on the key" in error.message


# SIGTERM


def stop_during(store: Store, patience: Patience, call: Callable[[], object], wait: bool) -> tuple[int, float]:
    """Stop a call while an answer hangs; return the exit code and the seconds that it took."""
    begun, free = threading.Event(), threading.Event()

    def hang(app: App, environ: Environ, start: Start) -> Iterable[bytes]:
        answer = b"".join(app(environ, start))
        if wait:
            yield answer[:1]
        begun.set()
        free.wait(30)
        yield answer[1:] if wait else answer

    store.between = hang
    ended: list[tuple[int, float]] = []
    thread = threading.Thread(target=lambda: ended.append((refused(call).code, time.monotonic())))
    thread.start()
    try:
        assert begun.wait(20)
        stopped, patience.stopped = time.monotonic(), True
        thread.join(20)
    finally:
        free.set()
    return ended[0][0], ended[0][1] - stopped


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=len)
@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in the answer"])
def test_sigterm_ends_a_download_that_hangs(store, tmp_path, content, begun):
    store.put({"tiny/model.safetensors": content})
    patience = Patience()
    remote = place(patience=patience)
    file = remote.listing().files[0]
    code, seconds = stop_during(store, patience, lambda: fetch(remote, file, tmp_path), begun)

    assert code == Exit.TERMINATED
    assert seconds < 2
    assert refused(fetch, remote, file, tmp_path).code == Exit.TERMINATED


def test_sigterm_ends_a_listing_that_hangs(store):
    store.put({"tiny/a": b"1"})
    patience = Patience()
    code, seconds = stop_during(store, patience, place(patience=patience).listing, False)

    assert code == Exit.TERMINATED
    assert seconds < 2


# Keys and paths

PARTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=6)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@given(st.just("") | PATHS.map("{}/".format), st.sets(PATHS, max_size=12), st.sets(PATHS, max_size=6))
def test_each_key_is_one_path_and_each_empty_folder_is_kept(folder, files, folders):
    objects = [{"Key": folder + path, "Size": 1, "ETag": f'"{number}"'} for number, path in enumerate(sorted(files))]
    markers = [{"Key": f"{folder}{path}/", "Size": 0, "ETag": '"0"'} for path in folders]
    found, empty = s3.sort_out([*markers, *objects], folder)
    paths = [path.encode() for path in [*files, *folders]]

    assert [(file.path.decode(), file.size) for file in found] == [(path, 1) for path in sorted(files)]
    assert [file.version for file in found] == [f'"{number}" 1' for number in range(len(files))]
    assert set(empty) <= {path.encode() for path in folders}
    for path in {path.encode() for path in folders}:
        assert (path in empty) != any(other.startswith(path + b"/") for other in paths)


@pytest.mark.parametrize("most", [0, 1, 2, 3, 5, 13, 40])
def test_a_bucket_is_published_with_as_few_threads_as_there_are_from_three_on(store, tmp_path, monkeypatch, most):
    store.put(
        {f"tiny/{name}": data for name, data in {**MODEL, "large.safetensors": safetensors(a=LARGE)}.items() if data}
    )
    start, others = threading.Thread.start, set(threading.enumerate())

    def is_own(thread: threading.Thread) -> bool:
        return thread not in others and "process_request_thread" not in thread.name

    def refusing(thread: threading.Thread) -> None:
        if is_own(thread) and sum(map(is_own, threading.enumerate())) >= most:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    ended = publish(ADDRESS, tmp_path / "to", "--files", "all")
    assert (ended.code, (tmp_path / "to").exists()) == ((0, True) if most > 2 else (9, False))
    assert most > 2 or "no further thread can be started: " in ended.message["message"]
