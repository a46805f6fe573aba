"""The stand-in for Kubernetes: objects and Helm releases, one set for each cluster of the AWS stand-in.

The provider's kubeconfig decides which cluster it is, and whether it answers: the cluster must exist, and the
identity in the kubeconfig must be its creator's or have an access entry. Nothing runs in it. Where a real one would
leave a pod or a claim hanging until the provider's await gives up, the object is refused at once and says why.
"""

import datetime as dt
import ipaddress
import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import yaml

from lab.kinds import CLUSTER_SCOPED
from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_rules import has_nodes
from lab.rehearsal.providers.aws_types import CLUSTER
from lab.rehearsal.providers.kubernetes_rules import IMMUTABLE, REPLACES, object_problems, release_problems
from lab.rehearsal.providers.protocol import RefusedError, Resource, ResourceStandIn, World, new_hex
from lab.rehearsal.providers.sdk_types import Problem

RELEASE = "kubernetes:helm.sh/v3:Release"
NAMESPACE = "kubernetes:core/v1:Namespace"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
SECRET = "kubernetes:core/v1:Secret"  # noqa: S105 - a kind of object
ACCOUNT = "kubernetes:core/v1:ServiceAccount"

_BORN_WITH_CLUSTER = {"default", "kube-system", "kube-public", "kube-node-lease"}


