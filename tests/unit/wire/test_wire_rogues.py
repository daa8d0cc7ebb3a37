"""Servers that answer, and mean no good: typed errors, and no more than a moment's work."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from servers import answering, frame, receive, sasl_server, server

from heliograph.model import ClientSettings
from heliograph.wire import oauth
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.connection import Connection
from heliograph.wire.errors import AuthenticationFailed, CredentialsRefused, NotKafka, WireError
from heliograph.wire.oauth import ClientCredentials
from heliograph.wire.security import Security

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=p;"


def settings(port: int, **properties: str) -> ClientSettings:
    return ClientSettings("A", {
        "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS, **properties,
    })  # fmt: skip


def dial(port: int) -> Connection:
    security = Security.from_settings(settings(port))
    return Connection.open("127.0.0.1", port, security, "test", 5)


# -- SCRAM ------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [b"1", b"4095", b"-1", b"", b"x", b"4096e", b"1" * 40])
def test_scram_with_few_iterations_is_refused(iterations):
    def behave(link: socket.socket) -> None:
        nonce = b""

        def answer(body: bytes) -> bytes:
            return b"r=" + nonce + b"x,s=c2FsdA==,i=" + iterations

        while True:
            key, correlation_id, rest = receive(link)
            if key == 36:
                nonce = rest.rpartition(b"r=")[2]
                message = answer(rest)
                link.sendall(
                    frame(correlation_id, struct.pack(">hhi", 0, -1, len(message)) + message)
                )
            elif key == 17:
                name = b"SCRAM-SHA-256"
                link.sendall(frame(correlation_id, struct.pack(">hih", 0, 1, len(name)) + name))
            else:
                apis = b"".join(struct.pack(">hhh", k, 0, 0) for k in (3, 17, 18, 36))
                link.sendall(frame(correlation_id, struct.pack(">hi", 0, 4) + apis))

    text = "Iteration count" if iterations == b"1" * 40 else "do not protect the password"
    with server(behave) as port, pytest.raises(AuthenticationFailed, match=text):
        dial(port)


@pytest.mark.parametrize(
    "message", [b"", b"\xff\xfe", b"r", b"r=x", b"=,=,=", b"e=other-error", b"r=,s=,i=4096"]
)
def test_malformed_scram_has_a_typed_error(message):
    with (
        server(sasl_server(message)) as port,
        pytest.raises(AuthenticationFailed, match=r"SASL with 127\.0\.0\.1:\d+ failed"),
    ):
        dial(port)


# -- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\x05" + b"\0" * 7, b"\xff" * 40],
)
def test_malformed_versions_have_a_typed_error(body):
    with server(answering(frame(1, body))) as port:
        with pytest.raises(WireError) as raised:
            Connection.open("127.0.0.1", port, Security("PLAINTEXT"), "test", 5)
        assert str(port) in str(raised.value)


def test_a_stranger_may_not_claim_a_large_frame():
    with (
        server(answering(struct.pack(">i", 300 << 20) + b"x" * 100)) as port,
        pytest.raises(NotKafka),
    ):
        Connection.open("127.0.0.1", port, Security("PLAINTEXT"), "test", 5)


# -- OAuth ------------------------------------------------------------------------------------


def http(body: bytes, status: str = "200 OK", length: int | None = None) -> Callable:
    size = len(body) if length is None else length
    return answering(f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body)


def token(port: int, **options: str) -> str:
    url = {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/t?key=hidden"}
    return ClientCredentials(url, {"clientId": "c", "clientSecret": "s", **options}).token()


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"[]", b"null", b"7", b"{", b"{}", b"\xff", b'{"access_token": 7}',
        b'{"access_token": "a\\nb"}', b'{"access_token": "a", "expires_in": "soon"}',
        b'{"access_token": "a", "expires_in": {}}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_malformed_tokens_have_a_typed_error(answer):
    with server(http(answer)) as port, pytest.raises(AuthenticationFailed) as raised:
        token(port)
    assert f"no token from http://127.0.0.1:{port}/t?...: " in str(raised.value)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("status", ["302 Found", "401 Unauthorized", "500 Oops", "nonsense"])
def test_other_answers_than_a_token(status):
    with server(http(b"{}", status)) as port, pytest.raises(AuthenticationFailed, match="no token"):
        token(port)


def test_a_huge_token_is_not_read():
    def flood(link: socket.socket) -> None:
        link.recv(4096)
        link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            link.sendall(bytes(1 << 20))

    with server(flood) as port, pytest.raises(AuthenticationFailed, match="more than 262144 bytes"):
        token(port)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_slow_drip_does_not_outlast_the_limit(start, monkeypatch):
    monkeypatch.setattr(oauth, "_TOKEN_SECONDS", 0.5)

    def drip(link: socket.socket) -> None:
        link.recv(4096)
        link.sendall(start)
        while True:
            link.sendall(b"H")
            time.sleep(0.05)

    began = time.monotonic()
    with server(drip) as port:
        with pytest.raises(AuthenticationFailed, match="it took longer than"):
            token(port)
        assert time.monotonic() - began < 60, "it would drip for ever"


def test_a_token_is_taken_and_its_life_is_bounded():
    answer = json.dumps({"access_token": "good", "expires_in": 10**12}).encode()
    with server(http(answer)) as port:
        assert token(port) == "good"


def hang(link: socket.socket) -> None:
    while link.recv(4096):
        pass


def test_an_endpoint_that_hangs_keeps_nobody_waiting_who_has_a_token(monkeypatch):
    answered = []
    now = [1e6]
    monkeypatch.setattr(oauth, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def once(link: socket.socket) -> None:
        link.recv(4096)
        if not answered:
            answered.append(1)
            body = json.dumps({"access_token": "good", "expires_in": 60}).encode()
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        else:
            answered.append(2)
            hang(link)

    with server(once) as port:
        url = {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/t"}
        tokens = ClientCredentials(url, {"clientId": "c", "clientSecret": "s"})
        assert tokens.token() == "good"
        assert tokens.is_ready()
        # It is renewed at 80 % of its life, and counts until the end of it.
        now[0] += 50
        began = time.monotonic()
        assert not tokens.is_ready(), "whoever renews a login is told to come back"
        assert tokens.token() == "good"
        assert time.monotonic() - began < oauth._TOKEN_SECONDS, "nobody waits for the endpoint"
        assert len(answered) <= 2, "it is not asked twice at once"


def test_an_endpoint_that_has_failed_is_not_waited_for_again(monkeypatch):
    monkeypatch.setattr(oauth, "_TOKEN_SECONDS", 0.5)
    monkeypatch.setattr(oauth, "_AFTER_FAILURE_SECONDS", 0.0)

    with server(hang) as port:
        url = {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/t"}
        tokens = ClientCredentials(url, {"clientId": "c", "clientSecret": "s"})
        with pytest.raises(AuthenticationFailed, match="it took longer than"):
            tokens.token()
        monkeypatch.setattr(oauth, "_TOKEN_SECONDS", 3.0)
        began = time.monotonic()
        for _ in range(10):
            with pytest.raises(AuthenticationFailed, match="it took longer than"):
                tokens.token()
        # Each of them would wait for 3 s.
        assert time.monotonic() - began < 25


# -- refused credentials ----------------------------------------------------------------------


def refusing(seen: list[float]) -> Callable:
    def behave(link: socket.socket) -> None:
        while True:
            key, correlation_id, _ = receive(link)
            if key == 36:
                seen.append(time.monotonic())
                body = struct.pack(">hhi", 58, -1, 0)
            elif key == 17:
                body = struct.pack(">hih", 0, 1, 5) + b"PLAIN"
            else:
                apis = b"".join(struct.pack(">hhh", k, 0, 0) for k in (3, 17, 18, 36))
                body = struct.pack(">hi", 0, 4) + apis
            link.sendall(frame(correlation_id, body))

    return behave


def test_refused_credentials_are_tried_seldom_by_all_clients_of_a_cluster(monkeypatch):
    seen: list[float] = []
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password="
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with server(refusing(seen)) as port:
        known = settings(port, **{"sasl.mechanism": "PLAIN", "sasl.jaas.config": plain + "p;"})
        clients = [ClusterClient(known, "test") for _ in range(5)]
        for _ in range(600):
            for client in clients:
                with pytest.raises(CredentialsRefused, match="refused SASL PLAIN"):
                    client.metadata(())
            now[0] += 1
        # 2, 4, 8, 16, 32 s, then once a minute.
        assert 12 <= len(seen) <= 15
        other = settings(port, **{"sasl.mechanism": "PLAIN", "sasl.jaas.config": plain + "new;"})
        with pytest.raises(CredentialsRefused), ClusterClient(other, "test") as client:
            before = len(seen)
            client.metadata(())
        assert len(seen) == before + 1, "others are tried at once"
