"""Each test plants a secret in an address, and finds it in no line, report, termination message or manifest."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lab.loopback.hub import Fault, Hub, hub_here
from lab.loopback.s3 import BUCKET, Store, refusing, serving, use
from podkit import lines
from preload.program import main as preload_main
from publish import publishing, s3
from publish.program import main
from tests.workloads.podkit.test_lines import DRESSES, SECRET
from tests.workloads.publish.support import MODEL
from tests.workloads.support import publish as seal
from tests.workloads.support import write

pytestmark = pytest.mark.inputs

BY_USER = {name: dress for name, dress in DRESSES.items() if "://" in dress and "{}@" in dress and "hf:" not in dress}
"""Addresses with a user or a password that a library may be given."""

SIGNED = f"https://someone:{SECRET}@cdn.invalid/x?X-Amz-Signature={SECRET}&x=1"


class Run:
    """Runs publish or preload in this process, and holds each time that the secret stands nowhere."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]):
        self.folder = folder
        self._capfd = capfd
        self._log = folder / "log"

    def __call__(self, *arguments: str | Path, program: Any = main) -> tuple[int, str]:
        """Return the exit code and the message."""
        asked = [*map(str, arguments), "--termination-log", str(self._log)]
        code = program(asked, sleep=lambda _: None)
        said = self._capfd.readouterr()
        left = {path: path.read_bytes() for path in self.folder.rglob(".faststart/*.json")} | {
            self._log: self._log.read_bytes()
        }
        for where, text in {"stdout": said.out, "stderr": said.err, **left}.items():
            if "planted" not in str(where):
                shown = text if isinstance(text, str) else text.decode()
                assert SECRET not in shown, where
                assert quote(SECRET) not in shown, where
        return code, json.loads(self._log.read_bytes())["message"]


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    return Run(tmp_path, capfd)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_here(tmp_path / "home") as running:
        files = {name: data for name, data in MODEL.items() if isinstance(name, str) and data is not None}
        running.add("org/name", files)
        yield running


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(s3, "TRIES", 2)
    with serving() as served:
        use(monkeypatch, served.endpoint)
        yield served


# The command line

PLACES = {
    "source": ["{}", "{folder}/model"],
    "source of a folder": ["path:{}", "{folder}/model"],
    "destination": ["{folder}/source", "{}"],
    "in place": ["--in-place", "{}"],
    "check": ["--check", "{}"],
    "remove": ["--remove", "{}"],
    "staging": ["{folder}/source", "{folder}/model", "--staging", "{}"],
    "token file": ["hf://org/name", "{folder}/model", "--token-file", "{}"],
    "model": ["{folder}/source", "{folder}/model", "--model", "{}"],
    "unknown option": ["{folder}/source", "{folder}/model", "--x={}"],
    "no number": ["{folder}/source", "{folder}/model", "--wait", "{}"],
}


TRIED = [
    pytest.param(PLACES[place], DRESSES[dress], id=f"{place}-{dress}")
    for row, place in enumerate(PLACES)
    for column, dress in enumerate(DRESSES)
    if place == "source" or (row + column) % 9 == 0
]
"""Each dress as a source, and some at each other place."""


@pytest.mark.parametrize(("place", "dress"), TRIED)
def test_a_command_line_with_a_secret_is_refused_without_it_and_nothing_is_made(run, place, dress):
    given = dress.format(SECRET)
    arguments = [one.replace("{folder}", str(run.folder)).replace("{}", given) for one in place]
    code, message = run(*arguments)

    assert code == 2
    assert "looks like a password or a token" in message
    assert lines.HIDDEN in message
    assert [path.name for path in run.folder.iterdir()] == ["log"]


@pytest.mark.parametrize("dress", [*DRESSES.values()][::4], ids=[*DRESSES][::4])
def test_so_it_is_for_preload(run, dress):
    assert run(dress.format(SECRET), run.folder / "copy", program=preload_main)[0] == 2
    assert run(run.folder / "model", dress.format(SECRET), program=preload_main)[0] == 2


def test_a_token_of_the_hub_in_the_place_of_its_file_is_not_told(run):
    code, message = run("hf://org/name", run.folder / "model", "--token-file", f"hf_{SECRET}{'x' * 30}")

    assert (code, SECRET in message) == (2, False)


@pytest.mark.parametrize("source", ["hf://org/name@feature/x@y", "s3://bucket/llama@v2", "s3://bucket/what?x=1"])
def test_an_address_with_an_at_sign_that_is_no_password_is_asked_for(run, monkeypatch, source):
    asked = []

    def note(address: str, *_: Any) -> None:
        asked.append(address)
        raise lines_error

    lines_error = publishing.FaststartError(publishing.Exit.NO_MODEL, "there is nothing")
    monkeypatch.setattr(publishing, "open_s3", note)
    monkeypatch.setattr(publishing, "open_hub", note)

    assert (run(source, run.folder / "model")[0], asked) == (6, [source])


# Endpoints and proxies


@pytest.mark.parametrize("dress", BY_USER.values(), ids=BY_USER)
def test_an_endpoint_of_the_hub_with_a_secret_is_refused(run, hub, monkeypatch, dress):
    monkeypatch.setenv("HF_ENDPOINT", dress.format(SECRET))
    code, message = run("hf://org/name", run.folder / "model")

    assert code == 2
    assert "HF_ENDPOINT" in message
    assert hub.requests == []


@pytest.mark.parametrize("query", ["?token={}", "/x?X-Amz-Signature={}", "#access_token={}", "?{}", "/{}@x"])
def test_so_is_one_with_a_query(run, hub, monkeypatch, query):
    monkeypatch.setenv("HF_ENDPOINT", hub.url + query.format(SECRET))

    assert run("hf://org/name", run.folder / "model")[0] == 2


