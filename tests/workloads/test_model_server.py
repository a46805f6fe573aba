"""The pod that copies and serves, as every stack renders it."""

import functools
import itertools
import re
from typing import Any

import pytest

from infra import images, settings
from infra.instance_types import GIB
from infra.settings.sections.servers import PreloadSettings
from podkit.patience import STALL_SECONDS
from tests import recording
from tests.recording import Recording
from workloads import delivery

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
SERVICE = "kubernetes:core/v1:Service"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
KEY = "faststart:modelServers"
GB = 10**9

# More than the stack files say: servers that share a node, that have no node, and one that nobody wants to run.
SIZE = {"min": 0, "desired": 0, "max": 9}
COPY = {"parallelCopies": 7, "write": "direct", "cache": "drop", "verify": "sha256", "stallSeconds": 77}
SEVERAL: dict[str, Any] = {
    "faststart:nodeGroups": {
        "enough": {"instanceType": "p5.48xlarge", "size": {**SIZE, "desired": 2}},
        "few": {"instanceType": "g6.12xlarge", "size": {**SIZE, "desired": 1}},
        "none": {"instanceType": "p5.48xlarge", "size": SIZE},
        "idle": {"instanceType": "p5.48xlarge", "size": SIZE},
    },
    "faststart:models": {
        "large": {"source": "path:/fsx/large", "revision": "1", "sizeGib": 250, "inPlace": True},
        "small": {"source": "path:/fsx/else/where", "revision": "v2", "sizeGib": 30, "files": ["*.json", "a-*/b?"]},
    },
    "faststart:modelServers": {
        "pair": {"model": "large", "nodeGroup": "enough", "gpus": 4, "replicas": 2, "preload": COPY},
        "guest": {"model": "small", "nodeGroup": "enough", "gpus": 2, "args": ["--max-model-len", "8192", "--seed=1"]},
        "crowd": {"model": "small", "nodeGroup": "few", "gpus": 3, "replicas": 2, "image": "example.com/vllm:v1"},
        "waiting": {"model": "large", "nodeGroup": "none", "gpus": 8},
        "off": {"model": "large", "nodeGroup": "idle", "gpus": 8, "replicas": 0},
    },
    "faststart:team": None,
}
AWAITED = {"pair": True, "guest": True, "crowd": False, "waiting": False, "off": True}


@functools.cache
def several() -> Recording:
    config = {**recording.stack_config("article"), **SEVERAL}
    return recording.run("article", {key: value for key, value in config.items() if value is not None})


# Of a stack file only the names are read here, so that one with a mistake fails in its own tests, not in all.
SERVERS = [
    *((stack, name) for stack in recording.STACKS for name in recording.stack_config(stack).get(KEY) or {}),
    *(("several", name) for name in SEVERAL[KEY]),
]


class Rendered:
    """A server of a stack: what its settings say, and what the program made of it."""

    def __init__(self, stack: str, server: str) -> None:
        self.run = several() if stack == "several" else recording.run(stack)
        settings = self.run.settings
        self.config = settings.model_servers[server]
        self.model = settings.models[self.config.model]
        name, revision = self.config.model, self.model.revision
        # contracts.md, "Lustre"; a model that is sealed in place is where its source is.
        self.path = "/fsx/large" if self.model.in_place else f"/fsx/models/{name}/{revision}"
        self.storage = settings.storage
        self.instance_type = settings.node_groups[self.config.node_group].facts
        self.team = settings.team
        self.server = server
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
    claim = server.volumes["models"]["persistentVolumeClaim"]

    assert server.preload["name"] == "preload"
    assert server.preload["command"] == ["python3", "-S", "/opt/faststart/start.py", "preload"]
    assert claim == {"claimName": "faststart-models-ro", "readOnly": True}
    assert server.mounts(server.preload)["/fsx"]["readOnly"] is True
    assert server.mounts(server.preload)["/models/current"]["name"] == "scratch"
    assert "emptyDir" in server.volumes["scratch"]


