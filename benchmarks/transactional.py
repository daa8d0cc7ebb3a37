"""A log of transactions: several producers at once, three of ten transactions aborted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from confluent_kafka import Producer

from benchmarks.bench import PARTITIONS, QUIET
from benchmarks.payloads import json_events
from heliograph.lab import Lab

__all__ = ["fill"]

_PRODUCERS = 4
_TRANSACTION = 200  # records, spread over all partitions
_ABORTED = frozenset({1, 4, 7})  # of ten
_SECONDS = 60.0


def fill(lab: Lab, alias: str, topic: str, records: int) -> None:
    """Writes ``records``, those of aborted transactions included.

    Raises:
        KafkaException: a transaction failed that should not.
    """
    transactions = max(1, records // (_PRODUCERS * _TRANSACTION))
    write = partial(_write, lab[alias].bootstrap, topic, transactions)
    with ThreadPoolExecutor(_PRODUCERS) as pool:
        list(pool.map(write, range(_PRODUCERS)))


def _write(bootstrap: str, topic: str, transactions: int, number: int) -> None:
    """One producer; the others write to the same partitions meanwhile."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}-{number}",
            "compression.type": "lz4",
            **QUIET,
        }
    )
    events = json_events()
    producer.init_transactions(_SECONDS)
    for transaction in range(transactions):
        producer.begin_transaction()
        for i in range(_TRANSACTION):
            event = events[(transaction * _TRANSACTION + i) % len(events)]
            producer.produce(topic, event, partition=i % PARTITIONS)
        # An abort forgets what is not written yet.
        producer.flush(_SECONDS)
        if transaction % 10 in _ABORTED:
            producer.abort_transaction(_SECONDS)
        else:
            producer.commit_transaction(_SECONDS)
