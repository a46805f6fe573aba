"""Renders hostile chat templates as vLLM's transformers does, and prints what each ends with.

It runs in the environment of `make e2e`:

    python templates.py < TEMPLATES.json
"""

from __future__ import annotations

import json
import sys

from transformers.utils.chat_template_utils import render_jinja_template  # pyright: ignore[reportMissingImports]

MESSAGES = [[{"role": "user", "content": "hello"}]]


def ended(template: str) -> str:
    """Return what a template renders to, or the name of the error that it ends with."""
    try:
        return render_jinja_template(conversations=MESSAGES, chat_template=template)[0][0]
    except Exception as error:  # noqa: BLE001 - whatever the template brings about
        return type(error).__name__


print(json.dumps([ended(template) for template in json.load(sys.stdin)]))
