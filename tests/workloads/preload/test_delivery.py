"""preload as it is delivered: in the ConfigMap of a stack, and as one file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from infra import layout
from lab import ROOT
from preload import options
from tests import recording
from tests.workloads.support import marker, tree, write
from workloads import programs

DOCS = ROOT / "docs"


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, check=False
    )


def mounted(stack: recording.Recording, server: Any, folder: Path) -> Path:
    """Write what the kubelet would mount as the program of a server's pod; return where."""
    (volume,) = [volume for volume in server["volumes"] if volume["name"] == "program"]
    name = volume["configMap"]["name"]
    (data,) = [
        one.inputs["data"]
        for one in stack.of("kubernetes:core/v1:ConfigMap")
        if one.inputs["metadata"]["name"] == name and one.inputs["metadata"]["namespace"] == "models"
    ]
    folder.mkdir()
    for key, text in data.items():
        (folder / key).write_text(text, encoding="utf-8")
    return folder


def pods(stack: recording.Recording) -> list[Any]:
    return [one.inputs["spec"]["template"]["spec"] for one in stack.of("kubernetes:apps/v1:Deployment")]


def test_what_a_pod_mounts_copies_a_model_with_the_arguments_that_the_pod_gives(stack, tmp_path):
    for number, pod in enumerate(pods(stack)):
        (container,) = pod["initContainers"]
        program = mounted(stack, pod, tmp_path / f"program-{number}")
        source, destination = write(tmp_path / f"source-{number}"), tmp_path / f"destination-{number}"
        log = tmp_path / f"log-{number}"
        environment: dict[str, str] = {one["name"]: one["value"] for one in container["env"]}
        translated: dict[str, str] = {
            container["args"][0]: str(source),
            container["args"][1]: str(destination),
            "/dev/termination-log": str(log),
            layout.START: str(program / "start.py"),
        }
        given: list[str] = [one for one in container["args"] if one != "--require-local-disk"]
        arguments = [translated.get(one, one) for one in given]
        started: list[str] = container["command"][1:]
        ended = run([sys.executable, *(translated.get(one, one) for one in started), *arguments], **environment)
        assert (ended.returncode, json.loads(log.read_text())["code"]) == (0, 0), ended.stderr
        assert tree(destination) == tree(source)
        assert not list(program.rglob("__pycache__"))


def test_each_pod_gives_arguments_that_preload_takes(stack):
    for pod in pods(stack):
        assert options.parse(pod["initContainers"][0]["args"]).request.require_local_disk


def test_the_one_file_has_the_same_bytes_each_time_and_holds_what_the_pods_get(tmp_path):
    for name in ("one", "two"):
        programs.write_archive("preload", tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as archive:
        held = {name.replace("/", "."): archive.read(name).decode() for name in archive.namelist()}
    in_pods = programs.config_map_data("preload")
    del held["__main__.py"], in_pods["start.py"]
    assert held == in_pods


def test_what_starts_a_program_in_a_pod_finds_its_files_alone(tmp_path):
    files = {
        "program.__init__.py": "",
        "program.__main__.py": "import sys, json\nfrom program.inner import value\nprint(value, sys.argv, __name__)",
        "program.inner.py": "from program import more\nvalue = more.VALUE",
        "program.more.py": "VALUE = 7",
        "json.more.py": "raise AssertionError",
    }
    write(tmp_path, {key: text.encode() for key, text in files.items()})
    start = tmp_path / "start.py"
    start.write_text(programs.config_map_data("preload")["start.py"])
    ended = run([sys.executable, "-S", str(start), "program", "--flag", "x"])
    assert ended.stdout == f"7 {[str(tmp_path / 'program.__main__.py'), '--flag', 'x']} __main__\n", ended.stderr
    ended = run([sys.executable, "-S", str(start), "nothing"])
    assert ended.returncode == 1
    assert "No module named nothing" in ended.stderr


def test_the_one_file_runs_by_itself_and_copies(tmp_path):
    archive, source, destination = tmp_path / "preload.pyz", write(tmp_path / "source"), tmp_path / "destination"
    programs.write_archive("preload", archive)
    assert run([str(archive), "--version"]).stdout.startswith("preload ")
    ended = run([sys.executable, "-S", str(archive), str(source), str(destination), "--files", "all"])
    assert ended.returncode == 0, ended.stderr
    assert tree(destination) == tree(source)
    assert marker(destination)["files"] == 6


def test_the_page_on_the_copier_alone_shows_a_deployment_whose_arguments_preload_takes():
    page = (DOCS / "preload.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    pod = yaml.safe_load(block)["spec"]["template"]["spec"]
    (container,) = pod["initContainers"]
    assert container["command"][:3] == ["python3", "-S", "/opt/faststart/preload.pyz"]
    asked = options.parse(container["command"][3:]).request
    (serving,) = pod["containers"]
    assert serving["args"][0] == os.fsdecode(asked.destination)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {mounts["/fsx"], mounts["/models/current"], mounts["/opt/faststart"]} == {v["name"] for v in pod["volumes"]}


def test_each_flag_that_the_page_names_is_one_of_preload_or_of_what_it_shows():
    others = {"--from-file", "--served-model-name", "--tensor-parallel-size"}
    named = set(re.findall(r"(?<!-)--[a-z][a-z0-9-]*", (DOCS / "preload.md").read_text()))
    assert {flag for flag in named - others if flag not in options.HELP} == set()
