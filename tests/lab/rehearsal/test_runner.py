"""The rehearsal's runner without the engine: how the CLI is found, how accounts are fenced off, what is written."""

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lab.rehearsal import __main__ as command_line
from lab.rehearsal import events, interrupted, isolation, language_host, manifests, program_copy, pulumi_cli, toolbox
from lab.rehearsal.pulumi_cli import CliMissingError, Finder, PulumiCli
from lab.rehearsal.report import Report
from lab.rehearsal.runner import Rehearsal, standing
from lab.rehearsal.toolbox import CommandFailedError


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def git(*arguments: str, cwd: Path) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


# ---------------------------------------------------------------- finding the CLI


@pytest.fixture
def machine(tmp_path: Path) -> "Machine":
    return Machine(tmp_path)


class Machine:
    """A machine with nothing on PATH but what a test puts there, and with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("sh", "cat", "chmod", "mkdir", "sleep"):
            found = next(Path(where, tool) for where in os.defpath.split(":") if Path(where, tool).exists())
            (self.bin / tool).symlink_to(found)
        self.said: list[str] = []
        environ = {"PATH": str(self.bin), "FASTSTART_CACHE": str(folder / "cache"), "HOME": str(folder)}
        self.finder = Finder(self.said.append, environ)

    def pulumi(self, version: str, folder: Path | None = None) -> Path:
        return executable((folder or self.bin) / "pulumi", f"#!/bin/sh\necho v{version}\n")

    def go(self, version: str = "1.26.8", fails: bool = False) -> Path:
        """A Go that tells its version, lists two packages, and "builds" a CLI of the pinned version."""
        log = self.bin / "go.log"
        result = f"#!/bin/sh\necho v{pulumi_cli.pinned_version()}"
        build = "echo 'no space left' >&2; exit 1" if fails else f'printf "{result}" >"$out"; chmod +x "$out"'
        return executable(
            self.bin / "go",
            f"""#!/bin/sh
echo "$1 GOFLAGS=$GOFLAGS GOTOOLCHAIN=$GOTOOLCHAIN $PWD" >>{log}
case $1 in
  version) echo go version go{version} linux/amd64 ;;
  list) echo a; echo b ;;
  build)
    while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
    sleep 0.3
    {build} ;;