@pytest.mark.parametrize("dress", [*BY_USER.values()][::2], ids=[*BY_USER][::2])
@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_of_s3_with_a_secret_is_refused(run, store, monkeypatch, dress, variable):
    monkeypatch.setenv(variable, dress.format(SECRET))

    assert run(f"s3://{BUCKET}/tiny", run.folder / "model")[0] == 2
    assert store.asked == []


@pytest.mark.parametrize("dress", [*BY_USER.values()][::4], ids=[*BY_USER][::4])
def test_an_endpoint_of_a_profile_with_a_secret_is_refused(run, store, monkeypatch, dress):
    config = run.folder / "aws"
    config.write_text(f"[default]\nendpoint_url = {dress.format(SECRET)}\n")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    assert run(f"s3://{BUCKET}/tiny", run.folder / "model")[0] == 2


@pytest.mark.parametrize(
    "proxy",
    ["http://someone:{}@127.0.0.1:9", "http://{}@127.0.0.1:9", "http://someone:{}", "someone:{}@127.0.0.1:9"],
)
@pytest.mark.parametrize("source", ["hf://org/name", f"s3://{BUCKET}/tiny"])
def test_a_proxy_s_password_is_not_told(run, hub, store, monkeypatch, proxy, source):
    monkeypatch.delenv("NO_PROXY", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.format(SECRET))
        monkeypatch.setenv(name.lower(), proxy.format(SECRET))

    assert run(source, run.folder / "model")[0] != 0


# What comes back

ANSWERS = {
    "redirect": {"status": 302, "headers": {"Location": SIGNED}},
    "redirect to a port that is none": {"status": 302, "headers": {"Location": f"http://someone:{SECRET}"}},
    "redirect to another scheme": {"status": 307, "headers": {"Location": f"gopher://u:{SECRET}@x/"}},
    "words": {"status": 403, "headers": {"X-Error-Message": f"ask {SIGNED}"}},
    "words after 500": {"status": 501, "headers": {"X-Error-Message": f"Authorization: Bearer {SECRET}"}},
    "body": {"status": 418, "message": f"see {SIGNED}"},
    "no JSON": {"body": f"see {SIGNED}".encode()},
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("path", ["/api/models/", "/resolve/"])
def test_what_a_hub_answers_with_is_told_without_its_secrets(run, hub, answer, path):
    for method in ("GET", "HEAD"):
        hub.faults.append(Fault(path=path, times=99, method=method, **answer))

    code, _ = run("hf://org/name", run.folder / "model")
    assert code != 0 or "body" in answer


@pytest.mark.parametrize("where", ["variable", "file"])
@pytest.mark.parametrize("said", ["the token {} is wrong", "{}", "Bearer {}", "%7B{}"])
def test_a_token_that_the_hub_repeats_is_not_told(run, hub, monkeypatch, where, said):
    token = run.folder / "planted-token"
    token.write_text(SECRET)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    if where == "variable":
        monkeypatch.setenv("HF_TOKEN", SECRET)
    hub.faults.append(Fault(times=99, status=403, headers={"X-Error-Message": said.format(SECRET)}))

    flags = ["--token-file", token] if where == "file" else []
    assert run("hf://org/name", run.folder / "model", *flags)[0] == 7


@pytest.mark.parametrize("status", [400, 403, 404, 503])
@pytest.mark.parametrize("said", [SIGNED, f"SignatureDoesNotMatch: {SECRET}", f"token={SECRET}", f"Bearer {SECRET}"])
def test_what_a_bucket_answers_with_is_told_without_its_secrets(run, store, monkeypatch, status, said):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store.between = refusing(status, "Some", said)

    assert run(f"s3://{BUCKET}/tiny", run.folder / "model")[0] != 0


def test_what_libraries_log_and_warn_of_is_not_told(run, monkeypatch):
    def loud(*_: Any) -> None:
        logging.getLogger("urllib3.connectionpool").warning("Retrying after %s", SIGNED)
        warnings.showwarning(f"see {SIGNED}", UserWarning, "x.py", 1)
        raise publishing.FaststartError(publishing.Exit.NO_MODEL, "there is nothing")

    monkeypatch.setattr(publishing, "open_hub", loud)

    assert run("hf://org/name", run.folder / "model")[0] == 6


# What lies there


@pytest.mark.parametrize("dress", [*BY_USER.values()][::2], ids=[*BY_USER][::2])
def test_a_manifest_s_source_is_told_without_its_secrets(run, dress):
    write(run.folder / "planted", dict(MODEL))
    seal(run.folder / "planted", source=dress.format(SECRET), model=dress.format(SECRET), revision=SIGNED)

    assert run(run.folder / "elsewhere", run.folder / "planted")[0] in (6, 8)
    assert run("--check", run.folder / "planted")[0] == 0
    assert run(run.folder / "planted", run.folder / "copy", program=preload_main)[0] == 0


def test_a_published_model_s_manifest_and_report_name_the_source_without_what_the_endpoint_redirects_to(run, hub):
    assert run("hf://org/name", run.folder / "model")[0] == 0
    sealed = json.loads((run.folder / "model/.faststart/manifest.json").read_bytes())
    assert sealed["source"].startswith("hf://org/name@")


def test_secrets_of_this_process_s_environment_are_in_no_line(run, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    write(run.folder / "planted", {**MODEL, f"{SECRET}.bin": b"\x80\x02.", f"{SECRET}.png": b""})

    assert run("--check", run.folder / "planted")[0] == 0
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
