"""Keys of a terminal, one at a time and as they are pressed. Used by commands that live on one."""

from __future__ import annotations

import codecs
import os
import re
import select
import termios
import tty
from contextlib import suppress
from types import TracebackType

__all__ = ["Keyboard", "keys_in"]

_NAMED = {
    "\r": "enter", "\n": "enter", "\x1b": "esc", "\x7f": "backspace", "\b": "backspace",
    "\x04": "q",
}  # fmt: skip
#: The last character of a sequence, or the number in it.
_SEQUENCES = {
    "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "1~": "home",
    "4~": "end", "5~": "pgup", "6~": "pgdn", "7~": "home", "8~": "end",
}  # fmt: skip
_KEY = re.compile(r"\x1b(?:\[|O)([0-9;?]*[ -/]*[@-~])|.", re.DOTALL)
_CHUNK = 256


def keys_in(text: str) -> list[str]:
    """The keys that a terminal sent: characters, and names of other keys; unknown ones are not."""
    found = []
    for match in _KEY.finditer(text):
        if match[1] is not None:
            found.append(_SEQUENCES.get(match[1], ""))
        else:
            found.append(_NAMED.get(match[0], match[0] if match[0].isprintable() else ""))
    return [key for key in found if key]


class Keyboard:
    """A terminal whose keys come at once and unseen, while this is entered. Main thread.

    Ctrl-C stays what it is. `wake` ends a `read` from any thread.
    """

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Keyboard:
        self._before = termios.tcgetattr(self._terminal)
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        tty.setcbreak(self._terminal)
        # Whoever suspends it would find a screen that is not theirs.
        quiet = termios.tcgetattr(self._terminal)
        quiet[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._terminal, termios.TCSANOW, quiet)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
        os.close(self._waker)
        os.close(self._woken)

    def wake(self) -> None:
        """End a `read` that waits."""
        # It is full, or closed: nobody has to be woken.
        with suppress(OSError):
            os.write(self._waker, b".")

    def read(self, seconds: float) -> list[str]:
        """What was pressed within this time; nothing if it has passed, or `wake` was called.

        Raises EOFError if the terminal is gone.
        """
        ready, _, _ = select.select([self._terminal, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, _CHUNK)
        if self._terminal not in ready:
            return []
        got = os.read(self._terminal, _CHUNK)
        if not got:
            raise EOFError
        return keys_in(self._decoder.decode(got))
