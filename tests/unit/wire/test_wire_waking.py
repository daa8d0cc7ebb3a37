"""When a poller is woken for what a broker says, and until when anything leaves."""

from __future__ import annotations

import select
import socket
import time

import pytest

from heliograph.wire.connection import Connection
from heliograph.wire.errors import ConnectionFailed
from heliograph.wire.security import Security


@pytest.fixture
def ends():
    """A connection without a handshake, and the broker's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        connection = Connection(host, port, Security("PLAINTEXT"), "test")
        connection._connect(5.0)
        broker, _ = listener.accept()
        with broker:
            yield connection, broker
        connection.close()


def readable(connection, timeout):
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def test_answers_are_gathered(ends):
    connection, broker = ends
    connection.wake_for(10)
    broker.sendall(b"123456789")
    assert not readable(connection, 0.05)
    broker.sendall(b"0")
    assert readable(connection, 5)


def test_the_end_wakes_in_any_case(ends):
    connection, broker = ends
    connection.wake_for(10)
    broker.close()
    assert readable(connection, 5)


def test_what_was_read_of_an_answer_counts(ends):
    connection, broker = ends
    connection._expected.append(0)
    broker.sendall(b"\0\0\0\x0c" + b"\0\0\0\0" + b"part")  # 4 of the 12 bytes are still to come
    assert readable(connection, 5)
    assert connection.receive() is None
    connection.wake_for(16)
    broker.sendall(b"rest")
    assert readable(connection, 5)
    assert bytes(connection.receive()) == b"partrest"


def test_requests_that_leave_together_arrive_in_order(ends):
    connection, broker = ends
    connection.send(18, 0, False, [b"first"], flush=False)
    assert not readable(broker, 0.05)
    connection.send(18, 0, False, [b"", memoryview(b"second")], flush=False)
    assert connection.wants_write
    connection.flush()
    assert not connection.wants_write
    received = broker.recv(1000)
    assert received.index(b"first") < received.index(b"second")


def test_a_request_that_the_kernel_does_not_take_at_once(ends):
    connection, broker = ends
    parts = [bytes([i]) * 99_991 for i in range(200)]
    connection.send(18, 0, False, parts)
    received = bytearray()
    size = 4 + 4 + 2 + 2 + 4 + len("test") - 2 + sum(map(len, parts))
    while len(received) < size:
        connection.flush()
        received += broker.recv(1 << 20)
    assert not connection.wants_write
    assert received.endswith(b"".join(parts))


def test_the_rest_of_a_request_does_not_leave_after_its_time(ends):
    """A process that was stopped in the middle of it, and goes on when another has its place."""
    connection, broker = ends
    connection.send(0, 0, flexible=False, parts=[bytes(64 << 20)])
    assert connection.wants_write, "more than the kernel takes"
    connection.send_by = time.time() - 1
    with pytest.raises(ConnectionFailed, match="the time to write is over"):
        connection.flush()
    assert connection.closed
    broker.settimeout(10)
    arrived = 0
    while piece := broker.recv(1 << 20):
        arrived += len(piece)
    assert arrived < 64 << 20, "so it was never a request"


def test_nothing_leaves_after_its_time(ends):
    connection, broker = ends
    connection.send_by = time.time() - 1
    with pytest.raises(ConnectionFailed):
        connection.send(0, 0, flexible=False, parts=[b"late"])
    broker.settimeout(10)
    assert broker.recv(100) == b""
