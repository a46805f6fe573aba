"""The same through a real control plane: the engine's own `up` ends when the real vLLM answers, `destroy` ends it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.e2e import translations
from lab.e2e.answers import PROMPTS, Answer, ask
from lab.e2e.sources import ModelSource
from lab.e2e.stack import Images
from lab.kube.cluster_state import WrongError
from lab.kube.processes import Chosen, Processes
from lab.kube.scenario import Scenario, require
from lab.rehearsal.report import summary

_OURS = ("faststart-publish-", "faststart-storage-init")


@dataclass
class EndToEnd(Scenario):
    """A stack on a real control plane, whose pods of publishing and serving are processes.

    Attributes:
        images: what plays their images.
        source: where the model's source is asked; it holds the model already.
        expected: what the server must answer; nothing is compared where it is empty.
    """

    images: Images = field(kw_only=True)
    source: ModelSource = field(kw_only=True)
    expected: list[Answer] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        """Puts the parts together."""
        super().__post_init__()
        self.processes = Processes(
            self.out_dir / "pods",
            self.images,
            self._object,
            self._address,
            lambda _, container: translations.translate(container, self.source.where),
        )
        self.runtime = Chosen(self.simulation, self.processes, self._runs)

    def run(self) -> None:
        """Takes all steps.

        Raises:
            WrongError: something is not as it should be.
        """
        try:
            with self.standing():
                self.serve()
                self.take_down()
        finally:
            self.processes.end()

    @property
    def server(self) -> str:
        """The one that is asked."""
        return next(iter(self.servers))

    def serve(self) -> None:
        """From nothing to an answer."""
        with self.step(
            "up ends by Pulumi's own awaits, with the model published, copied and served by the real vLLM"
        ) as done:
            done.note = summary(self.up().changes)
        self.settle("every pod is ready, or done, where it belongs")
        with self.step("through the Service's endpoints comes the answer that the published folder gives") as done:
            (address, port) = self._endpoint()
            model = self.servers[self.server]["model"]
            answers = [ask(self.processes, address, port, model, prompt) for prompt in PROMPTS]
            if self.expected and answers != self.expected:
                raise WrongError(f"the answers are {answers}, expected {self.expected}")
            done.note = f"{answers[0].text!r} from {address}:{port}"
            if not self.expected:
                done.note += "; not compared with anything"
        with self.step("nothing that ran differs from what was rendered, but for the table of translations") as done:
            found = translations.unexplained(self.processes, self.images)
            if found:
                raise WrongError("\n".join(found))
            done.note = ", ".join(sorted({one.container["name"] for one in self.processes.started}))
        with self.step("a second preview finds nothing to do"):
            require(self.rehearsal.preview(expect_no_changes=True), "the second preview")

    def take_down(self) -> None:
        """To nothing again."""
        with self.step("destroy ends the processes") as done:
            require(self.rehearsal.unprotect(), "the up that gives up the protection")
            require(self.rehearsal.destroy(), "the destroy")
            give_up = time.monotonic() + 20
            while any(one.exit() is None for one in self.processes.started):
                if time.monotonic() > give_up:
                    running = [one.container["name"] for one in self.processes.started if one.exit() is None]
                    raise WrongError(f"still running: {', '.join(running)}")
                time.sleep(0.1)
            ends = {one.container["name"]: one.exit() for one in self.processes.started}
            done.note = ", ".join(f"{name} {end.code if end else '?'}" for name, end in ends.items())
            if ends["vllm"] is None or ends["vllm"].code:
                raise WrongError(f"vLLM ended with {ends['vllm']}")

    def _endpoint(self) -> tuple[str, int]:
        """Address and port of the one endpoint of the server's Service that is ready."""
        name = f"faststart-{self.server}"
        slices = [
            one
            for one in self.api.all("discovery.k8s.io/v1/EndpointSlice", "models")
            if (one["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name
        ]
        found = [
            (address, int(port["port"]))
            for one in slices
            for endpoint in one.get("endpoints") or []
            if (endpoint.get("conditions") or {}).get("ready")
            for address in endpoint["addresses"]
            for port in one.get("ports") or []
        ]
        if len(found) != 1:
            raise WrongError(f"the Service has the endpoints {found}: {json.dumps(slices)[:500]}")
        return found[0]

    def _object(self, kind: str, name: str, namespace: str | None) -> dict[str, Any] | None:
        return self.api.get(kind, name, namespace)

    def _address(self, pod: dict[str, Any]) -> str:
        return self.kubelets.address(pod)

    def _runs(self, pod: dict[str, Any]) -> bool:
        name = pod["metadata"]["name"]
        if name.startswith("faststart-storage-init") and os.geteuid():
            return False  # only root can give folders away; publish makes those that are missing
        return name.startswith((*_OURS, *(f"faststart-{one}-" for one in self.servers)))


def expected_answers(path: Path) -> list[Answer]:
    """What an earlier run of the cases has kept; nothing where there was none."""
    if not path.exists():
        return []
    return [
        Answer(one["text"], tuple(one["tokens"]), one["reason"]) for one in json.loads(path.read_text(encoding="utf-8"))
    ]
