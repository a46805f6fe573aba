"""`make pin-images`, against a registry on loopback: what it records, and what it refuses to record."""

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from infra import images, versions
from lab import ROOT
from lab.loopback import registry as registries
from lab.loopback.registry import DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, Registry
from ops.pins import registry
from ops.pins.__main__ import PinError, pin
from tests import recording

FIRST, LATER = dt.date(2026, 1, 2), dt.date(2026, 3, 4)
OTHER = f"sha256:{'0' * 64}"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def there() -> Iterator[Registry]:
    """A registry."""
    with registries.running() as running:
        yield running


def ask(there: Registry, name: str = "team/vllm:v1") -> registry.Answer:
    image = images.parse(f"{there.host}/{name}")
    assert image is not None
    return registry.ask(image)


def refusal(there: Registry, name: str = "team/vllm:v1") -> str:
    with pytest.raises(registry.RegistryError) as raised:
        ask(there, name)
    return str(raised.value)


# The stand-in itself.


def test_the_stand_in_answers_as_a_registry_does(there: Registry) -> None:
    digest = there.put_index("team/vllm", "v1", ["linux/amd64"])
    url = f"http://{there.host}/v2/"

    assert requests.get(url, timeout=10).status_code == 200
    there.ask_for_tokens("team/vllm")
    assert requests.get(url, timeout=10).status_code == 401
    query = {"service": "stand-in", "scope": "repository:team/vllm:pull"}
    token = requests.get(f"http://{there.host}/token", params=query, timeout=10).json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    for reference in ("v1", digest):
        head = requests.head(
            f"{url}team/vllm/manifests/{reference}", headers=bearer | {"Accept": OCI_INDEX}, timeout=10
        )
        assert (head.headers["Docker-Content-Digest"], head.headers["Content-Type"]) == (digest, OCI_INDEX)
        assert head.content == b""
    other = requests.get(f"{url}team/vllm/manifests/v1", headers=bearer | {"Accept": OCI_MANIFEST}, timeout=10)
    assert (other.status_code, other.json()["errors"][0]["code"]) == (404, "MANIFEST_UNKNOWN")
    assert requests.get(f"{url}other/vllm/manifests/v1", headers=bearer, timeout=10).status_code == 401


# One image.


@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_LIST])
def test_of_an_index_its_own_digest_and_the_platforms_of_its_images_are_told(there: Registry, media_type: str) -> None:
    digest = there.put_index("team/vllm", "v1", ["linux/arm64/v8", "linux/amd64", "unknown/unknown"], media_type)

    assert ask(there) == registry.Answer(digest, ["linux/amd64", "linux/arm64/v8"])


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_of_a_single_image_the_configuration_says_the_platform(there: Registry, media_type: str) -> None:
    digest = there.put_image("team/vllm", "v1", media_type=media_type)

    assert ask(there) == registry.Answer(digest, ["linux/amd64"])


def test_a_registry_that_names_no_digest_is_held_to_its_content(there: Registry) -> None:
    there.digest_header = ""
    digest = there.put_index("team/vllm", "v1", ["linux/amd64"])

    assert ask(there).digest == digest


def test_a_token_for_anybody_is_fetched_once_and_used_for_all_of_an_image(there: Registry) -> None:
    digest = there.put_image("team/vllm", "v1")
    there.ask_for_tokens("team/vllm")

    assert ask(there).digest == digest
    assert [path.split("/")[-2] for _, path in there.asked] == ["manifests", "", "manifests", "blobs"]


def test_a_challenge_without_a_scope_is_answered_with_the_repository_s(there: Registry) -> None:
    digest = there.put_index("team/vllm", "v1", ["linux/amd64"])
    there.challenge = f'bearer realm="http://{there.host}/token", service="stand-in"'

    assert ask(there).digest == digest


