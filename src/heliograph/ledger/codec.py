"""The ledger's records: readable keys, packed values.

    signature/<producer id>             -> JSON
    runs/<place>/<seq>/<src>/<nonce>    -> packed runs
    shift/<place>/<seq>/<nonce>         -> packed runs, corrected
    packed/<place>/<start seq>/<nonce>  -> all that earlier entries said of a stretch of sequences
    cut/<place>/<seq>/<nonce>-<leader epoch> -> a packed run: from here on, the source goes on anew
    cut/<place>/<seq>/move-<id>         -> the same: an operator decided so, or MM2 mirrored on
    epoch/<place>/<seq>/<epoch>/<nonce> -> JSON: leader epoch of the source's records from here on
    inherited/<place>/<target offset>   -> JSON: what MM2 had written to the target before
    era/<place>/<epoch>/<nonce>         -> JSON: the sequence from which this epoch is written
    known/<place>/                      -> five numbers: what was acknowledged; the last one counts

Others are claims (`heliograph.claims.log`), what jobs remember (`heliograph.ledger.memory`), orders
to mirrors (`heliograph.ledger.holds`), where the source ended (`heliograph.ledger.source_ends`) and
what failovers took (`heliograph.ledger.rehearsals`).

A place is ``<topic>/<partition>/<source id>/<target id>``; topic names cannot contain a slash. Of a
place only ``known`` is written twice under one key: there the last record counts. Everywhere else
the first counts, while compaction would keep the last, so compaction must never decide anything.
Only a tombstone removes a record, and is written only for what a packed record says as well
(`LedgerKeeper`). Readers ignore tombstones.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Sequence
from dataclasses import astuple
from itertools import starmap
from typing import NamedTuple

from heliograph.ledger.columns import Run
from heliograph.ledger.epochs import UNKNOWN_EPOCH, UNKNOWN_OFFSET, EpochMark
from heliograph.ledger.inheritance import Blur, Inheritance
from heliograph.ledger.known import Era, Known
from heliograph.ledger.packing import pack, put_varint, take_varint, unpack

_PACKED_VERSION = 1
#: No nonce begins like that: they are hexadecimal.
_MOVE = "move-"
_KNOWN = struct.Struct(">qqqqi")


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


class Cut(NamedTuple):
    """The source lost mirrored records, and goes on at the run's source (PartitionLedger.cut).

    With ``move``, the id of an operator's decision or of a take-over from MM2, it goes on there for
    no other reason (PartitionLedger.move). ``leader`` is the epoch of the leader that has lost
    them; cuts of earlier versions do not tell.
    """

    place: Place
    run: Run
    move: str = ""
    leader: int = UNKNOWN_EPOCH


class Epoch(NamedTuple):
    """The leader epoch of some records of a place."""

    place: Place
    mark: EpochMark


class Packed(NamedTuple):
    """The outcome of all entries of a place before ledger offset ``as_of``, for some sequences.

    For those from ``start`` to before ``until`` (None: all that follow). It counts only if no entry
    of the place stands between ``as_of`` and the packed record itself.
    """

    place: Place
    start: int
    until: int | None
    as_of: int
    runs: Sequence[Run]


class Inherited(NamedTuple):
    """What the target of a place held before it was mirrored; its runs are in an entry behind."""

    place: Place
    inheritance: Inheritance


class NewEra(NamedTuple):
    """How the records of a place are numbered on the wire from some sequence on."""

    place: Place
    era: Era


class Acknowledged(NamedTuple):
    """What is known of a place."""

    place: Place
    known: Known


def encode_signature(signature: Signature) -> tuple[bytes, bytes]:
    """(key, value) of a signature record."""
    value = {"source.cluster": signature.source_cluster, "target.cluster": signature.target_cluster}
    return f"signature/{signature.producer_id}".encode(), json.dumps(value).encode()


def encode_entry(entry: Entry, nonce: str) -> tuple[bytes, bytes]:
    """(key, value) of a runs or shift record."""
    first = entry.runs[0]
    if entry.shift:
        rest = f"shift/{first.sequence}/{nonce}"
    else:
        rest = f"runs/{first.sequence}/{first.source}/{nonce}"
    return key_of(entry.place, rest), pack(entry.runs)


def encode_cut(cut: Cut, nonce: str) -> tuple[bytes, bytes]:
    """(key, value) of a cut."""
    leader = f"-{cut.leader}" if cut.leader != UNKNOWN_EPOCH else ""
    last = f"{_MOVE}{cut.move}" if cut.move else nonce + leader
    return key_of(cut.place, f"cut/{cut.run.sequence}/{last}"), pack([cut.run])


def encode_epoch(epoch: Epoch, nonce: str) -> tuple[bytes, bytes]:
    """(key, value) of an epoch's mark."""
    mark = epoch.mark
    key = key_of(epoch.place, f"epoch/{mark.sequence}/{mark.epoch}/{nonce}")
    value = {"anew": mark.anew, "source": mark.source, "leader": mark.leader}
    return key, json.dumps(value).encode()


