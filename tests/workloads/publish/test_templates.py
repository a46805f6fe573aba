"""What a model's chat template and its own code can do in a server, tried with the real transformers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lab.e2e import vllm_environment
from lab.e2e.vllm_environment import VllmEnvironment
from tests.workloads.support import write

REACHING = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ lipsum.__globals__['os'].system('id') }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ '%s'|format(''.__class__) }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ namespace.__init__.__globals__ }}",
]
CHANGING = ["{{ messages.append(1) }}", "{{ messages[0].update({'a': 1}) }}", "{{ messages.clear() }}"]
READING = ["{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% extends 'x' %}"]


LOAD = """
import sys
from transformers import AutoConfig
AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=sys.argv[2] == "trusted")
"""
CODE = """
from pathlib import Path
from transformers import PretrainedConfig
Path({ran!r}).touch()
class Strange(PretrainedConfig):
    model_type = "strange"
"""


@pytest.fixture
def environment() -> VllmEnvironment:
    found = vllm_environment.installed()
    if found is None:
        pytest.skip("the vLLM environment is not here: python -m lab.e2e.vllm_environment installs it")
    return found


@pytest.mark.processes
@pytest.mark.parametrize(
    ("place", "trusted", "runs"),
    [
        ("configuration_strange.Strange", "trusted", True),
        ("configuration_strange.Strange", "", False),
        ("org/name--configuration_strange.Strange", "trusted", False),
        ("org/name--configuration_strange.Strange", "", False),
    ],
)
def test_code_of_a_model_runs_where_it_is_trusted_and_that_of_another_repository_not_offline(
    environment, tmp_path, place, trusted, runs
):
    ran = tmp_path / "ran"
    config = json.dumps({"model_type": "strange", "auto_map": {"AutoConfig": place}}).encode()
    code = CODE.format(ran=str(ran)).encode()
    model = write(tmp_path / "model", {"config.json": config, "configuration_strange.py": code})
    ended = subprocess.run(
        [environment.folder / "bin/python", "-c", LOAD, model, trusted],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (ended.returncode == 0, ran.exists()) == (runs, runs), ended.stderr


@pytest.mark.processes
def test_a_chat_template_reaches_neither_python_nor_files_nor_what_it_is_given(environment):
    good = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    templates = [good, *REACHING, *CHANGING, *READING]
    run = subprocess.run(
        [environment.folder / "bin/python", Path(__file__).with_name("templates.py")],
        input=json.dumps(templates),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    rendered, *others = json.loads(run.stdout.splitlines()[-1])
    assert rendered == "hello"
    # TypeError: the environment has no loader, so that no template brings in another file.
    allowed = {**dict.fromkeys(REACHING, ("SecurityError", "")), **dict.fromkeys(CHANGING, ("SecurityError",))}
    for template, end in zip(templates[1:], others, strict=True):
        assert end in allowed.get(template, ("TypeError",)), (template, end)
