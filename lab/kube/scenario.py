"""One stack on a real Kubernetes, from nothing to nothing: what is done, and what must hold after it."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab import ROOT
from lab.kube import cluster_state as state
from lab.kube import provider_schema
from lab.kube.api import Api
from lab.kube.cluster_state import WrongError
from lab.kube.containers import Exit, Rule, Runtime, Simulation
from lab.kube.control_plane import ControlPlane
from lab.kube.kubelet import Kubelets
from lab.kube.steps import Done, Say, Steps
from lab.kube.tools import KubeTools
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.report import summary
from lab.rehearsal.runner import Rehearsal, Run, once

CHARTS = Path(__file__).parent / "charts"

TOLERATION_SECONDS, MONITOR_SECONDS = 4, 8
"""How long pods stay on a lost node, and how long it may be silent: short, or each loss would take minutes."""

UP, FAILURE = "up.txt", "at-the-failure.txt"
"""What the engine said in each `up`; what stood in the cluster when a step failed."""

OVERDUE_SECONDS = 12
"""After so long, at the pace of the nodes here, a pod that was told to end hangs."""

NO_MODEL = json.dumps({"code": 6, "message": "there is no such repository", "file": "hf://org/name"})
DAMAGED = json.dumps({"code": 4, "message": "block 7 does not have the hash that the manifest says", "file": "model-3"})


@dataclass
class Scenario(Steps):
    """A stack, and the cluster that it is put on.

    Attributes:
        stack_file: the stack.
        out_dir: where everything is written.
        cli: the engine.
        tools: the control plane's.
        say: takes a line for people.
        show: gets each line of the engine.
        charts: a folder of charts; ours where it is None.
        pace: the length of the kubelets' second, in seconds.
        short: deploys, looks and destroys, and disturbs nothing in between.
        done: the steps so far.
    """

    stack_file: Path
    out_dir: Path
    cli: PulumiCli
    tools: KubeTools
    say: Say
    show: Say = field(default=lambda _: None)
    charts: Path | None = None
    pace: float = 0.1
    short: bool = False
    done: list[Done] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Puts the parts together."""
        self.out_dir = self.out_dir.absolute()
        self.rehearsal = Rehearsal(
            self.stack_file, ROOT, self.out_dir, self.cli, self.show, real={"kubernetes": self.tools.provider}
        )
        self.plane = ControlPlane(self.out_dir / "control-plane", self.tools, TOLERATION_SECONDS, MONITOR_SECONDS)
        self.simulation = Simulation()
        self.runtime: Runtime = self.simulation

    # ---- the whole

    def run(self) -> None:
        """Takes all steps.

        Raises:
            WrongError: something is not as it should be.
        """
        with self.standing():
            self.deploy()
            self.hold()
            if self.short:
                self.destroy_undisturbed()
            else:
                self.meddle()
                self.refuse()
                self.change()
                self.lose()
                self.destroy()

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """The control plane, the nodes' kubelets, and the program's copy, while the block runs."""
        self.out_dir.mkdir(parents=True, exist_ok=True)
        for name in (UP, FAILURE):  # of an earlier run
            (self.out_dir / name).unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            with self.step("the control plane starts"):
                stack.enter_context(self.plane.running())
            self.api = Api(self.plane.kubeconfig)
            stack.enter_context(self.rehearsal.alone())
            with self.step("the program is copied, and its stack made"):
                self.rehearsal.prepare(fresh=True)
                self._point_at_the_control_plane()
            self.kubelets = Kubelets(self.plane.kubeconfig, self.rehearsal.place.cloud, self.runtime, self.pace)
            stack.enter_context(self.kubelets.running())
            self.before = state.everything(self.plane)
            try:
                yield
                _none(self.kubelets.errors)
            except BaseException:
                self._keep_for_a_look()
                raise

    # ---- steps

    def deploy(self) -> None:
        """An `up` of all."""
        with self.step("up ends by Pulumi's own awaits") as done:
            done.note = summary(self.up().changes)
        self.settle("every pod is ready, or done, where it belongs, and none elsewhere")

    def hold(self) -> None:
        """What must hold of a cluster that stands."""
        with self.step("a second preview finds nothing to do"):
            require(self.rehearsal.preview(expect_no_changes=True), "the second preview")
        with self.step("a refresh finds nothing changed"):
            require(self.rehearsal.refresh(expect_no_changes=True), "the refresh")
        with self.step("the provider that is built here knows every input that the program uses"):
            schema = json.loads(self.tools.schema.read_text(encoding="utf-8"))
            exported = json.loads(self.rehearsal.export())["deployment"]["resources"]
            _none(provider_schema.unknown(schema, exported))
        with self.step("volumes and claims are bound to each other"):
            _none(state.unbound(self.api))
        with self.step("no other claim takes a volume of ours"):
            self._claim_of_a_stranger()
        with self.step("the service accounts may do nothing in the API") as done:
            accounts = [
                (one["metadata"]["namespace"], one["metadata"]["name"])
                for one in self.api.all("ServiceAccount")
                if one["metadata"]["namespace"] in state.OURS
            ]
            for namespace, account in accounts:
                _none([f"{account} may {right}" for right in state.rights(self.plane, self.api, namespace, account)])
            done.note = ", ".join(sorted({account for _, account in accounts}))

        with self.step("what runs on every node outranks the servers") as done:
            pods = self.api.all("Pod")
            daemons = [int(pod["spec"].get("priority") or 0) for pod in pods if state.owner(pod) == "DaemonSet"]
            servers = [int(pod["spec"].get("priority") or 0) for name in self.servers for pod in self.pods(name)]
            done.note = f"{min(daemons)} over {max(servers)}"
            if min(daemons) <= max(servers):
                raise WrongError(done.note)

    def meddle(self) -> None:
        """What people and teams do to a cluster."""
        server = next(iter(self.servers))
        with self.step("what was changed by hand is put right by refresh and up"):
            name = f"faststart-{server}"
            ports = json.dumps({"spec": {"ports": [{"name": "http", "port": 8000, "targetPort": 9}]}})
            self.plane.kubectl("-n", "models", "patch", "service", name, "-p", ports)
            self.plane.kubectl("-n", "models", "scale", "deployment", name, "--replicas=0")
            self.plane.kubectl("-n", "models", "delete", "configmap", "faststart-preload")
            require(self.rehearsal.refresh(), "the refresh")
            self.up()
            found = self.api.get("Service", name, "models") or {}
            port = found["spec"]["ports"][0]["targetPort"]
            if port != "http":
                raise WrongError(f"the Service's target port is {port}, expected http")
            require(self.rehearsal.preview(expect_no_changes=True), "the preview after it")
        self.settle("all is as before")

    def refuse(self) -> None:
        """What cannot run, and what must not."""
        server = next(iter(self.servers))
        name = f"faststart-{server}"
        with self.step("one pod more than there are GPUs stays Pending, and the scheduler says why") as done:
            replicas = int(self.servers[server].get("replicas", 1))
            self.plane.kubectl("-n", "models", "scale", "deployment", name, f"--replicas={replicas + 1}")
            found: list[str] = []

            def pending() -> str | None:
                found[:] = [state.why_pending(pod) for pod in self.pods(server) if not pod["spec"].get("nodeName")]
                return None if found and found[0] else "no pod is Pending"

            state.eventually(pending)
            done.note = found[0]
            if "Insufficient nvidia.com/gpu" not in found[0]:
                raise WrongError(f"the scheduler says: {found[0]}")
            self.plane.kubectl("-n", "models", "scale", "deployment", name, f"--replicas={replicas}")
        with self.step("the same in the stack file is refused by the preview") as done:
            key = f"faststart:modelServers.{server}.replicas"
            self.set(key, str(replicas + 1))
            run = self.rehearsal.preview()
            self.set(key, str(replicas))
            found = [line.strip() for line in run.text.splitlines() if "need at least" in line]
            if not run.code or not found:
                raise WrongError(f"the preview ended with {run.code}:\n{run.text[-2000:]}")
            done.note = found[0][:200]
        with self.step("a quota on GPUs keeps a pod away, and the events say so") as done:
            hard = {"spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}
            self.api.create("ResourceQuota", {"metadata": {"name": "stand-in"}, **hard}, "models")
            self.plane.kubectl("-n", "models", "scale", "deployment", name, f"--replicas={replicas + 1}")

            def refused() -> str | None:
                events = [one.get("message", "") for one in self.api.all("Event", "models")]
                done.note = next((text for text in events if "exceeded quota: stand-in" in text), "")[-200:]
                return None if done.note else "no event says that the quota is exceeded"

            state.eventually(refused)
            self.plane.kubectl("-n", "models", "scale", "deployment", name, f"--replicas={replicas}")
            self.api.delete("ResourceQuota", "stand-in", "models")
        with self.step("a pod that is not restricted is refused where servers run") as done:
            pod = self._plain_pod()
            if why := state.refused(self.plane, pod):
                raise WrongError(f"a restricted pod is refused: {why}")
            container = pod["spec"]["containers"][0]
            container["securityContext"] = {"privileged": True}
            done.note = state.refused(self.plane, pod).splitlines()[-1][:200]
            if "violates PodSecurity" not in done.note:
                raise WrongError(f"a privileged pod: {done.note or 'it was taken'}")

    def change(self) -> None:
        """A new revision: one that fails, then one that comes."""
        server = next(iter(self.servers))
        model = self.servers[server]["model"]
        with self.step("an up ends at once where publishing fails for good, and shows its message"):
            self.simulation.rules.insert(0, Rule("faststart-publish", "publish", Exit(6, NO_MODEL)))
            self.set(f"faststart:models.{model}.revision", "next")
            run = self._up()
            if not run.code or "there is no such repository" not in run.text:
                raise WrongError(f"the up ended with {run.code} and says:\n{run.text[-3000:]}")
            self.plane.kubectl("-n", "faststart-system", "delete", "jobs", "--field-selector=status.successful=0")
            # Without it the engine would update a Job that is gone.
            require(self.rehearsal.refresh(), "the refresh")
        with self.step("an up waits for a server whose preload fails; its message stands in the pod's status") as done:
            rule = Rule(f"faststart-{server}", "preload", Exit(4, DAMAGED), times=float("inf"))
            self.simulation.rules.insert(0, rule)
            # Of a Deployment's pods Pulumi's provider tells that init containers are incomplete, never why.
            run = self._up(until=lambda line: "incomplete status: [preload]" in line)
            if not run.code:
                raise WrongError("the up ended well")
            state.eventually(lambda: None if self._last_words(server, "preload") else "no pod has failed in preload")
            done.note = self._last_words(server, "preload")
            self.simulation.rules.remove(rule)
        with self.step("the next up brings the new revision onto full nodes"):
            self.up()
            revisions = {pod["metadata"]["labels"]["faststart.dev/revision"] for pod in self.pods(server)}
            if revisions != {"next"}:
                raise WrongError(f"the server's pods have the revisions {revisions}")
        self.settle("every pod is ready with the new revision")

    def lose(self) -> None:
        """A node of a server is lost, and comes back."""
        server = next(iter(self.servers))
        with self.step("a server whose node is lost runs again once the node is back"):
            (pod, *_) = self.pods(server)
            node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
            self.kubelets.lost.add(node)
            state.eventually(
                lambda: (
                    None
                    if any(one["metadata"].get("deletionTimestamp") for one in self.pods(server))
                    else "the pod on the lost node is not evicted"
                )
            )
            self.kubelets.lost.discard(node)
            state.eventually(
                lambda: (
                    "the old pod still stands"
                    if any(one["metadata"]["uid"] == uid for one in self.pods(server))
                    else None
                )
            )
        self.settle("every pod is ready again")

    def destroy(self) -> None:
        """The end, with a pod that hangs at first."""
        with self.step("destroy is refused as long as the data is protected, and deletes nothing"):
            before = state.everything(self.plane)
            run = self.rehearsal.destroy()
            if run.code == 0:
                raise WrongError("it was not")
            _none(sorted(before - state.everything(self.plane)))
        with self.step("destroy waits for a pod that hangs in Terminating, and goes on once it is taken away") as done:
            require(self.rehearsal.unprotect(), "the up that gives up the protection")
            done.note = self._destroy_with_a_pod_that_hangs()
        self._nothing_is_left()

    def destroy_undisturbed(self) -> None:
        """The end where nothing stands in its way."""
        with self.step("destroy ends well once the protection of the data is given up") as done:
            require(self.rehearsal.unprotect(), "the up that gives up the protection")
            run = self.rehearsal.destroy()
            require(run, "the destroy")
            done.note = summary(run.changes)
        self._nothing_is_left()

    def _nothing_is_left(self) -> None:
        with self.step("it leaves no object, no finalizer, and an empty cloud"):
            _none(self.rehearsal.standing())
            # Pods whose node is gone are collected after some 40 s.
            state.eventually(lambda: "; ".join(state.leftovers(self.plane, self.before)) or None, 180)

    # ---- parts of steps

    def up(self) -> Run:
        """An `up` that must end well."""
        run = self._up()
        require(run, "the up")
        return run

    def _up(self, until: Callable[[str], bool] | None = None) -> Run:
        run = self.rehearsal.up(signals=once(lambda line: bool(self.kubelets.errors or (until and until(line)))))
        with (self.out_dir / UP).open("a", encoding="utf-8") as log:
            log.write(run.text)
        self.plane.check()
        _none(self.kubelets.errors)
        return run

    def settle(self, sentence: str) -> None:
        """Waits until all pods are ready or done, and looks where they are."""
        with self.step(sentence) as done:
            state.eventually(lambda: state.unsettled(self.api))
            _none(state.misplaced(self.api, {name: one["nodeGroup"] for name, one in self.servers.items()}))
            done.note = f"{len(self.api.all('Pod'))} pods on {len(self.api.all('Node'))} nodes"

    def _destroy_with_a_pod_that_hangs(self) -> str:
        server = next(iter(self.servers))
        self.simulation.hang(f"faststart-{server}")
        with futures.ThreadPoolExecutor(1) as pool:
            destroy = pool.submit(self.rehearsal.destroy)

            def hanging() -> str | None:
                if destroy.done():
                    raise WrongError(f"it did not wait: {destroy.result().text[-2000:]}")
                return None if any(_overdue(pod) for pod in self.pods(server)) else "no pod hangs in Terminating"

            try:
                state.eventually(hanging, 90)
            except (KeyboardInterrupt, SystemExit):
                self.rehearsal.interrupt()
                raise
            finally:
                for pod in self.pods(server):
                    meta = pod["metadata"]
                    self.api.delete("Pod", meta["name"], meta["namespace"], uid=meta["uid"])
            run = destroy.result(600)
        require(run, "the destroy")
        return summary(run.changes)

    @property
    def servers(self) -> dict[str, Any]:
        """The stack file's servers."""
        config = yaml.safe_load(self.rehearsal.copied_stack_file.read_text(encoding="utf-8"))["config"]
        return config.get("faststart:modelServers") or {}

    def pods(self, server: str) -> list[dict[str, Any]]:
        """The pods of a server."""
        found = self.api.all("Pod", "models")
        return [pod for pod in found if (pod["metadata"].get("labels") or {}).get("faststart.dev/server") == server]

    def _last_words(self, server: str, container: str) -> str:
        """The termination message of an init container."""
        for pod in self.pods(server):
            for status in (pod.get("status") or {}).get("initContainerStatuses") or []:
                ended = [status[key].get("terminated") or {} for key in ("state", "lastState") if status.get(key)]
                if status["name"] == container and any(one.get("exitCode") for one in ended):
                    return next(one["message"] for one in ended if one.get("exitCode"))
        return ""

    def set(self, key: str, value: str) -> None:
        """Changes the copied stack file."""
        self.rehearsal.command("config", "set", "--path", key, value)

    def _point_at_the_control_plane(self) -> None:
        place = self.rehearsal.place
        authority = base64.b64encode(self.plane.authority.read_bytes()).decode()
        (place.cloud / "api-server").write_text(f"{self.plane.url} {authority}", encoding="utf-8")
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "kind": "ExecCredential",
            "spec": {},
            "status": {"token": self.plane.token},
        }
        # Stands in for `aws eks get-token`, which the kubeconfig of an EKS cluster runs.
        aws = place.bin / "aws"
        aws.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(credential)}\nEND\n", encoding="utf-8")
        aws.chmod(0o700)
        self.set("faststart:mirrors.charts", str(self.charts or CHARTS))

    def _claim_of_a_stranger(self) -> None:
        volume = "faststart-models-rw-faststart-system"
        body = {
            "metadata": {"name": "stranger"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        self.api.create("PersistentVolumeClaim", body, "default")
        time.sleep(2)
        found = self.api.get("PersistentVolumeClaim", "stranger", "default") or {}
        self.api.delete("PersistentVolumeClaim", "stranger", "default")
        if found["status"]["phase"] != "Pending":
            raise WrongError(f"it is {found['status']['phase']}")
        _none(state.unbound(self.api))

    def _plain_pod(self) -> dict[str, Any]:
        """A pod that the namespace of the servers takes."""
        restricted = {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        container = {"name": "one", "image": "one", "securityContext": restricted}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "one", "namespace": "models"},
            "spec": {"containers": [container]},
        }

    def _keep_for_a_look(self) -> None:
        """Writes down what stands, for who looks for the cause."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            said = self.plane.kubectl("get", "pods,jobs,deployments,daemonsets,pv,pvc,nodes", "-A", "-o", "wide")
            events = self.plane.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")
            (self.out_dir / FAILURE).write_text("\n".join([*self.kubelets.errors, said, events]), encoding="utf-8")


def require(run: Run, what: str) -> None:
    """Holds that a command of the engine ended well.

    Raises:
        WrongError: it did not; with its last words.
    """
    if run.code:
        raise WrongError(f"{what} ended with {run.code}:\n{run.text[-4000:]}")


def _overdue(pod: dict[str, Any]) -> bool:
    """Whether a pod should have ended by now, by the kubelet's clock here."""
    ends = pod["metadata"].get("deletionTimestamp")
    if not ends:
        return False
    # The API server's moment is the end of the grace, at its own pace.
    grace = dt.timedelta(seconds=float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))
    asked = dt.datetime.fromisoformat(ends) - grace
    return dt.datetime.now(dt.UTC) - asked > dt.timedelta(seconds=OVERDUE_SECONDS)


def _none(wrong: Sequence[str]) -> None:
    if wrong:
        raise WrongError("; ".join(wrong))
