"""What a server is asked, and what it answers."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.kube.cluster_state import WrongError
from lab.kube.processes import Processes


@dataclass(frozen=True)
class Answer:
    """What a server said to one prompt.

    Attributes:
        text: as text.
        tokens: as the numbers of its tokens.
        reason: why it ended.
    """

    text: str
    tokens: tuple[int, ...]
    reason: str


PROMPTS = (
    "The model is copied from FSx for Lustre to",
    "An init container runs thirty-two copies at once;",
    "Hello, my name is",
    "0 1 1 2 3 5 8 13",
    "def main():\n    ",
)
"""What is asked, with MAX_TOKENS of answer each."""

MAX_TOKENS = 16


def ask(node: Processes, address: str, port: int, model: str, prompt: str, **more: Any) -> Answer:
    """Asks one prompt, greedily.

    Raises:
        OSError, http.client.HTTPException: there is no whole answer.
        WrongError: it is a refusal.
    """
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "return_token_ids": True,
        **more,
    }
    code, found = request(node, address, port, "POST", "/v1/completions", body)
    if code != http.client.OK:
        raise WrongError(f"{prompt!r} is answered with {code}: {found}")
    (choice,) = found["choices"]
    return Answer(choice["text"], tuple(choice["token_ids"]), choice["finish_reason"])


def request(
    node: Processes, address: str, port: int, method: str, path: str, body: Mapping[str, Any] | None = None
) -> tuple[int, Any]:
    """One request to a pod; the status and the answer, read as JSON where it is that.

    Raises:
        OSError, http.client.HTTPException: there is no whole answer.
    """
    with contextlib.closing(node.connect(address, port, 120)) as one:
        connection = http.client.HTTPConnection(address, port, timeout=120)
        connection.sock = one
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = answer.read()
    try:
        return answer.status, json.loads(content)
    except ValueError:
        return answer.status, content.decode(errors="replace")