class Kubernetes(ResourceStandIn):
    """Stand-in for the kubernetes provider."""

    package = "kubernetes"
    endpoint = ""
    role = ""
    namespace = "default"

    # Configuration.

    def configure(self) -> None:
        """Takes the cluster's address, the role and the namespace from the kubeconfig."""
        self.endpoint, self.role, namespace = _read_kubeconfig(self.config)
        self.namespace = self.config.get("namespace") or namespace or "default"

    def moves(self, old: dict[str, Any], new: dict[str, Any]) -> str:
        """Another cluster: by the program's own identifier, else by the server's address in the kubeconfig."""
        if old.get("clusterIdentifier") and new.get("clusterIdentifier"):
            known = wire.UNKNOWN not in (old["clusterIdentifier"], new["clusterIdentifier"])
            return "clusterIdentifier" if known and old["clusterIdentifier"] != new["clusterIdentifier"] else ""
        servers = [_read_kubeconfig(side)[0] for side in (old, new) if side.get("kubeconfig") != wire.UNKNOWN]
        return "kubeconfig" if len({*servers}) > 1 else ""

    def reach(self) -> None:
        """Refuses where the kubeconfig leads to no cluster, or is not let in there."""
        self._cluster()

    def _cluster(self) -> dict[str, Any]:
        aws = self.cloud.look("aws")
        for key, entry in aws.items():
            if key.startswith(f"{CLUSTER}|") and entry["state"]["endpoint"] == self.endpoint:
                cluster, creator = wire.plain(entry["state"]), entry["creator"]
                let_in = f"aws:eks/accessEntry:AccessEntry|{cluster['name']}:"
                entries = [one["state"]["principalArn"] for name, one in aws.items() if name.startswith(let_in)]
                # A kubeconfig without a role is the caller itself: the creator only where no role was assumed.
                me = self.role or ("the caller without a role" if ":role/" in creator else creator)
                if me not in (creator, *entries):
                    text = f"{me} is neither the creator of the cluster ({creator}) nor has it an access entry"
                    raise RefusedError(f"the server has asked for the client to provide credentials: {text}")
                return cluster
        raise RefusedError(
            f"configured Kubernetes cluster is unreachable: no cluster answers at {self.endpoint or '(no kubeconfig)'}"
        )

    def key(self, res: Resource, rid: str) -> str:
        """One set of objects a cluster."""
        return f"{self.endpoint}|{res.type}|{rid}"

    # Names and checks.

    def named(self, res: Resource, inputs: dict[str, Any], olds: dict[str, Any], suffix: str) -> dict[str, Any]:
        """A name where the program gives none, kept from the old object if that one had it made up, too."""
        if res.type == RELEASE:
            if inputs.get("name"):
                return inputs
            old = olds.get("name") if "name" in olds.get("__defaults", ()) else None
            return {**inputs, "name": old or suffix, "__defaults": ["name"]}
        metadata = inputs.get("metadata") or {}
        if wire.SIG in metadata or metadata.get("name") or metadata.get("generateName"):
            return inputs
        before = wire.plain(olds.get("metadata") or {})
        marked = wire.at(before, "annotations") or {}
        name = before.get("name") if marked.get("pulumi.com/autonamed") == "true" else None
        notes = {**(metadata.get("annotations") or {}), "pulumi.com/autonamed": "true"}
        return {**inputs, "metadata": {**metadata, "name": name or suffix, "annotations": notes}}

    def refusals(self, res: Resource, inputs: dict[str, Any], *, is_new: bool = True) -> Iterator[Problem]:
        """Names and labels that the API server refuses."""
        del is_new
        return release_problems(inputs) if res.type == RELEASE else object_problems(_kind(res), inputs)

    # What changes how.

    def replaces(self, res: Resource, path: wire.Path, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """By the kind's table; ConfigMaps and Secrets as the provider is configured."""
        kind = _kind(res)
        mutable = {"ConfigMap": "enableConfigMapMutable", "Secret": "enableSecretMutable"}.get(kind)
        if mutable and self.config.get(mutable) and not new.get("immutable") and not old.get("immutable"):
            table = "type"
        else:
            table = REPLACES.get(kind, "")
        table += " kind metadata.name metadata.namespace" if kind != "Release" else ""
        # Of a `spec` that is unknown as a whole it says nothing: the real provider's answer then rests on how an
        # unknown looks as JSON, and a program must not.
        return any(wire.under(path, prop) for prop in table.split())

    def name_is_fixed(self, res: Resource, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Whether the program itself names it, and the same as before, in the same namespace."""
        if res.type == RELEASE:
            return "name" not in new.get("__defaults", ()) and old.get("name") == new.get("name")
        before, after = old.get("metadata") or {}, new.get("metadata") or {}
        auto = wire.at(after, "annotations") or {}
        same = all(before.get(part) == after.get(part) for part in ("name", "namespace"))
        return same and bool(after.get("name")) and auto.get("pulumi.com/autonamed") != "true"

    # Life.

    def create(self, world: World, res: Resource, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Puts an object in, or installs a release."""
        cluster = self._cluster()
        metadata = inputs if res.type == RELEASE else inputs.get("metadata") or {}
        kind = _kind(res)
        # A custom resource is namespaced if it says so.
        scoped = kind in CLUSTER_SCOPED or (_is_custom(res) and not metadata.get("namespace"))
        namespace = None if scoped else metadata.get("namespace") or self.namespace
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{new_hex(5)}"
        rid = name if scoped else f"{namespace}/{name}"
        if namespace and not self._has_namespace(world, namespace):
            if not inputs.get("createNamespace"):
                raise RefusedError(f'namespaces "{namespace}" not found')
            made = {"urn": "made by helm", "inputs": {}, "state": {"metadata": {"name": namespace}}}
            world[f"{self.endpoint}|{NAMESPACE}|{namespace}"] = made
        if self.key(res, rid) in world and not kind.endswith("Patch"):
            raise RefusedError(f'{kind} "{name}" already exists')
        if res.type == RELEASE:
            return rid, self._release(inputs, str(namespace), name, 1)
        self._await(world, res, inputs, namespace, cluster)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        outputs: dict[str, Any] = {
            "metadata": {
                "name": name,
                **({"namespace": namespace} if namespace else {}),
                "uid": str(uuid.uuid4()),
                "creationTimestamp": now,
                "resourceVersion": "1",
                "generation": 1,
            }
        }
        return rid, outputs | _status(kind, inputs, name, cluster)

    def update(
        self, world: World, res: Resource, old: dict[str, Any], new: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """The next revision, or resource version."""
        if res.type == RELEASE:
            revision = (wire.at(state, "status.revision") or 0) + 1
            state |= self._release(new, new.get("namespace", self.namespace), new["name"], revision)
            return
        fixed = IMMUTABLE.get(_kind(res), "").split()
        for path, _ in wire.changes(old, new):
            if any(wire.under(path, prop) for prop in fixed):
                raise RefusedError(
                    f"{_kind(res)} {new['metadata']['name']!r} is invalid: {wire.path_text(path)}: field is immutable"
                )
        namespace = wire.at(state, "metadata.namespace")
        self._await(world, res, new, namespace, self._cluster())
        metadata = state["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        if old.get("spec") != new.get("spec"):
            metadata["generation"] += 1

    def plan_update(self, res: Resource, old: dict[str, Any], new: dict[str, Any], state: dict[str, Any]) -> None:
        """What a change renews is not known before."""
        del old, new
        if res.type == RELEASE:
            state["status"] = wire.UNKNOWN
        elif isinstance(state.get("metadata"), dict):
            state["metadata"]["resourceVersion"] = wire.UNKNOWN
            state["metadata"]["generation"] = wire.UNKNOWN

    def delete(self, world: World, res: Resource, rid: str, state: dict[str, Any]) -> bool:
        """Refuses where a finalizer would wait; a namespace takes its objects along."""
        namespace, _, name = rid.rpartition("/")
        if res.type == CLAIM:
            for kind, pod in _pods(self._objects(world), namespace):
                running = not kind.startswith("Job ")  # a Job that has ended holds nothing
                if running and name in _volumes(pod, "persistentVolumeClaim", "claimName"):
                    raise RefusedError(f"the claim {rid} would stay Terminating: pods of {kind} use it")
        if res.type == VOLUME:
            for claim, entry in self._objects(world):
                if claim.startswith(CLAIM) and wire.at(entry["state"], "spec.volumeName") == rid:
                    raise RefusedError(f"the volume {rid} would stay Terminating: {claim.split('|')[1]} is bound to it")
        if res.type == NAMESPACE:
            for key in [*world]:
                where = key.split("|")
                if where[0] == self.endpoint and where[2].startswith(f"{rid}/"):
                    del world[key]
        del state
        return True

    # Inside.

    def _objects(self, world: World) -> Iterator[tuple[str, dict[str, Any]]]:
        """`TYPE|ID` and entry of all that is in this cluster."""
        for key, entry in world.items():
            if key.startswith(f"{self.endpoint}|"):
                yield key.split("|", 1)[1], entry

    def _has_namespace(self, world: World, namespace: str) -> bool:
        return namespace in _BORN_WITH_CLUSTER or f"{self.endpoint}|{NAMESPACE}|{namespace}" in world

    def _release(self, inputs: dict[str, Any], namespace: str, name: str, revision: int) -> dict[str, Any]:
        status = {"name": name, "namespace": namespace, "revision": revision, "status": "deployed"}
        return {
            "name": name,
            "namespace": namespace,
            "resourceNames": {},  # the chart is not rendered
            "status": {**status, **{key: inputs[key] for key in ("chart", "version") if key in inputs}},
        }

    def _await(
        self, world: World, res: Resource, inputs: dict[str, Any], namespace: str | None, cluster: dict[str, Any]
    ) -> None:
        """What the real provider would wait for in vain."""
        annotations = wire.at(inputs, "metadata.annotations") or {}
        if str(annotations.get("pulumi.com/skipAwait", "")).lower() == "true":
            return
        if res.type == CLAIM and (volume := wire.at(inputs, "spec.volumeName")):
            found = world.get(f"{self.endpoint}|{VOLUME}|{volume}")
            if not found:
                raise RefusedError(f"the claim would stay Pending: persistentvolume {volume} not found")
            wanted = wire.at(found["state"], "spec.claimRef")
            if wanted and (wanted.get("namespace"), wanted.get("name")) != (namespace, inputs["metadata"]["name"]):
                raise RefusedError(f"the claim would stay Pending: persistentvolume {volume} is kept for {wanted}")
        rules = wire.at(inputs, "spec.podFailurePolicy.rules") if _kind(res) == "Job" else None
        if any(rule.get("action") == "FailJob" for rule in rules or []):
            # What it knows: BackoffLimitExceeded, DeadlineExceeded (pulumi/cloud-ready-checks, pkg/kubernetes/job).
            raise RefusedError("a Job that fails by a FailJob rule would be waited for: the provider does not see it")
        for _, pod in _pods([(f"{res.type}|{namespace}/", {"state": inputs})], namespace or ""):
            for what in self._missing(world, pod, namespace):
                raise RefusedError(f"pod would stay Pending: {what}")
            if _kind(res) != "DaemonSet" and not has_nodes(self.cloud.look("aws"), cluster["name"]):
                raise RefusedError("pod would stay Pending: 0/0 nodes are available")

    def _missing(self, world: World, pod: dict[str, Any], namespace: str | None) -> Iterator[str]:
        named = [(CLAIM, name) for name in _volumes(pod, "persistentVolumeClaim", "claimName")]
        named += [(CONFIG_MAP, name) for name in _volumes(pod, "configMap", "name")]
        named += [(SECRET, name) for name in _volumes(pod, "secret", "secretName")]
        account = pod.get("serviceAccountName", "default")
        named += [(ACCOUNT, account)] if account != "default" else []
        for token, name in named:
            if f"{self.endpoint}|{token}|{namespace}/{name}" not in world:
                yield f"{token.rsplit(':', 1)[1].lower()} {name} not found in namespace {namespace}"


def _read_kubeconfig(config: dict[str, Any]) -> tuple[str, str, str]:
    """Server, role and namespace of the current context of a kubeconfig's text.

    All empty where it cannot be read: the real provider complains only when it is asked for something, too.
    """
    text = str(config.get("kubeconfig") or "")
    content = yaml.safe_load(text) if text else None
    if not isinstance(content, dict):
        return "", "", ""
    named = {
        part: {one["name"]: one[part[:-1]] for one in content.get(part) or []}
        for part in ("contexts", "clusters", "users")
    }
    context = named["contexts"].get(config.get("context") or content.get("current-context"), {})
    server = named["clusters"].get(context.get("cluster"), {}).get("server", "")
    words = wire.at(named["users"].get(context.get("user")), "exec.args") or []
    role = next((after for word, after in itertools.pairwise(words) if word == "--role"), "")
    return server, role, context.get("namespace", "")


def _kind(res: Resource) -> str:
    return res.type.rsplit(":", 1)[1]


def _is_custom(res: Resource) -> bool:
    """Whether its group is none of Kubernetes' own."""
    group = res.type.split(":")[1].split("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def _status(kind: str, inputs: dict[str, Any], name: str, cluster: dict[str, Any]) -> dict[str, Any]:
    """The parts of a status that programs read, as they are when all went well."""
    spec = inputs.get("spec") or {}
    if kind == "Service":
        balancer = {"ingress": [{"hostname": f"{name}-{new_hex(8)}.elb.{cluster['arn'].split(':')[3]}.amazonaws.com"}]}
        given = spec.get("type") == "LoadBalancer"
        range_ = ipaddress.ip_network(wire.at(cluster, "kubernetesNetworkConfig.serviceIpv4Cidr"))
        address = {"clusterIP": str(range_[10 + int(new_hex(2), 16) % (range_.num_addresses - 12)])}
        return {"spec": address, "status": {"loadBalancer": balancer if given else {}}}
    if kind in ("Deployment", "StatefulSet"):
        count = spec.get("replicas", 1)
        counts = {"replicas": count, "readyReplicas": count, "updatedReplicas": count, "observedGeneration": 1}
        return {"status": {**counts, "availableReplicas": count}}
    if kind == "Job":
        return {"status": {"succeeded": spec.get("completions", 1)}}
    if kind in ("PersistentVolumeClaim", "PersistentVolume"):
        return {"status": {"phase": "Bound" if kind == "PersistentVolumeClaim" else "Available"}}
    return {"status": {"phase": "Active"}} if kind == "Namespace" else {}


def _pods(objects: Any, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pod specs in a namespace: of pods, and of what makes pods."""
    for key, entry in objects:
        token, rid = key.split("|")
        if rid.rpartition("/")[0] != namespace:
            continue
        state = wire.plain(entry["state"])
        kind = token.rsplit(":", 1)[1]
        spec = wire.at(state, "spec.template.spec") if kind != "Pod" else state.get("spec")
        if kind in ("Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job") and isinstance(spec, dict):
            yield f"{kind} {rid}", spec


def _volumes(pod: dict[str, Any], source: str, prop: str) -> list[str]:
    """The objects that a pod's volumes must have."""
    return [
        volume[source][prop]
        for volume in pod.get("volumes") or []
        if isinstance(volume.get(source), dict) and prop in volume[source] and not volume[source].get("optional")
    ]
