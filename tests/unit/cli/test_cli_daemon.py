"""``--daemon`` and ``--pid-file``, with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

DAEMONS = Path(__file__).with_name("daemons.py")


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


class Place:
    """A folder with a file to mirror by, and what is started in it."""

    def __init__(self, folder):
        self.pid_file, self.log = folder / "pid", folder / "log"
        self.file = folder / "mm2.properties"
        self.options = ["--pid-file", str(self.pid_file), "--log-file", str(self.log)]
        servers = [f"{c}.bootstrap.servers = h:1" for c in "AB"]
        self.file.write_text("\n".join(["clusters = A, B", *servers, "A->B.enabled = true"]))

    def command(self, *args, start="run", file=None):
        made = [sys.executable, str(DAEMONS), start, "run", str(file or self.file)]
        return [*made, *self.options, *args]

    def run(self, *args, **how):
        # With a pipe that a daemon kept open, this would not return.
        return subprocess.run(
            self.command(*args, **how), capture_output=True, text=True, timeout=300, check=False
        )

    @property
    def pid(self):
        return int(self.pid_file.read_text())


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    if made.pid_file.exists() and made.pid_file.read_text().strip():
        left = psutil.Process(made.pid)
        assert str(DAEMONS) in left.cmdline()
        left.kill()


def test_a_daemon_from_its_start_to_its_end(place):
    started = place.run("--daemon")
    assert (started.returncode, started.stderr) == (0, "")
    pid = place.pid
    assert started.stdout == f"heliograph runs as process {pid}\n"
    daemon = psutil.Process(pid)
    assert os.getsid(pid) != os.getsid(0)
    assert os.getsid(pid) != pid, "only the leader of a session can get a terminal"
    assert [str(Path(f"/proc/{pid}/fd/{n}").readlink()) for n in (0, 1, 2)] == [os.devnull] * 3
    again = place.run("--daemon")
    assert again.returncode == 3
    assert re.search(rf"process {pid} runs, by .*pid", " ".join(again.stderr.split()))
    assert f"kill -TERM {pid}" in again.stderr
    in_front = place.run()
    assert in_front.returncode == 3, "so is one that is no daemon"
    assert place.pid == pid
    daemon.send_signal(signal.SIGTERM)
    wait_for(lambda: not psutil.pid_exists(pid))
    assert not place.pid_file.exists()
    said = place.log.read_text()
    assert "mirroring A->B; starting ..." in said
    assert "stopping ..." in said


def test_the_file_of_one_that_was_killed_is_no_obstacle(place):
    assert place.run("--daemon").returncode == 0
    killed = place.pid
    psutil.Process(killed).kill()
    wait_for(lambda: not psutil.pid_exists(killed))
    assert place.pid == killed, "nobody removed it"
    assert place.run("--daemon").returncode == 0
    assert place.pid != killed


def test_errors_at_the_start_reach_the_terminal(place, tmp_path):
    wrong = place.run("--daemon", file=tmp_path / "missing")
    assert wrong.returncode == 2
    assert "missing" in wrong.stderr
    assert not place.pid_file.exists()
    failed = place.run("--daemon", start="fail")
    assert failed.returncode == 3
    assert "cluster A does not answer" in failed.stderr
    assert not place.pid_file.exists()
    assert "ERROR [cluster.unreachable] cluster A does not answer" in place.log.read_text()


def test_one_that_dies_at_the_start_is_no_success(place):
    died = place.run("--daemon", start="die")
    assert died.returncode == 70
    assert "ended before the mirror ran" in died.stderr
    place.pid_file.unlink()


def test_a_daemon_needs_both_files(place):
    place.options = ["--pid-file", str(place.pid_file)]
    done = place.run("--daemon")
    assert (done.returncode, done.stdout) == (255, "")
    assert "--daemon needs --pid-file and --log-file" in done.stderr
    assert not place.pid_file.exists()


def test_a_pid_file_without_a_daemon(place):
    with subprocess.Popen(place.command("-o", "plain"), stdout=subprocess.PIPE, text=True) as made:
        wait_for(lambda: place.pid_file.exists() and place.pid_file.read_text())
        assert place.pid == made.pid
        wait_for(lambda: place.log.exists() and "starting" in place.log.read_text())
        made.terminate()
        assert "stopping ..." in made.communicate(timeout=120)[0]
        assert made.returncode == 0
    assert not place.pid_file.exists()
