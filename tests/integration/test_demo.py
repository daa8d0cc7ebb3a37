"""The demo as a newcomer runs it: it ends well, by itself, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

DEMO = [sys.executable, "-m", "heliograph", "demo", "--records", "200000"]


def left_behind(folder: Path) -> list[str]:
    """Processes that know the folder: brokers by their arguments, the mirror's by their TMPDIR."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            command = process.cmdline()
            words = [*command, *process.environ().values()]
        except psutil.Error:
            continue
        if any(str(folder) in word for word in words):
            found.append(f"{process.pid} {' '.join(command)[:200]}")
    return found


def test_demo_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(
        [*DEMO, "--folder", str(folder)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing lost, nothing twice" in done.stdout
    assert "at the same offsets" in done.stdout
    assert "kill -9" in done.stdout
    assert "What to try next" in done.stdout
    assert "\x1b" not in done.stdout, "control characters in piped output"
    assert not left_behind(folder)
    assert not folder.exists()


@pytest.mark.full
def test_ctrl_c_while_the_mirror_starts_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = subprocess.Popen(
        [*DEMO, "--folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs the tests in the background has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "heliograph run" in line:
                break
        # Late enough for the JVM of Spark to be there, early enough for nothing to be copied.
        time.sleep(2)
        assert left_behind(folder)
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=120)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 130, said
    assert "nothing is left running" in said
    assert not left_behind(folder)
    assert not folder.exists()


def test_a_folder_with_data_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    done = subprocess.run(
        [*DEMO, "--folder", str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "[demo.folder]" in done.stderr
    assert (tmp_path / "precious").read_text() == "data"
