"""The pod that copies and serves, as every stack renders it."""

import itertools
import re
from typing import Any

import pytest

from infra import sizing
from infra.instance_types import INSTANCE_TYPES
from tests import recording
from tests.recording import Recording
from workloads import programs

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
SERVICE = "kubernetes:core/v1:Service"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

SERVERS = [
    (stack, server) for stack in recording.STACKS for server in recording.stack_config(stack)["faststart:modelServers"]
]


class Rendered:
    """A server of a stack: what its stack file says, and what the program made of it."""

    def __init__(self, stack: str, server: str, run: Recording | None = None) -> None:
        config = recording.stack_config(stack)
        self.config = config["faststart:modelServers"][server]
        self.model = config["faststart:models"][self.config["model"]]
        self.instance_type = INSTANCE_TYPES[config["faststart:nodeGroups"][self.config["nodeGroup"]]["instanceType"]]
        self.team = config.get("faststart:team")
        self.server = server
        self.run = run or recording.run(stack)
        self.deployment = self.run.one(DEPLOYMENT, f"{server}-vllm")
        self.service = self.run.one(SERVICE, f"{server}-service")
        self.spec: dict[str, Any] = self.deployment.inputs["spec"]
        self.pod: dict[str, Any] = self.spec["template"]["spec"]
        (self.preload,) = self.pod["initContainers"]
        (self.vllm,) = self.pod["containers"]
        self.volumes: dict[str, Any] = {volume["name"]: volume for volume in self.pod["volumes"]}

    def mounts(self, container: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


@pytest.fixture(params=SERVERS, ids="-".join)
def server(request: pytest.FixtureRequest) -> Rendered:
    return Rendered(*request.param)


def flags(arguments: list[str]) -> dict[str, str]:
    return {name: value for name, value in itertools.pairwise([*arguments, ""]) if name.startswith("--")}


def test_preload_copies_from_the_read_only_claim_to_the_node_s_disk(server: Rendered) -> None:
    source, destination, *rest = server.preload["args"]
    claim = server.volumes["models"]["persistentVolumeClaim"]

    assert server.preload["name"] == "preload"
    assert server.preload["command"] == ["python3", "-S", "-m", "preload"]
    assert source == server.model["source"].removeprefix("path:")
    assert destination == "/models/current"
    assert "--require-local-disk" in rest
    assert flags(rest)["--parallel"] == str(server.config.get("preload", {}).get("parallelCopies", 32))
    assert flags(rest)["--max-bytes"] == str(server.model["sizeGib"] * 2**30)
    assert claim == {"claimName": "faststart-models-ro", "readOnly": True}
    assert server.mounts(server.preload)["/fsx"]["readOnly"] is True
    assert server.mounts(server.preload)["/models/current"]["name"] == "scratch"
    assert "emptyDir" in server.volumes["scratch"]


def test_preload_runs_the_program_that_its_config_map_carries(server: Rendered) -> None:
    data = server.run.one(CONFIG_MAP).inputs["data"]
    config_map = server.volumes["program"]["configMap"]
    environment = {one["name"]: one["value"] for one in server.preload["env"]}

    assert config_map["name"] == server.run.one(CONFIG_MAP).inputs["metadata"]["name"] == "faststart-preload"
    assert {item["key"] for item in config_map["items"]} == data.keys()
    assert {item["path"] for item in config_map["items"]} >= {"preload/__main__.py", "modelfolder/__init__.py"}
    assert all(item["path"] == item["key"].replace(".", "/", 1) for item in config_map["items"])
    assert environment["PYTHONPATH"] == "/opt/faststart"
    assert server.mounts(server.preload)["/opt/faststart"]["readOnly"] is True


def test_a_program_fits_in_a_config_map() -> None:
    assert sum(len(text.encode()) for text in programs.config_map_data("preload").values()) < 256 * 1024


def test_vllm_reads_only_the_copy_and_has_no_mount_of_lustre(server: Rendered) -> None:
    mounts = server.mounts(server.vllm)

    assert server.vllm["command"] == ["vllm", "serve"]
    assert server.vllm["args"][0] == "/models/current"
    assert mounts["/models/current"] == {"mountPath": "/models/current", "name": "scratch", "readOnly": True}
    assert not any("persistentVolumeClaim" in server.volumes[mount["name"]] for mount in mounts.values())


def test_vllm_is_named_sized_and_drained(server: Rendered) -> None:
    given = flags(server.vllm["args"])
    drain = server.vllm["lifecycle"]["preStop"]["sleep"]["seconds"] + int(given["--shutdown-timeout"])

    assert given["--served-model-name"] == server.config["model"]
    assert given["--tensor-parallel-size"] == str(server.config["gpus"])
    assert given["--port"] == "8000"
    assert server.pod["terminationGracePeriodSeconds"] > drain
    for argument in server.config.get("args", []):
        assert argument in server.vllm["args"]


def test_gpus_are_asked_for_as_limits_and_requests(server: Rendered) -> None:
    resources = server.vllm["resources"]
    gpus = str(server.config["gpus"])

    assert resources["limits"] == {"nvidia.com/gpu": gpus}
    assert resources["requests"]["nvidia.com/gpu"] == gpus
    assert "limits" not in server.preload["resources"]


def quantity_gib(text: str) -> int:
    assert text.endswith("Gi")
    return int(text.removesuffix("Gi"))


def test_the_scheduler_is_told_of_the_disk_that_the_copy_takes(server: Rendered) -> None:
    asked = quantity_gib(server.vllm["resources"]["requests"]["ephemeral-storage"])

    assert asked >= server.model["sizeGib"] * 1.05
    assert asked <= server.instance_type.allocatable_nvme_gib
    assert asked == quantity_gib(server.preload["resources"]["requests"]["ephemeral-storage"])
    assert server.model["sizeGib"] < quantity_gib(server.volumes["scratch"]["emptyDir"]["sizeLimit"]) <= asked


def test_shared_memory_is_memory_and_bounded(server: Rendered) -> None:
    volume = server.volumes[server.mounts(server.vllm)["/dev/shm"]["name"]]["emptyDir"]

    assert volume["medium"] == "Memory"
    # vLLM's message queues take 240 MiB a broadcast group.
    assert 1 <= quantity_gib(volume["sizeLimit"]) <= server.instance_type.memory_gib / 2


def test_probes_follow_the_model_s_size(server: Rendered) -> None:
    startup = server.vllm["startupProbe"]

    assert startup["httpGet"] == {"path": "/health", "port": "http"}
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600 + 1.5 * server.model["sizeGib"] * 2**30 / 1e9
    assert server.vllm["livenessProbe"]["timeoutSeconds"] >= 5
    assert server.vllm["ports"] == [{"name": "http", "containerPort": 8000}]
    environment = {one["name"]: one["value"] for one in server.vllm["env"]}
    assert int(environment["VLLM_ENGINE_READY_TIMEOUT_S"]) >= startup["periodSeconds"] * startup["failureThreshold"]
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_a_roll_out_never_needs_a_spare_gpu(server: Rendered) -> None:
    assert server.spec["strategy"] == {"type": "Recreate"}


def seconds(text: str) -> int:
    """A Go duration that protobuf's JSON or the SDK may have written in parts."""
    parts = re.findall(r"(\d+)([hms])", text)
    assert parts, text
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)