esac
""",
        )

    def log(self) -> list[str]:
        log = self.bin / "go.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def found(self) -> PulumiCli:
        return pulumi_cli.find_or_install(finder=self.finder)


@pytest.fixture
def no_installer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi_cli, "run_installer", lambda root, say: "URLError: no such host")


def test_a_pulumi_on_path_as_new_as_the_sdk_is_taken(machine: Machine) -> None:
    path = machine.pulumi(pulumi_cli.sdk_version())
    executable(machine.bin / language_host.NAME, "#!/bin/sh\n")

    assert machine.found() == PulumiCli(path, pulumi_cli.sdk_version(), "on PATH", None)


@pytest.mark.parametrize(
    ("cli", "taken"),
    [("3.272.0", True), ("3.272.9", True), ("3.300.0", True), ("3.271.9", False), ("4.0.0", False), ("2.999.0", False)],
)
def test_a_cli_is_compatible_from_the_sdks_minor_version_on(cli: str, taken: bool) -> None:
    assert pulumi_cli.compatible(cli, "3.272.0") == taken


def test_an_older_pulumi_on_path_is_ignored_and_the_reason_is_said(machine: Machine) -> None:
    machine.pulumi("3.1.0")

    assert machine.finder.on_path() is None
    assert f"is 3.1.0, the Pulumi SDK here is {pulumi_cli.sdk_version()}: ignored" in machine.said[0]


def test_a_pulumi_on_path_without_a_language_host_is_ignored_and_the_reason_is_said(machine: Machine) -> None:
    machine.pulumi(pulumi_cli.sdk_version())

    assert machine.finder.on_path() is None
    assert f"has no {language_host.NAME} beside it: ignored" in machine.said[0]


def test_a_pulumi_on_path_that_does_not_run_is_ignored(machine: Machine) -> None:
    executable(machine.bin / "pulumi", "#!/bin/sh\nexit 3\n")

    assert machine.finder.on_path() is None
    assert machine.said


def test_a_cached_build_is_taken_before_anything_is_installed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulumi_cli, "run_installer", lambda root, say: pytest.fail("installed"))
    version = pulumi_cli.pinned_version()
    folder = machine.finder.folder(version) / "bin"
    machine.pulumi(version, folder)
    language_host.write_beside(folder)

    assert machine.found() == PulumiCli(folder / "pulumi", version, "from the cache", folder)


@pytest.mark.parametrize("linked", ["home", "home/.cache", "home/.cache/faststart"])
def test_a_cache_behind_a_link_is_known_by_its_own_path(tmp_path: Path, linked: str) -> None:
    """A container gets the folders of an image at their own paths, and a link on the way is not among them."""
    real, home = tmp_path / "real", tmp_path / "home"
    real.mkdir()
    (tmp_path / linked).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / linked).symlink_to(real)

    found = Finder([].append, {"HOME": str(home)}).cache

    assert found == real / Path("home/.cache/faststart").relative_to(linked) / "pulumi"


def test_a_cached_installation_keeps_its_own_language_host(machine: Machine) -> None:
    version = pulumi_cli.sdk_version()
    folder = machine.finder.folder(version) / "bin"
    machine.pulumi(version, folder)
    executable(folder / language_host.NAME, "\x7fELF")

    assert machine.found().language_host_dir is None


def test_the_sdks_installer_comes_before_a_build(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(root: Path, say: pulumi_cli.Say) -> None:
        machine.pulumi(pulumi_cli.sdk_version(), root / "bin")

    monkeypatch.setattr(pulumi_cli, "run_installer", install)
    machine.go()
    found = machine.found()

    assert found.path == machine.finder.folder(pulumi_cli.sdk_version()) / "bin" / "pulumi"
    assert found.language_host_dir is None
    assert machine.log() == []


@pytest.mark.usefixtures("no_installer")
def test_where_the_installer_cannot_be_reached_go_builds_the_pinned_version(machine: Machine) -> None:
    machine.go()
    found = machine.found()

    assert found.version == pulumi_cli.pinned_version()
    assert found.language_host_dir == found.path.parent
    assert language_host.is_ours(found.path.parent / language_host.NAME)
    assert [file.name for file in found.path.parent.parent.iterdir()] == ["bin"]
    assert any("URLError: no such host; going on without it" in line for line in machine.said)
    assert machine.found().origin == "from the cache"


@pytest.mark.usefixtures("no_installer")
def test_go_works_on_a_copy_of_the_module_whatever_goflags_says(machine: Machine) -> None:
    machine.go()
    finder = Finder(machine.said.append, {**machine.finder.environ, "GOFLAGS": "-mod=mod"})
    before = {file.name: file.read_bytes() for file in pulumi_cli.MODULE.iterdir()}
    pulumi_cli.find_or_install(finder=finder)
    build = next(line for line in machine.log() if line.startswith("build"))

    assert "GOFLAGS=-mod=readonly" in build
    assert "GOTOOLCHAIN=local" in build
    assert str(pulumi_cli.MODULE) not in build
    assert {file.name: file.read_bytes() for file in pulumi_cli.MODULE.iterdir()} == before


@pytest.mark.usefixtures("no_installer")
def test_a_failed_build_leaves_nothing_in_the_cache_and_says_what_would_help(machine: Machine) -> None:
    machine.go(fails=True)
    with pytest.raises(CliMissingError, match="no space left") as missing:
        machine.found()

    assert "URLError: no such host" in str(missing.value)
    assert "What would help: a Pulumi installation" in str(missing.value)
    assert [file.name for file in machine.finder.cache.iterdir()] == [".lock"]


@pytest.mark.usefixtures("no_installer")
def test_two_runs_at_once_build_once(machine: Machine) -> None:
    machine.go()
    found: list[PulumiCli] = []
    threads = [threading.Thread(target=lambda: found.append(machine.found())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({cli.path for cli in found}) == 1
    assert len([line for line in machine.log() if line.startswith("build")]) == 1


@pytest.mark.parametrize(("version", "kept"), [("1.26.6", True), ("1.27.0", True), ("1.26.5", False), ("1.9.9", False)])
def test_a_go_older_than_the_module_file_asks_for_is_ignored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: str, kept: bool
) -> None:
    packaged = Path("/packaged/go")
    monkeypatch.setattr(Finder, "go_from_python_package", lambda self: packaged)
    path = machine.go(version)

    assert machine.finder.go() == (path if kept else packaged)
    assert bool(machine.said) != kept


def test_the_python_package_of_go_is_what_the_module_file_asks_for() -> None:
    assert toolbox.GO_PACKAGE.split("==")[1] == toolbox.go_version(pulumi_cli.MODULE)


def test_a_command_that_takes_too_long_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "PROGRESS_SECONDS", 0.1)
    said: list[str] = []
    with pytest.raises(CommandFailedError, match="took more than 0 s"):
        toolbox.run_with_progress(["sh", "-c", "sleep 60; true"], "waiting", said.append, seconds=0.25)

    assert said[0].startswith("  waiting: 0 min 00 s")


# ---------------------------------------------------------------- the fences


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with a program's files, one of them new and one ignored."""
    root = tmp_path / "clone"
    for name, text in {
        "Pulumi.yaml": "name: demo\nruntime: python\nstackConfigDir: stacks\n",
        "__main__.py": "import pulumi\n",
        "infra/__init__.py": "",
        "stacks/Pulumi.dev.yaml": "config:\n  aws:region: us-east-1\n",
        ".gitignore": "/build/\n/.venv/\n*.log\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    git("init", "-q", cwd=root)
    git("add", ".", cwd=root)
    git("commit", "-qm", "program", cwd=root)
    (root / "infra" / "new.py").write_text("", encoding="utf-8")
    (root / "noise.log").write_text("", encoding="utf-8")
    return root


@pytest.fixture
def place(clone: Path) -> isolation.Place:
    place = isolation.Place(clone / "build" / "rehearsal" / "dev", clone)
    place.make()
    program_copy.copy_program(clone, place.program, clone / "stacks" / "Pulumi.dev.yaml")
    return place


CLI = PulumiCli(Path("/opt/pulumi/bin/pulumi"), "3.274.1", "from the cache", Path("/opt/pulumi/bin"))


def test_nothing_that_leads_to_an_account_reaches_the_engine(place: isolation.Place) -> None:
    ambient = {
        "PATH": "/usr/bin",
        "HOME": "/reader",
        "AWS_PROFILE": "production",
        "AWS_ACCESS_KEY_ID": "AKIAREAL",
        "AWS_SESSION_TOKEN": "real",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.2",
        "KUBECONFIG": "/reader/.kube/config",
        "KUBE_CONFIG_PATH": "/reader/.kube/config",
        "PULUMI_ACCESS_TOKEN": "pul-real",
        "PULUMI_BACKEND_URL": "s3://production",
        "https_proxy": "http://proxy.example.org",
        "NO_PROXY": "*",
        "PYTHONPATH": "/elsewhere",
    }
    env = isolation.environment(place, CLI, "http://127.0.0.1:1", ambient)
    reached = [f"{name}={value}" for name, value in env.items() if value in set(ambient.values())]

    assert reached == ["HOME=/reader"]
    assert {name for name in env if name.startswith("AWS_")} == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
    }
    for file in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "KUBECONFIG"):
        assert Path(env[file]).read_bytes() == b""
    for name in ("AWS_ENDPOINT_URL", "HTTP_PROXY", "HTTPS_PROXY", "https_proxy", "all_proxy"):
        assert env[name] == "http://127.0.0.1:1"
    assert env["PATH"] == f"{place.bin}:/opt/pulumi/bin:/usr/bin"
    assert env["PULUMI_HOME"].startswith(str(place.work))
    assert env["PULUMI_BACKEND_URL"] == f"file://{place.state}"


