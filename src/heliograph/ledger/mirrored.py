"""Which source topics were ever mirrored into which target topics, read from the ledger's keys."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from heliograph.ledger.codec import split
from heliograph.ledger.store import LedgerStore
from heliograph.wire.cluster import ClusterClient

_SIGNATURE = b"signature/"


class MirroredTopic(NamedTuple):
    """A source topic and a target topic that holds records of it, each by its id."""

    topic: str
    source_id: uuid.UUID
    target_id: uuid.UUID


class MirroredTopics(LedgerStore):
    """Follows the ledger topic for its signature and the topics that it is about.

    Used by the driver, in one thread at a time. As the `Registry`, it leaves runs out.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        super().__init__(client, topic)
        self.all: set[MirroredTopic] = set()

    def _take(self, offset: int, key: bytes, value: bytes | None) -> bool:
        if key.startswith(_SIGNATURE):
            return super()._take(offset, key, value)
        place, _ = split(key)
        if place is not None and value is not None:
            self.all.add(MirroredTopic(place.topic, place.source_id, place.target_id))
        return place is not None
