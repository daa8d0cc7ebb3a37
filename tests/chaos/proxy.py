"""TCP proxies before brokers: what networks, and broken things in them, do to Kafka's protocol.

All proxies of a test live in one process of their own, so that they neither wait for the test's
threads nor slow them down. A broker's advertised port is its proxy's, so every client comes through
it; brokers among themselves, and those who use ``Cluster.back_door``, do not. Plain text only:
frames are taken apart (size, API key, correlation id) so that answers of one API can be hit.
"""

import asyncio
import multiprocessing
import re
import struct
import time
from contextlib import suppress
from dataclasses import dataclass

from heliograph.lab.broker import HOST, free_ports

PRODUCE, FETCH, METADATA, API_VERSIONS, WRITE_MARKERS = 0, 1, 3, 18, 27
#: Frames that one direction of a connection may hold back; then its sender has to wait.
_QUEUED_FRAMES = 64
#: How long a broker may take over the requests of a client that has gone.
_LAST_ANSWERS_SECONDS = 5.0
_STREAM_BYTES = 1 << 20
_BATCH_HEADER_BYTES = 61


@dataclass(frozen=True, slots=True)
class Faults:
    """What a proxy does to everything that passes; the default is nothing.

    Attributes:
        delay: seconds, each way.
        refuse: new connections are refused; those that stand, stand.
        hold: half open: connections are accepted and stay, but nothing moves. What is held goes on
            when the fault is healed, as after a partition of the network.
        stall: requests are not read at all: they stay in the sender's kernel and, as soon as its
            buffer is full, with the sender.
        bandwidth: bytes per second and direction, for each connection.
        drop_after: cut a connection after that many bytes of answers, be it within one.
        answers: what becomes of answers; requests reach the broker anyway. ``drop``: swallowed,
            and the connection is cut. ``mute``: swallowed, with all that follow on the connection,
            which stays. ``flip``: one bit in the records of a batch. ``duplicate``: sent twice.
            ``swap``: two that are on their way change places.
        api: only answers of that API key; a connection is stalled behind its first such request.
        times: how many answers are hit; None: all.
    """

    delay: float = 0.0
    refuse: bool = False
    hold: bool = False
    stall: bool = False
    bandwidth: int | None = None
    drop_after: int | None = None
    answers: str | None = None
    api: int | None = None
    times: int | None = None


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Stats:
    """``hits`` counts the answers that were tampered with, ``accepted`` connections since ever."""

    open: int
    accepted: int
    hits: int


class Proxies:
    """Proxies in a process of their own, known by the ports that they listen on.

    Use as a context manager. Thread-safe only as far as its caller is.
    """

    def __init__(self, count):
        self.ports = free_ports(count)
        here, there = multiprocessing.get_context("spawn").Pipe()
        self._pipe = here
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(self.ports, there), daemon=True
        )
        self._process.start()
        there.close()
        self._receive(180)  # they listen; new interpreters are slow on busy machines

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def pid(self):
        return self._process.pid

    def close(self):
        self._pipe.close()  # its process ends at the end of the pipe
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def point(self, port, to_port):
        """Where connections to ``port`` go."""
        return self._call("point", port, to_port)

    def set(self, port, faults):
        """From now on; replaces what was set before, and opens what was held."""
        return self._call("set", port, faults)

    def cut(self, port):
        """Reset every connection; returns how many there were."""
        return self._call("cut", port)

    def strand(self, port):
        """Nothing moves on the connections of now, while new ones are as usual; how many."""
        return self._call("strand", port)

    def land(self, port):
        """What was stranded arrives, also if its sender has gone."""
        return self._call("land", port)

    def stats(self, port):
        return self._call("stats", port)

    def heal(self):
        """No faults anywhere."""
        for port in self.ports:
            self.land(port)
            self.set(port, NO_FAULTS)

    def _call(self, name, port, *args):
        self._pipe.send((name, port, args))
        return self._receive()

    def _receive(self, patience=60):
        if not self._pipe.poll(patience):
            raise TimeoutError("the proxies do not answer")
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def before(proxies, lab):
    """Point the proxies at a lab that was made with ``advertised``; returns port by (alias, id)."""
    fronts = {}
    for alias, cluster in lab.clusters.items():
        for broker in cluster.brokers:
            if broker.advertised_port in proxies.ports:
                proxies.point(broker.advertised_port, broker.port)
                fronts[alias, broker.node_id] = broker.advertised_port
    return fronts