def test_preload_is_told_all_that_the_stack_can_say_of_a_copy(server: Rendered) -> None:
    copy = server.config.preload

    assert server.preload["args"] == [
        server.path,
        "/models/current",
        *("--parallel", str(copy.parallel_copies)),
        *("--write", copy.write),
        *("--cache", copy.cache),
        *("--verify", copy.verify),
        *(("--stall", str(copy.stall_seconds)) if copy.stall_seconds != STALL_SECONDS else ()),
        *("--files", *server.model.files),
        *("--max-bytes", str(server.model.size_gib * GIB)),
        "--require-local-disk",
        *("--termination-log", "/dev/termination-log"),
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "pair",
            "--parallel 7 --write direct --cache drop --verify sha256 --stall 77 --files auto --max-bytes 268435456000",
        ),
        (
            "guest",
            "--parallel 32 --write auto --cache auto --verify size --files *.json a-*/b? --max-bytes 32212254720",
        ),
    ],
)
def test_preload_s_arguments_word_for_word(name: str, said: str) -> None:
    assert f" {said} " in " ".join(Rendered("several", name).preload["args"])


def test_what_the_stack_takes_for_a_source_that_hangs_is_what_the_program_takes() -> None:
    assert settings.STALL_SECONDS == STALL_SECONDS == PreloadSettings().stall_seconds


def test_preload_runs_the_program_that_its_config_map_carries(server: Rendered) -> None:
    (carried,) = [one.inputs for one in server.run.of(CONFIG_MAP) if one.inputs["metadata"]["namespace"] == "models"]
    data = carried["data"]
    config_map = server.volumes["program"]["configMap"]
    environment = {one["name"]: one["value"] for one in server.preload["env"]}

    assert config_map["name"] == carried["metadata"]["name"] == "faststart-preload"
    assert data.keys() >= {"start.py", "preload.__main__.py", "modelfolder.__init__.py", "podkit.__init__.py"}
    assert config_map.keys() == {"name"}, "a pod that names files is another pod with each new one, and rolls"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert server.mounts(server.preload)["/opt/faststart"]["readOnly"] is True


def test_a_roll_of_the_nodes_evicts_one_pod_of_a_server_with_several_at_a_time(server: Rendered) -> None:
    name = f"faststart-{server.server}"
    found = [
        one.inputs["spec"]
        for one in server.run.of("kubernetes:policy/v1:PodDisruptionBudget")
        if one.inputs["metadata"]["name"] == name
    ]

    if server.config.replicas < 2:
        assert not found, "a budget of one pod would hold up each roll, and save nothing"
        return
    (budget,) = found
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert budget["selector"] == server.spec["selector"]


def test_vllm_reads_only_the_copy_and_has_no_mount_of_lustre(server: Rendered) -> None:
    mounts = server.mounts(server.vllm)

    assert server.vllm["command"] == ["vllm", "serve"]
    assert server.vllm["args"][0] == "/models/current"
    assert server.vllm["image"] == server.preload["image"] == images.applied(server.config.image)
    assert mounts["/models/current"] == {"mountPath": "/models/current", "name": "scratch", "readOnly": True}
    assert not any("persistentVolumeClaim" in server.volumes[mount["name"]] for mount in mounts.values())


def test_vllm_is_named_sized_and_drained(server: Rendered) -> None:
    given = flags(server.vllm["args"])
    drain = server.vllm["lifecycle"]["preStop"]["sleep"]["seconds"] + int(given["--shutdown-timeout"])

    assert given["--served-model-name"] == server.config.model
    assert given["--tensor-parallel-size"] == str(server.config.gpus)
    assert given["--port"] == "8000"
    assert server.pod["terminationGracePeriodSeconds"] > drain
    assert server.spec["replicas"] == server.config.replicas
    # The stack's own come last and as they are; each of ours is there once.
    ours = server.vllm["args"][: len(server.vllm["args"]) - len(server.config.args)]
    assert server.vllm["args"] == [*ours, *server.config.args]
    assert ours[1::2] == ["--served-model-name", "--port", "--tensor-parallel-size", "--shutdown-timeout"]


