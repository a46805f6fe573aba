"""Where the time of a cold start goes: spans, as a table and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from lab.e2e.stack import Server
from lab.kube.cluster_state import WrongError
from lab.kube.process import Process

# What vLLM says at the end of each part of its start, in order (0.32.0; the words hold since 0.9).
_MARKS = (
    ("import", "vllm: import", re.compile(r"non-default args:")),
    ("engine", "vllm: engine starts", re.compile(r"Starting to load model")),
    ("weights", "vllm: weights", re.compile(r"Loading weights took")),
    ("warm-up", "vllm: cache, warm-up, listening", re.compile(r"Application startup complete")),
)

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 900, 250, 190, 34, 46
_COLORS = {
    "publish": "#8a63d2", "copy": "#1a7f4b", "scheduled": "#7d8590", "import": "#b8860b", "engine": "#b8860b",
    "weights": "#0969da", "warm-up": "#b8860b", "ready": "#7d8590", "token": "#1a7f4b",
}  # fmt: skip


@dataclass(frozen=True)
class Span:
    """One part of a start.

    Attributes:
        key: its name for programs.
        name: for people.
        began, ended: seconds from the first one's beginning.
        note: what else there is to say.
    """

    key: str
    name: str
    began: float
    ended: float
    note: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


def spans(publish: Process, server: Server, first_token_seconds: float) -> list[Span]:
    """The parts of a cold start: publishing, then a pod from its launch to its first token.

    What lies between the two is left out: publishing is done once, long before.

    Raises:
        WrongError: vLLM did not say what it should have.
    """
    (copy,), (vllm,) = server.preload, server.vllm
    assert publish.ended is not None
    assert copy.ended is not None
    published = publish.ended - publish.began
    done = json.loads((publish.exit() or (0, "{}"))[1])
    copied = json.loads((copy.exit() or (0, "{}"))[1])
    found = [Span("publish", "publish (once)", 0, published, f"{done['bytes'] / 1e6:.0f} MB from its source, hashed")]

    def add(key: str, name: str, began: float, ended: float, note: str = "") -> None:
        found.append(Span(key, name, published + began - server.began, published + ended - server.began, note))

    rate = f"{copied['copied_bytes'] / 1e6:.0f} MB at {copied['gb_per_s']:.2f} GB/s"
    add("copy", "preload: copy to NVMe", copy.began, copy.ended, rate)
    last = vllm.began
    for key, name, words in _MARKS:
        at = next((at for at, line in vllm.lines.all() if at >= last and words.search(line)), None)
        if at is None:
            raise WrongError(f"vLLM never said {words.pattern!r}; all it said is in {vllm.lines.path}")
        add(key, name, last, at)
        last = at
    add("ready", "the probe finds it ready", last, server.ready_at)
    add("token", "first token", server.ready_at, server.ready_at + first_token_seconds)
    return found


def table(found: Sequence[Span]) -> str:
    """The parts and their seconds, and the sum from pod launch to first token."""
    lines = [f"{one.name:34} {one.seconds:7.2f} s  {one.note}".rstrip() for one in found]
    start = found[0].ended
    return "\n".join([*lines, f"{'from pod launch to first token':34} {found[-1].ended - start:7.2f} s"])


def write(found: Sequence[Span], folder: Path, title: str) -> Path:
    """Writes timeline.json and timeline.svg; the picture's path."""
    (folder / "timeline.json").write_text(json.dumps([asdict(one) for one in found], indent=1), encoding="utf-8")
    path = folder / "timeline.svg"
    path.write_text(picture(found, title), encoding="utf-8")
    return path


def picture(found: Sequence[Span], title: str) -> str:
    """The parts as bars along one axis of seconds, as SVG."""
    whole = max(one.ended for one in found)
    scale = (_WIDTH - _LEFT - _RIGHT) / whole
    height = _TOP + _ROW * len(found) + 40
    text = 'font-family="system-ui, sans-serif" font-size="13" fill="#1f2328"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" {text} font-weight="600">{escape(title)}</text>',
    ]
    step = next((one for one in (0.5, 1, 2, 5, 10, 20, 50, 100) if whole / one <= 10), 200)
    bottom = _TOP + _ROW * len(found)
    for number in range(int(whole / step) + 1):
        x = _LEFT + number * step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" {text} text-anchor="middle">{number * step:g} s</text>')
    for number, one in enumerate(found):
        y = _TOP + _ROW * number
        x, width = _LEFT + one.began * scale, max(one.seconds * scale, 2)
        words = f"{one.seconds:.2f} s"
        parts += [
            f'<text x="16" y="{y + 22}" {text}>{escape(one.name)}</text>',
            f'<rect x="{x:.1f}" y="{y + 7}" width="{width:.1f}" height="20" rx="3" fill="{_COLORS[one.key]}"/>',
            f'<text x="{x + width + 6:.1f}" y="{y + 22}" {text}>{words}{_told(one)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _told(span: Span) -> str:
    return f", {escape(span.note.partition(',')[0])}" if span.note else ""
