"""The mirror of the demo: ``heliograph run`` as a process that can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from heliograph.errors import HeliographError
from heliograph.lab import _leash
from heliograph.units import moment

__all__ = ["DemoError", "Killed", "MirrorProcess"]

_STOP_SECONDS = 20.0
_KILL_SECONDS = 10.0
_TAIL_LINES = 8


class DemoError(HeliographError):
    """The demo cannot go on."""

    exit_code = 1


class Killed:
    """What one ``kill`` ended, in words for people."""

    def __init__(self, names: list[str]) -> None:
        self.count = len(names)
        self._jvms = sum(name == "java" for name in names)

    def __str__(self) -> str:
        workers = self.count - self._jvms - 1
        return (
            f"{self.count} processes: the driver"
            + (", Spark's JVM" if self._jvms else "")
            + (f", {workers} Python worker{'s' if workers > 1 else ''}" if workers > 0 else "")
        )


class MirrorProcess:
    """One run of the mirror in a session of its own, which Ctrl-C does not reach.

    Start it from the main thread: on Linux it dies with the thread that started it.
    """

    def __init__(self, config: Path, folder: Path) -> None:
        """Describes the process; ``folder`` takes its log and whatever a killed Spark leaves."""
        self._config = config
        self._folder = folder
        self.log_path = folder / "mirror.log"
        #: The latest ``event: status`` that it printed.
        self.status: dict[str, object] = {}
        self._messages: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start; returns at once."""
        self.status = {}
        temporary = self._folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        java_options = os.environ.get("JAVA_TOOL_OPTIONS", "")
        environment = {
            **os.environ,
            "TMPDIR": str(temporary),
            "SPARK_LOCAL_DIRS": str(temporary),
            "JAVA_TOOL_OPTIONS": f'{java_options} "-Djava.io.tmpdir={temporary}"'.strip(),
        }
        command = [sys.executable, "-P", "-m", "heliograph", "run", str(self._config),
                   "-o", "json", "--status-interval", "1"]  # fmt: skip
        leash = [sys.executable, "-I", "-S", str(_leash.__file__), str(os.getpid())]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                [*leash, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        threading.Thread(
            target=self._listen, args=(self._process,), name="demo-mirror-output", daemon=True
        ).start()

    def require_running(self) -> None:
        """Raises DemoError with the mirror's last words when it has ended by itself."""
        if self._process is None or self._process.poll() is None:
            return
        said = self._messages[-_TAIL_LINES:]
        said += self.log_path.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:]
        raise DemoError(
            "demo.mirror-ended",
            f"The mirror ended by itself with {self._process.returncode}. It said:\n"
            + "\n".join(f"    {line}" for line in said),
            f"Its log: {self.log_path}",
        )

    @property
    def failing(self) -> str:
        """The partitions that the mirror says it cannot copy, with its reasons; mostly empty."""
        troubled = self.status.get("troubled")
        if not isinstance(troubled, list):
            return ""
        failed = [t for t in troubled if t["state"] == "failed"]
        return "; ".join(f"{t['topic']}-{t['partition']}: {t['reason']}" for t in failed)

    def in_step_after(self, when: float) -> bool:
        """Whether it has reported no lag after a moment, in seconds since the epoch."""
        told = self.status.get("measured_at")
        if not isinstance(told, str) or self.status.get("lag_records") != 0:
            return False
        return not self.status.get("unmeasured") and told > moment(when)

    def kill(self) -> Killed:
        """``kill -9`` of everything it has started; returns when nothing of it runs any more.

        By session, because Spark's Python workers are in a process group of their own.
        """
        names: dict[int, str] = {}
        deadline = time.monotonic() + _KILL_SECONDS
        while (members := self._members()) and time.monotonic() < deadline:
            for member in members:
                with suppress(psutil.Error):
                    names.setdefault(member.pid, member.name())
                    member.kill()
            time.sleep(0.01)
        if self._process is not None:
            self._process.wait(_KILL_SECONDS)
        return Killed(list(names.values()))

    def stop(self) -> float:
        """SIGTERM, as an operator would stop it; returns the seconds that it took.

        Raises DemoError if it does not stop in time; it is killed then.
        """
        if self._process is None:
            return 0.0
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"The mirror did not stop within {_STOP_SECONDS:.0f} s after SIGTERM."
            raise DemoError("demo.no-stop", message, f"Its log: {self.log_path}") from None
        seconds = time.monotonic() - started
        self.kill()
        return seconds

    def _members(self) -> list[psutil.Process]:
        found = []
        session = self._process.pid if self._process is not None else -1
        for pid in psutil.pids():
            with suppress(OSError, psutil.Error):
                if os.getsid(pid) == session:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - asked for with PIPE
        with process.stdout as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    self._messages.append(line.rstrip())
                    continue
                if event.get("event") == "status":
                    self.status = event
                else:
                    self._messages.append(str(event.get("message") or event.get("text") or line))
