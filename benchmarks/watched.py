"""A mirror that a hundred clients watch: what does answering them cost the copying?

``python -m benchmarks --mirrors heliograph,heliograph-watched --only json --repeat 3`` measures it
beside one that nobody watches. Each client asks once a second, over a connection of its own, what
dashboards and scripts ask. The clients are one process more, on the same cores: what they cost
themselves is part of the figures.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.contenders import CONTENDERS, HeliographProcess
from heliograph.lab.broker import HOST, free_ports

__all__ = ["WATCHED"]

_CLIENTS = 100
_EVERY_SECONDS = 1.0
_PATHS = (
    "/", "/connectors", "/connectors?expand=status&expand=info", "/connector-plugins",
    "/heliograph/v1/flows", "/heliograph/v1/topics?sort=-lag&limit=50", "/heliograph/v1/groups",
)  # fmt: skip


class WatchedHeliograph(HeliographProcess):
    """``heliograph run FILE --listen``, and its clients from its start to its stop."""

    def __init__(self, properties_path: Path, folder: Path) -> None:
        super().__init__(properties_path, folder)
        (self._port,) = free_ports(1)
        self._command += ["--listen", f"{HOST}:{self._port}"]
        context = multiprocessing.get_context("spawn")
        self._ended = context.Event()
        self._clients = context.Process(target=_ask, args=(self._port, self._ended), daemon=True)

    def start(self) -> None:
        """Starts both; clients connect as soon as the mirror listens."""
        super().start()
        self._clients.start()

    def stop(self, grace_s: float = 5.0) -> None:
        """Ends the clients, who say what they were answered, then the mirror."""
        self._ended.set()
        self._clients.join(grace_s)
        super().stop(grace_s)


def _ask(port: int, ended: Event) -> None:
    asyncio.run(_ask_all(port, ended))


async def _ask_all(port: int, ended: Event) -> None:
    answers: Counter[str] = Counter()
    slowest = [0.0]
    clients = [
        asyncio.create_task(_client(number, port, answers, slowest)) for number in range(_CLIENTS)
    ]
    while not ended.is_set():
        await asyncio.sleep(0.1)
    for client in clients:
        client.cancel()
    said = ", ".join(f"{count:,} x {status}" for status, count in sorted(answers.items()))
    print(f"  {_CLIENTS} clients: {said}; slowest {slowest[0]:.2f} s", file=sys.stderr)


async def _client(number: int, port: int, answers: Counter[str], slowest: list[float]) -> None:
    await asyncio.sleep(_EVERY_SECONDS * number / _CLIENTS)
    while True:
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
            while True:
                began = time.monotonic()
                path = _PATHS[number % len(_PATHS)]
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
                answers[await _answer(reader)] += 1
                took = time.monotonic() - began
                slowest[0] = max(slowest[0], took)
                await asyncio.sleep(max(0.0, _EVERY_SECONDS - took))
        except (OSError, asyncio.IncompleteReadError):  # not listening yet, or hung up
            answers["no answer"] += 1
            await asyncio.sleep(_EVERY_SECONDS)


async def _answer(reader: asyncio.StreamReader) -> str:
    """The status of one answer; its body is read to the end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    await reader.readexactly(int(fields.get("content-length", "0")))
    return lines[0].split(" ")[1]


WATCHED = replace(
    CONTENDERS["heliograph"],
    key="heliograph-watched",
    label=f"Heliograph, {_CLIENTS} clients",
    make=WatchedHeliograph,
)
