"""A client that several threads share: nobody waits for another's answer, few connections stay."""

from __future__ import annotations

import threading
import time

import pytest

from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.errors import ConnectionFailed
from heliograph.wire.metadata import Metadata


class Broker:
    """All connections that were opened. A request waits while ``held`` is not set."""

    def __init__(self):
        self.opened = []
        self.held = threading.Event()
        self.held.set()
        self.asked = threading.Semaphore(0)
        self.down = set()

    @property
    def alive(self):
        return [c for c in self.opened if not c.closed]


class FakeConnection:
    def __init__(self, broker, address):
        self.broker, self.address = broker, address
        self.closed, self.in_flight, self.throttled = False, 0, 0.0
        self.users = 0

    def request(self, message, timeout):
        self.users += 1
        assert self.users == 1, "two requests at once"
        self.broker.asked.release()
        assert self.broker.held.wait(60)
        self.users -= 1
        if message == "broken":
            self.closed = True
            raise ConnectionFailed("closed by the broker")
        if message == "lost":
            self.in_flight = 1
            raise ConnectionFailed("no answer")
        return self.address

    def supports(self, api_key, version):
        return True

    def close(self):
        self.closed = True


@pytest.fixture
def broker(monkeypatch):
    made = Broker()

    def dial(host, port, security, client_id, timeout):
        if f"{host}:{port}" in made.down:
            raise ConnectionFailed("refused")
        connection = FakeConnection(made, f"{host}:{port}")
        made.opened.append(connection)
        return connection

    monkeypatch.setattr(Connection, "open", dial)
    return made


@pytest.fixture
def client(broker):
    settings = ClientSettings("A", {"bootstrap.servers": "boot:1"})
    made = ClusterClient(settings, "test")
    made._metadata = Metadata("c", 1, {1: ("one", 1), 2: ("two", 2)}, {})
    return made


def test_one_after_the_other_share_a_connection(client, broker):
    for _ in range(5):
        assert client.request("x", 1) == "one:1"
    assert len(broker.opened) == 1


def test_at_once_they_have_one_each_and_two_are_kept(client, broker):
    broker.held.clear()
    threads = [threading.Thread(target=client.request, args=("x", 1)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert broker.asked.acquire(timeout=60)
    broker.held.set()
    for thread in threads:
        thread.join(60)
    assert len(broker.opened) == 5
    assert len(broker.alive) == 2
    client.close()
    assert broker.alive == []


def test_one_whose_answer_is_outstanding_is_not_used_again(client, broker):
    with pytest.raises(ConnectionFailed):
        client.request("lost", 1)
    assert broker.alive == []


def test_a_broken_connection_takes_its_siblings_along(client, broker):
    with client.lent(1), client.lent(1):
        pass
    assert len(broker.alive) == 2
    with pytest.raises(ConnectionFailed):
        client.request("broken", 1)
    assert broker.alive == []


def test_any_broker_is_one_that_is_connected_and_not_avoided(client, broker):
    client.request("x", 2)
    assert client.request("x") == "two:2"
    client.avoided = {2}
    assert client.request("x") == "one:1"
    assert len(broker.opened) == 2


def test_bootstrap_servers_are_for_the_beginning_and_for_the_worst(client, broker):
    known, client._metadata = client._metadata, None
    assert client.request("x") == "boot:1"
    client._metadata = known
    client.request("x", 1)
    assert [c.address for c in broker.alive] == ["one:1"]
    client.close()
    broker.down = {"one:1", "two:2"}
    assert client.request("x") == "boot:1"


def test_what_is_lent_when_the_client_is_closed_is_closed_when_it_comes_back(client, broker):
    broker.held.clear()
    thread = threading.Thread(target=client.request, args=("x", 1))
    thread.start()
    assert broker.asked.acquire(timeout=60)
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 50, "it waits for nobody"
    broker.held.set()
    thread.join(60)
    assert broker.alive == []
    assert client.request("x", 1) == "one:1"