def test_the_dead_end_refuses_connections() -> None:
    port = isolation.ClosedPort()
    address = urlsplit(port.url)
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.hostname, address.port), timeout=5)
    finally:
        port.close()


def test_boto3_finds_no_account_in_the_engines_environment(place: isolation.Place) -> None:
    port = isolation.ClosedPort()
    env = isolation.environment(place, CLI, port.url, os.environ)
    program = (
        "import boto3, botocore.exceptions, botocore.config\n"
        "c = botocore.config.Config(retries={'total_max_attempts': 1})\n"
        "try: boto3.client('sts', region_name='us-east-1', config=c).get_caller_identity()\n"
        "except botocore.exceptions.ConnectionError as e: print(type(e).__name__)\n"
    )
    try:
        said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    finally:
        port.close()

    assert said.stdout.strip() in {"EndpointConnectionError", "ProxyConnectionError"}


def refusal(place: isolation.Place, **changed: str) -> str:
    ambient = {"PATH": "/usr/bin:/bin", **changed}
    env = {**isolation.environment(place, CLI, "http://127.0.0.1:1", ambient), **changed}
    with pytest.raises(isolation.RefusedError) as refused:
        isolation.check_before(place, env, ambient)
    return str(refused.value)


def test_a_place_as_it_was_made_is_not_refused(place: isolation.Place) -> None:
    ambient = {"PATH": "/usr/bin:/bin"}
    isolation.check_before(place, isolation.environment(place, CLI, "http://127.0.0.1:1", ambient), ambient)


@pytest.mark.parametrize("name", isolation.FORBIDDEN)
def test_a_variable_that_chooses_plugins_is_refused(place: isolation.Place, name: str) -> None:
    assert f"{name} is set" in refusal(place, **{name: "true"})


def test_another_aws_plugin_first_on_path_is_refused(place: isolation.Place, tmp_path: Path) -> None:
    other = executable(tmp_path / "other" / "pulumi-resource-aws", "#!/bin/sh\n")

    assert f"the first pulumi-resource-aws on PATH is {other}" in refusal(
        place, PATH=f"{other.parent}:{place.bin}:/usr/bin"
    )


def test_a_stand_in_that_was_exchanged_is_refused(place: isolation.Place) -> None:
    executable(place.stand_in("aws"), "#!/bin/sh\nexec /usr/bin/pulumi-resource-aws\n")

    assert "is not the stand-in that was put there" in refusal(place)


@pytest.mark.parametrize("key", ["plugins", "packages"])
def test_a_project_that_names_plugins_is_refused(place: isolation.Place, key: str) -> None:
    project = place.program / "Pulumi.yaml"
    project.write_text(project.read_text(encoding="utf-8") + f"{key}: {{providers: [x]}}\n", encoding="utf-8")

    assert f"Pulumi.yaml has `{key}:`" in refusal(place)


def test_a_plugin_in_the_engines_home_is_refused(place: isolation.Place) -> None:
    (place.home / "plugins" / "resource-aws-v7.51.1").mkdir(parents=True)

    assert "holds plugins" in refusal(place)


def took(name: str, path: str) -> events.Event:
    message = f"using pulumi-resource-{name} from $PATH at {path}\n"
    return {"sequence": 1, "diagnosticEvent": {"severity": "warning", "message": message}}


