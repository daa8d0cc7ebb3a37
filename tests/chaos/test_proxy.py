"""The proxies do what they say, with a stand-in for a broker that answers each request at once."""

import socket
import socketserver
import struct
import threading
import time

import pytest
from mirroring import wait_for
from proxy import FETCH, NO_FAULTS, PRODUCE, Faults, Proxies, flip

from heliograph.batch.header import crc_matches, header_at
from heliograph.batch.records import Record, build

HOST = "127.0.0.1"


class Answering(socketserver.StreamRequestHandler):
    """Answers with the correlation id, the API key and what was sent."""

    server: "Broker"

    def handle(self):
        while head := self.rfile.read(4):
            body = self.rfile.read(int.from_bytes(head, "big"))
            api, _version, correlation_id = struct.unpack_from(">hhi", body)
            self.server.requests.append((api, correlation_id))
            answer = struct.pack(">ih", correlation_id, api) + body[8:]
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


class Broker(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    requests: list


@pytest.fixture(scope="module")
def stand():
    with Broker((HOST, 0), Answering) as broker, Proxies(1) as proxies:
        broker.requests = []
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        [port] = proxies.ports
        proxies.point(port, broker.server_address[1])
        yield broker, proxies, port
        broker.shutdown()


@pytest.fixture
def proxied(stand):
    """(requests that reached the broker, the proxies, their port), no fault being set."""
    broker, proxies, port = stand
    proxies.set(port, NO_FAULTS)
    # Those of the test before are closed by and by.
    wait_for(lambda: proxies.stats(port).open == 0)
    broker.requests.clear()
    yield broker.requests, proxies, port
    proxies.set(port, NO_FAULTS)


def request(api, correlation_id, payload=b""):
    body = struct.pack(">hhi", api, 0, correlation_id) + payload
    return struct.pack(">i", len(body)) + body


class Client:
    def __init__(self, port, timeout=60):
        self.socket = socket.create_connection((HOST, port), timeout)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, api, correlation_id, payload=b""):
        self.socket.sendall(request(api, correlation_id, payload))

    def receive(self):
        """The next answer's correlation id; None when the connection is gone."""
        try:
            head = self.file.read(4)
            body = self.file.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        except ConnectionResetError:
            return None
        return struct.unpack_from(">i", body)[0] if len(body) >= 4 else None

    def silent(self, seconds=0.5):
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b"?"
        except TimeoutError:
            return True


def test_without_faults_everything_passes(proxied):
    requests, proxies, port = proxied
    with Client(port) as client:
        for n in range(5):
            client.send(FETCH, n, b"x" * 100_000)
        assert [client.receive() for _ in range(5)] == [0, 1, 2, 3, 4]
        assert proxies.stats(port).open == 1
    assert len(requests) == 5


def test_a_delay_is_added_each_way_and_does_not_add_up(proxied):
    _, proxies, port = proxied
    proxies.set(port, Faults(delay=0.2))
    with Client(port) as client:
        began = time.monotonic()
        for n in range(200):
            client.send(FETCH, n)
        assert [client.receive() for _ in range(200)] == list(range(200))
        assert 0.4 <= time.monotonic() - began < 60  # one after the other: 80 s


def test_what_is_held_goes_on_afterwards_also_of_clients_that_went_away(proxied):
    requests, proxies, port = proxied
    with Client(port) as client, Client(port) as impatient:
        proxies.set(port, Faults(hold=True))
        client.send(FETCH, 1)
        impatient.send(PRODUCE, 2)
        assert client.silent()
        assert not requests
        impatient.__exit__()
        time.sleep(0.2)
        proxies.set(port, NO_FAULTS)
        client.socket.settimeout(60)
        assert client.receive() == 1
    wait_for(lambda: (PRODUCE, 2) in requests)


def test_what_is_stranded_arrives_late_and_new_connections_go_on(proxied):
    requests, proxies, port = proxied
    with Client(port) as gone:
        gone.send(FETCH, 1)
        assert gone.receive() == 1
        assert proxies.strand(port) >= 1
        for n in (2, 3, 4):
            gone.send(PRODUCE, n)
        with Client(port) as client:
            client.send(FETCH, 5)
            assert client.receive() == 5
    assert not [api for api, _ in requests if api == PRODUCE]
    proxies.land(port)
    wait_for(lambda: [n for api, n in requests if api == PRODUCE] == [2, 3, 4])


