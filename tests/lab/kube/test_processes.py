"""Containers as processes: they are what their pods say, and end when they should."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from lab.e2e import translations
from lab.kube.containers import Exit, NotPlayedError
from lab.kube.local_node import LocalNode
from lab.kube.objects import Objects
from lab.kube.pod_folders import bytes_in, prepare
from lab.kube.process import SandboxError
from lab.kube.processes import Image, Processes, Translated, check
from tests.lab.kube.support import until

pytestmark = pytest.mark.processes

IMAGE = Image({"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin"}, (Path(sys.base_prefix),))
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
LISTEN = (
    "import http.server, signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
    "http.server.HTTPServer(('', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()"
)


@pytest.fixture(scope="module", autouse=True)
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        check(tmp_path_factory.mktemp("check"))
    except SandboxError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"this machine lets nobody have namespaces: {error}")


@dataclass
class Ground:
    """A node whose containers are processes."""

    folder: Path
    objects: Objects = field(default_factory=Objects)

    def __post_init__(self) -> None:
        self.processes = Processes(
            self.folder,
            lambda _: IMAGE,
            self.objects.get,
            lambda pod: self.node.address(pod),  # noqa: PLW0108 - the node comes after
            lambda _, container: Translated(container, translations.INSTANCE_STORAGE),
        )
        self.node = LocalNode(self.objects, self.processes, pace=0.05)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path / "node")
    yield made
    made.node.end()
    made.processes.end()


def pod(*containers: dict[str, Any], name: str = "one", **spec: Any) -> dict[str, Any]:
    security = {"runAsNonRoot": True, "runAsUser": 2000, "runAsGroup": 0, "fsGroup": 0}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "models", "uid": f"uid-of-{name}"},
        "spec": {"nodeName": "n", "securityContext": security, "containers": list(containers), **spec},
    }


def shell(text: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "c",
        "image": "any",
        "command": ["sh", "-c", text],
        "securityContext": RESTRICTED,
        **more,
    }


def run(ground: Ground, container: dict[str, Any], **spec: Any) -> tuple[Exit, list[str]]:
    process = ground.processes.start(pod(container, **spec), container, ends=True)
    end = process.wait(20)
    assert end is not None
    return end, [line for _, line in process.lines.all()]


SCRATCH = {"name": "scratch", "emptyDir": {}}
FILES = {"name": "files", "configMap": {"name": "files", "items": [{"key": "a.b", "path": "deep/er"}]}}
MOUNTS = [
    {"name": "scratch", "mountPath": "/models/current"},
    {"name": "files", "mountPath": "/opt/files", "readOnly": True},
]


def full(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A container with everything that a rendered one has, and its pod."""
    container = shell(
        text,
        args=["sh", "an argument with blanks"],
        env=[{"name": "A", "value": "b = c"}],
        volumeMounts=MOUNTS,
        securityContext={**RESTRICTED, "readOnlyRootFilesystem": True},
    )
    return container, pod(container, volumes=[SCRATCH, FILES])


def put_files(ground: Ground) -> None:
    ground.objects.put(
        {"kind": "ConfigMap", "metadata": {"name": "files", "namespace": "models"}, "data": {"a.b": "content\n"}}
    )


def test_a_container_is_what_its_pod_says_by_what_the_kernel_says_of_it(ground: Ground) -> None:
    put_files(ground)
    container, whole = full('id -u; id -g; echo "$1" "$A"; cat /opt/files/deep/er')
    process = ground.processes.start(whole, container, ends=True)

    assert process.wait(20) == Exit(0)
    assert [line for _, line in process.lines.all()] == ["2000", "0", "an argument with blanks b = c", "content"]
    assert translations.differences(whole, container, process.record, IMAGE) == []


def test_what_an_image_consists_of_is_there_though_a_volume_is_mounted_above_it(ground: Ground, tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "file").write_text("content")
    above = "/" + tmp_path.parts[1]
    container = shell(f"cat {folder}/file", volumeMounts=[{"name": "scratch", "mountPath": above}])
    ground.processes.image = lambda _: Image(IMAGE.env, (*IMAGE.folders, folder))
    end, lines = run(ground, container, volumes=[SCRATCH])

    assert (end.code, lines) == (0, ["content"])


@pytest.mark.parametrize("path", ["/file", "/opt/files/file", "/usr/file", "/sys/file", "/etc/file"])
def test_what_is_read_only_cannot_be_written(ground: Ground, path: str) -> None:
    put_files(ground)
    container, whole = full(f"touch /models/current/file && ! touch {path}")
    process = ground.processes.start(whole, container, ends=True)

    assert process.wait(20) == Exit(0), process.lines.all()


ALTERATIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "an argument more": lambda record: record["argv"].append("--more"),
    "an argument less": lambda record: record["argv"].pop(),
    "another value": lambda record: record["env"].update(A="c"),
    "a variable more": lambda record: record["env"].update(B=""),
    "a variable less": lambda record: record["env"].pop("A"),
    "a mount less": lambda record: record["mounts"].remove(line_of(record, "/models/current")),
    "a mount more": lambda record: record["mounts"].append("1 1 0:1 / /fsx rw - lustre x rw"),
    "a mount that can be written": lambda record: replace_mount(record, "/opt/files", "ro", "rw"),
    "a mount that cannot be written": lambda record: replace_mount(record, "/models/current", "rw", "ro"),
    "a root that can be written": lambda record: replace_mount(record, "/", "ro", "rw"),
    "another user": lambda record: record["status"].update(Uid="0\t0\t0\t0"),
    "another group": lambda record: record["status"].update(Gid="2000\t2000\t2000\t2000"),
    "new privileges": lambda record: record["status"].update(NoNewPrivs="0"),
    "a capability": lambda record: record["status"].update(CapBnd="0000000000000001"),
    "nothing known": lambda record: record.clear(),
}


def line_of(record: dict[str, Any], path: str) -> str:
    return [line for line in record["mounts"] if line.split()[4] == path][-1]


def replace_mount(record: dict[str, Any], path: str, old: str, new: str) -> None:
    line = line_of(record, path)
    fields = line.split()
    fields[5] = ",".join(new if one == old else one for one in fields[5].split(","))
    record["mounts"][record["mounts"].index(line)] = " ".join(fields)


def test_each_difference_that_the_table_does_not_have_is_found(ground: Ground) -> None:
    put_files(ground)
    container, whole = full("true")
    process = ground.processes.start(whole, container, ends=True)
    process.wait(20)

    for name, alter in ALTERATIONS.items():
        record = json.loads(json.dumps(process.record))
        alter(record)
        assert len(translations.differences(whole, container, record, IMAGE)) == 1, name


def test_the_differences_of_the_table_are_none() -> None:
    args = ["/models/current", "--tensor-parallel-size", "8"]
    container = {"name": "vllm", "command": ["vllm", "serve"], "args": args, "env": [{"name": "A", "value": "b"}]}
    run_one = translations.translate(container, translations.Source({"HF_ENDPOINT": "http://127.0.0.1:1"})).container

    assert run_one["args"] == ["/models/current", "--tensor-parallel-size", "1", "--enforce-eager"]
    record = {
        "argv": [*run_one["command"], *run_one["args"]],
        "env": {one["name"]: one["value"] for one in run_one["env"]},
        "mounts": ["1 1 0:1 / / rw - tmpfs root rw"],
        "status": {},
    }
    assert translations.differences({"spec": {}}, container, record, Image({})) == []
    assert container["args"] == args


def test_a_container_of_uid_0_has_only_the_capabilities_that_are_added(ground: Ground) -> None:
    if os.geteuid():
        pytest.skip("only root can give a process another root's rights")
    container = shell(
        "grep CapEff /proc/self/status; touch file; chown 2000 file",
        workingDir="/tmp",
        securityContext={
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE"]},
        },
    )

    assert run(ground, container) == (Exit(0), ["CapEff:\t0000000000000003"])


def test_it_is_alone_in_its_namespaces_and_has_a_name(ground: Ground) -> None:
    end, lines = run(ground, shell("echo $$; hostname; ls /proc | grep -c '^[0-9]'"))

    assert (end.code, lines[:2]) == (0, ["1", "one"])
    assert int(lines[2]) <= 5


