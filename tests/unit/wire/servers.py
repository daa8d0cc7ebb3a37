"""Servers that are not what a client expects."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answers every connection with ``behave``, on its own port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def loop() -> None:
            while not done.is_set():
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    link.settimeout(10)
                    try:
                        behave(link)
                    except OSError:
                        continue

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(15)


def answering(data: bytes) -> Callable[[socket.socket], None]:
    def behave(link: socket.socket) -> None:
        link.recv(4096)
        link.sendall(data)
        link.recv(4096)

    return behave


def frame(correlation_id: int, body: bytes) -> bytes:
    """An answer as brokers send it."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def receive(link: socket.socket) -> tuple[int, int, bytes]:
    """A request: its API key, its correlation id and all behind the header's fixed part."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += link.recv(65536) or _hung_up()
    key, _, correlation_id = struct.unpack_from(">hhi", data, 4)
    return key, correlation_id, data[12:]


def _hung_up() -> bytes:
    raise ConnectionError("the client is gone")


def sasl_server(*messages: bytes, mechanism: bytes = b"SCRAM-SHA-256") -> Callable:
    """A broker that answers the steps of a login with ``messages``."""

    def behave(link: socket.socket) -> None:
        left = list(messages)
        while True:
            key, correlation_id, _ = receive(link)
            if key == 18:
                apis = b"".join(struct.pack(">hhh", k, 0, 0) for k in (3, 17, 18, 36))
                body = struct.pack(">hi", 0, 4) + apis
            elif key == 17:
                body = struct.pack(">hih", 0, 1, len(mechanism)) + mechanism
            else:
                message = left.pop(0)
                body = struct.pack(">hhi", 0, -1, len(message)) + message
            link.sendall(frame(correlation_id, body))

    return behave
