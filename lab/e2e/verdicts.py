"""What `publish --check` says of damaged folders, beside what the real vLLM does with each: a table, by hand.

python -m lab.e2e.verdicts [FILE]    # a server start each, some seven minutes
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import ROOT
from lab.e2e import damages, tiny_model, vllm_environment
from lab.e2e.damages import Damage
from lab.e2e.vllm_environment import Tried
from lab.rehearsal.toolbox import ToolMissingError

FAILED, MISSING = 1, 3

_OF_NO_USE = "RuntimeError: Engine core initialization failed"
_REASON = re.compile(r"\b(?:\w*Error|RuntimeError|Exception): .+")


@dataclass(frozen=True)
class Verdict:
    """One folder.

    Attributes:
        damage: what is wrong with it.
        code: the check's exit code.
        said: its first words.
        tried: what vLLM did.
    """

    damage: Damage
    code: int
    said: str
    tried: Tried

    def agrees(self, whole: Tried) -> bool:
        """Whether the check refuses what vLLM does not load, or loads wrongly, and nothing else."""
        return (self.code == 0) == (self.tried.healthy and self.tried.answer == whole.answer)

    def row(self, whole: Tried) -> str:
        """It as a row of a table."""
        right = self.tried.answer == whole.answer
        words = (line for line in self.tried.words if " WARNING " not in line)
        reasons = [found[0] for line in words if (found := _REASON.search(line))]
        reason = next((one for one in reasons if not one.startswith(_OF_NO_USE)), "ends")
        vllm = ("serves it" if right else "**serves it and answers wrongly**") if self.tried.healthy else reason
        cells = (self.damage.name, f"exit {self.code}: {self.said}" if self.code else "passes", vllm)
        return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split())[:160] for cell in cells) + " |"


def compare(environment: Path, folder: Path, damage: Damage) -> Verdict:
    """Damages a fresh model in a folder, checks it, and lets vLLM try it."""
    shutil.rmtree(folder, ignore_errors=True)
    model = tiny_model.write(folder / "model")
    damage.make(model)
    code, said = _check(model)
    tried = vllm_environment.try_model(environment, model, folder / "work")
    words = tuple(line.replace(str(model), "FOLDER") for line in tried.words)
    return Verdict(damage, code, said, dataclasses.replace(tried, words=words))


def _check(model: Path) -> tuple[int, str]:
    from publish.program import main as publish

    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = publish(["--check", str(model)])
    lines = [line for line in (out.getvalue() + err.getvalue()).splitlines() if line.startswith("wrong")]
    return code, lines[0].removeprefix("wrong").strip() if lines else ""


def main(arguments: Sequence[str]) -> int:
    """Writes the table; 0, or 1 where check and vLLM differ, or 3 without vLLM."""
    sys.path.insert(0, str(ROOT / "workloads"))

    def say(text: str) -> None:
        print(f"[verdicts] {text}", flush=True)

    try:
        environment = vllm_environment.get(say)
    except ToolMissingError as missing:
        say(str(missing))
        return MISSING
    lines = [f"| what is wrong | `publish --check` | vLLM {environment.version} |", "|---|---|---|"]
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        found = [
            compare(environment.folder, Path(folder) / "one", damage)
            for damage in (
                *damages.HARMLESS,
                *damages.REFUSED_WHEN_PUBLISHED,
                *damages.LEFT_OUT,
                damages.REFUSED_BY_HASH,
            )
        ]
    whole = found[0].tried
    lines += [one.row(whole) for one in found]
    print("\n".join(lines), flush=True)
    if arguments:
        Path(arguments[0]).write_text("\n".join([*lines, ""]), encoding="utf-8")
    # Zeros inside a shard are seen by its hash alone, which an unpublished folder does not have.
    wrong = [one for one in found if not one.agrees(whole) and one.damage is not damages.REFUSED_BY_HASH]
    for one in wrong:
        say(f"they differ: {one.damage.name}: check {one.code}, vLLM {'serves' if one.tried.healthy else 'ends'}")
    return FAILED if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