def test_the_engines_own_record_must_name_the_stand_ins(place: isolation.Place) -> None:
    ours = took("aws", str(place.stand_in("aws")))
    isolation.check_after(place, [ours])

    with pytest.raises(isolation.RefusedError, match="it used /usr/bin/pulumi-resource-aws for aws"):
        isolation.check_after(place, [ours, took("aws", "/usr/bin/pulumi-resource-aws")])
    with pytest.raises(isolation.RefusedError, match="does not say that it took the aws plugin"):
        isolation.check_after(place, [took("eks", str(place.stand_in("eks")))])


def test_a_stand_in_starts_with_this_interpreter_from_this_clone(place: isolation.Place, clone: Path) -> None:
    words = shlex.split(place.stand_in("aws").read_text(encoding="utf-8").replace("\\\n", ""), comments=True)

    assert f"PYTHONPATH={clone}" in words
    assert f"{isolation.CLOUD}={place.cloud}" in words
    assert words[words.index("exec") :] == ["exec", sys.executable, "-m", "lab.rehearsal.providers", "aws", "$@"]


# ---------------------------------------------------------------- the copy


def test_the_copy_has_new_files_and_no_ignored_ones_and_git_stays_clean(place: isolation.Place, clone: Path) -> None:
    (clone / "infra" / "new.py").unlink()

    assert (place.program / "infra" / "new.py").exists()
    assert not (place.program / "noise.log").exists()
    assert not (place.program / "build").exists()
    assert git("status", "--porcelain", cwd=clone) == ""


