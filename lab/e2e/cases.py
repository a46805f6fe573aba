"""What must hold of a stack's pods from publishing to an answer: cases, in an order in which each needs the last."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.e2e import damages, timeline, tiny_model, translations
from lab.e2e.answers import PROMPTS, Answer, request
from lab.e2e.sources import ModelSource
from lab.e2e.stack import Server, Stack
from lab.kube.cluster_state import WrongError
from lab.kube.process import Process
from lab.kube.steps import Done, Say, Steps

GIB = 2**30
_CLOSED_SECONDS = 30
_KILLS = 20
_PAGE = 4096
_ANSWER_SECONDS = 35
"""Longer than preStop takes, shorter than preStop and --shutdown-timeout together."""


@dataclass
class Cases(Steps):
    """The cases of one stack.

    Attributes:
        stack: the stack.
        source: where its model comes from.
        out_dir: where the results are written.
        say: takes a line for people.
        short: takes one cold start with its drain and restart, and one refusal of each kind.
        done: those that held.
    """

    stack: Stack
    source: ModelSource
    out_dir: Path
    say: Say
    short: bool = False
    done: list[Done] = field(default_factory=list)

    def run(self) -> None:
        """Takes the cases.

        Raises:
            WrongError: one does not hold.
        """
        self.prepare()
        server = self.cold_start()
        self.drain(server)
        server = self.restart(server)
        if self.short:
            self.stack.node.remove(server.pod)
        else:
            self.kill_server(server)
            self.two_servers(server)
            self.other_revision()
            self.reboot()
            self.kill_copy()
        self.refuse()
        with self.step("nothing that ran differs from what was rendered, but for the table of translations") as case:
            found = translations.unexplained(self.stack.processes, self.stack.images)
            if found:
                raise WrongError("\n".join(found))
            case.note = f"{len(self.stack.processes.started)} containers"

    # ---- cases

    def prepare(self) -> None:
        """A model at its source; the program's objects; a file system with its folders."""
        with self.step("a small model with random weights stands where the stack file says") as case:
            self.models = {seed: self._model(seed) for seed in (0, 1)}
            self.source.put(self.models[0])
            total = sum(path.stat().st_size for path in self.models[0].iterdir())
            case.note = f"{total / 1e6:.0f} MB at {self.stack.config['models'][self.stack.model_name]['source']}"
        with self.step("pulumi up renders the stack on the stand-in clouds"):
            self.stack.render()
        with self.step("the file system has its folders") as case:
            case.note = self.stack.make_folders()

    def cold_start(self) -> Server:
        """Published, copied, served; what is answered is what the published folder answers."""
        with self.step("the Job publishes the model") as case:
            end, self.publisher = self.stack.publish()
            case.note = _told(end.message)
            _require(end.code == 0, f"it ended with {end.code}: {end.message}")
            _require((self.stack.published() / ".faststart/manifest.json").exists(), "there is no manifest")
        with self.step("vLLM answers from the published folder itself, for reference") as case:
            reference = self.stack.start_from_published().wait_ready()
            self.answers = reference.ask_all()
            self.stack.node.remove(reference.pod, seconds=0)
            case.note = repr(self.answers[0].text)
        with self.step("a cold start answers token for token as the published folder does") as case:
            server = self.stack.start().wait_ready()
            began = time.monotonic()
            server.ask(PROMPTS[0], max_tokens=1)
            found = timeline.spans(self.publisher, server, time.monotonic() - began)
            self._require_answers(server, self.answers)
            title = f"{self.stack.rehearsal.stack}: from pod launch to first token, {_size(server)}, vLLM on a CPU"
            self.picture = timeline.write(found, self.out_dir, title)
            self.table = timeline.table(found)
            case.note = f"ready {server.ready_at - server.began:.1f} s after its launch"
        return server

    def drain(self, server: Server) -> None:
        """A pod that is told to end finishes what it has begun."""
        with self.step("a request in flight is answered to its end while the pod drains") as case:
            with futures.ThreadPoolExecutor(1) as pool:
                begun = threading.Event()
                tokens = self._tokens_in(server, _ANSWER_SECONDS)
                answer = pool.submit(self._long_answer, server, tokens, begun)
                begun.wait()
                self._wait_running(server)
                self.stack.processes.kept.add(server.pod["metadata"]["uid"])
                asked = time.monotonic()
                self.stack.node.delete(server.pod)
                found = answer.result()
                in_flight = time.monotonic() - asked
            _require(found.reason == "length", f"it ended for {found.reason}")
            (vllm,) = server.vllm
            end = vllm.wait(_CLOSED_SECONDS)
            _require(end is not None and end.code == 0, f"vLLM ended with {end}")
            self.stack.node.remove(server.pod)
            case.note = (
                f"{len(found.tokens)} tokens, the last {in_flight:.1f} s after the pod was deleted; vLLM ended with 0"
            )

    def restart(self, server: Server) -> Server:
        """A pod that begins anew on its node, with its disk: in the same boot, and in another."""
        with self.step("after a restart of the pod nothing is copied again, and the answers are the same") as case:
            again = self.stack.again(server).wait_ready()
            told = json.loads((again.preload[-1].exit() or (0, "{}"))[1])
            _require(told["copied_bytes"] == 0, f"{told['copied_bytes']} bytes were copied")
            self._require_answers(again, self.answers)
            case.note = f"0 of {told['bytes'] / 1e6:.0f} MB copied, preload took {told['seconds']} s"
        return again

    def reboot(self) -> None:
        """A copy that was written through the page cache may not have been on disk when the node went down."""
        sentence = (
            "after a restart of the node a copy is believed if it was on disk, else checked; a lost page is copied"
        )
        with self.step(sentence) as case:
            server = self.stack.start()
            first = _ended_well(server.preload_run(0))
            marker = json.loads((server.destination() / ".faststart/complete.json").read_bytes())
            self.stack.processes.kept.add(server.pod["metadata"]["uid"])
            self.stack.node.remove(server.pod, seconds=0)
            shard = max(server.destination().glob("*.safetensors"), key=lambda path: path.stat().st_size)
            with shard.open("r+b") as file:
                file.seek(-_PAGE, os.SEEK_END)
                file.write(bytes(_PAGE))
            size = shard.stat().st_size
            self.stack.processes.boot_id = str(uuid.uuid4())
            again = self.stack.again(server)
            second = _ended_well(again.preload_run(1))
            self.stack.processes.boot_id = ""
            _require(second["copied_bytes"] == size, f"{second['copied_bytes']} bytes were copied, not {size}")
            _require(_same(self.stack.published(), server.destination()), "the copy differs")
            self.stack.node.remove(server.pod, seconds=0)
            case.note = f"written {first['write']}, {'on disk' if marker['synced'] else 'not yet on disk'}: "
            case.note += f"{second['copied_bytes'] / 1e6:.0f} of {second['bytes'] / 1e6:.0f} MB copied, "
            case.note += f"preload took {second['seconds']} s"

    def kill_server(self, server: Server) -> None:
        """A server that dies is started again by the kubelet."""
        with self.step("vLLM killed by SIGKILL is started again without a copy") as case:
            copies, before = len(server.preload), server.vllm[-1]
            server.failures += 1
            before.signal(signal.SIGKILL)
            _require(before.wait(10) is not None, "it does not end")
            while len(server.vllm) == 2 and time.monotonic() < (before.ended or 0) + 20:
                time.sleep(0.05)
            server.wait_ready()
            self._require_answers(server, self.answers)
            _require(len(server.preload) == copies, "preload ran again")
            case.note = f"ready again {server.ready_at - (before.ended or 0):.1f} s after"

    def two_servers(self, first: Server) -> None:
        """A second replica has its own copy."""
        with self.step("two servers of one model answer alike, each from its own copy") as case:
            second = self.stack.start().wait_ready()
            with futures.ThreadPoolExecutor(2) as pool:
                for answers in pool.map(Server.ask_all, (first, second)):
                    _require(answers == self.answers, f"the answers are {answers}, expected {self.answers}")
            places = {one.destination() for one in (first, second)}
            _require(len(places) == 2, f"the copies are in {places}")
            case.note = f"at {first.address} and {second.address}"
        with self.step("both end when they are told to, idle"):
            with futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(self.stack.node.remove, (first.pod, second.pod)))
            for one in (first, second):
                end = one.vllm[-1].exit()
                _require(end is not None and end.code == 0, f"vLLM ended with {end}")

    def other_revision(self) -> None:
        """Another revision in the stack file, and the first one again."""
        name, first = self.stack.model_name, self.stack.config["models"][self.stack.model_name]["revision"]
        with self.step("a new revision in the stack file is published beside the old one, and served") as case:
            self.source.put(self.models[1])
            self.stack.set(f"models.{name}.revision", "next")
            self.stack.render()
            end, _ = self.stack.publish()
            _require(end.code == 0, f"publishing ended with {end.code}: {end.message}")
            server = self.stack.start().wait_ready()
            answers = server.ask_all()
            _require(answers != self.answers, "the answers are those of the old revision")
            self.stack.node.remove(server.pod, seconds=0)
            case.note = f"{answers[0].text!r} instead of {self.answers[0].text!r}"
        since = "branch has moved" if self.source.kind == "hf" else "prefix holds another model"
        with self.step(f"the old revision is served again, though its {since}") as case:
            self.stack.set(f"models.{name}.revision", first)
            self.stack.render()
            end, _ = self.stack.publish()
            case.note = f"publish: {_told(end.message)}"
            _require(end.code == 0, f"publishing ended with {end.code}: {end.message}")
            server = self.stack.start().wait_ready()
            self._require_answers(server, self.answers)
            self.stack.node.remove(server.pod, seconds=0)

    def kill_copy(self) -> None:
        """A copy that dies is gone on with."""
        with self.step("preload killed by SIGKILL while it copies goes on where it died; the copy is whole") as case:
            for _ in range(_KILLS):
                told = self._killed_copy()
                if told and told["resumed_bytes"]:
                    break
            else:
                raise WrongError(f"in {_KILLS} copies none was killed that had something to go on with")
            case.note = f"{told['resumed_bytes'] / 1e6:.0f} of {told['bytes'] / 1e6:.0f} MB were kept"

    def refuse(self) -> None:
        """What must stop before a server is started."""
        tiny = self._model(2, tiny_model.TINY)
        folder = self.stack.processes.folder.parent / "damaged"
        for damage in self._some(damages.REFUSED_WHEN_PUBLISHED):
            sentence = f"a model is not published if {damage.name}"
            with self.step(sentence) as case, self.stack.elsewhere(folder):
                self._put_damaged(tiny, damage)
                end, _ = self.stack.publish()
                case.note = _refusal(end.code, end.message, (4,), damage.says)
                _require(not self.stack.published().exists(), "something was published")
        for damage in self._some(damages.LEFT_OUT):
            sentence = f"a model is published without it if {damage.name}"
            with self.step(sentence) as case, self.stack.elsewhere(folder):
                self._put_damaged(tiny, damage)
                case.note = self._publish_whole()
                (left_out,) = damage.says
                _require(not list(self.stack.published().glob(left_out)), "it was published, too")
        for damage in self._some(damages.HARMLESS):
            with self.step(f"a model is published if {damage.name}") as case, self.stack.elsewhere(folder):
                self._put_damaged(tiny, damage)
                case.note = self._publish_whole()
        self.source.put(tiny)
        for damage in self._some(damages.REFUSED_WHEN_COPIED):
            with self.step(f"no server starts if, after publishing, {damage.name}") as case:
                case.note = self._refused_copy(folder, damage)
        name = self.stack.server_name
        with self.step(f"with preload.verify: sha256 none starts if {damages.REFUSED_BY_HASH.name}") as case:
            before = (self.stack.config["modelServers"][name].get("preload") or {}).get("verify")
            self.stack.set(f"modelServers.{name}.preload.verify", "sha256")
            self.stack.render()
            case.note = self._refused_copy(folder, damages.REFUSED_BY_HASH)
            self.stack.set(f"modelServers.{name}.preload.verify", before or "size")
        with (
            self.step("no server starts on a disk that the model does not fit on") as case,
            self.stack.elsewhere(folder),
        ):
            self._publish_whole()
            self.stack.processes.tmpfs_bytes = {"scratch": 2 * 2**20}
            case.note = self._refused_start((3,), ("free",))
        with (
            self.step("no server starts where the node's disk is a network disk") as case,
            self.stack.elsewhere(folder),
        ):
            self._publish_whole()
            self.stack.disk = "Amazon Elastic Block Store"
            case.note = self._refused_start((10,), ("Amazon Elastic Block Store", "Instance Storage"))
        self._refuse_larger(folder)

    # ---- parts of cases

    def _some(self, kind: tuple[damages.Damage, ...]) -> tuple[damages.Damage, ...]:
        """The damages of one kind that are tried."""
        return kind[:1] if self.short else kind

    def _killed_copy(self) -> dict[str, Any] | None:
        """What preload told that went on with a killed copy; None where the copy was faster than the kill."""
        server = self.stack.start()
        server.failures += 1
        first = server.preload_run(0)
        journal = server.destination() / ".faststart" / "work" / "journal.jsonl"
        while first.exit() is None and not _has_pieces(journal):
            time.sleep(0.001)
        first.signal(signal.SIGKILL)
        end = first.wait(10)
        if end is None or end.code != 128 + signal.SIGKILL:
            self.stack.node.remove(server.pod, seconds=0)
            return None
        told = _ended_well(server.preload_run(1))
        _require(_same(self.stack.published(), server.destination()), "the copy differs")
        self.stack.node.remove(server.pod, seconds=0)
        return told

    def _refuse_larger(self, folder: Path) -> None:
        """A model larger than its sizeGib: a shard with a hole makes one of more than a GiB out of the tiny one."""
        model = self.stack.model_name
        large = self._model(3, tiny_model.TINY)
        index = json.loads((large / damages.INDEX).read_bytes())
        shape = (GIB // 2 + 1, 1)
        with (large / "padding.safetensors").open("wb") as file:
            file.write(tiny_model.header({"model.padding.weight": shape}))
            file.truncate(file.tell() + 2 * shape[0])
        index["weight_map"]["model.padding.weight"] = "padding.safetensors"
        (large / damages.INDEX).write_text(json.dumps(index), encoding="utf-8")
        with self.stack.elsewhere(folder):
            with self.step("a model larger than its sizeGib is not published") as case:
                self.source.put(large)
                self.stack.set(f"models.{model}.sizeGib", "1")
                self.stack.render()
                end, _ = self.stack.publish()
                case.note = _refusal(end.code, end.message, (8,), ("sizeGib must be at least 2",))
            with self.step("no server starts if the published model is larger than the stack file says by now") as case:
                self.stack.set(f"models.{model}.sizeGib", "2")
                self.stack.render()
                self._publish_whole()
                self.stack.set(f"models.{model}.sizeGib", "1")
                self.stack.render()
                case.note = self._refused_start((8,), ("sizeGib must be at least 2",))

    def _model(self, seed: int, shape: tiny_model.Shape = tiny_model.SMALL) -> Path:
        folder = self.stack.processes.folder.parent / "models" / f"{shape.layers}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        return tiny_model.write(folder, seed, shape)

    def _put_damaged(self, whole: Path, damage: damages.Damage) -> None:
        folder = whole.with_name("damaged")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        damage.make(folder)
        self.source.put(folder)

    def _publish_whole(self) -> str:
        """Publishes a model whose shards are all there; what was told."""
        end, _ = self.stack.publish()
        _require(end.code == 0, f"publishing ended with {end.code}: {end.message}")
        shards = len(list(self.stack.published().glob("model-*.safetensors")))
        _require(shards >= tiny_model.SHARDS, f"{shards} shards were published")
        return _told(end.message)

    def _refused_copy(self, folder: Path, damage: damages.Damage) -> str:
        with self.stack.elsewhere(folder):
            self._publish_whole()
            damage.make(self.stack.published())
            return self._refused_start((4, 8), damage.says)

    def _refused_start(self, codes: tuple[int, ...], says: tuple[str, ...]) -> str:
        server = self.stack.start()
        end = server.preload_run(0).wait(60)
        _require(end is not None, "preload does not end")
        assert end is not None
        # The kubelet starts it again at once, and no other container before it.
        _require(server.preload_run(1).wait(60) is not None, "preload, started again, does not end")
        _require(not server.vllm, "vLLM was started")
        self.stack.node.remove(server.pod, seconds=0)
        _require(not server.vllm, "vLLM was started")
        return _refusal(end.code, end.message, codes, says)

    def _require_answers(self, server: Server, expected: list[Answer]) -> None:
        answers = server.ask_all()
        _require(answers == expected, f"the answers are {answers}, expected {expected}")

    def _tokens_in(self, server: Server, seconds: float) -> int:
        """How many tokens the server makes in so long."""
        few, began = 64, time.monotonic()
        server.ask("Tell me all:", max_tokens=few, ignore_eos=True)
        return int(few * seconds / (time.monotonic() - began))

    def _long_answer(self, server: Server, tokens: int, begun: threading.Event) -> Answer:
        begun.set()
        return server.ask("Tell me all:", max_tokens=tokens, ignore_eos=True)

    def _wait_running(self, server: Server) -> None:
        words = "vllm:num_requests_running{"

        def running() -> bool:
            _, text = request(self.stack.processes, server.address, server.port, "GET", "/metrics")
            return any(line.startswith(words) and float(line.split()[-1]) > 0 for line in str(text).splitlines())

        _until(running, "the request never ran")


def _has_pieces(journal: Path) -> bool:
    """Whether a copy's journal says that pieces of files are written (lines of three numbers)."""
    with contextlib.suppress(OSError):
        return re.search(rb"^\[\d+,\d+,\d+\]$", journal.read_bytes(), re.MULTILINE) is not None
    return False


def _ended_well(process: Process) -> dict[str, Any]:
    """What preload told in the end."""
    end = process.wait(60)
    _require(end is not None and end.code == 0, f"preload ended with {end}")
    return json.loads(end.message if end else "{}")


def _until(found: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    give_up = time.monotonic() + seconds
    while not (one := found()):
        if time.monotonic() > give_up:
            raise WrongError(what)
        time.sleep(0.005)
    return one


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise WrongError(what)


def _told(message: str) -> str:
    with contextlib.suppress(ValueError):
        found = json.loads(message)
        return (f"{found['file']}: " if found.get("file") else "") + found["message"]
    return message[-300:]


def _refusal(code: int, message: str, codes: tuple[int, ...], says: tuple[str, ...]) -> str:
    told = _told(message)
    _require(code in codes, f"it ended with {code}, expected {' or '.join(map(str, codes))}: {told}")
    for words in says:
        _require(words in told, f"{words!r} is not said: {told}")
    return f"exit {code}: {told}"


def _size(server: Server) -> str:
    return f"{json.loads((server.preload[0].exit() or (0, '{}'))[1])['bytes'] / 1e6:.0f} MB"


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same model."""

    def files(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and ".faststart" not in path.relative_to(folder).parts
        }

    return files(one) == files(other)
