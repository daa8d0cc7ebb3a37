"""Which source topics were ever mirrored into which target topics, by the ledger."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from heliograph.ledger.store import LedgerStore


class MirroredTopic(NamedTuple):
    """A source topic and a target topic that holds records of it, each by its id."""

    topic: str
    source_id: uuid.UUID
    target_id: uuid.UUID


def mirrored_topics(ledger: LedgerStore) -> set[MirroredTopic]:
    """All that the ledger has runs of, as of its last `refresh`."""
    return {MirroredTopic(p.topic, p.source_id, p.target_id) for p in ledger.begun()}
