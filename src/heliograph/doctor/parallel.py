"""Questions that wait, asked at once, each with a deadline. Runs in a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from heliograph.doctor.findings import Missing
from heliograph.errors import HeliographError, WireError

__all__ = ["Progress", "ask_all"]

T = TypeVar("T")

#: Called with the name of a question, and whether it was answered (it is asked otherwise).
Progress = Callable[[str, bool], None]


def ask_all(
    questions: Mapping[str, Callable[[], T]], seconds: float, progress: Progress
) -> dict[str, T | Missing]:
    """The answers, in the order of the questions; Missing where one failed or took too long.

    A question that takes too long is left alone: its thread ends with the process.
    """
    answers: dict[str, T | Missing] = {}
    asked: dict[str, threading.Thread] = {}
    deadline = time.monotonic() + seconds

    def ask(name: str, question: Callable[[], T]) -> None:
        try:
            answers[name] = question()
        except (WireError, HeliographError, OSError, ValueError) as error:
            answers[name] = Missing(_said(error))

    for name, question in questions.items():
        progress(name, False)
        asked[name] = threading.Thread(
            target=ask, args=(name, question), name=f"doctor {name}", daemon=True
        )
        asked[name].start()
    for name, thread in asked.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        progress(name, True)
    late = Missing(f"there was no answer within {seconds:.0f} s")
    return {name: answers.get(name, late) for name in questions}


def _said(error: Exception) -> str:
    text = str(error.args[0]) if isinstance(error, HeliographError) else str(error)
    return text or type(error).__name__