def test_gpus_are_asked_for_as_limits_and_requests(server: Rendered) -> None:
    resources = server.vllm["resources"]
    gpus = str(server.config.gpus)

    assert resources["limits"] == {"nvidia.com/gpu": gpus}
    assert resources["requests"]["nvidia.com/gpu"] == gpus
    assert "limits" not in server.preload["resources"]


def quantity_gib(text: str) -> int:
    assert text.endswith("Gi")
    return int(text.removesuffix("Gi"))


def test_the_scheduler_is_told_of_the_disk_that_the_copy_takes(server: Rendered) -> None:
    asked = quantity_gib(server.vllm["resources"]["requests"]["ephemeral-storage"])

    assert asked >= server.model.size_gib * 1.05
    assert asked <= server.instance_type.allocatable_nvme_gib
    assert asked == quantity_gib(server.preload["resources"]["requests"]["ephemeral-storage"])
    assert server.model.size_gib < quantity_gib(server.volumes["scratch"]["emptyDir"]["sizeLimit"]) <= asked


def test_shared_memory_is_memory_and_bounded(server: Rendered) -> None:
    volume = server.volumes[server.mounts(server.vllm)["/dev/shm"]["name"]]["emptyDir"]

    assert volume["medium"] == "Memory"
    # vLLM's message queues take 240 MiB a broadcast group.
    assert 0 < quantity_gib(volume["sizeLimit"]) <= server.instance_type.memory_gib / 2


def startup_seconds(server: Rendered) -> float:
    """What vLLM is given to load and compile: 600 s and 1.5 s a GB (field notes, 405B in bf16: half an hour)."""
    return 600 + 1.5 * server.model.size_gib * GIB / GB


def test_a_busy_server_is_not_taken_for_a_dead_one(server: Rendered) -> None:
    """A busy API server misses a second; a start again costs the whole load."""
    liveness, readiness = server.vllm["livenessProbe"], server.vllm["readinessProbe"]

    for probe in (liveness, readiness):
        assert probe["httpGet"] == {"path": "/health", "port": "http"}
        assert probe["timeoutSeconds"] >= 5
        assert probe["timeoutSeconds"] <= probe["periodSeconds"]
    assert liveness["failureThreshold"] >= 3
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 30
    # Out of the Service before it is started again.
    readiness_seconds = readiness["periodSeconds"] * readiness["failureThreshold"]
    assert readiness_seconds < liveness["periodSeconds"] * liveness["failureThreshold"]


def test_probes_follow_the_model_s_size(server: Rendered) -> None:
    startup = server.vllm["startupProbe"]

    assert startup["httpGet"] == {"path": "/health", "port": "http"}
    assert startup["periodSeconds"] * startup["failureThreshold"] >= startup_seconds(server)
    assert server.vllm["ports"] == [{"name": "http", "containerPort": 8000}]
    environment = {one["name"]: one["value"] for one in server.vllm["env"]}
    assert int(environment["VLLM_ENGINE_READY_TIMEOUT_S"]) >= startup["periodSeconds"] * startup["failureThreshold"]
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_a_roll_out_never_needs_a_spare_gpu_and_leaves_all_pods_but_one_serving(server: Rendered) -> None:
    assert server.spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def seconds(text: str) -> int:
    """A Go duration that protobuf's JSON or the SDK may have written in parts."""
    parts = re.findall(r"(\d+)([hms])", text)
    assert parts, text
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)


def tcp_copy_seconds(server: Rendered) -> float:
    """A copy over TCP at its best: 5 Gbit/s a file server, so 1.9 GB/s from the article's three.

    One file server every 4800 GiB where the file system has EFA at 1000 MB/s/TiB, every 2400 GiB where it has none; the
    slower tiers have fewer, and all of them stop at the node's own network.
    """
    storage = server.storage
    per_server = 4800 * 1000 / storage.throughput if storage.efa else 2400
    servers = max(1, storage.capacity_gib / per_server)
    return server.model.size_gib * GIB / (min(5 * servers, server.instance_type.network_gbps) / 8 * GB)