# -- in the proxies' process -----------------------------------------------------------------------


def _serve(ports, pipe):
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve_all(ports, pipe))


async def _serve_all(ports, pipe):
    loop = asyncio.get_running_loop()
    proxies = {port: _Proxy(port) for port in ports}
    for proxy in proxies.values():
        await proxy.listen()
    commands = asyncio.Queue()
    loop.add_reader(pipe.fileno(), lambda: commands.put_nowait(_take(pipe)))
    pipe.send("ready")
    while (command := await commands.get()) is not None:
        name, port, args = command
        try:
            pipe.send(await getattr(proxies[port], name)(*args))
        except Exception as error:
            pipe.send(error)


def _take(pipe):
    try:
        return pipe.recv()
    except (EOFError, OSError):
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        return None


class _Proxy:
    def __init__(self, port):
        self.port, self.to_port = port, None
        self.faults, self.left, self.hits = NO_FAULTS, None, 0
        self.changed = asyncio.Event()
        self._links, self._accepted, self._server = set(), 0, None

    async def listen(self):
        self._server = await asyncio.start_server(
            self._accept, HOST, self.port, limit=_STREAM_BYTES, reuse_address=True
        )

    async def point(self, to_port):
        self.to_port = to_port

    async def set(self, faults):
        if faults.refuse and self._server is not None:
            self._server.close()
            self._server = None
        elif not faults.refuse and self._server is None:
            await self.listen()
        self.faults, self.left = faults, faults.times
        for link in self._links:
            link.stall()
        self._change()

    def _change(self):
        self.changed.set()
        self.changed = asyncio.Event()

    async def strand(self):
        for link in self._links:
            link.stranded = True
        return len(self._links)

    async def land(self):
        for link in self._links:
            link.stranded = False
        self._change()

    async def cut(self):
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    async def stats(self):
        return Stats(len(self._links), self._accepted, self.hits)

    def strikes(self, api):
        """Whether the answer at hand is to be hit; counts it then."""
        f = self.faults
        if f.answers is None or (f.api is not None and f.api != api) or self.left == 0:
            return False
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        return True

    def spare(self):
        """It was not hit after all."""
        self.hits -= 1
        if self.left is not None:
            self.left += 1

    async def _accept(self, reader, writer):
        self._accepted += 1
        try:
            there = await asyncio.open_connection(HOST, self.to_port, limit=_STREAM_BYTES)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), there)
        self._links.add(link)
        link.stall()
        try:
            await link.run()
        finally:
            self._links.discard(link)
            link.abort()