def encode_packed(packed: Packed, body: bytes, nonce: str) -> tuple[bytes, bytes]:
    """(key, value) of a packed record; ``body`` is what `pack` makes of its runs."""
    value = bytearray([_PACKED_VERSION])
    put_varint(value, packed.as_of)
    put_varint(value, 0 if packed.until is None else packed.until - packed.start)
    return key_of(packed.place, f"packed/{packed.start}/{nonce}"), bytes(value) + body


def encode_inherited(inherited: Inherited) -> tuple[bytes, bytes]:
    """(key, value) of what was inherited."""
    end, blurs = inherited.inheritance.end, inherited.inheritance.blurs
    value = {"end": end, "blurs": [astuple(blur) for blur in blurs]}
    return key_of(inherited.place, f"inherited/{end}"), json.dumps(value).encode()


def encode_era(new: NewEra, nonce: str) -> tuple[bytes, bytes]:
    """(key, value) of an era."""
    key = key_of(new.place, f"era/{new.era.epoch}/{nonce}")
    return key, json.dumps({"sequence": new.era.sequence}).encode()


def encode_known(acknowledged: Acknowledged) -> tuple[bytes, bytes]:
    """(key, value) of what is known: always the same key, so that compaction keeps the last."""
    return key_of(acknowledged.place, "known/"), _KNOWN.pack(*acknowledged.known)


def key_of(place: Place, rest: str) -> bytes:
    """The key that `split` takes apart."""
    kind, _, rest = rest.partition("/")
    topic, partition, source_id, target_id = place
    return f"{kind}/{topic}/{partition}/{source_id}/{target_id}/{rest}".encode()


def split(key: bytes) -> tuple[Place | None, str]:
    """The place that a key is about, if any, and the rest of the key: its kind and what follows."""
    text = key.decode()
    try:
        kind, topic, partition, source_id, target_id, rest = text.split("/", 5)
        place = Place(topic, int(partition), uuid.UUID(source_id), uuid.UUID(target_id))
    except ValueError:
        return None, text
    return place, f"{kind}/{rest}"


Fact = Signature | Entry | Cut | Epoch | Packed | Inherited | NewEra | Acknowledged
_OF_A_PLACE = frozenset({"runs", "shift", "cut", "epoch", "packed", "inherited", "era", "known"})


def decode(key: bytes, value: bytes) -> Fact | None:
    """What a record says; None for kinds that a later version may add."""
    kind, *rest = key.decode().split("/")
    if kind == "signature":
        content = json.loads(value)
        return Signature(int(rest[0]), content["source.cluster"], content["target.cluster"])
    if kind in _OF_A_PLACE:
        topic, partition, source_id, target_id = rest[:4]
        place = Place(topic, int(partition), uuid.UUID(source_id), uuid.UUID(target_id))
        if kind == "known":
            return Acknowledged(place, Known._make(_KNOWN.unpack(value)))
        if kind == "era":
            return NewEra(place, Era(int(rest[4]), int(json.loads(value)["sequence"])))
        if kind == "cut":
            run, last = unpack(value)[0], rest[5]
            if last.startswith(_MOVE):
                return Cut(place, run, last.removeprefix(_MOVE))
            _, _, told = last.partition("-")
            return Cut(place, run, leader=int(told) if told else UNKNOWN_EPOCH)
        if kind == "epoch":
            content = json.loads(value)
            source = int(content.get("source", UNKNOWN_OFFSET))
            leader = int(content.get("leader", UNKNOWN_EPOCH))
            mark = EpochMark(int(rest[4]), int(rest[5]), bool(content["anew"]), source, leader)
            return Epoch(place, mark)
        if kind == "packed":
            return _decode_packed(place, int(rest[4]), value)
        if kind == "inherited":
            content = json.loads(value)
            blurs = tuple(starmap(Blur, content["blurs"]))
            return Inherited(place, Inheritance(content["end"], blurs))
        return Entry(place, unpack(value), kind == "shift")
    return None


def _decode_packed(place: Place, start: int, value: bytes) -> Packed:
    if value[0] != _PACKED_VERSION:
        raise ValueError(f"packed record of version {value[0]}: written by a newer Heliograph")
    as_of, at = take_varint(value, 1)
    length, at = take_varint(value, at)
    return Packed(place, start, start + length if length else None, as_of, unpack(value[at:]))