def test_without_git_the_folder_itself_is_walked(place: isolation.Place, clone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    program_copy.copy_program(place.program, folder, clone / "stacks" / "Pulumi.dev.yaml")
    for ignored in (".venv/lib", "build/x", "infra/__pycache__", ".ruff_cache"):
        (folder / ignored).mkdir(parents=True, exist_ok=True)
        (folder / ignored / "file").write_text("", encoding="utf-8")

    assert {str(file) for file in program_copy.program_files(folder)} == {
        ".gitignore",
        "Pulumi.yaml",
        "__main__.py",
        "infra/__init__.py",
        "infra/new.py",
        "stacks/Pulumi.dev.yaml",
    }


def test_the_salt_that_the_engine_wrote_outlives_the_next_copy(place: isolation.Place, clone: Path) -> None:
    stack_file = clone / "stacks" / "Pulumi.dev.yaml"
    copied = place.program / "stacks" / "Pulumi.dev.yaml"
    copied.write_text(copied.read_text(encoding="utf-8") + "encryptionsalt: v1:abc=\n", encoding="utf-8")
    stack_file.write_text("config:\n  aws:region: eu-west-1", encoding="utf-8")
    program_copy.copy_program(clone, place.program, stack_file)

    assert copied.read_text(encoding="utf-8") == "config:\n  aws:region: eu-west-1\nencryptionsalt: v1:abc=\n"


def test_a_real_stacks_keys_and_secrets_are_left_behind() -> None:
    text = """\
secretsprovider: awskms://alias/team
encryptedkey: AQID
config:
  aws:region: us-east-1
  faststart:token:
    secure: v1:abc
  faststart:list:
    - secure: v1:def
    - plain
"""

    assert yaml.safe_load(program_copy.without_secrets(text)) == {
        "config": {
            "aws:region": "us-east-1",
            "faststart:token": program_copy.SECRET,
            "faststart:list": [program_copy.SECRET, "plain"],
        }
    }


# ---------------------------------------------------------------- events


def event(sequence: int, kind: str, op: str, urn: str) -> events.Event:
    return {"sequence": sequence, kind: {"metadata": {"op": op, "urn": urn}}}


VPC = "urn:pulumi:dev::demo::aws:ec2/vpc:Vpc::network"
GROUP = "urn:pulumi:dev::demo::faststart:infra:Group$aws:eks/nodeGroup:NodeGroup::p5"


def test_the_order_of_events_is_that_of_their_beginnings() -> None:
    log = [
        event(1, "resourcePreEvent", "create", GROUP),
        event(2, "resourcePreEvent", "create", VPC),
        event(3, "resOutputsEvent", "create", VPC),
        event(4, "resOpFailedEvent", "create", GROUP),
        {"sequence": 5, "summaryEvent": {"resourceChanges": {"create": 1}}},
    ]

    assert events.order(log) == [("create", GROUP, 1, None), ("create", VPC, 2, 3)]
    assert (events.order(log)[0].type, events.order(log)[0].name) == ("aws:eks/nodeGroup:NodeGroup", "p5")
    assert events.changes(log) == {"create": 1}


def test_messages_leave_out_where_plugins_were_found() -> None:
    warning = {"sequence": 2, "diagnosticEvent": {"severity": "warning", "message": "replicas wait for nodes\n"}}

    assert events.messages([took("aws", "/x"), warning, warning], "warning") == ["replicas wait for nodes"]


# ---------------------------------------------------------------- manifests and report


SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:abc"}


def resource(type_: str, name: str, inputs: dict[str, Any], outputs: dict[str, Any] | None = None) -> dict[str, Any]:
    urn = f"urn:pulumi:dev::demo::{type_}::{name}"
    return {"urn": urn, "type": type_, "custom": True, "inputs": inputs, "outputs": outputs or inputs}


STATE = {
    "deployment": {
        "resources": [
            {
                "urn": "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev",
                "type": "pulumi:pulumi:Stack",
                "outputs": {"kubeconfig": SECRET, "clusterName": "demo", "nextCommands": ["one", "two"]},
            },
            resource("aws:ec2/vpc:Vpc", "network", {"cidrBlock": "10.0.0.0/16"}),
            resource(
                "kubernetes:core/v1:ConfigMap",
                "preload",
                {
                    "data": {"preload.main.py": "import os\nprint(os.sep)\n"},
                    "kind": "ConfigMap",
                    "metadata": {"name": "faststart-preload", "namespace": "models"},
                    "apiVersion": "v1",
                },
            ),
            resource("kubernetes:core/v1:Namespace", "models", {"metadata": {"name": "models"}}),
            resource(
                "kubernetes:core/v1:Secret",
                "token",
                {"metadata": {}, "data": SECRET},
                {"metadata": {"name": "token-1a2b", "namespace": "default"}},
            ),
            resource(
                "kubernetes:helm.sh/v3:Release",
                "csi",
                {
                    "chart": "aws-fsx-csi-driver",
                    "version": "1.17.0",
                    "namespace": "kube-system",
                    "name": "fsx-csi",
                    "repositoryOpts": {"repo": "https://charts.example.org"},
                    "values": {"controller": {"replicas": 1}},
                    "__defaults": [],
                },
            ),
        ]
    }
}


def test_each_kubernetes_object_is_a_file_with_apiversion_and_kind_first(tmp_path: Path) -> None:
    written = manifests.write(STATE, tmp_path / "manifests")
    texts = {path.name: path.read_text(encoding="utf-8") for path in written}

    assert sorted(texts) == [
        "cluster-namespace-models.yaml",
        "default-secret-token-1a2b.yaml",
        "kube-system-release-fsx-csi.yaml",
        "models-configmap-faststart-preload.yaml",
    ]
    assert texts["models-configmap-faststart-preload.yaml"].startswith("apiVersion: v1\nkind: ConfigMap\nmetadata:\n")
    assert "preload.main.py: |\n    import os\n" in texts["models-configmap-faststart-preload.yaml"]
    assert texts["cluster-namespace-models.yaml"].startswith("apiVersion: v1\nkind: Namespace\n")


def test_a_secret_is_never_written_out(tmp_path: Path) -> None:
    for path in manifests.write(STATE, tmp_path / "manifests"):
        assert "v1:abc" not in path.read_text(encoding="utf-8")
    assert yaml.safe_load((tmp_path / "manifests" / "default-secret-token-1a2b.yaml").read_text("utf-8"))["data"] == (
        "[secret]"
    )


def test_a_helm_release_is_written_with_chart_version_and_values(tmp_path: Path) -> None:
    manifests.write(STATE, tmp_path / "manifests")
    text = (tmp_path / "manifests" / "kube-system-release-fsx-csi.yaml").read_text(encoding="utf-8")

    assert yaml.safe_load(text) == {
        "kind": "Release",
        "name": "fsx-csi",
        "namespace": "kube-system",
        "chart": "aws-fsx-csi-driver",
        "version": "1.17.0",
        "repository": "https://charts.example.org",
        "values": {"controller": {"replicas": 1}},
    }


def test_the_report_tells_what_was_real_and_what_was_stood_in_for() -> None:
    report = Report("dev", CLI, STATE, {"preview": 3.0, "up": 4.25}, {"up": {"create": 6}}, ["one\nwarning"])
    text = report.text()

    assert text.index("## What was real") < text.index("## What was stood in for") < text.index("## Steps")
    assert "| up | 4.2 | 6 create |" in text
    assert "| all | 7.2 |" in text
    assert "- one warning\n" in text
    assert "## Resources: 6" in text
    assert "| `kubernetes:core/v1:ConfigMap` | 1 |" in text
    assert "Helm: 1 releases" in text
    assert "The provider's checks and plans: the tables of" in text
    report.judge = "terraform-provider-aws 6.48.0"
    assert "checks and plans: HashiCorp's terraform-provider-aws 6.48.0 checked inputs" in report.text()
    assert report.outputs == {"kubeconfig": "[secret]", "clusterName": "demo", "nextCommands": ["one", "two"]}


# ---------------------------------------------------------------- the commands, with a fake engine

ENGINE = """\
#!{python}
import json, os, pathlib, sys
words = [w for w in sys.argv[1:] if not w.startswith("-")]
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
answers = json.loads((folder / "answers").read_text())
name = "second" if "--expect-no-changes" in sys.argv else words[0]
answer = answers.get(name, {{}})
if "touches" in answer:
    pathlib.Path(answer["touches"]).write_text(answer["text"])
if "--event-log" in sys.argv and answer.get("log", True):
    plugin = answer.get("plugin", os.path.join(os.environ["PATH"].split(":")[0], "pulumi-resource-aws"))
    warning = "using pulumi-resource-aws from $PATH at " + plugin
    print("    warning:", warning)
    log = pathlib.Path(sys.argv[sys.argv.index("--event-log") + 1])
    told = [{{"sequence": 1, "diagnosticEvent": {{"severity": "warning", "message": warning}}}},
            {{"sequence": 2, "summaryEvent": {{"resourceChanges": {{"create": 6}}}}}}]
    log.write_text("".join(json.dumps(one) + "\\n" for one in told))
print(answer.get("says", "said by " + " ".join(words)))
print(answer.get("error", ""), file=sys.stderr)
sys.exit(answer.get("code", 0))
"""


class FakeEngine:
    """A `pulumi` that says what a test wants, and remembers how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.path = executable(folder / "pulumi", ENGINE.format(python=sys.executable, folder=str(folder)))
        self.answers: dict[str, dict[str, Any]] = {"stack": {"says": json.dumps(STATE)}}
        self.answer()

    def answer(self, **answers: dict[str, Any]) -> None:
        self.answers.update(answers)
        (self.folder / "answers").write_text(json.dumps(self.answers), encoding="utf-8")

    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(tmp_path / "engine")
    monkeypatch.setattr(
        command_line, "find_or_install", lambda say: PulumiCli(engine.path, "3.274.1", "fake", engine.folder)
    )
    for name in isolation.FORBIDDEN:
        monkeypatch.delenv(name, raising=False)
    return engine


@pytest.fixture
def rehearse(engine: FakeEngine, clone: Path) -> Callable[..., int]:
    return lambda *arguments: command_line.main(arguments, clone)


def test_an_up_previews_deploys_and_previews_again(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rehearse("up", "dev", "--fresh") == 0
    shown = capsys.readouterr().out
    out = clone / "build" / "rehearsal" / "dev"

    assert [call.split(" --")[0] for call in engine.calls()] == [
        "stack select",
        "preview",
        "up",
        "preview",
        "stack export",
    ]
    assert "said by preview" in shown
    assert "clusterName: demo" in shown
    assert "using pulumi-resource-aws from $PATH" not in shown
    assert "using pulumi-resource-aws from $PATH" in (out / "preview.txt").read_text(encoding="utf-8")
    assert {path.name for path in out.iterdir()} >= {
        "preview.txt",
        "up.txt",
        "events.jsonl",
        "state.json",
        "manifests",
        "report.md",
    }
    assert json.loads((out / "state.json").read_text(encoding="utf-8")) == STATE


def test_a_rehearsal_leaves_the_repository_as_it_was(rehearse: Callable[..., int], clone: Path) -> None:
    before = git("status", "--porcelain", cwd=clone)
    rehearse("up", "dev")

    assert git("status", "--porcelain", cwd=clone) == before


def test_what_was_made_is_kept_for_the_next_up_and_forgotten_by_a_fresh_one(
    rehearse: Callable[..., int], clone: Path
) -> None:
    rehearse("up", "dev", "--fresh")
    made = clone / "build" / "rehearsal" / "dev" / "work" / "cloud" / "aws.json"
    made.write_text("{}", encoding="utf-8")

    assert rehearse("up", "dev") == 0
    assert made.exists()
    assert rehearse("up", "dev", "--fresh") == 0
    assert not made.exists()


@pytest.mark.parametrize(("answer", "code"), [("preview", 1), ("up", 255), ("second", 7)])
def test_a_failing_engine_ends_the_rehearsal_with_its_words_and_its_code(
    engine: FakeEngine,
    rehearse: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    answer: str,
    code: int,
) -> None:
    engine.answer(**{answer: {"code": code, "says": "error: use 4800, 9600, 14400"}})

    assert rehearse("up", "dev", "--quiet") == code
    assert "error: use 4800, 9600, 14400" in capsys.readouterr().out


def test_nothing_is_deployed_when_the_preview_used_another_aws_plugin(
    engine: FakeEngine, rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.answer(preview={"plugin": "/usr/bin/pulumi-resource-aws"})

    assert rehearse("up", "dev") == command_line.REFUSED
    assert "it used /usr/bin/pulumi-resource-aws for aws" in capsys.readouterr().out
    assert not [call for call in engine.calls() if call.startswith("up")]


def test_a_variable_that_chooses_plugins_keeps_the_engine_from_starting(
    engine: FakeEngine, rehearse: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_DEBUG_PROVIDERS", "aws:1234")

    assert rehearse("up", "dev") == command_line.REFUSED
    assert engine.calls() == []


def test_an_unknown_stack_is_refused_with_the_names_of_those_that_exist(
    rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rehearse("up", "prod") == command_line.USAGE
    assert "no stacks/Pulumi.prod.yaml; there are: dev" in capsys.readouterr().out


def test_without_a_cli_the_exit_code_is_three(
    rehearse: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(say: pulumi_cli.Say) -> PulumiCli:
        raise CliMissingError("no Pulumi CLI, and none could be got")

    monkeypatch.setattr(command_line, "find_or_install", none)

    assert rehearse("up", "dev") == command_line.MISSING
    assert "none could be got" in capsys.readouterr().out


def test_a_destroy_goes_through_the_engines_own_preview(engine: FakeEngine, rehearse: Callable[..., int]) -> None:
    rehearse("up", "dev")

    assert rehearse("destroy", "dev") == 0
    destroys = [call for call in engine.calls() if call.startswith("destroy")]
    assert len(destroys) == 1
    assert "--skip-preview" not in destroys[0]


def test_a_protected_stack_stops_the_destroy_and_the_way_on_is_said(
    engine: FakeEngine, rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse("up", "dev")
    engine.answer(destroy={"code": 1, "says": "error: cannot be deleted\nbecause it is protected. To unprotect ..."})

    assert rehearse("destroy", "dev", "--quiet") == 1
    shown = capsys.readouterr().out
    assert "because it is protected" in shown
    assert "nothing was deleted" in shown
    assert "make rehearse-destroy STACK=dev UNPROTECT=1" in shown


def test_unprotect_goes_the_way_of_a_real_account(engine: FakeEngine, rehearse: Callable[..., int]) -> None:
    rehearse("up", "dev")
    before = len(engine.calls())

    assert rehearse("destroy", "dev", "--unprotect") == 0
    assert [" ".join(call.split()[:5]) for call in engine.calls()[before + 1 : before + 3]] == [
        "config set --path faststart:storage.protect false",
        "config set --path faststart:cluster.deletionProtection false",
    ]
    assert [call.split()[0] for call in engine.calls()[before + 3 :]] == ["up", "destroy"]


def test_what_still_stands_after_a_destroy_is_listed_and_is_a_failure(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse("up", "dev")
    cloud = clone / "build" / "rehearsal" / "dev" / "work" / "cloud"
    (cloud / "aws.json").write_text('{"aws:cloudwatch/logGroup:LogGroup|/aws/eks/demo": {}}', encoding="utf-8")

    assert rehearse("destroy", "dev") == 1
    assert "aws:cloudwatch/logGroup:LogGroup /aws/eks/demo" in capsys.readouterr().out
    assert standing(cloud) == ["aws:cloudwatch/logGroup:LogGroup /aws/eks/demo"]


def test_there_is_nothing_to_destroy_before_an_up(engine: FakeEngine, rehearse: Callable[..., int]) -> None:
    assert rehearse("destroy", "dev") == command_line.USAGE
    assert engine.calls() == []


def test_a_second_rehearsal_of_the_same_stack_at_once_is_refused(engine: FakeEngine, clone: Path) -> None:
    cli = PulumiCli(engine.path, "3.274.1", "fake", None)
    both = [Rehearsal(clone / "stacks" / "Pulumi.dev.yaml", clone, clone / "build", cli) for _ in range(2)]
    with (
        both[0].alone(),
        pytest.raises(isolation.RefusedError, match="another rehearsal is running"),
        both[1].alone(),
    ):
        pass


# ---------------------------------------------------------------- an engine that was ended in the middle of its work


LOCK = {"pid": 28133, "username": "reader", "hostname": "desk", "timestamp": "2026-12-01T06:29:17.5Z"}


def lock(clone: Path, **changed: object) -> Path:
    """A lock as an engine leaves it."""
    locks = clone / "build" / "rehearsal" / "dev" / "work" / "state" / ".pulumi" / "locks"
    path = locks / "organization" / "demo" / "dev" / f"{len(list(locks.rglob('*.json')))}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**LOCK, **changed}), encoding="utf-8")
    return path


def with_pending(*operations: tuple[str, str]) -> dict[str, Any]:
    """The answer to `pulumi stack export` with these pending operations."""
    found = [{"type": one, "resource": {"urn": f"urn:pulumi:dev::demo::{name}"}} for one, name in operations]
    return {"says": json.dumps({"deployment": {**STATE["deployment"], "pending_operations": found}})}


@pytest.mark.parametrize("command", [("up", "dev"), ("destroy", "dev"), ("destroy", "dev", "--unprotect")])
def test_a_lock_that_a_killed_engine_left_keeps_the_engine_from_starting_and_the_way_on_is_said(
    engine: FakeEngine,
    rehearse: Callable[..., int],
    clone: Path,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    rehearse("up", "dev")
    before = engine.calls()
    lock(clone)
    capsys.readouterr()

    assert rehearse(*command) == command_line.LOCKED
    assert engine.calls() == before
    shown = capsys.readouterr().out
    assert "process 28133 of reader@desk, since 2026-12-01T06:29:17.5Z" in shown
    assert "no other rehearsal of dev runs" in shown
    assert "make rehearse-cancel STACK=dev\n" in shown
    assert shown.endswith("    pulumi cancel dev\n")


def test_a_fresh_up_forgets_a_lock_too(rehearse: Callable[..., int], clone: Path) -> None:
    rehearse("up", "dev")
    lock(clone)

    assert rehearse("up", "dev", "--fresh") == 0


@pytest.mark.parametrize("count", [0, 1, 2])
def test_cancel_removes_the_locks_as_pulumi_cancel_does(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    rehearse("up", "dev")
    before = len(engine.calls())
    for number in range(count):
        lock(clone, pid=number)
    capsys.readouterr()

    assert rehearse("cancel", "dev") == 0
    assert engine.calls()[before].startswith("cancel --yes dev ")
    shown = capsys.readouterr().out
    assert shown.count("the lock is removed: process") == count
    assert ("had no lock" in shown) == (count == 0)


def test_there_is_nothing_to_cancel_before_an_up(engine: FakeEngine, rehearse: Callable[..., int]) -> None:
    assert rehearse("cancel", "dev") == command_line.USAGE
    assert engine.calls() == []


def test_an_up_that_an_engine_did_not_survive_says_what_it_left(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse("up", "dev")
    path = lock(clone)
    path.unlink()
    engine.answer(
        up={"code": 137, "touches": str(path), "text": json.dumps(LOCK)},
        stack=with_pending(("creating", "aws:fsx/lustreFileSystem:LustreFileSystem::lustre")),
    )

    assert rehearse("up", "dev") == 137
    shown = capsys.readouterr().out
    assert "the up ended with exit code 137" in shown
    assert "make rehearse-cancel STACK=dev" in shown
    assert "creating urn:pulumi:dev::demo::aws:fsx/lustreFileSystem:LustreFileSystem::lustre" in shown
    assert "pulumi refresh --stack dev --clear-pending-creates" in shown


def test_an_engine_that_refuses_to_begin_and_writes_no_log_ends_the_rehearsal_with_its_words(
    engine: FakeEngine, rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.answer(up={"code": 1, "log": False, "says": "error: the stack is currently locked by 1 lock(s)"})

    assert rehearse("up", "dev", "--quiet") == 1
    assert "error: the stack is currently locked by 1 lock(s)" in capsys.readouterr().out


def test_a_good_up_on_top_of_pending_creates_says_so_and_reports_it(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.answer(stack=with_pending(("creating", "aws:eks/cluster:Cluster::cluster")))

    assert rehearse("up", "dev") == 0
    for text in (capsys.readouterr().out, (clone / "build/rehearsal/dev/report.md").read_text(encoding="utf-8")):
        assert "creating urn:pulumi:dev::demo::aws:eks/cluster:Cluster::cluster" in text


MAY_EXIST, SECOND, CLEAR, READ = "may exist", "look for a second one", "--clear-pending-creates", "reads how it is now"
IN_STATE = "aws:ec2/vpc:Vpc::network"


@pytest.mark.parametrize(
    ("operations", "has", "has_not"),
    [
        ([], [], ["pending"]),
        ([("creating", "a")], [MAY_EXIST, "--import-file", CLEAR], [SECOND, READ]),
        ([("creating", "a"), ("creating", "a")], [MAY_EXIST, CLEAR], [SECOND, READ]),
        ([("creating", IN_STATE)], [MAY_EXIST, SECOND, CLEAR], ["--import-file", READ]),
        ([("creating", IN_STATE), ("creating", "a")], [MAY_EXIST, SECOND, "--import-file", CLEAR], [READ]),
        ([("updating", IN_STATE)], [READ], [MAY_EXIST, SECOND, CLEAR]),
        ([("deleting", IN_STATE)], [READ], [MAY_EXIST, SECOND, CLEAR]),
        ([("deleting", IN_STATE), ("creating", "b")], [READ, MAY_EXIST, CLEAR], [SECOND]),
    ],
)
def test_what_pending_operations_mean_is_said_by_their_kind(
    operations: list[tuple[str, str]], has: list[str], has_not: list[str]
) -> None:
    found = interrupted.pending(json.loads(with_pending(*operations)["says"]))
    text = interrupted.about_pending("dev", found)

    assert [part for part in has if part not in text] == []
    assert [part for part in has_not if part in text] == []
    assert text.count("urn:pulumi") == len(set(operations))


@pytest.mark.parametrize("torn", ["", "{", '{"sequence": 3, "pre', "{}", "\0\0\0", "\N{SNOWMAN}"])
def test_the_last_line_of_a_killed_engines_log_is_left_out_where_it_is_torn(tmp_path: Path, torn: str) -> None:
    log = tmp_path / "up.jsonl"
    log.write_bytes(b'{"sequence": 1}\n\n{"sequence": 2}\n' + torn.encode()[: len(torn)])

    assert events.read(log) == [{"sequence": 1}, {"sequence": 2}]


def test_a_command_of_the_engine_that_fails_ends_the_rehearsal_with_its_words(
    engine: FakeEngine, rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.answer(stack={"code": 255, "error": "error: no such backend"})

    assert rehearse("up", "dev") == 255
    shown = capsys.readouterr().out
    assert "`pulumi stack select --create dev " in shown
    assert "` ended with exit code 255: error: no such backend" in shown


def test_what_is_left_after_a_destroy_is_explained_by_pending_creates(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse("up", "dev")
    engine.answer(stack=with_pending(("creating", "aws:eks/cluster:Cluster::cluster")))
    cloud = clone / "build" / "rehearsal" / "dev" / "work" / "cloud"
    (cloud / "aws.json").write_text('{"aws:eks/cluster:Cluster|demo": {}}', encoding="utf-8")

    assert rehearse("destroy", "dev") == 1
    shown = capsys.readouterr().out
    assert "creating urn:pulumi:dev::demo::aws:eks/cluster:Cluster::cluster" in shown
    assert "still standing" in shown
