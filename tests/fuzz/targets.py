"""Every decoder of wire/ and batch/, fed with anything. Each may raise what its callers expect."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from heliograph.batch.alike import merge_alike
from heliograph.batch.header import batches
from heliograph.batch.lanes import pieces
from heliograph.batch.pieces import CorruptBatch, Rules
from heliograph.batch.plain import PlainBatch, Record
from heliograph.batch.records import build, decode
from heliograph.batch.rewrite import UNREADABLE
from heliograph.connect.fold import Kind, StorageFold
from heliograph.copy.lease_report import LeaseReport
from heliograph.ledger.codec import decode as decode_fact
from heliograph.mm2.formats import Checkpoint, Heartbeat, OffsetSync
from heliograph.model import TopicPartition
from heliograph.wire import markers
from heliograph.wire.border import reading
from heliograph.wire.connection import Connection
from heliograph.wire.ends import _decode as decode_ends
from heliograph.wire.errors import WireError
from heliograph.wire.fetch import FetchSession
from heliograph.wire.metadata import parse_metadata
from heliograph.wire.produce import Producer
from heliograph.wire.security import Security

TOPIC_ID = uuid.UUID(int=7)
PARTITION = TopicPartition("t", 0)


class Line(Connection):
    """A connection that is nobody's, to a broker that knows one version of each API."""

    def __init__(self, version: int) -> None:
        super().__init__("h", 1, Security("PLAINTEXT"), "c")
        self._version = version

    def version(self, api_key: int, highest: int) -> int:
        return min(self._version, highest)

    def supports(self, api_key: int, version: int) -> bool:
        return version <= self._version


def fetch(flexible: bool) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        session = FetchSession(
            Line(99 if flexible else 4), {"t": TOPIC_ID}, read_committed=True, max_bytes=1,
            partition_max_bytes=1,
        )  # fmt: skip
        for fetched in session._answer(writable(data)):
            copied(fetched.records, fetched.aborted)

    return target


def ends(data: bytes) -> None:
    with reading(Line(99), "an answer to ListOffsets"):
        decode_ends(writable(data))


def writable(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def copied(records: memoryview, aborted: list[tuple[int, int]]) -> None:
    for rules in (Rules(), Rules(max_bytes=200, one_run=True, codec=1, refused={3: "why"})):
        try:
            for _ in pieces(memoryview(bytearray(records)), 2, aborted, rules, 0):
                pass
        except CorruptBatch:
            continue


def lanes(data: bytes) -> None:
    copied(writable(data), [(5, 0)])


def records(data: bytes) -> None:
    for _ in decode(data):
        pass


def plain(data: bytes) -> None:
    if len(data) >= 61:
        for _ in PlainBatch(data):
            pass


def alike(data: bytes) -> None:
    if len(data) > 100:
        merge_alike(writable(data), 0, Rules())


def headers(data: bytes) -> None:
    for _ in batches(writable(data)):
        pass


def produce(data: bytes) -> None:
    for version in (4, 99):
        Producer(Line(version), {"t": TOPIC_ID}).parse(writable(data))


def response(message: Any, version: int) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        flexible = message.flexible_version_q(version)
        found = Line(version)._response(message, version, flexible, memoryview(data))
        if isinstance(message, MetadataRequest):
            parse_metadata(found)

    return target


def facts(data: bytes) -> None:
    key, _, value = data.partition(b"\0\0")
    for decoder in (decode_fact, OffsetSync.decode, Heartbeat.decode, Checkpoint.decode):
        try:
            decoder(key, value)
        except (*UNREADABLE, TypeError, KeyError):
            continue


def storage(data: bytes) -> None:
    key, _, value = data.partition(b"\0\0")
    fold = StorageFold()
    for kind in Kind:
        fold.take(kind, 0, key, value, 0)
        fold.publish(kind)
    for name in fold.view._offsets:
        fold.view.offsets(name)


def lease_report(data: bytes) -> None:
    LeaseReport.decode(data)


TARGETS: dict[str, Callable[[bytes], object]] = {
    "batch.lanes": lanes,
    "batch.records": records,
    "batch.plain": plain,
    "batch.alike": alike,
    "batch.header": headers,
    "wire.fetch by id": fetch(flexible=True),
    "wire.fetch by name": fetch(flexible=False),
    "wire.produce": produce,
    "wire.ends": ends,
    "wire.markers": lambda data: markers.parse(Line(99), writable(data)),
    "wire.api versions": response(ApiVersionsRequest(), 0),
    "wire.metadata": response(MetadataRequest(topics=None), 12),
    "wire.sasl handshake": response(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    "wire.sasl authenticate": response(SaslAuthenticateRequest(auth_bytes=b""), 2),
    "ledger facts": facts,
    "connect storage": storage,
    "lease_report": lease_report,
}


#: Batches that once ended a run of the fuzzer.
FOUND = [
    # A snappy block of 62 bytes that claims to expand to 2.4 GB.
    "AAAAAAAAAAAAAABv/////wKFezRUAAIAAAACAAAAQAAuA+gAAAAAAAADyv////////////8AAAAAAAAAb/////8I"
    "hXs0VAACAAAAAgAAAEAALgPoAAAAAAAAA8r//////////////////wAAAAOCU052YWx1ZQICmgJ4",
]


def expected(name: str) -> tuple[type[BaseException], ...]:
    """What a decoder's callers are prepared for."""
    if name.startswith("wire."):
        return (WireError,)
    return {
        "batch.lanes": (),
        "batch.alike": (),
        "connect storage": (),
        "lease_report": (ValueError,),
    }.get(name, (*UNREADABLE, WireError))


def seeds(name: str) -> list[bytes]:
    """Inputs that a decoder understands, to begin with."""
    rows = [Record(n, 1000 + n, b"k", b"value", [("h", b"x")]) for n in range(3)]
    made = [bytes(build(rows, codec=codec)) for codec in range(5)]
    many = b"".join(bytes(build([Record(0, 5, b"k", b"v")])) for _ in range(20))
    whole = [*made, many, b"".join(made)]
    if name.startswith("batch."):
        return [*whole, *map(base64.b64decode, FOUND)]
    if name == "wire.fetch by id":
        return [_fetched(batch) for batch in whole]
    if name == "connect storage":
        return [b'connector-c\0\0{"properties":{"a":"b"}}', b'commit-c\0\0{"tasks":1}',
                b'status-task-c-0\0\0{"state":"RUNNING","worker_id":"w","generation":1}',
                b'["c",{"partition":0,"topic":"t"}]\0\0{"offset":1}']  # fmt: skip
    return [bytes(40), b"\0" * 6 + b"\0\0\0\x01\0\x12\0\0\0\4", b'{"flow":"A->B","serial":1}']


def _fetched(batch: bytes) -> bytes:
    size = len(batch) + 1
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    partition = struct.pack(">ihqqq", 0, 0, 9, 9, 0) + b"\1" + struct.pack(">i", -1)
    topic = TOPIC_ID.bytes + b"\2" + partition + bytes(length) + batch + b"\0" + b"\0"
    return b"\0" + struct.pack(">ihi", 0, 0, 1) + b"\2" + topic + b"\0"