def test_a_token_under_its_newer_name_is_taken_too(there: Registry) -> None:
    digest = there.put_index("team/vllm", "v1", ["linux/amd64"])
    there.ask_for_tokens("team/vllm")
    there.tokens["abc"] = "repository:team/vllm:pull"
    there.token_answer = (200, b'{"access_token": "abc", "expires_in": 60}')

    assert ask(there).digest == digest


def test_no_login_of_the_person_s_own_is_sent(there: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    digest = there.put_index("team/vllm", "v1", ["linux/amd64"])
    there.ask_for_tokens("team/vllm")

    assert ask(there).digest == digest


@pytest.mark.parametrize(
    ("registry_host", "url"),
    [
        ("docker.io", "https://registry-1.docker.io/v2/team/vllm/manifests/v1"),
        ("example.com", "https://example.com/v2/team/vllm/manifests/v1"),
        ("localhost.example.com:80", "https://localhost.example.com:80/v2/team/vllm/manifests/v1"),
        ("localhost:5000", "http://localhost:5000/v2/team/vllm/manifests/v1"),
    ],
)
def test_only_loopback_is_asked_without_tls(registry_host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def get(session: requests.Session, url: str, **options: Any) -> None:
        asked.append(url)
        raise requests.ConnectionError("no network in a test")

    monkeypatch.setattr(requests.Session, "get", get)
    with pytest.raises(registry.RegistryError, match="cannot be asked: no network in a test"):
        registry.ask(images.Reference(registry_host, "team/vllm", "v1", ""))

    assert asked == [url]


# One image that is not recorded.


@pytest.mark.parametrize("put", [Registry.put_index, Registry.put_image])
def test_a_digest_that_is_not_the_content_s_is_refused(there: Registry, put: Any) -> None:
    digest = put(there, "team/vllm", "v1", ["linux/amd64"] if put is Registry.put_index else "linux/amd64")
    there.digest_header = OTHER

    assert refusal(there) == f"names the digest {OTHER} for content that has {digest}"


def test_a_configuration_that_is_not_what_the_manifest_names_is_refused(there: Registry) -> None:
    there.put_image("team/vllm", "v1")
    (digest,) = there.blobs
    there.blobs[digest] += b" "

    assert refusal(there) == f"gives other content for the image's configuration than {digest}"


@pytest.mark.parametrize(
    ("platforms", "says"),
    [
        (["windows/amd64", "linux/arm64/v8"], "which all nodes are, but for linux/arm64/v8, windows/amd64"),
        (["unknown/unknown"], "but for nothing"),
        ([], "but for nothing"),
    ],
)
def test_an_index_without_an_image_for_the_nodes_is_refused(there: Registry, platforms: list[str], says: str) -> None:
    there.put_index("team/vllm", "v1", platforms)

    assert says in refusal(there)


def test_a_single_image_for_another_platform_is_refused(there: Registry) -> None:
    there.put_image("team/vllm", "v1", "linux/arm64")

    assert refusal(there) == "has no image for linux/amd64, which all nodes are, but for linux/arm64"


def test_a_tag_that_is_not_there_is_refused(there: Registry) -> None:
    there.put_image("team/vllm", "v1")

    assert refusal(there, "team/vllm:v2") == "has no such image (404 Not Found); look at the name and the tag"


@pytest.mark.parametrize(
    ("challenge", "kind"),
    [
        ('Basic realm="https://example.com/",service="ecr.amazonaws.com"', "Basic"),
        ("Bearer", "Bearer"),
        ('Bearer service="stand-in"', "Bearer"),
        ("", "of no kind that it names"),
    ],
)
def test_a_registry_that_wants_a_login_is_refused_with_what_to_do_instead(
    there: Registry, challenge: str, kind: str
) -> None:
    there.put_image("team/vllm", "v1")
    there.challenge = challenge

    found = refusal(there)

    assert found.startswith(f"asks for a login ({kind}): only what anybody may pull is looked up")
    assert "write name:tag@sha256:... into the stack file" in found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((403, b"{}"), "gives no token to anybody: 403 Forbidden; only what anybody may pull"),
        ((200, b"{}"), "gives an empty token"),
        ((200, b'{"token": ""}'), "gives an empty token"),
        ((200, b"<html>"), "gives what cannot be read: Invalid JSON"),
        ((200, b'{"token": "wrong"}'), "has no such image, or not for anybody (401 Unauthorized)"),
    ],
)
def test_a_token_service_that_gives_no_good_token_is_refused(
    there: Registry, answer: tuple[int, bytes], says: str
) -> None:
    there.put_image("team/vllm", "v1")
    there.ask_for_tokens("team/vllm")
    there.token_answer = answer

    assert says in refusal(there)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, "has no such image, or not for anybody (403 Forbidden)"),
        (429, "has answered enough for now (429 Too Many Requests); try again later"),
        (500, "answers 500 Internal Server Error"),
    ],
)
def test_any_other_answer_is_refused_by_its_status(there: Registry, status: int, says: str) -> None:
    there.put_image("team/vllm", "v1")
    there.status = status

    assert says in refusal(there)


