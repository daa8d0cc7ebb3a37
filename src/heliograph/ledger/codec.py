"""The ledger's records: readable keys, packed values.

    signature/<producer id>                                      -> JSON
    runs/<topic>/<partition>/<source id>/<target id>/<seq>/<src> -> packed runs
    shift/<topic>/<partition>/<source id>/<target id>/<seq>      -> packed runs, corrected

Keys are unique per fact, so that compaction removes only repetitions. Topic names cannot contain a
slash. A packed value is a version byte and, per run, three unsigned varints: the growth of
sequence, source and target against the run before (the first: against 0).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from heliograph.ledger.runs import Run

_VERSION = 1


class Place(NamedTuple):
    """A source partition and the generations of both topics that a run is about."""

    topic: str
    partition: int
    source_id: uuid.UUID
    target_id: uuid.UUID


class Signature(NamedTuple):
    """The producer id of a flow, and the two clusters it was made for."""

    producer_id: int
    source_cluster: str
    target_cluster: str


class Entry(NamedTuple):
    """Runs of one place; ``shift`` marks corrections (PartitionLedger.correct)."""

    place: Place
    runs: Sequence[Run]
    shift: bool = False


def encode_signature(signature: Signature) -> tuple[bytes, bytes]:
    """(key, value) of a signature record."""
    value = {"source.cluster": signature.source_cluster, "target.cluster": signature.target_cluster}
    return f"signature/{signature.producer_id}".encode(), json.dumps(value).encode()


def encode_entry(entry: Entry) -> tuple[bytes, bytes]:
    """(key, value) of a runs or shift record."""
    place, first = entry.place, entry.runs[0]
    kind = "shift" if entry.shift else "runs"
    key = f"{kind}/{place.topic}/{place.partition}/{place.source_id}/{place.target_id}"
    key += f"/{first.sequence}" if entry.shift else f"/{first.sequence}/{first.source}"
    return key.encode(), pack(entry.runs)


def decode(key: bytes, value: bytes) -> Signature | Entry | None:
    """What a record says; None for kinds that a later version may add."""
    kind, *rest = key.decode().split("/")
    if kind == "signature":
        content = json.loads(value)
        return Signature(int(rest[0]), content["source.cluster"], content["target.cluster"])
    if kind in {"runs", "shift"}:
        topic, partition, source_id, target_id = rest[:4]
        place = Place(topic, int(partition), uuid.UUID(source_id), uuid.UUID(target_id))
        return Entry(place, unpack(value), kind == "shift")
    return None


def pack(runs: Sequence[Run]) -> bytes:
    """Varint deltas; within a place all three numbers only grow."""
    out = bytearray([_VERSION])
    previous = Run(0, 0, 0)
    for run in runs:
        for now, before in zip(run, previous, strict=True):
            value = now - before
            while value > 0x7F:
                out.append((value & 0x7F) | 0x80)
                value >>= 7
            out.append(value)
        previous = run
    return bytes(out)


def unpack(data: bytes) -> list[Run]:
    """Inverse of `pack`; raises ValueError on a version of the future."""
    if data[0] != _VERSION:
        raise ValueError(f"ledger entry of version {data[0]}: written by a newer Heliograph")
    numbers, value, shift = [], 0, 0
    for byte in data[1:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    runs: list[Run] = []
    previous = Run(0, 0, 0)
    for i in range(0, len(numbers), 3):
        previous = Run(*(a + b for a, b in zip(previous, numbers[i : i + 3], strict=True)))
        runs.append(previous)
    return runs
