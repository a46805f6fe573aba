"""Names of images, the lock file with their digests, and the pods that get them."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import images, settings, versions
from lab.loopback.registry import write_lock
from tests import recording

DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
VLLM, TOOLS = versions.IMAGES
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own for the lock file; there is none yet."""
    monkeypatch.setattr(images, "LOCK", tmp_path / "images.lock.json")
    return images.LOCK


def findings(changes: dict[str, Any] | None = None) -> dict[str, settings.Finding]:
    """What is found in the stack `article` that has to do with images, by key."""
    config = recording.stack_config("article") | (changes or {})
    found = settings.check(config, "article")[1]
    return {finding.key: finding for finding in found if "image" in finding.key or "by its tag" in finding.text}


# Names. https://github.com/distribution/reference has these cases in normalize_test.go.


@pytest.mark.parametrize(
    ("image", "registry", "repository"),
    [
        ("ubuntu:1", "docker.io", "library/ubuntu"),
        ("library/ubuntu:1", "docker.io", "library/ubuntu"),
        ("docker.io/ubuntu:1", "docker.io", "library/ubuntu"),
        ("index.docker.io/ubuntu:1", "docker.io", "library/ubuntu"),
        ("index.docker.io/fooo/bar:1", "docker.io", "fooo/bar"),
        ("docker.io/library/foo/bar:1", "docker.io", "library/foo/bar"),
        ("test_com/foo:1", "docker.io", "test_com/foo"),
        ("docker/migrator:1", "docker.io", "docker/migrator"),
        ("dock__er/a---b:1", "docker.io", "dock__er/a---b"),
        ("test.com/foo:1", "test.com", "foo"),
        ("test-com:8080/foo:1", "test-com:8080", "foo"),
        ("127.0.0.1:8000/private/moonbase:1", "127.0.0.1:8000", "private/moonbase"),
        ("localhost/foo:1", "localhost", "foo"),
        ("FOO/bar:1", "FOO", "bar"),
        ("xn--n3h.com:18080/foo:1", "xn--n3h.com:18080", "foo"),
    ],
)
def test_a_name_means_what_docker_takes_it_for(image: str, registry: str, repository: str) -> None:
    assert images.parse(image) == images.Reference(registry, repository, "1", "")


@pytest.mark.parametrize(
    "image",
    [
        "",
        "docker/Docker:1",
        "-docker/a:1",
        "docker///a:1",
        "docker/:1",
        "dock..er/a:1",
        "dock_.er/a:1",
        "dock-.er/a:1",
        "https://a.com/b:1",
        "a:",
        "a:-1",
    ],
)
def test_what_docker_does_not_take_for_a_name_is_none(image: str) -> None:
    assert images.parse(image) is None


@pytest.mark.parametrize(("tag", "digest"), [("", ""), ("v1", ""), ("", DIGEST), ("v1", DIGEST)])
def test_tag_and_digest_can_each_be_there_or_not(tag: str, digest: str) -> None:
    image = "a/b" + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")

    assert images.parse(image) == images.Reference("docker.io", "a/b", tag, digest)


PART = st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)?", fullmatch=True)
HOST = st.sampled_from(["", "docker.io/", "index.docker.io/", "localhost/", "localhost:5000/", "a.b/", "A/"])


@given(HOST, st.lists(PART, min_size=1, max_size=3), st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True))
def test_a_full_name_is_its_own_full_name(host: str, parts: list[str], tag: str) -> None:
    reference = images.parse(f"{host}{'/'.join(parts)}:{tag}")

    assert reference is not None
    assert images.parse(reference.by_tag) == reference


def test_each_image_of_the_versions_is_one_that_is_pinned() -> None:
    named = {value for name, value in vars(versions).items() if name.endswith("_IMAGE")}

    assert named == set(versions.IMAGES)
    assert all(images.parse(image).by_tag == image for image in versions.IMAGES)  # pyright: ignore[reportOptionalMemberAccess]


# The lock file.


def test_without_a_lock_file_an_image_stays_as_it_is(lock: Path) -> None:
    assert images.read_lock() == {}
    assert images.applied("a/b:v1") == "a/b:v1"


def test_the_lock_s_digest_comes_behind_the_tag_however_the_image_is_spelled(lock: Path) -> None:
    write_lock(lock, {"docker.io/a/b:v1": DIGEST, "docker.io/library/c:v1": OTHER})

    assert images.applied("docker.io/a/b:v1") == f"docker.io/a/b:v1@{DIGEST}"
    assert images.applied("a/b:v1") == f"a/b:v1@{DIGEST}"
    assert images.applied("c:v1") == f"c:v1@{OTHER}"
    assert images.applied("a/b:v2") == "a/b:v2"


@pytest.mark.parametrize("image", [f"a/b:v1@{OTHER}", f"a/b@{OTHER}"])
def test_a_digest_that_the_stack_file_gives_stays(lock: Path, image: str) -> None:
    write_lock(lock, {"docker.io/a/b:v1": DIGEST})

    assert images.applied(image) == image


