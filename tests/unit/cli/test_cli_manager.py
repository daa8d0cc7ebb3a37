"""What systemd is told, over real sockets."""

from __future__ import annotations

import os
import secrets
import socket
import threading

import pytest

from heliograph.cli.manager import Manager
from heliograph.service.pulse import Pulse, Stuck


class Systemd:
    """Listens where NOTIFY_SOCKET says."""

    def __init__(self, name):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        self._socket.settimeout(60)

    def hear(self):
        return self._socket.recv(4096).decode().split("\n")

    def hear_nothing(self, seconds):
        self._socket.settimeout(seconds)
        with pytest.raises(TimeoutError):
            self._socket.recv(4096)
        self._socket.settimeout(60)

    def close(self):
        self._socket.close()


@pytest.fixture(params=["a file", "an abstract name"])
def systemd(request, tmp_path, monkeypatch):
    abstract = f"@heliograph-test-{secrets.token_hex(8)}"
    name = str(tmp_path / "notify") if request.param == "a file" else abstract
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    made = Systemd(name)
    yield made
    made.close()


def test_ready_and_stopping(systemd):
    with Manager(list) as manager:
        manager.ready("mirroring A->B\nREADY=0")
        assert systemd.hear() == ["READY=1", "STATUS=mirroring A->B\\nREADY=0"]
        manager.stopping()
        assert systemd.hear() == ["STOPPING=1", "STATUS=stopping"]
    assert "NOTIFY_SOCKET" not in os.environ, "Spark must not speak for the mirror"


def test_signs_of_life_end_when_a_loop_hangs_and_come_back_with_it(systemd, monkeypatch):
    """A thread that really hangs, and the heartbeat that it really does not touch."""
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setattr("heliograph.service.pulse._BOUND_SECONDS", 2.0)
    pulse, goes, ends = Pulse(), threading.Event(), threading.Event()
    goes.set()

    def loop():
        beat = pulse.beat("a loop")
        while not ends.wait(0.01):
            beat.touch()
            goes.wait(60)

    looping = threading.Thread(target=loop)
    looping.start()
    try:
        with Manager(pulse.stuck) as manager:
            manager.ready("mirroring A->B")
            assert systemd.hear()[0] == "READY=1"
            for _ in range(3):
                assert systemd.hear() == ["WATCHDOG=1"]
            goes.clear()
            heard = systemd.hear()
            while heard == ["WATCHDOG=1"]:
                heard = systemd.hear()
            assert heard[0].startswith("STATUS=stuck: a loop for ")
            systemd.hear_nothing(0.5)
            goes.set()
            assert systemd.hear() == ["WATCHDOG=1", "STATUS=mirroring A->B"]
            assert systemd.hear() == ["WATCHDOG=1"]
    finally:
        ends.set()
        goes.set()
        looping.join()
    assert not {"WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_signs_of_life_where_nobody_wants_them(systemd, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with Manager(list) as manager:
        assert not manager._thread.is_alive()
        manager.ready("x")
        assert systemd.hear()[0] == "READY=1"


def test_without_a_manager_nothing_is_said(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "1000")
    with Manager(lambda: [Stuck("x", 1.0)]) as manager:
        manager.ready("x")
        manager.stopping()
        assert not manager._thread.is_alive()


def test_a_manager_that_is_gone_is_no_obstacle(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with Manager(list) as manager:
        manager.ready("x")
    assert "cannot be told READY=1" in caplog.text
