"""Which flows write to a target cluster: how they sign, and what they mirror into. Any process.

Every flow of Heliograph has a ledger topic on its target, whatever mirror runs it and wherever. The
first signature in it is the producer id of all that the flow writes there. So a record whose
producer id is found here was mirrored by that flow, and by nobody else.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from heliograph.batch.records import decode as decode_records
from heliograph.ledger.begun import BegunPlaces
from heliograph.ledger.codec import Signature, decode
from heliograph.ledger.follower import LedgerFollower
from heliograph.model import TopicPartition
from heliograph.policy import ledger_source
from heliograph.wire import log
from heliograph.wire.cluster import ClusterClient
from heliograph.wire.errors import WireError

__all__ = ["Signatures", "first_signature", "signatures", "written_by_others"]

_SIGNATURE = b"signature/"
#: A ledger of another flow that cannot be read for so long is left out, and named.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Signatures:
    """The flows into a cluster.

    Attributes:
        sources: the source alias of each flow, by the producer id that it signs with.
        unread: why the ledger of a flow could not be read, by source alias.
    """

    sources: Mapping[int, str]
    unread: Mapping[str, str]


def signatures(target: ClusterClient) -> Signatures:
    """All flows whose ledgers are on ``target`` and that we may see; raises WireError.

    Of each ledger only the beginning is read, up to its signature.
    """
    sources: dict[int, str] = {}
    unread: dict[str, str] = {}
    for alias, topic in _ledgers(target):
        try:
            signature = first_signature(target, topic)
        except WireError as error:
            unread[alias] = str(error)
            continue
        if signature is not None:
            sources[signature.producer_id] = alias
    return Signatures(sources, unread)


def written_by_others(target: ClusterClient, own_ledger: str) -> set[tuple[uuid.UUID, int]]:
    """Target partitions, by topic id and number, that flows with other ledgers mirror into.

    As far as we may see them. Reads the keys of all other ledgers; raises WireError.
    """
    found: set[tuple[uuid.UUID, int]] = set()
    for _, topic in _ledgers(target):
        if topic != own_ledger:
            begun, follower = BegunPlaces(), LedgerFollower(target, topic)
            follower.attach(begun)
            follower.refresh()
            found |= {(place.target_id, place.partition) for place in begun.all}
    return found


def _ledgers(target: ClusterClient) -> Iterator[tuple[str, str]]:
    """Source aliases and ledger topics of the flows into a cluster."""
    for topic in sorted(target.metadata().topics):
        alias = ledger_source(topic)
        if alias is not None:
            yield alias, topic


def first_signature(target: ClusterClient, topic: str) -> Signature | None:
    """The signature that counts in a ledger: the one with the lowest offset."""
    for chunk in log.read_to_end(target, TopicPartition(topic, 0), 0, _PATIENCE_SECONDS):
        for record in decode_records(chunk):
            if record.key and record.value and record.key.startswith(_SIGNATURE):
                fact = decode(record.key, record.value)
                if isinstance(fact, Signature):
                    return fact
    return None
