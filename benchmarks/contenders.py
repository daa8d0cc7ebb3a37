"""Who is measured: the real MM2 with its defaults, the real MM2 tuned, and Heliograph.

Heliograph is there twice: where the source's offsets have gaps, it can number the records without
them, as MM2 does, or keep the offsets.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from benchmarks.footprint import tree
from heliograph.errors import LabError
from heliograph.lab import MirrorMaker2

__all__ = ["CONTENDERS", "Contender", "HeliographProcess", "Mirror", "Situation"]


class Mirror(Protocol):
    """A mirror as a process that leads a session of its own."""

    log_path: Path

    @property
    def pid(self) -> int:
        """Root of the process tree."""

    def start(self) -> None:
        """Returns at once."""

    def stop(self, grace_s: float = 5.0) -> None:
        """In order, then by force."""

    def require_running(self) -> None:
        """Raises LabError with the end of the log when the process has ended."""


class HeliographProcess:
    """``heliograph run FILE`` of this Python environment, or of another ``checkout``."""

    def __init__(self, properties_path: Path, folder: Path, checkout: Path | None = None) -> None:
        self.log_path = folder / "logs" / "heliograph.log"
        # The console script that pip put beside this interpreter: what a user would call.
        program = Path(sys.executable).with_name("heliograph")
        self._command = [str(program), "run", str(properties_path)]
        self.properties_path = properties_path
        self._folder = folder
        self._environment = dict(os.environ)
        if checkout is not None:
            self._environment["PYTHONPATH"] = str(checkout / "src")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running or last run process; 0 before the first start."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Starts it in a session of its own: Ctrl-C reaches the benchmark, which stops it."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self, grace_s: float = 5.0) -> None:
        """SIGTERM to the driver, then SIGKILL to what is left of its tree after ``grace_s``."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + grace_s
        while (left := self._live()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()

    def _live(self) -> list[int]:
        assert self._process is not None
        self._process.poll()  # reaps the driver, so that it leaves the tree
        return tree(self._process.pid)

    def require_running(self) -> None:
        """Raises LabError ``lab.died`` with the end of the log when the driver has ended."""
        if self._process is not None and self._process.poll() is None:
            return
        tail = self.log_path.read_text("utf-8", "replace").splitlines()[-20:]
        code = self._process.returncode if self._process else None
        message = "\n".join([f"heliograph ended with {code}. Its log ends with:", *tail])
        raise LabError("lab.died", message, f"The whole log: {self.log_path}")


@dataclass(frozen=True, slots=True)
class Situation:
    """What a configuration is tuned for: a backlog of a codec, a trickle, or many partitions.

    Attributes:
        gaps: whether the offsets of the source have gaps.
        read_committed: whether aborted transactions are left out; MM2 copies them by default.
    """

    compression: str = "none"
    trickle: bool = False
    gaps: bool = False
    read_committed: bool = False


_Tuning = Callable[[str, str, Situation], Mapping[str, str]]


def _defaults(source: str, target: str, situation: Situation) -> Mapping[str, str]:
    return {}


def _tuned(source: str, target: str, situation: Situation) -> Mapping[str, str]:
    """What an experienced operator sets. MM2's data producer is the worker's: ``B.producer.*``."""
    tuning = {
        "tasks.max": "4",
        # The default is 600: nobody who waits for new topics keeps it.
        "refresh.topics.interval.seconds": "5",
        # Otherwise MM2 runs a second worker for the other direction, only to write heartbeats.
        f"{target}->{source}.emit.heartbeats.enabled": "false",
        f"{target}.producer.max.in.flight.requests.per.connection": "5",
        f"{target}.producer.compression.type": situation.compression,
    }
    if situation.trickle:
        return {**tuning, f"{target}.producer.linger.ms": "0"}
    return {
        **tuning,
        f"{source}.consumer.max.poll.records": "5000",
        f"{source}.consumer.fetch.min.bytes": "65536",
        f"{source}.consumer.max.partition.fetch.bytes": "8388608",
        f"{source}.consumer.receive.buffer.bytes": "1048576",
        f"{target}.producer.batch.size": "131072",
        f"{target}.producer.linger.ms": "20",
        f"{target}.producer.buffer.memory": "134217728",
        f"{target}.producer.send.buffer.bytes": "1048576",
    }


def _without_gaps(source: str, target: str, situation: Situation) -> Mapping[str, str]:
    """As MM2 does it; where there are no gaps, the default."""
    return {"heliograph.offsets": "dense"} if situation.gaps else {}


def _identical(source: str, target: str, situation: Situation) -> Mapping[str, str]:
    return {"heliograph.offsets": "identical"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A mirror to measure and how it is configured beyond what all get.

    Attributes:
        identical: whether it keeps the source's offsets where they have gaps; measured only there.
    """

    key: str
    label: str
    make: Callable[[Path, Path], Mirror]
    tuning: _Tuning = _defaults
    identical: bool = False

    def properties(
        self,
        source: tuple[str, str],
        target: tuple[str, str],
        topics: str,
        situation: Situation,
    ) -> dict[str, str]:
        """The mm2.properties of a flow between two (alias, bootstrap servers)."""
        a, b = source[0], target[0]
        internal = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
        storage = ("config.storage.", "offset.storage.", "status.storage.")
        committed = {f"{a}.consumer.isolation.level": "read_committed"}
        return {
            "clusters": f"{a}, {b}",
            f"{a}.bootstrap.servers": source[1],
            f"{b}.bootstrap.servers": target[1],
            f"{a}->{b}.enabled": "true",
            f"{a}->{b}.topics": topics,
            # One broker each.
            **{f"{prefix}replication.factor": "1" for prefix in internal + storage},
            **(committed if situation.read_committed else {}),
            **self.tuning(a, b, situation),
        }


CONTENDERS = {
    c.key: c
    for c in (
        Contender("mm2", "MM2 defaults", MirrorMaker2),
        Contender("mm2-tuned", "MM2 tuned", MirrorMaker2, _tuned),
        Contender("heliograph", "Heliograph", HeliographProcess, _without_gaps),
        Contender(
            "heliograph-identical",
            "Heliograph, identical offsets",
            HeliographProcess,
            _identical,
            identical=True,
        ),
    )
}
#: A checkout of an earlier commit, to be measured beside this one.
if before := os.environ.get("HELIOGRAPH_BEFORE"):
    CONTENDERS["heliograph-before"] = Contender(
        "heliograph-before",
        "Heliograph before",
        partial(HeliographProcess, checkout=Path(before).resolve()),
        _without_gaps,
    )