def test_up_waits_as_long_as_copy_and_startup_may_take(server: Rendered) -> None:
    startup = server.vllm["startupProbe"]
    budget = startup["periodSeconds"] * startup["failureThreshold"] + sizing.copy_seconds(server.model["sizeGib"])

    assert server.spec["progressDeadlineSeconds"] >= budget
    for timeout in ("create", "update"):
        assert seconds(server.deployment.timeouts[timeout]) > server.spec["progressDeadlineSeconds"]
    assert server.deployment.urn in server.run.before(server.service)


def test_the_pod_runs_where_its_model_fits_and_nowhere_else(server: Rendered) -> None:
    assert server.pod["nodeSelector"] == {"faststart.dev/node-group": server.config["nodeGroup"]}
    assert server.pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    ]


def test_labels_are_those_of_the_contract_and_the_service_finds_the_pods(server: Rendered) -> None:
    labels = server.spec["template"]["metadata"]["labels"]
    selector = server.service.inputs["spec"]["selector"]

    assert labels == {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": server.server,
        "app.kubernetes.io/part-of": "faststart",
        "faststart.dev/server": server.server,
        "faststart.dev/model": server.config["model"],
        "faststart.dev/revision": server.model["revision"],
        "faststart.dev/team": server.team,
    }
    assert selector == server.spec["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert server.service.inputs["spec"]["ports"] == [{"name": "http", "port": 8000, "targetPort": "http"}]
    assert server.service.inputs["spec"]["type"] == "ClusterIP"


def test_nobody_in_the_pod_is_root(server: Rendered) -> None:
    context = server.pod["securityContext"]

    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (2000, 0, 0)
    assert server.pod["automountServiceAccountToken"] is False
    assert server.preload["securityContext"]["readOnlyRootFilesystem"] is True


def overcommitted(desired: int, replicas: int, maximum: int = 9) -> Recording:
    config = recording.stack_config("article")
    config["faststart:nodeGroups"]["p5"]["size"] = {"min": 0, "desired": desired, "max": maximum}
    config["faststart:modelServers"]["qwen3"]["replicas"] = replicas
    return recording.run("article", config)


@pytest.mark.parametrize(("desired", "replicas", "awaited"), [(2, 2, True), (1, 2, False), (0, 1, False), (0, 0, True)])
def test_up_does_not_wait_for_pods_that_have_no_node(desired: int, replicas: int, awaited: bool) -> None:
    run = overcommitted(desired, replicas)
    skips = {
        one.inputs["metadata"].get("annotations", {}).get("pulumi.com/skipAwait")
        for one in (*run.of(DEPLOYMENT), *run.of(SERVICE))
    }

    assert skips == ({None} if awaited else {"true"})
    assert any("nodeGroups.p5.size.desired" in text for text in run.warnings) is not awaited
