"""``--daemon`` and ``--pid-file``: a process that leaves its terminal. Imports next to nothing.

The process forks before anything heavy is imported: threads and Spark's JVM do not survive a fork.
The one that was started waits until the mirror runs or has failed, and ends with its exit code.
Until then both have the same terminal, so errors are read where the command was typed.

A pid file is locked for as long as its process lives. So a second start knows that there is a
first, and a file that a killed process left is no obstacle.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from heliograph.errors import StartError

__all__ = ["begin", "daemon_options", "end", "ready"]

_DIED = 70


class _State:
    """Of this process; there is one."""

    #: Where whoever waits for the daemon listens, until it is ready.
    told: int | None = None
    pid_file: PidFile | None = None


def daemon_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that can be daemons; `begin` has seen to them."""
    for option in (
        click.option("--pid-file", type=click.Path(path_type=Path), expose_value=False,
                     help="Keep the process id in this file; refuse to start if the one in it"
                     " runs."),
        click.option("--daemon", is_flag=True,
                     help="Leave the terminal once the mirror runs; needs --pid-file and"
                     " --log-file."),
    ):  # fmt: skip
        command = option(command)
    return command


class PidFile:
    """A file with the id of the process that holds it."""

    def __init__(self, path: Path) -> None:
        """Take it; raises StartError if another process has it."""
        self._path = path.absolute()
        while True:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._taken() from None
            # Whoever had it may have removed it between the two calls: then this is no file.
            if self._is_there():
                return
            os.close(self._descriptor)

    def _taken(self) -> StartError:
        pid = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
        os.close(self._descriptor)
        who = f"process {pid}" if pid.isdigit() else "a process that is just starting"
        hint = f"kill -TERM {pid} stops it" if pid.isdigit() else "try again in a moment"
        return StartError("daemon.running", f"{who} runs, by {self._path}", hint)

    def _is_there(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        return False

    def write(self) -> None:
        """Put this process's id into it."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def remove(self) -> None:
        """While it is still locked."""
        with suppress(OSError):
            if self._is_there():
                self._path.unlink()


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option("--daemon", is_flag=True)
@click.option("--pid-file", type=click.Path(path_type=Path))
@click.option("--log-file", envvar="HELIOGRAPH_LOG_FILE")
def _early() -> None:
    """What of a command line matters before its command is known."""


def begin(arguments: Sequence[str]) -> None:
    """Take the pid file and become a daemon, if a command line asks for it.

    Returns in the process that goes on. Raises UsageError, and StartError if one runs already.
    """
    if {"-h", "--help"} & set(arguments):
        return
    found = _early.make_context("heliograph", list(arguments)).params
    if found["daemon"] and not (found["pid_file"] and found["log_file"]):
        raise click.UsageError("--daemon needs --pid-file and --log-file")
    if found["pid_file"]:
        _State.pid_file = PidFile(found["pid_file"])
    if found["daemon"]:
        _leave()
    if _State.pid_file is not None:
        _State.pid_file.write()


def _leave() -> None:
    """Fork twice: the daemon is nobody's child, and can never get a terminal again."""
    heard, _State.told = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os.close(_State.told)
        _await(heard)
    os.close(heard)
    os.setsid()
    if os.fork():
        os._exit(0)
    _tell(f"pid {os.getpid()}")


def _await(heard: int) -> NoReturn:
    """In the process that was started: end as the daemon does, or when it is ready."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pid, code = 0, -1
    try:
        os.wait()
        with os.fdopen(heard, encoding="ascii") as lines:
            for line in lines:
                word, _, value = line.strip().partition(" ")
                if word == "pid":
                    pid = int(value)
                elif word == "ready":
                    print(f"heliograph runs as process {pid}")
                    code = 0
                elif word == "exit":
                    code = int(value)
        if code < 0:
            code = _DIED
            print(f"error: process {pid} ended before the mirror ran", file=sys.stderr)
    except KeyboardInterrupt:
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        code = 128 + signal.SIGINT
    sys.stdout.flush()
    os._exit(code)


def _tell(line: str) -> None:
    if _State.told is not None:
        with suppress(OSError):  # nobody waits any more
            os.write(_State.told, f"{line}\n".encode())


def ready() -> None:
    """The mirror runs: whoever waits may end, and the terminal is left. Idempotent."""
    if _State.told is None:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    _tell("ready")
    _hang_up()


def _hang_up() -> None:
    if _State.told is not None:
        os.close(_State.told)
        _State.told = None


def end(code: int) -> None:
    """The process ends with this exit code."""
    if _State.pid_file is not None:
        _State.pid_file.remove()
    _tell(f"exit {code}")
    _hang_up()
