"""The Kubernetes stand-in over gRPC: which cluster it is, what objects become, and what would hang in a real one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2 as pb

from lab.rehearsal.providers import eks, protocol, wire
from lab.rehearsal.providers.aws_types import CLUSTER, NODE_GROUP
from lab.rehearsal.providers.kubernetes import ACCOUNT, CLAIM, CONFIG_MAP, NAMESPACE, RELEASE, SECRET, VOLUME
from tests.lab.rehearsal.support import (
    REGION,
    ROLE,
    Client,
    Made,
    Network,
    cluster_inputs,
    network,
    node_group_inputs,
    serving,
    why,
)

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"


def kubeconfig(cluster: Made, role: str = ROLE) -> str:
    child = eks.Child("urn", cluster.id, outputs=cluster.outputs)
    return eks.kubeconfig(child, {"roleArn": role}, with_profile=False)[1]


@dataclass
class Lab:
    """A cluster with a node, and a client in it."""

    aws: Client
    net: Network
    cluster: Made
    nodes: Made
    kube: Client

    def create(self, token: str, name: str, namespace: str | None = None, **inputs: Any) -> Made:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        return self.kube.create(token, {"metadata": metadata, **inputs}, name)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with serving("aws", tmp_path) as aws, serving("kubernetes", tmp_path) as kube:
        aws.configure(region=REGION, assumeRoles=json.dumps([{"roleArn": ROLE}]))
        net = network(aws)
        cluster = aws.create(CLUSTER, cluster_inputs(net))
        nodes = aws.create(NODE_GROUP, node_group_inputs(net))
        kube.configure(kubeconfig=kubeconfig(cluster), enableConfigMapMutable="true")
        yield Lab(aws, net, cluster, nodes, kube)


def refused(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(grpc.RpcError) as error:
        call(*args, **options)
    return why(error.value)


def pod(**spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "serve", "image": "a:1"}], **spec}


def deployment(**spec: Any) -> dict[str, Any]:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": pod(**spec)}
    return {"spec": {"selector": {"matchLabels": labels}, "template": template}}


# The cluster


def test_a_kubeconfig_that_leads_to_no_cluster_is_unreachable(lab: Lab):
    lab.kube.configure(kubeconfig=kubeconfig(lab.cluster).replace("https://", "https://x"))
    text = refused(lab.create, NAMESPACE, "a")
    assert text.startswith("stand-in for kubernetes: configured Kubernetes cluster is unreachable: no cluster answers")


def test_a_cluster_that_is_gone_is_unreachable(lab: Lab):
    made = lab.create(NAMESPACE, "a")
    lab.aws.delete(lab.nodes)
    lab.aws.delete(lab.cluster)
    assert "unreachable" in refused(lab.kube.delete, made)
    assert "unreachable" in refused(lab.kube.read, made)


def test_only_the_creator_and_those_with_an_access_entry_are_let_in(lab: Lab):
    for role in ("", "arn:aws:iam::111122223333:role/other"):
        lab.kube.configure(kubeconfig=kubeconfig(lab.cluster, role))
        assert "the server has asked for the client to provide credentials" in refused(lab.create, NAMESPACE, "a")
    lab.aws.create("aws:eks/accessEntry:AccessEntry", {"clusterName": "lab", "principalArn": role})
    lab.create(NAMESPACE, "a")


def test_objects_are_kept_for_each_cluster_apart(lab: Lab):
    other = lab.aws.create(CLUSTER, cluster_inputs(lab.net, name="other"))
    lab.create(NAMESPACE, "a")
    assert 'Namespace "a" already exists' in refused(lab.create, NAMESPACE, "a")
    lab.kube.configure(kubeconfig=kubeconfig(other))
    lab.create(NAMESPACE, "a")


# Check


@pytest.mark.parametrize(
    ("token", "inputs", "complaint"),
    [
        (NAMESPACE, {"metadata": {"name": "My_Team"}}, "metadata.name: 'My_Team' is no DNS name"),
        (SERVICE, {"metadata": {"name": "a.b"}}, "metadata.name: 'a.b' is no DNS name"),
        (CONFIG_MAP, {"metadata": {"name": "a", "labels": {"x/": "b"}}}, 'metadata.labels["x/"]: is no label key'),
        (
            CONFIG_MAP,
            {"metadata": {"name": "a", "labels": {"a": "b c"}}},
            "metadata.labels.a: 'b c' is no label value",
        ),
        (CONFIG_MAP, {"metadata": {"name": "a", "labels": {"a": "b" * 64}}}, "metadata.labels.a: "),
        (
            DEPLOYMENT,
            deployment(nodeSelector={"a": "b/c"}),
            "spec.template.spec.nodeSelector.a: 'b/c' is no label value",
        ),
        (
            DEPLOYMENT,
            deployment(initContainers=[{"name": "Pre_Load"}]),
            "spec.template.spec.initContainers[0].name: 'Pre_Load' is no DNS label",
        ),
        (DEPLOYMENT, deployment(nodeSelectorr={}), "spec.template.spec.nodeSelectorr: no such property"),
        (RELEASE, {"chart": "./no/such/folder"}, "chart: path './no/such/folder' not found"),
        (RELEASE, {"chart": "efa"}, "chart: 'efa' is no folder here, and no repository is given"),
        (RELEASE, {"chart": "oci://a/b", "name": "Efa"}, "name: 'Efa' is no release name"),
    ],
)
def test_what_the_api_server_refuses_is_refused_in_the_preview(
    lab: Lab, token: str, inputs: dict[str, Any], complaint: str
):
    found = lab.kube.failures(token, inputs)
    assert any(one.startswith(complaint) for one in found), found


def test_names_that_kubernetes_takes_pass(lab: Lab):
    role = {"metadata": {"name": "system:node-proxier"}}
    assert lab.kube.failures("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", role) == []
    labels = {"app.kubernetes.io/name": "vllm", "faststart.dev/model": "qwen3-8b", "empty": ""}
    assert lab.kube.failures(CONFIG_MAP, {"metadata": {"name": "a.b", "labels": labels}}) == []


def test_a_name_that_is_made_up_is_marked_and_stays(lab: Lab):
    first = lab.kube.checked(CONFIG_MAP, {"data": {"a": "b"}})
    assert first["metadata"]["name"].startswith("thing-")
    assert first["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert lab.kube.checked(CONFIG_MAP, {"data": {"a": "b"}}, first) == first


# Create, read, update, delete


def test_a_round_trip_of_one_object(lab: Lab, tmp_path: Path):
    inputs = {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "1"}}
    made = lab.kube.create(CONFIG_MAP, inputs)
    assert made.id == "default/a"
    assert {"uid", "creationTimestamp", "resourceVersion"} <= made.outputs["metadata"].keys()
    changed = {**inputs, "data": {"x": "2"}}
    found = lab.kube.diff(made, changed)
    assert (list(found.detailedDiff), list(found.replaces)) == (["data.x"], [])
    planned = lab.kube.update(made, changed, preview=True)
    assert planned["metadata"]["uid"] == made.outputs["metadata"]["uid"]
    assert planned["metadata"]["resourceVersion"] == wire.UNKNOWN
    assert lab.kube.update(made, changed)["metadata"]["resourceVersion"] == "2"
    assert wire.from_struct(lab.kube.read(made).inputs) == changed
    lab.kube.delete(made)
    assert lab.kube.read(made).id == ""
    assert protocol.Cloud(tmp_path).look("kubernetes") == {}


def test_a_config_map_is_replaced_where_the_provider_may_not_change_it(lab: Lab):
    made = lab.create(CONFIG_MAP, "a", "default", data={"x": "1"})
    lab.kube.configure(kubeconfig=kubeconfig(lab.cluster))
    found = lab.kube.diff(made, {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "2"}})
    assert (list(found.replaces), found.deleteBeforeReplace) == (["data.x"], True)


def test_what_an_object_cannot_change_is_replaced(lab: Lab):
    made = lab.create(DEPLOYMENT, "a", **deployment())
    new = {"metadata": {"name": "b"}, **deployment(hostNetwork=True)}
    found = lab.kube.diff(made, new)
    assert (list(found.replaces), found.deleteBeforeReplace) == (["metadata.name"], False)
    assert "spec.template.spec.hostNetwork" in found.detailedDiff


@pytest.mark.parametrize(
    ("token", "old", "new", "replaced"),
    [
        (VOLUME, {"csi": {"driver": "d", "volumeHandle": "a"}}, {"csi": {"driver": "d", "volumeHandle": "b"}}, True),
        (VOLUME, {"capacity": {"storage": "1Gi"}}, {"capacity": {"storage": "2Gi"}}, False),
        (CLAIM, {"volumeName": "a"}, {"volumeName": "b"}, True),
        (
            CLAIM,
            {"resources": {"requests": {"storage": "1Gi"}}},
            {"resources": {"requests": {"storage": "2Gi"}}},
            False,
        ),
        (JOB, {"template": {"spec": pod()}}, {"template": {"spec": pod(hostNetwork=True)}}, True),
        (JOB, {"template": {}, "backoffLimit": 1}, {"template": {}, "backoffLimit": 2}, False),
        (SERVICE, {"ports": [{"port": 80}]}, {"ports": [{"port": 81}]}, False),
        (SERVICE, {"clusterIP": "None"}, {"clusterIP": "172.20.0.9"}, True),
    ],
)
def test_what_the_provider_replaces_an_object_for(
    lab: Lab, token: str, old: dict[str, Any], new: dict[str, Any], *, replaced: bool
):
    skipped = {"name": "a", "annotations": {"pulumi.com/skipAwait": "true"}}
    made = lab.kube.create(token, {"metadata": skipped, "spec": old})
    found = lab.kube.diff(made, {"metadata": skipped, "spec": new})
    assert found.detailedDiff
    assert (bool(found.replaces), found.deleteBeforeReplace) == (replaced, replaced)


def test_of_an_unknown_spec_nothing_is_said(lab: Lab):
    made = lab.create(DEPLOYMENT, "a", **deployment())
    found = lab.kube.diff(made, {"metadata": {"name": "a"}, "spec": wire.UNKNOWN})
    assert (list(found.detailedDiff), list(found.replaces)) == (["spec"], [])


def test_what_the_provider_would_change_in_place_but_the_api_server_does_not_let_it_is_refused(lab: Lab):
    spec = {"csi": {"driver": "d", "volumeHandle": "a"}}
    made = lab.create(VOLUME, "a", spec={**spec, "volumeMode": "Filesystem"})
    changed = {"metadata": {"name": "a"}, "spec": {**spec, "volumeMode": "Block"}}
    assert list(lab.kube.diff(made, changed).replaces) == []
    text = "stand-in for kubernetes: PersistentVolume 'a' is invalid: spec.volumeMode: field is immutable"
    assert refused(lab.kube.update, made, changed) == text


def test_a_secret_is_still_one_in_the_outputs_and_after_a_refresh(lab: Lab):
    made = lab.create(SECRET, "a", "default", stringData=wire.secret({"token": "x"}))
    assert made.outputs["stringData"] == wire.secret({"token": "x"})
    assert wire.from_struct(lab.kube.read(made).inputs)["stringData"] == wire.secret({"token": "x"})


def test_a_release_is_one_resource_and_keeps_its_values(lab: Lab):
    repository = {"repo": "https://charts.example.org"}
    inputs = {"chart": "efa", "version": "1.0.0", "repositoryOpts": repository, "namespace": "kube-system"}
    made = lab.kube.create(RELEASE, {**inputs, "name": "efa", "values": {"a": {"b": 1}}})
    assert made.id == "kube-system/efa"
    assert made.outputs["status"]["status"] == "deployed"
    changed = {**inputs, "name": "efa", "values": {"a": {"b": 2}}}
    assert list(lab.kube.diff(made, changed).detailedDiff) == ["values.a.b"]
    assert lab.kube.update(made, changed, preview=True)["status"] == wire.UNKNOWN
    assert lab.kube.update(made, changed)["status"]["revision"] == 2
    assert lab.kube.diff(made, {**changed, "namespace": "default"}).replaces == ["namespace"]


def test_a_service_has_an_address_and_keeps_its_name(lab: Lab):
    made = lab.create(SERVICE, "a", "default", spec={"ports": [{"port": 80}]})
    assert made.outputs["spec"]["clusterIP"].startswith("172.20.")
    assert made.outputs["spec"]["ports"] == [{"port": 80}]


# What would hang


def test_an_object_in_a_namespace_that_is_not_there_is_refused(lab: Lab):
    assert 'namespaces "models" not found' in refused(lab.create, CONFIG_MAP, "a", "models")
    release = {"chart": "oci://a/b", "name": "a", "namespace": "models"}
    assert 'namespaces "models" not found' in refused(lab.kube.create, RELEASE, release)
    lab.kube.create(RELEASE, {**release, "createNamespace": True})
    lab.create(CONFIG_MAP, "a", "models")


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ({"serviceAccountName": "server"}, "serviceaccount server not found in namespace default"),
        (
            {"volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}]},
            "persistentvolumeclaim models not found in namespace default",
        ),
        ({"volumes": [{"name": "m", "configMap": {"name": "code"}}]}, "configmap code not found in namespace default"),
        ({"volumes": [{"name": "m", "secret": {"secretName": "t"}}]}, "secret t not found in namespace default"),
    ],
)
@pytest.mark.parametrize("token", [DEPLOYMENT, JOB])
def test_a_pod_that_would_stay_pending_is_refused(lab: Lab, token: str, spec: dict[str, Any], missing: str):
    inputs = deployment(**spec)
    if token == JOB:
        inputs = {"spec": {"template": {"spec": pod(restartPolicy="Never", **spec)}}}
    assert f"stand-in for kubernetes: pod would stay Pending: {missing}" == refused(lab.create, token, "a", **inputs)
    skipped = {"name": "a", "annotations": {"pulumi.com/skipAwait": "true"}}
    lab.kube.create(token, {"metadata": skipped, **inputs})


def test_a_job_whose_failure_the_provider_would_not_see_is_refused(lab: Lab):
    rules = {"FailJob": {"onExitCodes": {"operator": "In", "values": [4]}}, "Ignore": {"onPodConditions": []}}
    for action, rule in rules.items():
        policy = {"rules": [{"action": action, **rule}]}
        inputs: dict[str, Any] = {
            "spec": {"podFailurePolicy": policy, "template": {"spec": pod(restartPolicy="Never")}}
        }
        if action == "Ignore":
            lab.create(JOB, "b", **inputs)
        else:
            assert "a FailJob rule would be waited for" in refused(lab.create, JOB, "a", **inputs)
            lab.kube.create(JOB, {"metadata": {"name": "a", "annotations": {"pulumi.com/skipAwait": "true"}}, **inputs})


def test_a_pod_with_all_that_it_names_and_a_node_is_taken(lab: Lab):
    lab.create(ACCOUNT, "server", "default")
    inputs = deployment(serviceAccountName="server")
    made = lab.create(DEPLOYMENT, "a", **inputs)
    assert made.outputs["status"]["availableReplicas"] == 1
    lab.aws.delete(lab.nodes)
    assert "0/0 nodes are available" in refused(lab.create, DEPLOYMENT, "b", **inputs)


def test_a_claim_waits_for_its_volume_and_the_volume_for_its_claim(lab: Lab):
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": "models"}
    text = refused(lab.create, CLAIM, "models", "default", spec=spec)
    assert "the claim would stay Pending: persistentvolume models not found" in text
    volume = {"csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-1"}}
    reserved = {**volume, "claimRef": {"namespace": "default", "name": "models"}}
    pv = lab.create(VOLUME, "models", spec=reserved)
    assert "is kept for" in refused(lab.create, CLAIM, "other", "default", spec=spec)
    claim = lab.create(CLAIM, "models", "default", spec=spec)
    assert "would stay Terminating" in refused(lab.kube.delete, pv)
    volumes = [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}]
    server = lab.create(DEPLOYMENT, "a", "default", **deployment(volumes=volumes))
    assert "would stay Terminating: pods of Deployment default/a use it" in refused(lab.kube.delete, claim)
    for one in (server, claim, pv):
        lab.kube.delete(one)


def test_a_namespace_takes_its_objects_along(lab: Lab, tmp_path: Path):
    namespace = lab.create(NAMESPACE, "models")
    lab.create(CONFIG_MAP, "a", "models")
    lab.kube.delete(namespace)
    assert protocol.Cloud(tmp_path).look("kubernetes") == {}


@pytest.mark.parametrize(
    ("old", "new", "replaced"),
    [
        ({"kubeconfig": "one"}, {"kubeconfig": "one", "namespace": "a"}, []),
        ({"kubeconfig": "one"}, {"kubeconfig": "other"}, ["kubeconfig"]),
        ({"kubeconfig": "one"}, {"kubeconfig": None}, []),
        ({"kubeconfig": "one", "clusterIdentifier": "a"}, {"kubeconfig": "other", "clusterIdentifier": "a"}, []),
        (
            {"kubeconfig": "one", "clusterIdentifier": "a"},
            {"kubeconfig": "one", "clusterIdentifier": "b"},
            ["clusterIdentifier"],
        ),
    ],
)
def test_only_another_cluster_replaces_the_provider(
    lab: Lab, old: dict[str, Any], new: dict[str, Any], replaced: list[str]
):
    texts = {"one": kubeconfig(lab.cluster), "other": kubeconfig(lab.cluster).replace("https://", "https://x")}
    sides = [wire.to_struct({**side, "kubeconfig": texts.get(side["kubeconfig"], wire.UNKNOWN)}) for side in (old, new)]
    found = lab.kube.stub.DiffConfig(pb.DiffRequest(old_inputs=sides[0], news=sides[1]))
    assert (found.changes, list(found.replaces)) == (pb.DiffResponse.DIFF_SOME, replaced)
