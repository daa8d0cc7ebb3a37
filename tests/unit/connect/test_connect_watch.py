"""Workers are watched by their addresses: only a refused connection shows that one was killed."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from heliograph.connect import watch as watch_module
from heliograph.connect.watch import Watch, _Seen, _try
from heliograph.wire.errors import ConnectionFailed

REACHED, REFUSED, UNKNOWN = _Seen.REACHED, _Seen.REFUSED, _Seen.UNKNOWN


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Watching:
    """A watch that looks often; how often it has looked at an address, and what it has told."""

    def __init__(self, monkeypatch) -> None:
        self.looks: Counter[str] = Counter()
        self.told: list[str] = []
        #: What is seen of addresses that are no real ones; the last one for ever.
        self.scripts: dict[str, list[_Seen]] = {}
        self.failures = 0
        monkeypatch.setattr(watch_module, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(watch_module, "_AGAIN_SECONDS", 0.01)
        monkeypatch.setattr(watch_module, "_try", self._look)
        self.watch = Watch(self._gone)

    def _look(self, address: str) -> _Seen:
        script = self.scripts.get(address)
        seen = _try(address) if script is None else script[0]
        if script is not None and len(script) > 1:
            del script[0]
        self.looks[address] += 1
        return seen

    def _gone(self, member: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionFailed("the coordinator is away")
        self.told.append(member)

    def look_at(self, address: str, times: int = 10) -> None:
        """Wait until it was looked at so many times more."""
        before = self.looks[address]
        wait_for(lambda: self.looks[address] >= before + times)


@pytest.fixture
def watching(monkeypatch) -> Iterator[Watching]:
    made = Watching(monkeypatch)
    yield made
    made.watch.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def address_of(bound: socket.socket) -> str:
    return f"127.0.0.1:{bound.getsockname()[1]}"


def serve(listener: socket.socket) -> None:
    """Accept and drop whatever comes, until the socket is closed."""

    def loop() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    threading.Thread(target=loop, daemon=True).start()


def test_a_worker_that_was_reached_and_refuses_is_told_once(watching, listener):
    address = address_of(listener)
    serve(listener)
    watching.watch.watch({"one": address})
    watching.look_at(address)
    assert watching.told == []
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    wait_for(lambda: watching.told)
    watching.watch.watch({"one": address})
    # Somebody else's looks show that time goes by.
    watching.scripts["x:1"] = [REACHED]
    watching.watch.watch({"one": address, "two": "x:1"})
    watching.look_at("x:1")
    assert watching.told == ["one"]


def test_a_worker_that_was_never_reached_is_left_to_the_coordinator(watching):
    """Its address may be a wrong one: the default one is not reached from other hosts."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody listens
        address = address_of(bound)
        assert _try(address) is REFUSED
        watching.watch.watch({"one": address})
        watching.look_at(address)
    assert watching.told == []


def test_a_worker_that_hangs_is_left_to_the_coordinator(watching, listener, monkeypatch):
    """First its kernel accepts connections, then there are too many and they time out."""
    monkeypatch.setattr(watch_module, "_CONNECT_SECONDS", 0.05)
    listener.listen(0)
    address = address_of(listener)
    assert _try(address) is REACHED
    watching.watch.watch({"one": address})
    watching.look_at(address)
    assert watching.told == []


@pytest.mark.parametrize("address", ["host:port", "[::1", "host:65536"])
def test_an_address_that_is_none_proves_nothing(address):
    assert _try(address) is UNKNOWN


def test_a_name_that_is_not_known_proves_nothing(monkeypatch):
    def connect(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", connect)
    assert _try("some.name:8083") is UNKNOWN


def test_all_addresses_of_a_name_have_to_refuse(monkeypatch):
    def failing(*errors):
        def connect(*_, **__):
            raise ExceptionGroup("all failed", list(errors))

        monkeypatch.setattr(socket, "create_connection", connect)
        return _try("some.name:8083")

    assert failing(ConnectionRefusedError(), ConnectionRefusedError()) is REFUSED
    assert failing(ConnectionRefusedError(), TimeoutError()) is UNKNOWN
    assert failing(ConnectionResetError()) is UNKNOWN


def test_refusals_before_it_was_reached_do_not_count(watching):
    watching.scripts["x:1"] = [REFUSED, REFUSED, REFUSED, REACHED, REFUSED, REACHED]
    watching.watch.watch({"one": "x:1"})
    watching.look_at("x:1", 20)
    assert watching.told == []


def test_refusals_with_something_else_in_between_do_not_count(watching):
    watching.scripts["x:1"] = [REACHED, *[REFUSED, UNKNOWN, REFUSED, REACHED] * 10]
    watching.watch.watch({"one": "x:1"})
    watching.look_at("x:1", 40)
    assert watching.told == []


def test_it_is_told_again_only_if_it_could_not_be_told(watching):
    watching.failures = 3
    watching.scripts["x:1"] = [REACHED, REFUSED]
    watching.watch.watch({"one": "x:1"})
    wait_for(lambda: watching.told)
    assert watching.failures == 0
    assert watching.told == ["one"]


def test_who_is_not_in_the_group_any_more_is_not_looked_at(watching):
    watching.scripts.update({"x:1": [REACHED], "x:2": [REACHED]})
    watching.watch.watch({"one": "x:1", "two": "x:2"})
    watching.look_at("x:1")
    watching.watch.watch({"two": "x:2"})
    watching.scripts["x:1"] = [REFUSED]
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "watching x:1"])
    watching.look_at("x:2")
    assert watching.told == []