def test_the_article_s_three_servers_give_1_9_gb_a_second() -> None:
    server = Rendered("article", "qwen3")

    assert server.model.size_gib * GIB / tcp_copy_seconds(server) == pytest.approx(1.9 * GB, rel=0.02)


def test_up_waits_as_long_as_node_copy_and_startup_may_take(server: Rendered) -> None:
    """20 minutes for a node and the image, as the charts of others give; then the copy and the start."""
    deadline = server.spec["progressDeadlineSeconds"]

    assert deadline >= 1200 + tcp_copy_seconds(server) + startup_seconds(server)
    for timeout in ("create", "update"):
        assert seconds(server.deployment.timeouts[timeout]) > deadline
    one_after_the_other = server.config.replicas * (1200 + tcp_copy_seconds(server) + startup_seconds(server))
    assert seconds(server.deployment.timeouts["update"]) > one_after_the_other
    assert server.deployment.urn in server.run.before(server.service)


def test_the_pod_runs_where_its_model_fits_and_nowhere_else(server: Rendered) -> None:
    assert server.pod["nodeSelector"] == {"faststart.dev/node-group": server.config.node_group}
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
        "faststart.dev/model": server.config.model,
        "faststart.dev/revision": server.model.revision,
        **({"faststart.dev/team": server.team} if server.team else {}),
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


def test_up_does_not_wait_for_pods_that_have_no_node() -> None:
    run = several()
    awaited = {
        one.name.rpartition("-")[0]: one.inputs["metadata"].get("annotations", {}).get("pulumi.com/skipAwait") is None
        for one in run.of(DEPLOYMENT)
    }
    services = {
        one.name.rpartition("-")[0]: one.inputs["metadata"].get("annotations", {}).get("pulumi.com/skipAwait") is None
        for one in run.of(SERVICE)
    }
    warned = {group for group in run.settings.node_groups if f"nodeGroups.{group}.size.desired" in str(run.warnings)}

    assert awaited == services == AWAITED
    assert warned == {"few", "none"}


def test_another_delivery_changes_the_pod_where_it_answers_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    first: Any = {"name": "first", "image": "example.com/tools:v1"}
    beside: Any = {"name": "beside", "image": "example.com/tools:v1", "restart_policy": "Always"}
    other = delivery.Delivery(
        init_containers=[first],
        sidecars=[beside],
        volumes=[{"name": "disk", "host_path": {"path": "/mnt"}}],
        mounts=[{"name": "disk", "mount_path": "/models/current", "sub_path": "models/a/1", "read_only": True}],
        wait=["wait", "--for", "marker"],
        requests={"example.com/disk": "1"},
    )
    by_copy = recording.run("article")
    monkeypatch.setattr(delivery, "to_pod", lambda *_, **__: other)

    run = recording.run("article", recording.stack_config("article"))

    ours, theirs = (one.one(DEPLOYMENT).inputs["spec"]["template"]["spec"] for one in (run, by_copy))
    (vllm,), (copied,) = ours["containers"], theirs["containers"]
    assert [one["name"] for one in ours["initContainers"]] == ["first", "beside"]
    assert ours["initContainers"][1]["restartPolicy"] == "Always"
    assert [one["name"] for one in ours["volumes"]] == ["disk", "cache", "shared-memory"]
    assert vllm["command"] == ["wait", "--for", "marker", "vllm", "serve"]
    assert vllm["volumeMounts"][0]["subPath"] == "models/a/1"
    assert vllm["resources"]["requests"].keys() == {"cpu", "memory", "nvidia.com/gpu", "example.com/disk"}
    answered = ("initContainers", "containers", "volumes")
    assert {key: ours[key] for key in ours if key not in answered} == {
        key: theirs[key] for key in theirs if key not in answered
    }
    answered = ("command", "volumeMounts", "resources")
    assert {key: vllm[key] for key in vllm if key not in answered} == {
        key: copied[key] for key in copied if key not in answered
    }
