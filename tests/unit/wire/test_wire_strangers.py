"""What is said when the other end is not a Kafka listener of the expected kind."""

from __future__ import annotations

import socket
import ssl
import struct

import pytest
from servers import answering, server

from heliograph.model import ClientSettings
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    NotKafka,
    is_retriable,
)
from heliograph.wire.security import Security

PLAINTEXT = Security("PLAINTEXT")


def hang_up(link: socket.socket) -> None:
    link.recv(4096)


def say_nothing(link: socket.socket) -> None:
    while link.recv(4096):
        pass


def dial(port: int, security: Security = PLAINTEXT, timeout: float = 60.0) -> Connection:
    return Connection.open("127.0.0.1", port, security, "test", timeout)


def test_http_is_named_by_its_first_bytes():
    with (
        server(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port,
        pytest.raises(NotKafka, match=r"not with the Kafka protocol.*'HTTP'"),
    ):
        dial(port)


@pytest.mark.parametrize("first", [b"\x15\x03\x03\x00\x02\x02\x32", b"\x16\x03\x01\x00\x40"])
def test_tls_answers_are_recognised(first):
    with (
        server(answering(first)) as port,
        pytest.raises(NotKafka, match=rf"127\.0\.0\.1:{port} speaks TLS.*plaintext"),
    ):
        dial(port)


def test_a_listener_that_hangs_up():
    with (
        server(hang_up) as port,
        pytest.raises(NotKafka, match=r"closed it again without an answer.*PLAINTEXT"),
    ):
        dial(port)


def test_a_listener_that_says_nothing_is_given_up():
    with server(say_nothing) as port, pytest.raises(ConnectionFailed, match="no answer within"):
        dial(port, timeout=0.3)


def test_a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=rf"cannot connect to 127\.0\.0\.1:{port}") as info:
        dial(port)
    assert is_retriable(info.value)


def test_tls_where_there_is_none():
    context = ssl.create_default_context()
    security = Security("SSL", ssl_context=context)
    with (
        server(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port,
        pytest.raises(AuthenticationFailed, match=r"no TLS handshake.*PLAINTEXT"),
    ):
        dial(port, security)


def test_an_answer_to_another_question_breaks_the_connection():
    with (
        server(answering(struct.pack(">ii", 4, 99))) as port,
        pytest.raises(ConnectionFailed, match="answered request 99 instead of 1"),
    ):
        dial(port)


def test_every_bootstrap_server_is_tried_and_named():
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as two:
        ports = [s.getsockname()[1] for s in (one, two)]
    servers = ",".join(f"127.0.0.1:{p}" for p in ports)
    settings = ClientSettings("east", {"bootstrap.servers": servers})
    with (
        ClusterClient(settings, "test") as client,
        pytest.raises(ConnectionFailed, match="no broker of cluster east answers") as info,
    ):
        client.metadata(())
    assert all(str(p) in str(info.value) for p in ports)


def test_a_stranger_among_dead_servers_is_what_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    with server(answering(b"SSH-2.0-OpenSSH\r\n")) as port:
        settings = ClientSettings(
            "east", {"bootstrap.servers": f"127.0.0.1:{dead},127.0.0.1:{port}"}
        )
        with ClusterClient(settings, "test") as client, pytest.raises(NotKafka, match="SSH-"):
            client.metadata(())


def test_retry_gives_up_at_once_on_what_will_not_change():
    calls = []

    def refuse() -> None:
        calls.append(1)
        raise AuthenticationFailed("wrong password")

    client = ClusterClient(ClientSettings("east", {}), "test")
    with pytest.raises(AuthenticationFailed):
        client.retry(refuse, 30)
    assert len(calls) == 1


def test_retry_goes_on_while_it_may_help():
    left = [ConnectionFailed("a"), ConnectionFailed("b")]

    def call() -> str:
        if left:
            raise left.pop()
        return "done"

    client = ClusterClient(ClientSettings("east", {}), "test")
    assert client.retry(call, 30) == "done"
    with pytest.raises(ConnectionFailed):
        client.retry(lambda: (_ for _ in ()).throw(ConnectionFailed("c")), 0.01)
