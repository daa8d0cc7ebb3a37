"""SIGTERM and Ctrl-C: a clean exit at any moment, an end at once for whoever sends two."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from heliograph import cli
from heliograph.cli import run
from heliograph.service import mirror as mirror_module
from heliograph.service.events import EventBus
from heliograph.service.pulse import Pulse
from heliograph.service.snapshot import MirrorSnapshot

SIGNALS = [signal.SIGTERM, signal.SIGINT]


def handles(process: subprocess.Popen[str], number: int) -> bool:
    """Whether the process has a handler of its own, by the kernel's word."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_modules_are_loaded_is_a_clean_stop(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-m", "heliograph", "run", str(tmp_path / "none")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    # Python has a handler for SIGINT from the beginning; both are set at once.
    while not handles(process, signal.SIGTERM):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(number)
    assert (process.communicate(timeout=120)[0], process.returncode) == ("", 0)


def test_a_signal_while_the_file_is_read_is_a_clean_stop(tmp_path):
    file = tmp_path / "mm2.properties"
    os.mkfifo(file)
    process = subprocess.Popen(
        [sys.executable, "-m", "heliograph", "run", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    # Returns when the other side reads.
    with file.open("wb"):
        process.send_signal(signal.SIGTERM)
        assert (process.communicate(timeout=120)[0], process.returncode) == ("", 0)


class SignalledMirror:
    """Sends ``numbers`` to its own process when it reaches the part ``at``."""

    def __init__(self, at: str, numbers: list[int]) -> None:
        self._at, self._numbers = at, numbers
        self.events, self.pulse = EventBus(), Pulse()

    def snapshot(self) -> MirrorSnapshot:
        return MirrorSnapshot(time.time(), ())

    def start(self) -> None:
        self._reach("start")

    def run_once(self) -> None:
        self._reach("run")

    def close(self) -> None:
        self._reach("close")
        print("closed", flush=True)

    def _reach(self, part: str) -> None:
        if part == self._at:
            for number in self._numbers:
                os.kill(os.getpid(), number)
                time.sleep(0.01)


def signalled(folder: Path, at: str, numbers: list[int]) -> tuple[str, int]:
    """What `run` prints, and its exit code, in a process of its own."""
    file, output = folder / "mm2.properties", folder / "output"
    servers = [f"{c}.bootstrap.servers = h:1" for c in "AB"]
    file.write_text("\n".join(["clusters = A, B", *servers, "A->B.enabled = true"]))
    process = multiprocessing.get_context("fork").Process(
        target=_run, args=(file, output, SignalledMirror(at, numbers))
    )
    process.start()
    process.join(120)
    assert process.exitcode is not None
    assert "Traceback" not in output.read_text()
    return output.read_text(), process.exitcode


def _run(file: Path, output: Path, mirror: SignalledMirror) -> None:
    written = os.open(output, os.O_CREAT | os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(written, descriptor)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
    replaced: Any = mirror_module
    replaced.Mirror = lambda *_, **__: mirror
    command: Any = run
    command.find_java = lambda: None
    sys.argv = ["heliograph", "run", str(file), "--once", "-o", "plain"]
    cli.main()


@pytest.mark.parametrize("at", ["start", "run", "close"])
@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_at_any_moment_is_a_clean_stop(tmp_path, at, number):
    said, code = signalled(tmp_path, at, [int(number)])
    assert code == 0
    assert "closed\n" in said


@pytest.mark.parametrize("numbers", [[15, 15], [2, 2], [15, 2], [2, 15]])
def test_a_second_signal_ends_it_at_once(tmp_path, numbers):
    said, code = signalled(tmp_path, "close", numbers)
    assert code == 128 + numbers[1]
    assert "closed" not in said
