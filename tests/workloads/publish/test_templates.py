"""What a model's chat template can do in a server: nothing to its process, by the sandbox of transformers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lab.e2e import vllm_environment

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


@pytest.mark.processes
def test_a_chat_template_reaches_neither_python_nor_files_nor_what_it_is_given():
    environment = vllm_environment.installed()
    if environment is None:
        pytest.skip("the vLLM environment is not here: python -m lab.e2e.vllm_environment installs it")
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