def test_a_stalled_connection_keeps_requests_with_their_sender(proxied):
    requests, proxies, port = proxied
    with Client(port) as client, Client(port) as other:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.send(PRODUCE, 1)
        other.send(FETCH, 2)
        assert (client.receive(), other.receive()) == (1, 2)
        proxies.set(port, Faults(stall=True, api=PRODUCE))
        other.send(FETCH, 3)
        assert other.receive() == 3
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.send(PRODUCE, 4, b"x" * (32 << 20))
        assert (PRODUCE, 4) not in requests


def test_refused_connections_and_cut_ones(proxied):
    _, proxies, port = proxied
    with Client(port) as client:
        client.send(FETCH, 1)
        assert client.receive() == 1
        proxies.set(port, Faults(refuse=True))
        with pytest.raises(ConnectionRefusedError):
            Client(port)
        client.send(FETCH, 2)
        assert client.receive() == 2
        assert proxies.cut(port) == 1
        assert client.receive() is None
    proxies.set(port, NO_FAULTS)
    with Client(port) as client:
        client.send(FETCH, 3)
        assert client.receive() == 3


def test_a_connection_is_cut_within_an_answer(proxied):
    _, proxies, port = proxied
    proxies.set(port, Faults(drop_after=1000))
    with Client(port) as client:
        client.send(FETCH, 1, b"x" * 500)
        assert client.receive() == 1
        client.send(FETCH, 2, b"x" * 5000)
        rest = client.file.read()
        assert len(rest) == 1000 - 4 - 6 - 500


def test_only_answers_of_one_api_are_lost_and_the_request_arrives(proxied):
    requests, proxies, port = proxied
    before = proxies.stats(port).hits
    proxies.set(port, Faults(answers="drop", api=PRODUCE, times=1))
    with Client(port) as client:
        client.send(FETCH, 1)
        assert client.receive() == 1
        client.send(PRODUCE, 2)
        assert client.receive() is None
    assert requests == [(FETCH, 1), (PRODUCE, 2)]
    assert proxies.stats(port).hits == before + 1
    with Client(port) as client:  # only once
        client.send(PRODUCE, 3)
        assert client.receive() == 3


def test_a_muted_connection_stays_and_says_nothing_more(proxied):
    requests, proxies, port = proxied
    proxies.set(port, Faults(answers="mute", api=PRODUCE, times=1))
    with Client(port) as client:
        client.send(PRODUCE, 1)
        client.send(FETCH, 2)
        wait_for(lambda: requests == [(PRODUCE, 1), (FETCH, 2)])
        assert client.silent()


def test_answers_come_twice_or_in_another_order(proxied):
    _, proxies, port = proxied
    proxies.set(port, Faults(answers="duplicate", times=1))
    with Client(port) as client:
        client.send(FETCH, 1)
        assert [client.receive(), client.receive()] == [1, 1]
    proxies.set(port, Faults(answers="swap", times=1, delay=0.1))
    with Client(port) as client:
        # At once: the first is answered when the proxy knows of the second.
        client.socket.sendall(request(FETCH, 1) + request(FETCH, 2))
        assert [client.receive(), client.receive()] == [2, 1]


def test_a_narrow_link_takes_its_time(proxied):
    _, proxies, port = proxied
    proxies.set(port, Faults(bandwidth=100_000))
    with Client(port) as client:
        began = time.monotonic()
        client.send(FETCH, 1, b"x" * 50_000)
        assert client.receive() == 1
        assert time.monotonic() - began > 0.8  # half a second each way, nearly


def test_a_flipped_bit_is_one_that_the_crc_covers():
    batch = bytes(build([Record(n, 1000 + n, b"key", b"value" * 10) for n in range(20)], codec=0))
    frame = b"\0\0\1\0" + bytes(60) + batch + b"\0\0"
    damaged = flip(frame)
    assert sum((a ^ b).bit_count() for a, b in zip(frame, damaged, strict=True)) == 1
    for data, sound in ((frame, True), (damaged, False)):
        found = memoryview(bytearray(data[64:-2]))
        assert crc_matches(header_at(found, 0), found) == sound
    assert flip(b"\0" * 300) is None