class _Link:
    """One connection of a client and its twin to the broker."""

    def __init__(self, proxy, client, broker):
        self._proxy = proxy
        self._client, self._broker = client, broker
        self._apis = {}  # of requests whose answers are to come, by correlation id
        self._carried = set()  # the APIs of all requests so far
        self.stranded = False
        self._answered = 0  # bytes
        self._muted = False
        self._kept = None  # an answer that is to change places with the next

    def abort(self):
        for _, writer in (self._client, self._broker):
            writer.transport.abort()

    def stall(self):
        """Do as the proxy's faults say."""
        faults, transport = self._proxy.faults, self._client[1].transport
        if faults.stall and (faults.api is None or faults.api in self._carried):
            transport.pause_reading()
        else:
            transport.resume_reading()

    async def run(self):
        up, down = asyncio.Queue(_QUEUED_FRAMES), asyncio.Queue(_QUEUED_FRAMES)
        up_writer = asyncio.ensure_future(self._write(up, self._broker[1]))
        down_writer = asyncio.ensure_future(self._write(down, self._client[1], answers=True))
        down_reader = asyncio.ensure_future(self._read(self._broker[0], down, self._answer))
        tasks = [
            asyncio.ensure_future(self._read(self._client[0], up, self._request)),
            down_reader,
            up_writer,
            down_writer,
        ]
        try:
            await asyncio.wait((up_writer, down_writer), return_when=asyncio.FIRST_COMPLETED)
            if not up_writer.done() and down_writer.result() == "gone":
                # What a client sent before it went away still arrives, however late.
                await up_writer
            if up_writer.done() and up_writer.result() == "ended":
                # Brokers read one request of a connection at a time, and none of one that is cut.
                await self._last_answers(down_reader)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _last_answers(self, down_reader):
        deadline = time.monotonic() + _LAST_ANSWERS_SECONDS
        while self._apis and not down_reader.done() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def _read(self, reader, queue, judge):
        try:
            while True:
                head = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(head, "big"))
                for frame in judge(head + body):
                    await queue.put((time.monotonic(), frame))
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            await queue.put((time.monotonic(), None))

    async def _write(self, queue, writer, *, answers=False):
        """Until the sender has ended, or the receiver is ``gone``."""
        try:
            while True:
                came, frame = await queue.get()
                await self._wait(came)
                if frame is None:
                    return "ended"
                faults = self._proxy.faults
                if answers and faults.drop_after is not None:
                    left = faults.drop_after - self._answered
                    if left < len(frame):
                        writer.write(frame[: max(0, left)])
                        await writer.drain()
                        return "cut"
                    self._answered += len(frame)
                await self._send(writer, frame)
        except (ConnectionError, OSError):
            return "gone"

    async def _wait(self, came):
        while True:
            proxy = self._proxy
            faults, changed = proxy.faults, proxy.changed
            held = faults.hold or self.stranded
            due = None if held else came + faults.delay - time.monotonic()
            if due is not None and due <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), due)

    async def _send(self, writer, frame):
        position = 0
        while position < len(frame):
            rate = self._proxy.faults.bandwidth
            piece = len(frame) if rate is None else max(1, rate // 20)
            writer.write(frame[position : position + piece])
            await writer.drain()
            position += piece
            if rate is not None:
                await asyncio.sleep(min(piece, len(frame)) / rate)

    def _request(self, frame):
        api, _version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        self._apis[correlation_id] = api
        if api not in self._carried:
            self._carried.add(api)
            self.stall()
        yield frame

    def _answer(self, frame):
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        api = self._apis.pop(correlation_id, None)
        if self._muted:
            return
        if self._kept is not None:
            kept, self._kept = self._kept, None
            yield frame
            yield kept
            return
        if not self._proxy.strikes(api):
            yield frame
            return
        match self._proxy.faults.answers:
            case "drop":
                self.abort()
            case "mute":
                self._muted = True
            case "duplicate":
                yield frame
                yield frame
            case "flip":
                damaged = flip(frame)
                if damaged is None:
                    self._proxy.spare()
                yield damaged or frame
            case "swap":
                if self._apis:
                    self._kept = frame
                else:
                    self._proxy.spare()  # nothing to change places with
                    yield frame


def flip(frame):
    """The frame with one bit flipped in the records of its last large batch; None: has none.

    What is flipped is covered by the batch's CRC, so that everybody can notice.
    """
    for found in reversed(list(re.finditer(rb"\x02", frame))):  # the magic byte
        start = found.start() - 16
        if start < 8:
            continue
        base, length, _epoch = struct.unpack_from(">qii", frame, start)
        end = start + 12 + length
        if 0 <= base < 1 << 40 and length > _BATCH_HEADER_BYTES and end <= len(frame):
            attributes, last_delta = struct.unpack_from(">hi", frame, start + 21)
            (count,) = struct.unpack_from(">i", frame, start + 57)
            control = attributes & 0x20
            if not control and 0 <= attributes < 128 and 0 < count <= last_delta + 1:
                at = (start + _BATCH_HEADER_BYTES + end) // 2
                return frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :]
    return None