@pytest.mark.parametrize(
    ("media_type", "content", "says"),
    [
        (OCI_INDEX, b"{", "gives what cannot be read: Invalid JSON"),
        (OCI_INDEX, b"{}", "gives what cannot be read: manifests: Field required"),
        (OCI_INDEX, b'{"manifests": [{"platform": {"os": "linux"}}]}', "manifests.0.platform.architecture: Field req"),
        (OCI_MANIFEST, b"{}", "gives what cannot be read: config: Field required"),
        (OCI_MANIFEST, b'{"config": {"digest": "sha256:../../x"}}', "config.digest: String should match"),
    ],
)
def test_a_manifest_that_is_none_is_refused(there: Registry, media_type: str, content: bytes, says: str) -> None:
    there.put("team/vllm", "v1", media_type, content)

    assert says in refusal(there)


def test_what_is_no_image_is_refused_by_its_type(there: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        there, "manifest", lambda *_: ("application/vnd.docker.distribution.manifest.v1+prettyjws", b"{}")
    )

    assert refusal(there).startswith(
        "has no image there, but application/vnd.docker.distribution.manifest.v1+prettyjws"
    )


@pytest.mark.parametrize("way", ["token", "redirect"])
def test_no_answer_is_taken_from_where_there_is_no_tls(there: Registry, way: str) -> None:
    there.put_image("team/vllm", "v1")
    if way == "token":
        there.challenge = 'Bearer realm="http://example.com/token"'
    else:
        there.redirect = "http://example.com/blob"

    assert refusal(there).startswith("leads to an address without TLS: ")


def test_a_registry_that_is_not_there_is_refused_in_the_system_s_words() -> None:
    with registries.running() as gone:
        pass

    assert refusal(gone) == "cannot be asked: [Errno 111] Connection refused"


# The command's parts.