def test_a_volume_in_memory_holds_as_much_as_its_limit(ground: Ground) -> None:
    memory = {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    mounts = [{"name": "memory", "mountPath": "/dev/shm"}]
    end, lines = run(ground, shell("head -c 2000000 /dev/zero > /dev/shm/file", volumeMounts=mounts), volumes=[memory])

    assert end.code == 1
    assert "No space left" in lines[-1]


def test_a_command_that_is_not_there_ends_with_127_and_is_named(ground: Ground) -> None:
    end, lines = run(ground, {**shell(""), "command": ["no-such-command"]})

    assert end.code == 127
    assert "no-such-command" in lines[0]


@pytest.mark.parametrize(
    ("text", "policy", "message"),
    [
        ("printf told > /dev/termination-log; exit 4", "File", "told"),
        ("echo said; exit 4", "File", ""),
        ("echo said; exit 4", "FallbackToLogsOnError", "said"),
        ("printf told > /dev/termination-log; echo said; exit 4", "FallbackToLogsOnError", "told"),
        ("head -c 9999 /dev/zero | tr '\\0' x > /dev/termination-log; exit 4", "File", "x" * 4096),
    ],
)
def test_its_message_is_what_the_kubelet_would_keep(ground: Ground, text: str, policy: str, message: str) -> None:
    assert run(ground, shell(text, terminationMessagePolicy=policy))[0] == Exit(4, message)


def test_it_is_asked_to_end_and_then_made_to_with_all_that_it_has_started(ground: Ground) -> None:
    polite = shell("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done")
    deaf = shell("trap '' TERM; sleep 1000 & echo up; wait; sleep 1000")
    first = ground.processes.start(pod(polite), polite, ends=False)
    second = ground.processes.start(pod(deaf, name="two"), deaf, ends=False)
    until(lambda: first.lines.all() and second.lines.all())

    assert first.stop(20).code == 7
    own = namespace(Path(f"/proc/{second.pid}"))
    inside = [child for child in Path("/proc").glob("[0-9]*") if namespace(child) == own]
    assert len(inside) >= 2
    assert second.stop(0.2).code == 128 + signal.SIGKILL
    until(lambda: not any(one.exists() for one in inside))


def namespace(process: Path) -> str:
    try:
        return str((process / "ns/pid").readlink())
    except OSError:
        return ""


def test_what_it_says_at_once_is_its_own_word_and_not_the_sandbox_s(ground: Ground) -> None:
    container = shell("echo said")
    found = [ground.processes.start(pod(container), container, ends=True) for _ in range(20)]

    assert {one.wait(20) for one in found} == {Exit(0)}
    assert {text for one in found for _, text in one.lines.all()} == {"said"}


@pytest.mark.parametrize("_", range(3))
def test_it_ends_with_the_program_that_started_it(tmp_path: Path, _: int) -> None:
    code = f"""
import sys
import tempfile
from pathlib import Path
from lab.kube.processes import Image, Processes, Translated
container = {shell("sleep 1000")!r}
pod = {{"metadata": {{"name": "one", "namespace": "m", "uid": "u"}}, "spec": {{"containers": [container]}}}}
image = Image({{"PATH": "/usr/bin:/bin"}})
runtime = Processes(Path({str(tmp_path)!r}), lambda _: image, lambda *_: None, lambda _: "", lambda _, c: Translated(c))
print(runtime.start(pod, container, ends=False).pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        process = Path(f"/proc/{int(owner.stdout.readline())}")
        assert process.exists()
        owner.kill()

    until(lambda: not process.exists() or "Z" in (process / "stat").read_text().split()[2])


def test_two_pods_have_the_same_port_and_are_told_apart_by_their_addresses(ground: Ground) -> None:
    server = {
        **shell(""),
        "command": ["python3", "-c", LISTEN],
        "ports": [{"name": "http", "containerPort": 8000}],
    }
    probe = {"httpGet": {"path": "/", "port": "http"}}
    pods = [pod(server, name=name) for name in ("one", "two")]
    found = [ground.processes.start(one, server, ends=False) for one in pods]
    until(lambda: all(one.passes(probe) for one in found))
    found[0].stop(20)

    assert (found[0].passes(probe), found[1].passes(probe)) == (False, True)
    assert found[1].passes({"tcpSocket": {"port": 8000}})
    assert not found[1].passes({"tcpSocket": {"port": 8001}})
    assert not found[1].passes({"httpGet": {"path": "/missing", "port": 8000}})
    ground.processes.connect(ground.node.address(pods[1]), 8000, 5).close()
    with pytest.raises(ConnectionRefusedError):
        ground.processes.connect(ground.node.address(pods[0]), 8000, 5)
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", 8000), 5):
        pass


def test_files_of_a_config_map_lie_behind_the_links_that_the_kubelet_makes(ground: Ground, tmp_path: Path) -> None:
    put_files(ground)
    found = prepare(pod(shell(""), volumes=[FILES]), tmp_path, tmp_path, ground.objects.get)["files"].path

    assert found is not None
    assert sorted(path.name for path in found.iterdir() if path.is_symlink()) == ["..data", "deep"]
    assert (found / "deep/er").read_text() == "content\n"


def test_a_volume_of_a_kind_that_is_not_played_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotPlayedError, match="nfs"):
        prepare(pod(shell(""), volumes=[{"name": "v", "nfs": {}}]), tmp_path, tmp_path, lambda *_: None)


def test_the_token_of_a_service_account_lies_where_the_pod_wants_it(ground: Ground) -> None:
    token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "x"}}]}}
    mount = {"name": "t", "mountPath": "/run/t", "readOnly": True}
    ended, said = run(ground, shell("cat /run/t/token", volumeMounts=[mount]), volumes=[token])

    assert (ended.code, said) == (0, ["a stand-in's token, which nobody takes"])


NOT_PLAYED = {
    "a volume": pod(shell(""), volumes=[{"name": "v", "nfs": {}}]),
    "a probe": pod(shell("", startupProbe={"exec": {"command": ["true"]}})),
}


@pytest.mark.parametrize(("kind", "whole"), [("nfs", NOT_PLAYED["a volume"]), ("exec", NOT_PLAYED["a probe"])])
def test_a_pod_with_what_is_not_played_says_so_and_starts_nothing(ground: Ground, kind: str, whole: Any) -> None:
    ground.node.start(whole)

    def waiting() -> Any:
        (state,) = ground.node.found(whole).get("status", {}).get("containerStatuses") or [{}]
        found = state.get("state", {}).get("waiting", {})
        return found.get("reason") == "CreateContainerError" and found["message"]

    assert kind in until(waiting)
    assert not ground.processes.started
    ground.node.remove(whole)


def test_a_pod_that_writes_more_than_its_volume_may_hold_is_evicted(ground: Ground) -> None:
    writer = shell("head -c 3000000 /dev/zero > /v/file; sleep 1000", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    whole = pod(writer, volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}], restartPolicy="Always")
    ground.node.start(whole)

    status = until(lambda: (found := ground.node.found(whole)["status"]).get("reason") and found)
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert ground.processes.started[0].exit() is not None


def test_a_pod_that_is_deleted_leaves_no_process_and_no_volume(ground: Ground) -> None:
    server = shell("touch /v/file; sleep 1000", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    whole = pod(server, volumes=[{"name": "v", "emptyDir": {}}], terminationGracePeriodSeconds=1)
    ground.node.start(whole)
    until(lambda: bytes_in(ground.folder) and ground.processes.started)
    ground.node.remove(whole)

    (process,) = ground.processes.started
    assert process.exit() is not None
    assert not list(ground.folder.rglob("volumes"))
    assert process.lines.path.exists()


def test_who_is_not_root_has_them_too_where_the_kernel_lets_everybody(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = shutil.which("python3", path="/usr/bin")
    if os.geteuid() or not python or not shutil.which("setpriv"):
        pytest.skip("root, setpriv and a Python for everybody are needed to become another user")
    container = {
        **shell(""),
        "command": ["python3", "-c", LISTEN],
        "ports": [{"name": "http", "containerPort": 8000}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/models/current"}],
    }
    code = f"""
import sys, time
from pathlib import Path
from lab.kube.process import SandboxError
from lab.kube.processes import Image, Processes, Translated, check
folder = Path(sys.argv[1])
try:
    check(folder / "check")
except SandboxError as error:
    sys.exit(str(error) and 77)
container, pod = {container!r}, {pod(container, volumes=[SCRATCH])!r}
runtime = Processes(
    folder / "node", lambda _: Image({{"PATH": "/usr/bin:/bin"}}), lambda *_: None, lambda _: "10.0.0.9",
    lambda _, found: Translated(found),
)
process = runtime.start(pod, container, ends=False)
give_up = time.monotonic() + 20
while not process.passes({{"httpGet": {{"path": "/", "port": "http"}}}}):
    assert time.monotonic() < give_up, process.lines.all()
print(process.record["status"]["Uid"].split()[0], process.stop(20).code)
"""
    folder = Path(tempfile.mkdtemp(prefix="faststart-test."))
    try:
        kube = folder / "lab" / "kube"
        shutil.copytree(ROOT / "lab" / "kube", kube, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(ROOT / "lab" / "__init__.py", kube.parent)
        os.chown(folder, 1000, 1000)
        command = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", python, "-c", code, folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

    if done.returncode == 77:
        pytest.skip("this kernel gives user namespaces to root alone")
    assert (done.returncode, done.stdout) == (0, "2000 0\n"), done.stderr
