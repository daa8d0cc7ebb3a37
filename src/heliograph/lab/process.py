"""Java programs as child processes that can be killed, frozen, started again, and never leak."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psutil

from heliograph.errors import LabError
from heliograph.jvm.java import find_java
from heliograph.lab import _leash

__all__ = ["MARKER", "JavaProcess", "abandon", "java_command", "run_java", "stop_all"]

# Every JVM of a lab carries -Dheliograph.lab=<folder>: `lab down` kills nothing without it.
MARKER = "-Dheliograph.lab="

_LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""

_live: weakref.WeakSet[JavaProcess] = weakref.WeakSet()


def log4j_flag(folder: Path, level: str) -> str:
    """Writes a log4j2 file for ``level`` into ``folder``; returns the JVM flag that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"log4j2-{level.lower()}.properties"
    path.write_text(_LOG4J.format(level=level), encoding="utf-8")
    return f"-Dlog4j2.configurationFile={path}"


def java_command(
    main: str, args: Sequence[str], *, classpath: str, folder: Path, jvm_flags: Iterable[str] = ()
) -> list[str]:
    """The command line of a short-lived Java tool; writes its log4j file into ``folder``."""
    # A tool lives for a second: the C1 compiler and the serial collector start fastest.
    flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *jvm_flags]
    flags += [log4j_flag(folder / "logs", "ERROR"), "-cp", classpath]
    return [str(find_java()), *flags, main, *args]


def run_java(command: Sequence[str], stdin: str | None = None) -> subprocess.Popen[str]:
    """Starts a tool with captured output; ``communicate`` passes ``stdin`` on."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def abandon(tools: Iterable[subprocess.Popen[str]]) -> None:
    """Ends tools that ``run_java`` started and nobody waits for any more."""
    for tool in tools:
        tool.kill()
        tool.communicate()


class JavaProcess:
    """One long-running JVM. Its standard output and its log are one file, ``log_path``.

    On Linux the kernel kills the JVM when the *thread* that called ``start`` ends, so call it from
    the main thread or from one that lives as long as the lab. Elsewhere ``atexit`` is the only net.
    It runs in a session of its own: Ctrl-C reaches the owner only, which then stops it in order.
    """

    def __init__(
        self,
        name: str,
        main: str,
        args: Sequence[str],
        *,
        classpath: str,
        folder: Path,
        jvm_flags: Iterable[str] = (),
        log_level: str = "WARN",
    ) -> None:
        """Describes the program; nothing runs before ``start``.

        Args:
            name: short, unique in ``folder``; names the log file.
            main: the Java main class.
            args: its arguments.
            classpath: see ``artifacts.classpath``.
            folder: working directory; logs go to ``folder/logs``.
            jvm_flags: heap, collector, ``-D`` properties.
            log_level: of the root logger.
        """
        self.name = name
        self.folder = folder
        self.log_path = folder / "logs" / f"{name}.log"
        self.on_start: Callable[[], None] = lambda: None
        self._main, self._args, self._classpath = main, list(args), classpath
        self._flags, self._log_level = list(jvm_flags), log_level
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running or last run JVM; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        """Whether the JVM exists; a suspended one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while running or never started; negative: the signal that ended it."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Starts the JVM and returns at once; a no-op while it is running."""
        if self.running:
            return
        flag = log4j_flag(self.log_path.parent, self._log_level)
        java = [str(find_java()), *self._flags, flag, "-XX:+ExitOnOutOfMemoryError"]
        java += ["-cp", self._classpath, self._main, *self._args]
        # -I -S: the leash needs the standard library only, and starts in 15 ms without site.
        leash = [sys.executable, "-I", "-S", str(_leash.__file__), str(os.getpid())]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*leash, *java],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _live.add(self)
        self.on_start()

    def signal(self, number: int) -> None:
        """Sends a signal; a no-op when the JVM is gone."""
        if self._process is not None:
            self._process.send_signal(number)

    def suspend(self) -> None:
        """Freezes the JVM (SIGSTOP): connections stay open, nothing answers."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undoes ``suspend``."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the JVM with SIGKILL and waits until it is gone; ``start`` may follow."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def terminate(self) -> None:
        """Asks the JVM to shut down in order, also when it is suspended; does not wait."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def join(self, timeout_s: float) -> bool:
        """Waits for the end of the JVM; False when it still runs after ``timeout_s``."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, grace_s: float = 5.0) -> None:
        """SIGTERM, then SIGKILL after ``grace_s``."""
        stop_all([self], grace_s)

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log; empty when there is none yet."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 400 * lines))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])

    def condition(self) -> str:
        """Whether the JVM runs, waits or is stopped, and what it has used: why it may be slow."""
        try:
            process = psutil.Process(self.pid)
            used = sum(process.cpu_times()[:2])
            load, cores = psutil.getloadavg()[0], psutil.cpu_count()
            state = process.status()
        except psutil.Error as error:
            return str(error)
        return (
            f"Process {self.pid} is {state} and has used {used:.1f} s of CPU;"
            f" the machine has {cores} cores and a load of {load:.0f}."
        )

    def require_running(self) -> None:
        """Raises LabError ``lab.died`` with the end of the log when the JVM has ended."""
        if not self.running:
            message = f"{self.name} ended with {self.exit_code}. Its log ends with:\n"
            raise LabError("lab.died", message + self.log_tail(), f"The whole log: {self.log_path}")


def stop_all(processes: Sequence[JavaProcess], grace_s: float) -> None:
    """Stops several at once: SIGTERM to all, and SIGKILL to what is left after ``grace_s``."""
    running = [process for process in processes if process.running]
    if grace_s > 0:
        for process in running:
            process.terminate()
        deadline = time.monotonic() + grace_s
        for process in running:
            process.join(deadline - time.monotonic())
    for process in running:
        process.kill()


@atexit.register
def _kill_leftovers() -> None:
    for process in list(_live):
        process.kill()
