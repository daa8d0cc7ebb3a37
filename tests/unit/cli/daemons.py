"""A `heliograph run` whose mirror mirrors nothing: its options and processes are real.

Arguments: what `start` of the mirror does (nothing, die or fail), and those of `heliograph`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from heliograph import cli
from heliograph.cli import run
from heliograph.errors import StartError
from heliograph.service import mirror
from heliograph.service.events import EventBus
from heliograph.service.pulse import Pulse
from heliograph.service.snapshot import MirrorSnapshot


class IdleMirror:
    spark_level = "ERROR"

    def __init__(self, what: str) -> None:
        self._what = what
        self.events, self.pulse = EventBus(), Pulse()

    def snapshot(self) -> MirrorSnapshot:
        return MirrorSnapshot(time.time(), ())

    def start(self) -> None:
        if self._what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._what == "fail":
            raise StartError("cluster.unreachable", "cluster A does not answer", "look there")

    def close(self) -> None: ...


def main() -> None:
    what = sys.argv.pop(1)
    replaced: Any = mirror
    replaced.Mirror = lambda *_, **__: IdleMirror(what)
    command: Any = run
    command.find_java = lambda: None
    cli.main()


if __name__ == "__main__":
    main()
