"""Where operators have decided that copying goes on, in the flow's ledger topic. In the driver.

The decision is written while nobody copies. The next holder of a lease carries it out, once, and
writes that down (`PartitionLedger.move`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress

from heliograph.ledger.memory import SyncedMemory
from heliograph.model import Move, TopicPartition

__all__ = ["decide_moves", "forget_moves", "moves_in"]

_KIND = "moves"


def decide_moves(memory: SyncedMemory, positions: Mapping[TopicPartition, int]) -> None:
    """Write down where partitions go on: the next source offset to copy."""
    memory.remember(_KIND, {
        _subject(p): {"source": str(source), "id": secrets.token_hex(8)}
        for p, source in positions.items()
    })  # fmt: skip


def forget_moves(memory: SyncedMemory, partitions: Iterable[TopicPartition]) -> None:
    """They were carried out: a topic that is created anew must not inherit them."""
    memory.remember(_KIND, {_subject(p): None for p in partitions})


def moves_in(memory: SyncedMemory) -> Mapping[TopicPartition, Move]:
    """The decisions that were not forgotten; some may have been carried out."""
    found: dict[TopicPartition, Move] = {}
    for subject, value in memory.recall(_KIND).items():
        topic, _, partition = subject.rpartition("/")
        with suppress(KeyError, ValueError):
            found[TopicPartition(topic, int(partition))] = Move(int(value["source"]), value["id"])
    return found


def _subject(p: TopicPartition) -> str:
    return f"{p.topic}/{p.partition}"