ENTRY = {"digest": DIGEST, "platforms": ["linux/amd64"], "pinned": "2026-01-02"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "Invalid JSON"),
        ("<<<<<<< HEAD\n{}", "Invalid JSON"),
        ("\udcff", "Invalid JSON"),
        ("[]", "object"),
        ({"a/b:v1": ENTRY}, "a/b:v1: Value error, is no full name with a tag, like docker.io/library/python:3.12"),
        ({"docker.io/a/b": ENTRY}, "docker.io/a/b: Value error, is no full name with a tag"),
        ({f"docker.io/a/b:v1@{DIGEST}": ENTRY}, "is no full name with a tag"),
        ({"docker.io/a/B:v1": ENTRY}, "is no full name with a tag"),
        ({"docker.io/a/b:v1": DIGEST}, "docker.io/a/b:v1: Input should be"),
        ({"docker.io/a/b:v1": ENTRY | {"digest": DIGEST[:-1]}}, "docker.io/a/b:v1.digest: String should match"),
        ({"docker.io/a/b:v1": ENTRY | {"digest": DIGEST.upper()}}, "docker.io/a/b:v1.digest: String should match"),
        ({"docker.io/a/b:v1": ENTRY | {"platforms": []}}, "docker.io/a/b:v1.platforms: List should have"),
        ({"docker.io/a/b:v1": ENTRY | {"pinned": 20260102}}, "docker.io/a/b:v1.pinned: Input should be"),
        ({"docker.io/a/b:v1": ENTRY | {"pinned": "yesterday"}}, "docker.io/a/b:v1.pinned: Input should be"),
        ({"docker.io/a/b:v1": ENTRY | {"tag": "v1"}}, "docker.io/a/b:v1.tag: Extra inputs"),
        ({"docker.io/a/b:v1": {"digest": DIGEST}}, "docker.io/a/b:v1.platforms: Field required"),
    ],
)
def test_a_malformed_lock_file_is_refused_by_its_name_and_what_is_wrong(lock: Path, content: Any, says: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    lock.write_bytes(text.encode(errors="surrogateescape"))

    (found,) = findings().values()

    assert (found.key, found.refuses) == ("stacks/images.lock.json", True)
    assert says in found.text
    assert found.text.endswith("take it from git again, or delete it and run `make pin-images`")


def test_a_lock_file_that_cannot_be_read_is_refused(lock: Path) -> None:
    lock.mkdir()

    (found,) = findings().values()

    assert str(found) == "stacks/images.lock.json: cannot be read: Is a directory"
    assert found.refuses


# The stack file.


def test_each_image_without_a_digest_is_warned_of_by_the_key_that_decides_it(lock: Path) -> None:
    found = findings()

    assert found.keys() == {"faststart:storage", "faststart:models", "faststart:modelServers.qwen3.image"}
    assert not any(finding.refuses for finding in found.values())
    assert TOOLS in found["faststart:storage"].text
    assert VLLM in found["faststart:models"].text
    assert all("run `make pin-images`" in finding.text for finding in found.values())


def test_what_the_lock_file_pins_is_not_warned_of(lock: Path) -> None:
    write_lock(lock, {VLLM: DIGEST})

    assert findings().keys() == {"faststart:storage"}


def test_a_digest_in_the_stack_file_is_enough(lock: Path) -> None:
    write_lock(lock, dict.fromkeys(versions.IMAGES, DIGEST))
    servers = recording.stack_config("article")["faststart:modelServers"]
    changed = {"faststart:modelServers": {"qwen3": servers["qwen3"] | {"image": f"example.com/vllm:v1@{OTHER}"}}}

    assert findings(changed) == {}
    assert findings(
        {"faststart:modelServers": {"qwen3": servers["qwen3"] | {"image": "example.com/vllm:v1"}}}
    ).keys() == {"faststart:modelServers.qwen3.image"}


def test_a_stack_without_models_publishes_nothing_and_is_not_warned_of_it(lock: Path) -> None:
    assert findings({"faststart:models": {}, "faststart:modelServers": {}}).keys() == {"faststart:storage"}


# What the program registers.


def test_every_pod_gets_the_digests_of_the_lock_file(lock: Path) -> None:
    write_lock(lock, {VLLM: DIGEST, TOOLS: OTHER})

    run = recording.run("article", recording.stack_config("article"))

    pods = [
        one.inputs["spec"]["template"]["spec"] for one in run.kubernetes() if "template" in one.inputs.get("spec", ())
    ]
    containers = [one for pod in pods for one in (*pod.get("initContainers", ()), *pod["containers"])]
    assert {one["name"]: one["image"] for one in containers} == {
        "preload": f"{VLLM}@{DIGEST}",
        "vllm": f"{VLLM}@{DIGEST}",
        "publish": f"{VLLM}@{DIGEST}",
        "storage-init": f"{TOOLS}@{OTHER}",
    }
    assert not [text for text in run.warnings if "by its tag" in text]


def test_a_preview_without_a_lock_file_warns_and_goes_on(lock: Path) -> None:
    run = recording.run("article", recording.stack_config("article"))

    assert [text.partition(":")[2].partition(":")[0] for text in run.warnings if "by its tag" in text] == [
        "storage",
        "models",
        "modelServers.qwen3.image",
    ]
    assert run.one(DEPLOYMENT).inputs["spec"]["template"]["spec"]["containers"][0]["image"] == VLLM


def test_a_malformed_lock_file_stops_the_run(lock: Path) -> None:
    lock.write_text("{")

    with pytest.raises(pulumi.RunError, match=r"1 mistake; .*\n  stacks/images\.lock\.json: Invalid JSON"):
        recording.run("article", recording.stack_config("article"))