@pytest.fixture
def project(there: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stack files with one stack, and images of the program's own, all in the registry."""
    monkeypatch.setattr(images, "LOCK", tmp_path / "images.lock.json")
    monkeypatch.setattr(versions, "IMAGES", (f"{there.host}/team/tools:v1",))
    there.put_index("team/tools", "v1", ["linux/amd64"])
    there.put_index("team/vllm", "v1", ["linux/amd64", "linux/arm64"])
    write_stack(tmp_path, "one", f"{there.host}/team/vllm:v1")
    return tmp_path


def write_stack(folder: Path, name: str, image: str | None) -> None:
    """Writes a stack file with one server of this image, or with none."""
    config = recording.stack_config("research-dev")
    if image is None:
        config["faststart:modelServers"] = {}
    else:
        config["faststart:modelServers"]["chat"]["image"] = image
    (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": config}))


def entries(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "images.lock.json").read_bytes())


def test_the_images_of_the_program_and_of_all_stacks_are_recorded(there: Registry, project: Path) -> None:
    there.put_image("team/more", "v2")
    write_stack(project, "a.two", f"{there.host}/team/more:v2")

    lines = pin(FIRST)

    assert list(entries(project)) == [f"{there.host}/team/{name}" for name in ("more:v2", "tools:v1", "vllm:v1")]
    assert images.LOCK.read_text() == json.dumps(entries(project), indent=2, sort_keys=True) + "\n"
    assert entries(project)[f"{there.host}/team/vllm:v1"] == {
        "digest": there.put_index("team/vllm", "v1", ["linux/amd64", "linux/arm64"]),
        "pinned": "2026-01-02",
        "platforms": ["linux/amd64", "linux/arm64"],
    }
    assert [line.rpartition(", ")[2] for line in lines] == ["a new entry"] * 3
    assert images.read_lock().keys() == entries(project).keys()


def test_a_second_run_leaves_the_file_byte_for_byte(there: Registry, project: Path) -> None:
    pin(FIRST)
    before, written = images.LOCK.read_bytes(), images.LOCK.stat()

    lines = pin(LATER)

    assert images.LOCK.read_bytes() == before
    assert (images.LOCK.stat().st_mtime_ns, images.LOCK.stat().st_ino) == (written.st_mtime_ns, written.st_ino)
    assert all(line.endswith(" still") for line in lines)


def test_a_tag_that_moved_gets_its_new_digest_and_date_and_the_others_keep_theirs(
    there: Registry, project: Path
) -> None:
    pin(FIRST)
    before = entries(project)
    moved = there.put_index("team/vllm", "v1", ["linux/amd64"])

    lines = pin(LATER)

    vllm, tools = f"{there.host}/team/vllm:v1", f"{there.host}/team/tools:v1"
    assert entries(project) == {
        tools: before[tools],
        vllm: {"digest": moved, "pinned": "2026-03-04", "platforms": ["linux/amd64"]},
    }
    assert f"{vllm} is {moved} now, was {before[vllm]['digest']}" in lines


def test_an_entry_that_nothing_names_any_more_is_dropped(there: Registry, project: Path) -> None:
    pin(FIRST)
    write_stack(project, "one", None)

    lines = pin(LATER)

    assert list(entries(project)) == [f"{there.host}/team/tools:v1"]
    assert lines[-1] == f"{there.host}/team/vllm:v1 is named by nothing any more and was dropped"


def test_an_image_with_a_digest_of_its_own_is_not_asked_for(there: Registry, project: Path) -> None:
    write_stack(project, "one", f"{there.host}/private/vllm:v1@{OTHER}")

    pin(FIRST)

    assert list(entries(project)) == [f"{there.host}/team/tools:v1"]
    assert not [path for _, path in there.asked if "private" in path]


def test_one_image_that_cannot_be_asked_for_leaves_the_file_as_it_was_and_hides_no_other(
    there: Registry, project: Path
) -> None:
    pin(FIRST)
    before = images.LOCK.read_bytes()
    there.put_index("team/tools", "v1", ["linux/amd64", "linux/s390x"])
    write_stack(project, "two", f"{there.host}/team/gone:v1")
    write_stack(project, "three", f"{there.host}/team/vllm:v7")

    with pytest.raises(PinError) as raised:
        pin(LATER)

    assert str(raised.value).splitlines() == [
        f"{there.host}/team/{name}: the registry {there.host} has no such image (404 Not Found); "
        "look at the name and the tag"
        for name in ("gone:v1", "vllm:v7")
    ]
    assert images.LOCK.read_bytes() == before
    assert [path.name for path in project.iterdir() if path.suffix == ".new"] == []


def test_a_stack_file_with_mistakes_stops_the_command_by_its_name(project: Path) -> None:
    write_stack(project, "two", "no tag")

    with pytest.raises(PinError, match=r"Pulumi\.two\.yaml: has mistakes, mend them first") as raised:
        pin(FIRST)

    assert "  faststart:modelServers.chat.image: 'no tag' is no image reference" in str(raised.value)
    assert not images.LOCK.exists()


@pytest.mark.parametrize("content", [b"config: [", b"\xff", b"config: {a: {}"])
def test_a_stack_file_that_is_no_yaml_stops_the_command_by_its_name(project: Path, content: bytes) -> None:
    (project / "Pulumi.two.yaml").write_bytes(content)

    with pytest.raises(PinError, match=r"Pulumi\.two\.yaml: cannot be read"):
        pin(FIRST)


@pytest.mark.parametrize("content", ["", "config:\n", "[]\n", "config: []\n"])
def test_a_stack_file_without_a_configuration_stops_the_command_by_what_is_missing(project: Path, content: str) -> None:
    (project / "Pulumi.two.yaml").write_text(content)

    with pytest.raises(PinError, match=r"(?s)Pulumi\.two\.yaml: has mistakes, mend them first.*aws:region: is missing"):
        pin(FIRST)


def test_a_malformed_lock_file_is_not_written_over(there: Registry, project: Path) -> None:
    images.LOCK.write_text("<<<<<<< HEAD")

    with pytest.raises(PinError, match=r"stacks/images\.lock\.json: Invalid JSON"):
        pin(FIRST)

    assert images.LOCK.read_text() == "<<<<<<< HEAD"
    assert there.asked == []


def test_a_lock_file_that_cannot_be_written_is_said(project: Path) -> None:
    images.LOCK.with_suffix(".json.new").mkdir()

    with pytest.raises(PinError, match=r"stacks/images\.lock\.json: cannot be written: Is a directory"):
        pin(FIRST)


# The command as a whole.


@pytest.fixture
def clone(there: Registry, tmp_path: Path) -> Path:
    """A project folder with the program's own code, whose images are in the registry."""
    for package in ("infra", "ops"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (tmp_path / "infra" / "versions.py").read_text()
    for image in versions.IMAGES:
        name = image.rpartition("/")[2]
        assert text.count(image) == 1
        text = text.replace(image, f"{there.host}/team/{name}")
        there.put_index("team/" + name.partition(":")[0], name.partition(":")[2], ["linux/amd64"])
    (tmp_path / "infra" / "versions.py").write_text(text)
    (tmp_path / "stacks").mkdir()
    write_stack(tmp_path / "stacks", "one", f"{there.host}/team/vllm-openai:v1")
    there.put_image("team/vllm-openai", "v1")
    return tmp_path


def command(folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", "ops.pins"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_pins_a_project_changes_nothing_the_second_time_and_fails_whole(
    there: Registry, clone: Path
) -> None:
    lock = clone / "stacks" / "images.lock.json"
    of_the_program = [image.rpartition("/")[2] for image in versions.IMAGES]
    names = [f"{there.host}/team/{name}" for name in (*of_the_program, "vllm-openai:v1")]
    there.challenge = f'Bearer realm="http://{there.host}/token",service="stand-in"'

    first = command(clone)
    assert (first.returncode, first.stderr) == (0, "")
    content = lock.read_bytes()
    assert set(json.loads(content)) == set(names)
    assert first.stdout.count("a new entry") == len(names)

    second = command(clone)
    assert (second.returncode, second.stdout.count(" still\n"), lock.read_bytes()) == (0, len(names), content)

    there.challenge = "Basic"
    third = command(clone)
    assert (third.returncode, third.stdout, lock.read_bytes()) == (1, "", content)
    lines = third.stderr.splitlines()
    assert [line.partition(": ")[0] for line in lines[:-1]] == sorted(names)
    assert all(f"the registry {there.host} asks for a login (Basic)" in line for line in lines[:-1])
    assert lines[-1] == "stacks/images.lock.json stays as it was"


def test_the_makefile_runs_the_command() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\npin-images: .venv/runtime ## ")[2].splitlines()[1]

    assert recipe == "\t@$(BIN)/python -m ops.pins"
