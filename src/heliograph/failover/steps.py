"""The steps of a handover: each is told as it goes, timed, and noted in the ledger when through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from heliograph.failover.lock import Lock
from heliograph.ledger.handovers import Handover, Handovers

__all__ = ["Phase", "Steps", "Tell", "Telling", "Told"]


class Phase(StrEnum):
    """What is told of a step."""

    BEGUN = "begun"
    NOTE = "note"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Told:
    """One thing to show: of which step, what, after how many seconds of the handover."""

    step: str
    phase: Phase
    text: str
    seconds: float


Tell = Callable[[Told], None]


class Telling:
    """Tells of steps as they go, and times them. One thread.

    Attributes:
        began_ms: when the first one began, by the clock of whoever began it.
        took: seconds of each step of this run.
    """

    def __init__(self, tell: Tell, began_ms: int) -> None:
        self._tell = tell
        self.began_ms = began_ms
        self.took: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Since the first step was begun, by this clock."""
        return max(time.time() - self.began_ms / 1000, 0.0)

    def say(self, step: str, text: str, phase: Phase = Phase.NOTE) -> None:
        """Show something of a step that goes on."""
        self._tell(Told(step, phase, text, self.seconds))

    @contextmanager
    def step(self, name: str, text: str) -> Iterator[Callable[[str], None]]:
        """One step; what the value is called with, is what is told of its end.

        A step that is repeated finds what it did before, and does the rest.
        """
        outcome = [""]
        self.say(name, text, Phase.BEGUN)
        began = time.monotonic()
        try:
            yield lambda said: outcome.__setitem__(0, said)
        except BaseException as error:
            why = str(error.args[0]) if error.args else type(error).__name__
            stopped = isinstance(error, KeyboardInterrupt)
            self.say(name, "interrupted" if stopped else why, Phase.FAILED)
            raise
        self.took[name] = time.monotonic() - began
        self._ended(name)
        self.say(name, outcome[0], Phase.DONE)

    def _ended(self, step: str) -> None:
        """A step is through."""


class Steps(Telling):
    """Carries a handover from step to step. One thread.

    Attributes:
        handover: as it was noted last.
        require_lock: to be called before anything is changed; raises HandoverFailed.
    """

    def __init__(
        self, handovers: Handovers, handover: Handover, tell: Tell, require_lock: Lock
    ) -> None:
        super().__init__(tell, handover.began_ms)
        self._handovers = handovers
        self.handover = handover
        self.require_lock = require_lock

    def through(self, step: str) -> bool:
        """Whether a step was noted as through, by this run or by one before it."""
        return step in self.handover.steps

    @contextmanager
    def step(self, name: str, text: str) -> Iterator[Callable[[str], None]]:
        """One step, that only who has the lock begins."""
        self.require_lock()
        with super().step(name, text) as done:
            yield done

    def _ended(self, step: str) -> None:
        if not self.through(step):
            self.note(steps=(*self.handover.steps, step))

    def note(self, **changes: Any) -> None:
        """Write down what changed of the handover."""
        self.require_lock()
        self.handover = self._handovers.note(replace(self.handover, **changes))

    def remember(self, **facts: Any) -> None:
        """Write down what later steps need."""
        known: Mapping[str, Any] = self.handover.facts
        self.note(facts={**known, **facts})

    def end(self, *, aborted: bool = False) -> None:
        """Write down that it is through, or given up."""
        self.require_lock()
        self.handover = self._handovers.end(self.handover, aborted=aborted)
