"""Steps that hold or not, each with its sentence and its seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab.kube.cluster_state import WrongError

Say = Callable[[str], None]


@dataclass
class Done:
    """A step that was taken."""

    sentence: str
    seconds: float
    note: str = ""


class Steps:
    """What takes steps.

    Attributes:
        say: takes a line for people.
        done: the steps so far.
    """

    say: Say
    done: list[Done]

    @contextlib.contextmanager
    def step(self, sentence: str) -> Iterator[Done]:
        """One step; the sentence says what holds after it.

        Raises:
            WrongError: it does not hold; the text begins with the sentence.
        """
        done, started = Done(sentence, 0), time.monotonic()
        try:
            yield done
        except WrongError as error:
            raise WrongError(f"not so: {sentence}: {error}") from error
        done.seconds = time.monotonic() - started
        self.done.append(done)
        self.say(f"{done.seconds:6.1f} s  {sentence}{f': {done.note}' if done.note else ''}")
